"""Periods as people say them (7d, 2026-11, 2026-11-01..2026-11-07), turned into the windows of a store."""

import datetime
import re
from collections.abc import Mapping, Sequence

from ..errors import UsageError
from ..words.findings import USUAL_DAYS
from .windows import end_of

_LENGTH = re.compile(r"(\d{1,4})([hdw])")
_HOURS = {"h": 1, "d": 24, "w": 168}
_BY = {"": "", "day": "%Y-%m-%d", "week": "%G-W%V", "month": "%Y-%m"}
BY = tuple(_BY)[1:]
"""What windows can be put together by."""


def start_of(window: str) -> datetime.datetime | None:
    """When a window began, UTC; None for "all"."""
    end = end_of(window)
    return end and end - datetime.timedelta(hours=1 if "T" in window else 24)


def last(length: str, there: Sequence[str], at: datetime.datetime, before: int = 0) -> tuple[str, ...]:
    """The windows of the last 7d, 12h or 2w, the running one among them.

    there: those with reports, oldest first. at: now, UTC. before: so many such lengths earlier. Days begin
    at midnight UTC. UsageError for another text, or where no report came then.
    """
    begin, end, unit = _span(length, at, before)
    chosen = tuple(w for w in there if (start := start_of(w)) and begin <= start < end)
    if not chosen:
        newest = f"; the newest window with reports is {there[-1]}" if there else ""
        when = _days(begin, end) if unit.days else f"{begin:%Y-%m-%d %H:00} to {end:%Y-%m-%d %H:00} UTC"
        raise UsageError(f"no report came from {when}{newest}")
    return chosen


def missing(length: str, windows: Sequence[str], at: datetime.datetime) -> str:
    """What days the last 7d are, in a sentence, where some of them, perhaps today, have no report; or ""."""
    begin, end, unit = _span(length, at)
    known, whole = {(start - begin) // unit for w in windows if (start := start_of(w))}, (end - begin) // unit
    if not unit.days or len(known) == whole:
        return ""
    days = f"{_days(begin, end)} UTC, with today"
    return f"The last {length} are {days}: {len(known)} of these {whole} days have reports."


def _span(
    length: str, at: datetime.datetime, before: int = 0
) -> tuple[datetime.datetime, datetime.datetime, datetime.timedelta]:
    """When the last 7d, 12h or 2w begin and end, and a day or an hour. UsageError for another text."""
    matched = _LENGTH.fullmatch(length)
    if not matched or not int(matched[1]):
        raise UsageError(f"a length of time reads 7d, 12h or 2w, not {length}")
    hours = int(matched[1]) * _HOURS[matched[2]]
    running = at.replace(minute=0, second=0, microsecond=0)
    running = running if matched[2] == "h" else running.replace(hour=0)
    unit = datetime.timedelta(hours=1 if matched[2] == "h" else 24)
    end = running + unit - before * datetime.timedelta(hours=hours)
    return end - datetime.timedelta(hours=hours), end, unit


def _days(begin: datetime.datetime, end: datetime.datetime) -> str:
    return f"{begin:%Y-%m-%d} to {end - datetime.timedelta(days=1):%Y-%m-%d}"


def named(period: str, there: Sequence[str]) -> tuple[str, ...]:
    """The windows of a day, a month or a span of days, or the window itself: 2026-11, 2026-11-01..2026-11-07.

    UsageError for a span that ends before it begins; a window that is not there is returned as it is.
    """
    first, dots, final = period.partition("..")
    if not dots:
        return tuple(w for w in there if w.startswith(period)) if len(period) in (7, 10) else (period,)
    if final < first:
        raise UsageError(f"a span of days reads 2026-11-01..2026-11-07, the first day first, not {period}")
    return tuple(w for w in there if w[: len(first)] >= first and w[: len(final)] <= final)


def chosen(periods: Sequence[str], there: Sequence[str]) -> tuple[str, ...]:
    """The windows of several periods, each once; a period without reports stays as it is, to be named."""
    windows = (w for period in periods for w in named(period, there) or (period,))
    return tuple(dict.fromkeys(windows))


def usual(there: Sequence[str]) -> tuple[str, ...]:
    """The windows of the newest days with reports, see USUAL_DAYS; oldest first."""
    newest = start_of(there[-1]) if there else None
    return last(f"{USUAL_DAYS}d", there, newest) if newest else tuple(there)


def grouped(windows: Sequence[str], by: str) -> Mapping[str, tuple[str, ...]]:
    """Windows by the day, the ISO week or the month that they are in, UTC: 2026-11-21, 2026-W47, 2026-11.

    by: one of BY; empty leaves each by itself. Raises UsageError for another.
    """
    if by not in _BY:
        raise UsageError(f"windows are put together by {', '.join(BY)}, not {by}")
    groups: dict[str, list[str]] = {}
    for window in windows:
        start = start_of(window)
        groups.setdefault(f"{start:{_BY[by]}}" if start and by else window, []).append(window)
    return {name: tuple(of) for name, of in groups.items()}
