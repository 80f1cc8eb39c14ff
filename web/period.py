"""The period of a view: its text in an address, its windows, and its name in a sentence."""

import datetime
import re
from urllib.parse import parse_qsl

from ..server.answers.periods import ALL, USUAL_DAYS, start_of
from ..server.answers.query import Facts
from ..server.answers.question import Question
from ..server.errors import UsageError
from .reader import Reader

USUAL = ""
"""The period of an address that names none: the newest 7 completed days."""

EXPLICIT = "explicit"
"""The period of individually chosen windows."""

_MONTH = "30d"
_MONTH_DAYS = 30
NAMES = {USUAL: f"{USUAL_DAYS} days", _MONTH: f"{_MONTH_DAYS} days", ALL: "all"}
_DAYS = re.compile(r"(\d{4}-\d\d-\d\d)\.\.(\d{4}-\d\d-\d\d)")
_SAME = {"7d": USUAL}  # synonyms in an address


def parse(text: str) -> str | None:
    """Return the period that a text of an address names, or None.

    Args:
        text: 7d, 30d, all, or the first and the last day, as in 2026-11-01..2026-11-07.
    """
    if text in NAMES or text in _SAME:
        return _SAME.get(text, text)
    return text if first_and_last(text) else None


def in_period(question: Question, period: str) -> Question:
    """Return the question for a period, as parse() returns it."""
    last, windows = (period, ()) if period in NAMES else ("", (period,))
    return question.replace(last=last, windows=windows)


def period_of(question: Question) -> str:
    """Return the period of a question, as parse() returns it, or EXPLICIT."""
    if not question.windows:
        return question.last
    first, *more = question.windows
    return EXPLICIT if more or first_and_last(first) is None else first


def windows_of(question: Question, facts: Facts) -> tuple[str, ...]:
    """Return the windows with reports in a question's period, oldest first.

    An experiment may have one window without an end, which is in every period.
    """
    there = tuple(facts.selected(question.all_windows).there)
    if not all(map(start_of, there)):
        return there
    try:
        windows = question.resolve(facts).selection.windows
    except UsageError:
        return ()
    return tuple(window for window in there if window in windows)


def phrase_of(period: str, reader: Reader) -> str:
    """Return a period in words: "in the last 7 days", "from Nov 1, 2026 to Nov 7, 2026"."""
    days = first_and_last(period)
    if days is None:
        return f"in the last {NAMES[period]}" if period != ALL else "in any window"
    first, final = map(reader.day, days)
    return f"on {first}" if first == final else f"from {first} to {final}"


def period_in(query: str) -> str:
    """Return the period in the query of an address, or the usual one if it has none or an invalid one."""
    named = (parse(value) for name, value in parse_qsl(query) if name in ("last", "windows"))
    return next(filter(None, named), USUAL)


def query_of(period: str) -> str:
    """Return the part of an address, after ?, that names a period; "" for the usual one."""
    return in_period(Question(experiment="", fleet=""), period).query()


def first_and_last(period: str) -> tuple[datetime.date, datetime.date] | None:
    """Return the first and the last day of a period that has them, or None."""
    matched = _DAYS.fullmatch(period)
    try:
        days = [datetime.date.fromisoformat(text) for text in matched.groups()] if matched else []
    except ValueError:  # such as the 30th of February
        return None
    return (days[0], days[1]) if days and days[0] <= days[1] else None
