"""Periods as people name them (7d, 2026-11, 2026-11-01..2026-11-07), resolved to the windows of a store.

A period counted back from now ends before the running day or hour, because whole days are compared with whole
days, and a histogram that is still changing has no ε of its own.
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
"""The length of a period of all completed windows."""

_LENGTH = re.compile(r"(\d{1,4})([hdw])")
_HOURS = {"h": 1, "d": 24, "w": 168}
_BY = {"": "", "day": "%Y-%m-%d", "week": "%G-W%V", "month": "%Y-%m"}
BY = tuple(_BY)[1:]
"""The periods by which windows can be added up."""

_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Period:
    """The time that windows cover, in UTC.

    Attributes:
        begin: The start of the first window.
        end: The end of the last window.
        units: The number of days between them, or of hours if the period does not consist of whole days.
        present: How many of these have reports.
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
        """Return whether it begins and ends at midnight."""
        return all(moment.time() == datetime.time() for moment in (self.begin, self.end))


def start_of(window: str) -> datetime.datetime | None:
    """Return when a window began, in UTC, or None for "all"."""
    end = end_of(window)
    return end and end - datetime.timedelta(hours=1 if "T" in window else 24)


def day_of(window: str) -> datetime.date | None:
    """Return the day of a window, in UTC, or None for "all"."""
    start = start_of(window)
    return start and start.date()


_GROUP = re.compile(r"\d{4}-((?P<week>W\d{2})|\d{2})")


def group_start(name: str) -> datetime.datetime | None:
    """Return when a window or a group made by grouped() began, in UTC, or None for "all"."""
    if not (match := _GROUP.fullmatch(name)):
        return start_of(name)
    day = f"{name}-1" if match["week"] else f"{name}-01"
    return datetime.datetime.combine(datetime.date.fromisoformat(day), datetime.time(), datetime.UTC)


def period_of(windows: Sequence[str], period: Period | None = None) -> Period | None:
    """Return the period that windows cover, or None for "all".

    Args:
        windows: The windows, oldest first.
        period: The period that was asked for, which may begin before the first window and end after the last.
    """
    starts = [start for window in windows if (start := start_of(window))]
    ends = [end for window in windows if (end := end_of(window))]
    if not starts or len(starts) < len(windows):
        return None
    hourly = any("T" in window for window in windows)
    begin, end = (period.begin, period.end) if period else (min(starts), max(ends))
    if end.time() == datetime.time() and end - begin > _DAY:  # days, of which the first may be partial
        begin = begin.replace(hour=0)
    whole = all(moment.time() == datetime.time() for moment in (begin, end))
    if hourly and not whole:
        return Period(begin, end, round((end - begin).total_seconds() / 3600), len(set(starts)))
    return Period(begin, end, (end - begin).days, len({start.date() for start in starts}))


def completed(there: Sequence[str], at: datetime.datetime) -> tuple[str, ...]:
    """Return the windows that had ended at a time, in UTC."""
    return tuple(window for window in there if has_ended(window, at))


def of_whole_days(there: Sequence[str], at: datetime.datetime) -> tuple[str, ...]:
    """Return the windows of the days that had ended at a time, in UTC."""
    return tuple(w for w in there if (day := day_of(w)) and has_ended(day.isoformat(), at))


def usual(there: Sequence[str], at: datetime.datetime) -> tuple[str, ...]:
    """Return the windows that are shown by default: the newest USUAL_DAYS completed days with reports.

    Before any day has ended, they are the completed windows, and before any window has, the running ones.

    Args:
        there: The windows with reports, oldest first.
        at: The present time, UTC.
    """
    days = of_whole_days(there, at)
    newest = day_of(days[-1]) if days else None
    if newest is None:
        return completed(there, at) or tuple(there)
    first = newest - (USUAL_DAYS - 1) * _DAY
    return tuple(w for w in days if (day := day_of(w)) and day >= first)


def last(length: str, there: Sequence[str], at: datetime.datetime, before: int = 0) -> tuple[str, ...]:
    """Return the windows of the last 7d, 12h or 2w before the running day or hour, or of all completed ones.

    Args:
        length: The length, or "all".
        there: The windows with reports, oldest first.
        at: The present time, UTC. Days begin at midnight.
        before: How many such lengths earlier.

    Raises:
        UsageError: If `length` is malformed, or no report came in that period.
    """
    if length == ALL and not before:
        return completed(there, at) or tuple(there)
    if length.endswith("h") and there and not any("T" in window for window in there):
        raise UsageError(f"reports are counted by the day: name days, as in 1d, not {length}")
    period = period_of_length(length, at, before)
    chosen = tuple(w for w in there if (start := start_of(w)) and period.begin <= start < period.end)
    if not chosen:
        newest = f"; the newest window with reports is {there[-1]}" if there else ""
        hours = f"{period.begin:%Y-%m-%d %H:00} to {period.end:%Y-%m-%d %H:00} UTC"
        days = f"{period.first_day} to {period.last_day}, the last {length} before today"
        raise UsageError(f"no report came from {hours if length.endswith('h') else days}{newest}")
    return chosen


def period_of_length(length: str, at: datetime.datetime, before: int = 0) -> Period:
    """Return the period of the last 7d, 12h or 2w.

    Args:
        length: The length.
        at: The present time, UTC.
        before: How many such lengths earlier.

    Raises:
        UsageError: If `length` is malformed.
    """
    matched = _LENGTH.fullmatch(length)
    if not matched or not int(matched[1]):
        raise UsageError(f"a length of time reads 7d, 12h, 2w or all, not {length}")
    hours = int(matched[1]) * _HOURS[matched[2]]
    end = at.replace(minute=0, second=0, microsecond=0)
    end = end if matched[2] == "h" else end.replace(hour=0)
    end -= before * datetime.timedelta(hours=hours)
    units = hours if matched[2] == "h" else hours // 24
    return Period(end - datetime.timedelta(hours=hours), end, units, 0)


def named(period: str, there: Sequence[str]) -> tuple[str, ...]:
    """Return the windows of a day, month or span of days (2026-11-01..2026-11-07), or the window itself.

    A window that does not exist is returned as it is.

    Raises:
        UsageError: If a span ends before it begins.
    """
    first, dots, final = period.partition("..")
    if not dots:
        return tuple(w for w in there if w.startswith(period)) if len(period) in (7, 10) else (period,)
    if final < first:
        raise UsageError(f"a span of days reads 2026-11-01..2026-11-07, the first day first, not {period}")
    return tuple(w for w in there if w[: len(first)] >= first and w[: len(final)] <= final)


def resolve_periods(periods: Sequence[str], there: Sequence[str]) -> tuple[str, ...]:
    """Return the windows of several periods, each once; the name of a period without windows is kept."""
    available = set(there)
    windows = (w for one in periods for w in ((one,) if one in available else named(one, there) or (one,)))
    return tuple(dict.fromkeys(windows))


def preceding(windows: Sequence[str], there: Sequence[str]) -> tuple[str, ...]:
    """Return the windows of the preceding period of the same length.

    Args:
        windows: The windows, oldest first.
        there: The windows with reports, oldest first.
    """
    first, end = (start_of(windows[0]), end_of(windows[-1])) if windows else (None, None)
    if first is None or end is None:
        return ()
    begin = first - (end - first)
    return tuple(w for w in there if (start := start_of(w)) and begin <= start < first)


def grouped(windows: Sequence[str], by: str) -> Mapping[str, tuple[str, ...]]:
    """Return windows by the day, ISO week or month that they are in, UTC: 2026-11-21, 2026-W47, 2026-11.

    Args:
        windows: The windows.
        by: One of BY, or "" to leave each window by itself.

    Raises:
        UsageError: If `by` is another text.
    """
    if by not in _BY:
        raise UsageError(f"windows are put together by {', '.join(BY)}, not {by}")
    groups: dict[str, list[str]] = {}
    for window in windows:
        start = start_of(window)
        groups.setdefault(f"{start:{_BY[by]}}" if start and by else window, []).append(window)
    return {name: tuple(of) for name, of in groups.items()}
