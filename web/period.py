"""The period that a view shows: how an address names it, its windows, and its name in a sentence."""

import datetime
import re
from collections.abc import Sequence
from urllib.parse import parse_qsl, urlencode

from ..server.answers.periods import USUAL_DAYS, last, named, start_of, usual
from ..server.answers.windows import end_of, has_ended
from .reader import Reader

USUAL = ""
"""The period of an address that names none: the newest 7 completed days."""

EXPLICIT = "explicit"
"""The period of windows that were chosen one by one; an address has the windows instead."""

ALL = "all"
_MONTH = "30d"
_PARAMETER = "period"  # of an address
_MONTH_DAYS = 30
NAMES = {USUAL: f"{USUAL_DAYS} days", _MONTH: f"{_MONTH_DAYS} days", ALL: "all"}
_DAY = datetime.timedelta(days=1)
_DAYS = re.compile(r"(\d{4}-\d\d-\d\d)\.\.(\d{4}-\d\d-\d\d)")
_SAME = {"7d": USUAL}  # what an address may also say


def parse(text: str) -> str | None:
    """Return the period that a text of an address names, or None.

    Args:
        text: 7d, 30d, all, or the first and the last day, as in 2026-11-01..2026-11-07.
    """
    if text in NAMES or text in _SAME:
        return _SAME.get(text, text)
    return text if first_and_last(text) else None


def windows_of(period: str, there: Sequence[str], at: datetime.datetime) -> tuple[str, ...]:
    """Return a period's windows, oldest first; none if no report came in it.

    Args:
        period: As parse() returns it.
        there: The windows that have reports, oldest first.
        at: The time now, UTC.
    """
    if not all(map(start_of, there)):  # an experiment may have one window without an end
        return tuple(there)
    if period == ALL:
        return last(ALL, there, at)
    if period == USUAL:
        return usual(there, at)
    if period == _MONTH:
        return _newest(_MONTH_DAYS, there, at)
    return named(period, there)


def _newest(days: int, there: Sequence[str], at: datetime.datetime) -> tuple[str, ...]:
    """Return the windows of the newest completed days; while none is completed, all windows."""
    completed = [window for window in there if has_ended(f"{window[:10]}", at)]
    newest = start_of(completed[-1]) if completed else None
    return last(f"{days}d", completed, newest + _DAY) if newest else tuple(there)


def windows_before(chosen: Sequence[str], there: Sequence[str]) -> tuple[str, ...]:
    """Return the windows of the time that is just before the chosen windows, and as long.

    Args:
        chosen: The chosen windows, oldest first.
        there: The windows that have reports, oldest first.
    """
    first, end = (start_of(chosen[0]), end_of(chosen[-1])) if chosen else (None, None)
    if first is None or end is None:
        return ()
    begin = first - (end - first)
    return tuple(w for w in there if (start := start_of(w)) and begin <= start < first)


def phrase_of(period: str, reader: Reader) -> str:
    """Return when a period is: "in the last 7 days", "from Nov 1, 2026 to Nov 7, 2026"."""
    days = first_and_last(period)
    if days is None:
        return f"in the last {NAMES[period]}" if period != ALL else "in any window"
    first, final = map(reader.day, days)
    return f"on {first}" if first == final else f"from {first} to {final}"


def period_in(query: str) -> str:
    """Return the period that the query of an address names; the usual one for none, or for another text."""
    return next(filter(None, (parse(value) for name, value in parse_qsl(query) if name == _PARAMETER)), USUAL)


def query_of(period: str) -> str:
    """Return the part of an address, after ?, that names a period; "" for the usual one."""
    return urlencode({_PARAMETER: period}) if period else ""


def first_and_last(period: str) -> tuple[datetime.date, datetime.date] | None:
    """Return the first and the last day of a period that names them; None for another period."""
    matched = _DAYS.fullmatch(period)
    try:
        days = [datetime.date.fromisoformat(text) for text in matched.groups()] if matched else []
    except ValueError:  # the 30th of February
        return None
    return (days[0], days[1]) if days and days[0] <= days[1] else None
