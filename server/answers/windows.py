"""Determine which windows have ended, so that they are final, and which are due for erasure."""

import datetime
from collections.abc import Iterable
from dataclasses import dataclass

from ..wire.limits import kept_hours

SETTLED = datetime.timedelta(minutes=2)
"""The delay after a window's end until its batches are committed and every clock is past the end."""


_OVERDUE = datetime.timedelta(hours=1)  # an aggregator erases a window within an hour of its time


@dataclass(frozen=True)
class Due:
    """The windows to erase because of their age.

    Attributes:
        window: The next window to erase, or "" if there is none.
        time: The time at which to erase it, UTC, or None.
        overdue: The windows that should have been erased by now, oldest first.
    """

    window: str
    time: datetime.datetime | None
    overdue: tuple[str, ...]


NOTHING_DUE = Due("", None, ())


def due(windows: Iterable[str], keep: str, at: datetime.datetime) -> Due:
    """Return which windows are due for erasure, and when.

    Args:
        windows: The windows with reports.
        keep: The retention period, in the format that kept_hours() parses.
        at: The current time, UTC.
    """
    hours = kept_hours(keep)
    if hours is None:
        return NOTHING_DUE
    times = {window: end + datetime.timedelta(hours=hours) for window in windows if (end := end_of(window))}
    overdue = tuple(sorted(window for window, time in times.items() if time + _OVERDUE < at))
    time, window = min(((times[w], w) for w in times if w not in overdue), default=(None, ""))
    return Due(window, time, overdue)


def end_of(window: str) -> datetime.datetime | None:
    """Return the time at which a window ends, in UTC, or None for "all" or an invalid name."""
    form, length = ("%Y-%m-%dT%H", {"hours": 1}) if "T" in window else ("%Y-%m-%d", {"days": 1})
    try:
        start = datetime.datetime.strptime(window, form).replace(tzinfo=datetime.UTC)
        return start + datetime.timedelta(**length)
    except (ValueError, OverflowError):
        return None


def has_ended(window: str, at: datetime.datetime) -> bool:
    """Return whether a window had ended and its counts were final at a given time, UTC."""
    end = end_of(window)
    return end is not None and end + SETTLED <= at
