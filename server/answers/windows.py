"""Which windows have ended, so that no report is counted into them any more, and which are to be erased."""

import datetime
from collections.abc import Iterable
from dataclasses import dataclass

from ..wire.limits import kept_hours

SETTLED = datetime.timedelta(minutes=2)
"""After its end: batches begun in it are committed, and the clocks of several aggregators have got there."""


_OVERDUE = datetime.timedelta(hours=1)  # an aggregator erases a window within an hour of its time


@dataclass(frozen=True)
class Due:
    """Windows that are erased by age: the next one and its time, UTC, and those whose time is over.

    window: "" if nothing is left to be erased later; then time is None. overdue: oldest first.
    """

    window: str
    time: datetime.datetime | None
    overdue: tuple[str, ...]


NOTHING_DUE = Due("", None, ())


def due(windows: Iterable[str], keep: str, at: datetime.datetime) -> Due:
    """Return what is to be erased of windows with reports; keep: as kept_hours() reads it."""
    hours = kept_hours(keep)
    if hours is None:
        return NOTHING_DUE
    times = {window: end + datetime.timedelta(hours=hours) for window in windows if (end := end_of(window))}
    overdue = tuple(sorted(window for window, time in times.items() if time + _OVERDUE < at))
    time, window = min(((times[w], w) for w in times if w not in overdue), default=(None, ""))
    return Due(window, time, overdue)


def end_of(window: str) -> datetime.datetime | None:
    """When a window ends, UTC; None for "all", which has no end, and for a text that names no window."""
    form, length = ("%Y-%m-%dT%H", {"hours": 1}) if "T" in window else ("%Y-%m-%d", {"days": 1})
    try:
        start = datetime.datetime.strptime(window, form).replace(tzinfo=datetime.UTC)
        return start + datetime.timedelta(**length)
    except (ValueError, OverflowError):
        return None


def has_ended(window: str, at: datetime.datetime) -> bool:
    """Return whether a window had ended at a time, UTC, and was settled."""
    end = end_of(window)
    return end is not None and end + SETTLED <= at
