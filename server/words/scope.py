"""Describe an answer's reports briefly (fleet, windows, version, boards), and build titles from that."""

from collections.abc import Sequence
from typing import Literal

ALL_VERSIONS = "all"
"""The version that stands for all versions together, seen through the values that they have in common."""

Population = Literal["devices", "readings"]
"""What shares are shares of."""


def version_name(version: str) -> str:
    """Return a version's name: "version 419c", "all versions", or "" if none is chosen."""
    if version == ALL_VERSIONS:
        return "all versions"
    return f"version {version}" if version else ""


def plain_version(name: str) -> str:
    """Return the first digits of a digest, or "all", from a version's name, such as "version 419C"."""
    words = name.strip().lower()
    return words.removesuffix("versions").removeprefix("version").strip().rstrip("…")


def span(windows: Sequence[str]) -> str:
    """Describe windows briefly: up to two by name, more by the first, the last and their number."""
    named = sorted(w for w in windows if w != "all")
    if len(named) <= 2:
        return " and ".join(named)
    kinds = {
        "hours" if "T" in w else "weeks" if "W" in w else "days" if len(w) > 7 else "months" for w in named
    }
    unit = "windows" if len(kinds) > 1 else "".join(kinds)
    return f"{named[0]} to {named[-1]} ({len(named)} {unit})"


def which_reports(fleet: str = "", windows: str = "", version: str = "", boards: str = "") -> str:
    """Describe which reports were used: fleet, windows (see span()), version and boards, if given."""
    which = version_name(version)
    parts = (f"fleet {fleet}" if fleet else "", windows, which, boards)
    return ", ".join(part for part in parts if part)


def picture_title(experiment: str, unit: str, which: str) -> str:
    """Return a figure's title: the experiment, its unit, and which reports were used."""
    name = f"{experiment}, {unit}" if unit else experiment
    return f"{name}: {which}" if which else name
