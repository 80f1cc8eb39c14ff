"""Which windows have ended, so that no more reports are counted into them, and which are to be erased."""

import datetime
from collections.abc import Iterable
from dataclasses import dataclass

from ..wire.limits import kept_hours

SETTLED = datetime.timedelta(minutes=2)
"""The time after a window's end until its batches are committed and all aggregators' clocks are past it."""


_OVERDUE = datetime.timedelta(hours=1)  # an aggregator erases a window within an hour of its time


@dataclass(frozen=True)
class Due:
    """The windows to erase because of their age.

    Attributes:
        window: The next window to erase later, or "" if there is none.
        time: When it is to be erased, UTC, or None.
        overdue: The windows that should have been erased, oldest first.
    """

    window: str
    time: datetime.datetime | None
    overdue: tuple[str, ...]


NOTHING_DUE = Due("", None, ())


def due(windows: Iterable[str], keep: str, at: datetime.datetime) -> Due:
    """Return which of the windows with reports are to be erased.

    Args:
        windows: The windows with reports.
        keep: How long windows are kept, as a text that kept_hours() reads.
        at: The present time, UTC.
    """
    hours = kept_hours(keep)
    if hours is None:
        return NOTHING_DUE
    times = {window: end + datetime.timedelta(hours=hours) for window in windows if (end := end_of(window))}
    overdue = tuple(sorted(window for window, time in times.items() if time + _OVERDUE < at))
    time, window = min(((times[w], w) for w in times if w not in overdue), default=(None, ""))
    return Due(window, time, overdue)


def end_of(window: str) -> datetime.datetime | None:
    """Return when a window ends, in UTC, or None for "all" and for a text that does not name a window."""
    form, length = ("%Y-%m-%dT%H", {"hours": 1}) if "T" in window else ("%Y-%m-%d", {"days": 1})
    try:
        start = datetime.datetime.strptime(window, form).replace(tzinfo=datetime.UTC)
        return start + datetime.timedelta(**length)
    except (ValueError, OverflowError):
        return None


def has_ended(window: str, at: datetime.datetime) -> bool:
    """Return whether a window had ended and was settled at a time, in UTC."""
    end = end_of(window)
    return end is not None and end + SETTLED <= at
