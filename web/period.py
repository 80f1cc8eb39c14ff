"""A view's period: its text in a URL, its windows, and its name in a sentence."""

import datetime
import re
from urllib.parse import parse_qsl

from ..server.answers.periods import ALL, USUAL_DAYS, start_of
from ..server.answers.query import Facts
from ..server.answers.question import Question
from ..server.errors import UsageError
from .reader import Reader

USUAL = ""
"""The default period, which is the newest 7 completed days."""

EXPLICIT = "explicit"
"""The period if windows are chosen individually."""

_MONTH = "30d"
_MONTH_DAYS = 30
NAMES = {USUAL: f"{USUAL_DAYS} days", _MONTH: f"{_MONTH_DAYS} days", ALL: "all"}
_DAYS = re.compile(r"(\d{4}-\d\d-\d\d)\.\.(\d{4}-\d\d-\d\d)")
_SYNONYMS = {"7d": USUAL}  # in a URL


def parse(text: str) -> str | None:
    """Return the period that a text in a URL names, or None.

    Args:
        text: 7d, 30d, all, or the first and the last day, such as 2026-11-01..2026-11-07.
    """
    if text in NAMES or text in _SYNONYMS:
        return _SYNONYMS.get(text, text)
    return text if first_and_last(text) else None


def in_period(question: Question, period: str) -> Question:
    """Return the question restricted to a period, which is in the form that parse() returns."""
    last, windows = (period, ()) if period in NAMES else ("", (period,))
    return question.replace(last=last, windows=windows)


def period_of(question: Question) -> str:
    """Return a question's period, in the form that parse() returns, or EXPLICIT."""
    if not question.windows:
        return question.last
    first, *more = question.windows
    return EXPLICIT if more or first_and_last(first) is None else first


def windows_of(question: Question, facts: Facts) -> tuple[str, ...]:
    """Return the windows with reports in a question's period, oldest first.

    If an experiment has a single window without an end, that window is in every period.
    """
    available = tuple(facts.selected(question.all_windows).all_counts)
    if not all(map(start_of, available)):
        return available
    try:
        windows = question.resolve(facts).selection.windows
    except UsageError:
        return ()
    return tuple(window for window in available if window in windows)


def phrase_of(period: str, reader: Reader) -> str:
    """Return a period in words, such as "in the last 7 days" or "from Nov 1, 2026 to Nov 7, 2026"."""
    days = first_and_last(period)
    if days is None:
        return f"in the last {NAMES[period]}" if period != ALL else "in any window"
    first, last = map(reader.day, days)
    return f"on {first}" if first == last else f"from {first} to {last}"


def period_in(query: str) -> str:
    """Return the period in a URL's query, or the default if the query has no valid period."""
    periods = (parse(value) for name, value in parse_qsl(query) if name in ("last", "windows"))
    return next(filter(None, periods), USUAL)


def query_of(period: str) -> str:
    """Return the URL query that names a period; "" for the default period."""
    return in_period(Question(experiment="", fleet=""), period).query()


def first_and_last(period: str) -> tuple[datetime.date, datetime.date] | None:
    """Return a period's first and last day, or None if the period does not name days."""
    match = _DAYS.fullmatch(period)
    try:
        days = [datetime.date.fromisoformat(text) for text in match.groups()] if match else []
    except ValueError:  # an impossible date, such as February 30
        return None
    return (days[0], days[1]) if days and days[0] <= days[1] else None
