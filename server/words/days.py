"""Describe local days and weeks: their time zone, whether they are approximate, and which are partial."""

import datetime
from collections.abc import Sequence
from typing import Protocol

from ..local_days import DAY, WEEKDAYS, Calendar
from .findings import day


class Partial(Protocol):
    """A group at an end of a trend; see answers.periods.PartialGroup."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def first(self) -> datetime.date | None:
        """The first day with reports, or None if it is covered from its start."""
        ...

    @property
    def last(self) -> datetime.date | None:
        """The last day with reports, or None if it is covered to its end."""
        ...


def describe(calendar: Calendar) -> str:
    """Describe an experiment's days and weeks: "in Europe/Berlin; weeks begin on Sunday", or ""."""
    days = f"in {calendar.zone_name}"
    year = datetime.date(datetime.datetime.now(datetime.UTC).year, 1, 1)
    if calendar.is_approximate(year, year + 364 * DAY):
        days += " (approximate: each begins at the nearest whole hour in UTC)"
    weeks = f"; weeks begin on {first_weekday(calendar)}" if calendar.week else ""
    return days + weeks if calendar.day or calendar.week else ""


def first_weekday(calendar: Calendar) -> str:
    """Return the first day of the week, such as Sunday."""
    return WEEKDAYS[calendar.first_weekday].capitalize()


def approximate(calendar: Calendar, *, has_half_hours: bool, has_utc_days: bool) -> str:
    """Return a sentence that says why days are approximate, or "".

    Args:
        calendar: The experiment's calendar.
        has_half_hours: Whether some days do not begin at a whole hour in UTC.
        has_utc_days: Whether an earlier version counted by the day in UTC.
    """
    reasons = list[str]()
    if has_half_hours:
        reasons.append(
            f"reports are counted by the hour in UTC, and {calendar.day} is not a whole number of hours "
            "from UTC"
        )
    if has_utc_days:
        reasons.append("an earlier version counted by the day in UTC")
    return f"Days are approximate: {'; '.join(reasons)}." if reasons else ""


def weeks(calendar: Calendar) -> str:
    """Return a sentence that says on which day weeks begin, or "" for Monday."""
    return f"Weeks begin on {first_weekday(calendar)}." if calendar.week else ""


def partial(groups: Sequence[Partial], by: str, now: datetime.datetime) -> str:
    """Name a trend's partial groups: "Partial weeks: 2026-W44 from 30 Oct; 2026-W48 until 25 Nov.".

    Args:
        groups: The partial groups.
        by: "day", "week" or "month".
        now: The current time, in the experiment's time zone.
    """
    texts = list[str]()
    for group in groups:
        ends = [("from", group.first), ("until", group.last)] if by != "day" else []
        texts.append(" ".join([group.name, *(f"{word} {day(end, now)}" for word, end in ends if end)]))
    return f"Partial {by}{'s' if len(texts) > 1 else ''}: {'; '.join(texts)}." if texts else ""
