"""What an answer is about, in few words: fleet, windows, unit."""

from __future__ import annotations

from collections.abc import Sequence


def span(windows: Sequence[str]) -> str:
    """Windows in few words: up to two by their names, more by the first, the last and their number."""
    named = sorted(w for w in windows if w != "all")
    if len(named) <= 2:
        return " and ".join(named)
    return f"{named[0]} to {named[-1]} ({len(named)} windows)"


def about(fleet: str = "", windows: Sequence[str] = (), version: str = "") -> str:
    """Which reports: of which fleet, windows and version, as far as they are given."""
    parts = (f"fleet {fleet}" if fleet else "", span(windows), f"version {version}" if version else "")
    return ", ".join(part for part in parts if part)


def headline(experiment: str, fleet: str = "", windows: Sequence[str] = (), unit: str = "") -> str:
    """The title of a picture: the experiment and its unit, the fleet, the window or windows."""
    return titled(experiment, unit, about(fleet, windows))


def titled(experiment: str, unit: str, which: str) -> str:
    """The same, of which reports in words."""
    name = f"{experiment}, {unit}" if unit else experiment
    return f"{name}: {which}" if which else name
