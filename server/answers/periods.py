"""Resolve periods as people name them (7d, 2026-11, 2026-11-01..2026-11-07) to a store's windows.

A period counted back from now ends before the current day or hour, because whole days are compared with whole
days, and no ε applies to a histogram that is still changing.
"""

import datetime
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..errors import UsageError
from .windows import end_of, has_ended

USUAL_DAYS = 7
"""The number of newest completed days that are shown by default."""

ALL = "all"
"""The length that selects all completed windows."""

_LENGTH = re.compile(r"(\d{1,4})([hdw])")
_HOURS = {"h": 1, "d": 24, "w": 168}
_GROUP_FORMATS = {"": "", "day": "%Y-%m-%d", "week": "%G-W%V", "month": "%Y-%m"}
BY = tuple(_GROUP_FORMATS)[1:]
"""The periods by which windows can be grouped."""

_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Period:
    """The time range covered by windows, in UTC.

    Attributes:
        begin: The start of the first window.
        end: The end of the last window.
        units: The number of days between `begin` and `end`, or of hours if the period does not consist of
            whole days.
        present: The number of these days or hours that have reports.
    """

    begin: datetime.datetime
    end: datetime.datetime
    units: int
    present: int

    @property
    def first_day(self) -> datetime.date:
        """The first day."""
        return self.begin.date()

    @property
    def last_day(self) -> datetime.date:
        """The last day."""
        return (self.end - datetime.timedelta(microseconds=1)).date()

    @property
    def is_days(self) -> bool:
        """Whether it begins and ends at midnight."""
        return all(moment.time() == datetime.time() for moment in (self.begin, self.end))


def start_of(window: str) -> datetime.datetime | None:
    """Return a window's start, in UTC, or None for "all"."""
    end = end_of(window)
    return end and end - datetime.timedelta(hours=1 if "T" in window else 24)


def day_of(window: str) -> datetime.date | None:
    """Return a window's day, in UTC, or None for "all"."""
    start = start_of(window)
    return start and start.date()


_GROUP_NAME = re.compile(r"\d{4}-((?P<week>W\d{2})|\d{2})")


def group_start(name: str) -> datetime.datetime | None:
    """Return the start of a window, or of a group from group_windows(), in UTC, or None for "all"."""
    if not (match := _GROUP_NAME.fullmatch(name)):
        return start_of(name)
    day = f"{name}-1" if match["week"] else f"{name}-01"
    return datetime.datetime.combine(datetime.date.fromisoformat(day), datetime.time(), datetime.UTC)


def period_of(windows: Sequence[str], period: Period | None = None) -> Period | None:
    """Return the period covered by windows, or None for "all".

    Args:
        windows: The windows, oldest first.
        period: The requested period, which may begin before the first window and end after the last.
    """
    starts = [start for window in windows if (start := start_of(window))]
    ends = [end for window in windows if (end := end_of(window))]
    if not starts or len(starts) < len(windows):
        return None
    is_hourly = any("T" in window for window in windows)
    begin, end = (period.begin, period.end) if period else (min(starts), max(ends))
    # Whole days, except that the first may be partial.
    if end.time() == datetime.time() and end - begin > _DAY:
        begin = begin.replace(hour=0)
    is_whole_days = all(moment.time() == datetime.time() for moment in (begin, end))
    if is_hourly and not is_whole_days:
        return Period(begin, end, round((end - begin).total_seconds() / 3600), len(set(starts)))
    return Period(begin, end, (end - begin).days, len({start.date() for start in starts}))


def completed_windows(available: Sequence[str], at: datetime.datetime) -> tuple[str, ...]:
    """Return the windows that had ended at a given time, UTC."""
    return tuple(window for window in available if has_ended(window, at))


def windows_of_completed_days(available: Sequence[str], at: datetime.datetime) -> tuple[str, ...]:
    """Return the windows of days that had ended at a given time, UTC."""
    return tuple(w for w in available if (day := day_of(w)) and has_ended(day.isoformat(), at))


def default_windows(available: Sequence[str], at: datetime.datetime) -> tuple[str, ...]:
    """Return the windows to show by default: the newest USUAL_DAYS completed days with reports.

    If no day has ended yet, return the completed windows, or if there are none, all windows.

    Args:
        available: The windows with reports, oldest first.
        at: The current time, UTC.
    """
    days = windows_of_completed_days(available, at)
    newest = day_of(days[-1]) if days else None
    if newest is None:
        return completed_windows(available, at) or tuple(available)
    first = newest - (USUAL_DAYS - 1) * _DAY
    return tuple(w for w in days if (day := day_of(w)) and day >= first)


def last_windows(
    length: str, available: Sequence[str], at: datetime.datetime, before: int = 0
) -> tuple[str, ...]:
    """Return the windows of the last 7d, 12h or 2w before the current day or hour, or all completed windows.

    Args:
        length: The length, or "all".
        available: The windows with reports, oldest first.
        at: The current time, UTC. Days begin at midnight.
        before: The number of lengths by which to shift the period into the past.

    Raises:
        UsageError: If `length` is malformed, or no reports arrived in that period.
    """
    if length == ALL and not before:
        return completed_windows(available, at) or tuple(available)
    if length.endswith("h") and available and not any("T" in window for window in available):
        raise UsageError(f"reports are counted by the day; give a length in days, such as 1d, not {length}")
    period = period_of_length(length, at, before)
    windows = tuple(w for w in available if (start := start_of(w)) and period.begin <= start < period.end)
    if not windows:
        newest = f"; the newest window with reports is {available[-1]}" if available else ""
        hours = f"{period.begin:%Y-%m-%d %H:00} to {period.end:%Y-%m-%d %H:00} UTC"
        days = f"{period.first_day} to {period.last_day}, the last {length} before today"
        raise UsageError(f"no reports arrived from {hours if length.endswith('h') else days}{newest}")
    return windows


def period_of_length(length: str, at: datetime.datetime, before: int = 0) -> Period:
    """Return the period of the last 7d, 12h or 2w.

    Args:
        length: The length.
        at: The current time, UTC.
        before: The number of lengths by which to shift the period into the past.

    Raises:
        UsageError: If `length` is malformed.
    """
    match = _LENGTH.fullmatch(length)
    if not match or not int(match[1]):
        raise UsageError(f"a length of time must look like 7d, 12h, 2w or all, not {length}")
    hours = int(match[1]) * _HOURS[match[2]]
    end = at.replace(minute=0, second=0, microsecond=0)
    end = end if match[2] == "h" else end.replace(hour=0)
    end -= before * datetime.timedelta(hours=hours)
    units = hours if match[2] == "h" else hours // 24
    return Period(end - datetime.timedelta(hours=hours), end, units, 0)


def named_windows(period: str, available: Sequence[str]) -> tuple[str, ...]:
    """Return the windows of a day, month or range of days (2026-11-01..2026-11-07), or the window itself.

    A window that does not exist is returned unchanged.

    Raises:
        UsageError: If a range ends before it begins.
    """
    first, dots, final = period.partition("..")
    if not dots:
        return tuple(w for w in available if w.startswith(period)) if len(period) in (7, 10) else (period,)
    if final < first:
        raise UsageError(
            f"a range of days must start with the earlier day, as in 2026-11-01..2026-11-07, not {period}"
        )
    return tuple(w for w in available if w[: len(first)] >= first and w[: len(final)] <= final)


def resolve_periods(periods: Sequence[str], available: Sequence[str]) -> tuple[str, ...]:
    """Return the windows of several periods without duplicates; a period without windows keeps its name."""
    existing = set(available)
    windows = (
        w
        for period in periods
        for w in ((period,) if period in existing else named_windows(period, available) or (period,))
    )
    return tuple(dict.fromkeys(windows))


def preceding_windows(windows: Sequence[str], available: Sequence[str]) -> tuple[str, ...]:
    """Return the windows of the preceding period of the same length.

    Args:
        windows: The windows, oldest first.
        available: The windows with reports, oldest first.
    """
    first, end = (start_of(windows[0]), end_of(windows[-1])) if windows else (None, None)
    if first is None or end is None:
        return ()
    begin = first - (end - first)
    return tuple(w for w in available if (start := start_of(w)) and begin <= start < first)


def group_windows(windows: Sequence[str], by: str) -> Mapping[str, tuple[str, ...]]:
    """Group windows by day, ISO week or month, in UTC: 2026-11-21, 2026-W47, 2026-11.

    Args:
        windows: The windows.
        by: One of BY, or "" to keep windows separate.

    Raises:
        UsageError: If `by` is anything else.
    """
    if by not in _GROUP_FORMATS:
        raise UsageError(f"windows can be grouped by {', '.join(BY)}, not {by}")
    groups: dict[str, list[str]] = {}
    for window in windows:
        start = start_of(window)
        groups.setdefault(f"{start:{_GROUP_FORMATS[by]}}" if start and by else window, []).append(window)
    return {name: tuple(members) for name, members in groups.items()}
