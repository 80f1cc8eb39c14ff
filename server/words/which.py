"""Which reports an answer rests on, in few words: fleet, windows, version; and the title that has them."""

from collections.abc import Sequence


def span(windows: Sequence[str]) -> str:
    """Windows in few words: up to two by their names, more by the first, the last and their number."""
    named = sorted(w for w in windows if w != "all")
    if len(named) <= 2:
        return " and ".join(named)
    return f"{named[0]} to {named[-1]} ({len(named)} windows)"


def which_reports(fleet: str = "", windows: Sequence[str] = (), version: str = "") -> str:
    """Which reports: of which fleet, windows and version, as far as they are given."""
    parts = (f"fleet {fleet}" if fleet else "", span(windows), f"version {version}" if version else "")
    return ", ".join(part for part in parts if part)


def titled(experiment: str, unit: str, which: str) -> str:
    """The title of a picture: the experiment and its unit, and of which reports it is."""
    name = f"{experiment}, {unit}" if unit else experiment
    return f"{name}: {which}" if which else name
