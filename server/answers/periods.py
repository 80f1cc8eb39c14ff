"""Resolve periods as people name them (7d, 2026-11, 2026-11-01..2026-11-07) to a store's windows.

Days, weeks and months are those of a Calendar, by default in UTC; hours are always in UTC. A period counted
back from now ends before the current day or hour, because whole days are compared with whole days, and no ε
applies to a histogram that is still changing.
"""

import datetime
import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..errors import UsageError
from ..local_days import DAY, HOUR, UTC_DAYS, Calendar
from ..words import scope
from ..words.numbers import counted
from .period_names import (
    ALL,
    Length,
    NamedPeriod,
    days_of_group,
    length_of,
    named_period,
    plain_period,
)
from .windows import SETTLED, end_of, has_ended

USUAL_DAYS = 7
"""The number of newest completed days that are shown by default."""

BY = ("day", "week", "month")
"""The periods by which windows can be grouped."""


@dataclass(frozen=True)
class Period:
    """The time range covered by windows, in the time zone of its days.

    Attributes:
        begin: The start of the first window, or of its day if the period consists of whole days.
        end: The end of the last window, or of its day.
        units: The number of days between `begin` and `end`, or of hours if the period does not consist of
            whole days.
        present: The number of these days or hours that have reports.
        zone: The name of the time zone.
    """

    begin: datetime.datetime
    end: datetime.datetime
    units: int
    present: int
    zone: str = "UTC"

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


@functools.lru_cache(maxsize=1 << 17)
def start_of(window: str) -> datetime.datetime | None:
    """Return a window's start, in UTC, or None for "all"."""
    end = end_of(window)
    return end and end - (HOUR if "T" in window else DAY)


@functools.lru_cache(maxsize=1 << 17)
def day_of(window: str, calendar: Calendar = UTC_DAYS) -> datetime.date | None:
    """Return the day that contains a window's middle, or None for "all"."""
    start = start_of(window)
    return start and calendar.local(start + (HOUR if "T" in window else DAY) / 2).date()


def group_start(name: str, calendar: Calendar = UTC_DAYS) -> datetime.datetime | None:
    """Return the start of a window, or of a group from group_windows(), or None for "all"."""
    if "T" in name or not (days := days_of_group(name, calendar)):
        start = start_of(name)
        return start and calendar.local(start)
    return calendar.midnight(days[0])


def period_of(
    windows: Sequence[str], period: Period | None = None, calendar: Calendar = UTC_DAYS
) -> Period | None:
    """Return the period covered by windows, or None for "all".

    Args:
        windows: The windows, oldest first.
        period: The requested period, which may begin before the first window and end after the last.
        calendar: The experiment's calendar.
    """
    starts = sorted((start, window) for window in windows if (start := start_of(window)))
    if not starts or len(starts) < len(windows):
        return None
    if period and not period.is_days:
        return _hours(period.begin, period.end, len({start for start, _ in starts}), calendar)
    days = sorted({day for window in windows if (day := day_of(window, calendar))})
    if period is None:
        (begin, first), (_, last) = starts[0], starts[-1]
        end = max(end for window in windows if (end := end_of(window)))
        is_whole_end = "T" not in last or end == calendar.begin(days[-1] + DAY)
        # Whole days, except that the first may be partial.
        is_whole_start = "T" not in first or begin == calendar.begin(days[0]) or end - begin > DAY
        if not (is_whole_start and is_whole_end):
            return _hours(begin, end, len({start for start, _ in starts}), calendar)
    first_day, last_day = (period.first_day, period.last_day) if period else (days[0], days[-1])
    return _days(first_day, last_day, len(days), calendar)


def _hours(begin: datetime.datetime, end: datetime.datetime, present: int, calendar: Calendar) -> Period:
    elapsed = end.astimezone(datetime.UTC) - begin.astimezone(datetime.UTC)
    ends = calendar.local(begin), calendar.local(end)
    return Period(*ends, round(elapsed / HOUR), present, calendar.zone_name)


def _days(first: datetime.date, last: datetime.date, present: int, calendar: Calendar) -> Period:
    ends = calendar.midnight(first), calendar.midnight(last + DAY)
    return Period(*ends, (last - first).days + 1, present, calendar.zone_name)


def completed_windows(available: Sequence[str], at: datetime.datetime) -> tuple[str, ...]:
    """Return the windows that had ended at a given time, UTC."""
    return tuple(window for window in available if has_ended(window, at))


def day_has_ended(day: datetime.date, at: datetime.datetime, calendar: Calendar = UTC_DAYS) -> bool:
    """Return whether a day had ended and its counts were final at a given time, UTC."""
    return calendar.begin(day + DAY) + SETTLED <= at


def windows_of_completed_days(
    available: Sequence[str], at: datetime.datetime, calendar: Calendar = UTC_DAYS
) -> tuple[str, ...]:
    """Return the windows of days that had ended at a given time, UTC.

    A local day to which a whole day in UTC belongs has not ended until that day has ended, too.
    """
    days = {window: day for window in available if (day := day_of(window, calendar))}
    newest = max(days.values(), default=None)
    running = {
        day
        for window, day in days.items()
        if newest and (newest - day).days <= 2 and not has_ended(window, at)
    }
    ended = {day for day in set(days.values()) if day not in running and day_has_ended(day, at, calendar)}
    return tuple(window for window, day in days.items() if day in ended)


def default_windows(
    available: Sequence[str], at: datetime.datetime, calendar: Calendar = UTC_DAYS
) -> tuple[str, ...]:
    """Return the windows to show by default: the newest USUAL_DAYS completed days with reports.

    If no day has ended yet, return the completed windows, or if there are none, all windows.

    Args:
        available: The windows with reports, oldest first.
        at: The current time, UTC.
        calendar: The experiment's calendar.
    """
    completed = windows_of_completed_days(available, at, calendar)
    days = {window: day for window in completed if (day := day_of(window, calendar))}
    if not days:
        return completed_windows(available, at) or tuple(available)
    first = max(days.values()) - (USUAL_DAYS - 1) * DAY
    return tuple(window for window, day in days.items() if day >= first)


def last_windows(
    length: str,
    available: Sequence[str],
    at: datetime.datetime,
    before: int = 0,
    calendar: Calendar = UTC_DAYS,
) -> tuple[str, ...]:
    """Return the windows of the last 7d, 12h or 2w before the current day or hour, or all completed windows.

    Args:
        length: The length, or "all".
        available: The windows with reports, oldest first.
        at: The current time, UTC.
        before: The number of lengths by which to shift the period into the past.
        calendar: The experiment's calendar.

    Raises:
        UsageError: If `length` is malformed, or no reports arrived in that period.
    """
    if length == ALL and not before:
        return completed_windows(available, at) or tuple(available)
    count = length_of(length)
    if count.is_hours and available and not any("T" in window for window in available):
        raise UsageError(f"reports are counted by the day; give a length in days, such as 1d, not {length}")
    period = _period_of_length(count, at, before, calendar)
    windows = _windows_in(period, available, calendar)
    if not windows:
        newest = f"; the newest window with reports is {available[-1]}" if available else ""
        hours = f"{period.begin:%Y-%m-%d %H:%M} to {period.end:%Y-%m-%d %H:%M} {period.zone}"
        days = f"{period.first_day} to {period.last_day}, the last {length} before today"
        raise UsageError(f"no reports arrived from {hours if count.is_hours else days}{newest}")
    return windows


def _windows_in(period: Period, available: Sequence[str], calendar: Calendar) -> tuple[str, ...]:
    if period.is_days:
        first, last = period.first_day, period.last_day
        return tuple(w for w in available if (day := day_of(w, calendar)) and first <= day <= last)
    return tuple(w for w in available if (start := start_of(w)) and period.begin <= start < period.end)


def period_of_length(
    length: str, at: datetime.datetime, before: int = 0, calendar: Calendar = UTC_DAYS
) -> Period:
    """Return the period of the last 7d, 12h or 2w.

    Args:
        length: The length.
        at: The current time, UTC.
        before: The number of lengths by which to shift the period into the past.
        calendar: The experiment's calendar.

    Raises:
        UsageError: If `length` is malformed.
    """
    return _period_of_length(length_of(length), at, before, calendar)


def _period_of_length(length: Length, at: datetime.datetime, before: int, calendar: Calendar) -> Period:
    if length.is_hours:
        hour = at.astimezone(datetime.UTC).replace(minute=0, second=0, microsecond=0)
        end = hour - before * length.units * HOUR
        return _hours(end - length.units * HOUR, end, 0, calendar)
    end_day = calendar.today(at) - before * length.units * DAY
    return _days(end_day - length.units * DAY, end_day - DAY, 0, calendar)


def named_windows(
    period: str,
    available: Sequence[str],
    calendar: Calendar = UTC_DAYS,
    at: datetime.datetime | None = None,
) -> tuple[str, ...]:
    """Return the windows of a day, week, month or range of these, or of hours.

    Args:
        period: The period, in a form that named_period() accepts.
        available: The windows with reports, oldest first.
        calendar: The experiment's calendar.
        at: The current time, UTC; None for now.

    Raises:
        UsageError: If the text does not name a period, or a range ends before it begins.
    """
    named = named_period(period, calendar, at or datetime.datetime.now(datetime.UTC))
    return tuple(w for w in available if _is_within(w, named, calendar))


def _is_within(window: str, named: NamedPeriod, calendar: Calendar) -> bool:
    start, day = start_of(window), day_of(window, calendar)
    if start is None or day is None:
        return False
    first, last = (start if isinstance(end, datetime.datetime) else day for end in (named.first, named.last))
    return named.first <= first and last <= named.last


def resolve_periods(
    periods: Sequence[str],
    available: Sequence[str],
    calendar: Calendar = UTC_DAYS,
    at: datetime.datetime | None = None,
) -> tuple[str, ...]:
    """Return the windows of several periods without duplicates; a period without windows keeps its name.

    Args:
        periods: The periods; see named_windows(). The name of a window with reports means that window, but
            a local day means its hours.
        available: The windows with reports, oldest first.
        calendar: The experiment's calendar.
        at: The current time, UTC; None for now.

    Raises:
        UsageError: In the same cases as named_windows().
    """
    existing = {window for window in available if "T" in window or not calendar.is_local or window == ALL}
    periods = [plain_period(part) for period in periods for part in re.split(r"\s+and\s+", period)]
    windows = (
        w
        for period in periods
        for w in (
            (period,) if period in existing else named_windows(period, available, calendar, at) or (period,)
        )
    )
    return tuple(dict.fromkeys(windows))


def preceding_windows(
    windows: Sequence[str],
    available: Sequence[str],
    calendar: Calendar = UTC_DAYS,
    name: str = "",
    at: datetime.datetime | None = None,
) -> tuple[str, ...]:
    """Return the windows of the preceding period of the same length.

    Args:
        windows: The windows, oldest first.
        available: The windows with reports, oldest first.
        calendar: The experiment's calendar; a period of whole days is preceded by as many days.
        name: The name of the period, if it has one. All its days count if they have ended, even if some of
            their windows have no reports.
        at: The current time, UTC; None for now.
    """
    period = _ended_days(name, calendar, at) or period_of(windows, calendar=calendar)
    if period is None:
        return ()
    if period.is_days:
        first = period.first_day
        before = _days(first - period.units * DAY, first - DAY, 0, calendar)
    else:
        begin = period.begin.astimezone(datetime.UTC)
        before = _hours(begin - period.units * HOUR, begin, 0, calendar)
    selection = {*windows}
    return tuple(w for w in _windows_in(before, available, calendar) if w not in selection)


def _ended_days(name: str, calendar: Calendar, at: datetime.datetime | None) -> Period | None:
    """Return the period that a name means, or None if it does not name days that have all ended."""
    at = at or datetime.datetime.now(datetime.UTC)
    try:
        named = named_period(name, calendar, at)
    except UsageError:  # such as "all", or no name
        return None
    if isinstance(named.first, datetime.datetime) or isinstance(named.last, datetime.datetime):
        return None
    return _days(named.first, named.last, 0, calendar) if day_has_ended(named.last, at, calendar) else None


def group_windows(
    windows: Sequence[str], by: str, calendar: Calendar = UTC_DAYS
) -> Mapping[str, tuple[str, ...]]:
    """Group windows by day, week or month: 2026-11-21, 2026-W47, 2026-11.

    Args:
        windows: The windows.
        by: One of BY, or "" to keep windows separate.
        calendar: The experiment's calendar; see Calendar.week_name() for the names of weeks.

    Raises:
        UsageError: If `by` is anything else.
    """
    if by and by not in BY:
        raise UsageError(f"windows can be grouped by {', '.join(BY)}, not {by}")
    groups: dict[str, list[str]] = {}
    for window in windows:
        day = day_of(window, calendar)
        groups.setdefault(_group_name(day, by, calendar) if day and by else window, []).append(window)
    return {name: tuple(members) for name, members in groups.items()}


def _group_name(day: datetime.date, by: str, calendar: Calendar) -> str:
    return calendar.week_name(day) if by == "week" else day.isoformat()[: 7 if by == "month" else 10]


def selectable(windows: Sequence[str], calendar: Calendar) -> Mapping[str, tuple[str, ...]]:
    """Return the names that readers choose from, local days or windows, with the windows of each."""
    return group_windows(windows, "day" if calendar.is_local else "", calendar)


def span(windows: Iterable[str], calendar: Calendar = UTC_DAYS) -> str:
    """Describe windows briefly, as words.scope.span() does or as local days or hours."""
    windows = sorted(windows)
    period = period_of(windows, calendar=calendar) if calendar.is_local else None
    if period is None:
        return scope.span(windows)
    days = f"{period.first_day}"
    if period.is_days:
        days += f" to {period.last_day}" if period.units > 1 else ""
        return f"{days} ({counted(period.present, 'day')}, {period.zone})"
    ends = " to ".join(f"{end:%Y-%m-%d %H:%M}" for end in (period.begin, period.end))
    return f"{ends} ({counted(period.present, 'hour')}, {period.zone})"


@dataclass(frozen=True)
class PartialGroup:
    """A day, week or month at an end of a trend that the trend covers only in part.

    Attributes:
        name: Its name.
        first: The first day with reports, or None if it is covered from its start.
        last: The last day with reports, or None if it is covered to its end.
    """

    name: str
    first: datetime.date | None
    last: datetime.date | None


def partial_groups(
    windows: Sequence[str],
    available: Sequence[str],
    by: str,
    at: datetime.datetime,
    calendar: Calendar = UTC_DAYS,
) -> tuple[PartialGroup, ...]:
    """Return the groups at the ends of a trend that it covers only in part.

    Args:
        windows: The windows of the trend.
        available: All windows with reports.
        by: See group_windows(); with "", each group is one window, which is never partial.
        at: The current time, UTC.
        calendar: The experiment's calendar.
    """
    groups = group_windows(sorted(windows), by, calendar) if by else {}
    result = list[PartialGroup]()
    selection = {*windows}
    names = list(groups)
    for name in dict.fromkeys(names[:1] + names[-1:]):
        ends = days_of_group(name, calendar)
        days = [day for window in groups[name] if (day := day_of(window, calendar))]
        if ends is None or not days:
            continue
        first, last = min(days), max(days)
        omitted = [
            day
            for w in available
            if w not in selection and (day := day_of(w, calendar)) and ends[0] <= day <= ends[1]
        ]
        starts_late = name == names[0] and (
            first > ends[0]
            or _starts_late(groups[name], first, calendar)
            or any(day <= first for day in omitted)
        )
        stops_early = name == names[-1] and (
            last < ends[1] or not day_has_ended(ends[1], at, calendar) or any(day >= last for day in omitted)
        )
        if starts_late or stops_early:
            result.append(PartialGroup(name, first if starts_late else None, last if stops_early else None))
    return tuple(result)


def _starts_late(windows: Sequence[str], day: datetime.date, calendar: Calendar) -> bool:
    """Return whether hourly windows begin after the first hour of their first day."""
    first = min(windows)
    start = start_of(first)
    return "T" in first and start is not None and start > calendar.begin(day)
