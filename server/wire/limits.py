"""Limits shared by several packages."""

import datetime
import re

# Under load, this many reports share the cost of a commit, most of which is writing pages twice.
# Mosquitto's configuration uses the same number, because both ends of a connection must agree.
BATCH_REPORTS = 4000

GRACE_DAYS = 30
"""The default number of days for which late reports to a replaced or withdrawn version count."""

EARLIEST = datetime.datetime(2025, 1, 1, tzinfo=datetime.UTC)
"""An earlier clock must be wrong because this software is newer. Boards use the same year."""
LATEST = datetime.datetime(2056, 1, 1, tzinfo=datetime.UTC)
"""A later clock must be wrong. Serials are unix times, and boards never accept a lower serial."""

_KEEP = re.compile(r"([0-9]{1,6})([hd])", re.ASCII)
_LONG_KEEP = re.compile(r"([0-9,]+) ?([hd])(?:ours?|ays?)?", re.ASCII)
_HOURS = {"h": 1, "d": 24}


def window(kind: str, at: datetime.datetime) -> str:
    """Return the window that contains a time, in UTC.

    Args:
        kind: "hour" for a window such as 2026-11-21T14, "day" for one such as 2026-11-21, or "all".
        at: The time.
    """
    if kind == "all":
        return "all"
    return at.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H" if kind == "hour" else "%Y-%m-%d")


def plain_keep(keep: str) -> str:
    """Return a duration as people write it, such as "400 days", in the format that kept_hours() parses."""
    match = _LONG_KEEP.fullmatch(keep.strip())
    return f"{match[1].replace(',', '')}{match[2]}" if match else keep


def kept_hours(keep: str, window: str = "hour") -> int | None:
    """Return how many hours windows are retained after they end, or None for ever.

    Args:
        keep: A duration such as "400d" or "48h", from one window to 100 years; "" for ever.
        window: The experiment's kind of window: "hour", "day" or "all".

    Raises:
        ValueError: If the duration is invalid; the message says what was expected.
    """
    if not keep:
        return None
    if window == "all":
        raise ValueError('the only window of window = "all" never ends; omit keep')
    match = _KEEP.fullmatch(keep)
    hours = int(match[1]) * _HOURS[match[2]] if match else 0
    if not _HOURS[window[0]] <= hours <= 100 * 365 * 24:
        raise ValueError(f'it must be from "1{window[0]}" to "36500d" (a hundred years), not {keep[:40]!r}')
    return hours
