"""Read the names of periods: days, weeks, months, ranges of these, hours, and lengths of time before now."""

import datetime
import re
from dataclasses import dataclass

from ..errors import UsageError
from ..hints import option
from ..local_days import DAY, HOUR, Calendar

ALL = "all"
"""The length that selects all completed windows."""

_EXAMPLES = "2026-11-21, 2026-W47, 2026-11, 2026-11-01..2026-11-07, today or yesterday"
_LENGTH = re.compile(r"(?:(?:the )?last )?(\d{1,4})\s*(h|hours?|d|days?|w|weeks?)", re.ASCII | re.IGNORECASE)
_HOUR = re.compile(r"(\d{4}-\d\d-\d\d)[Tt](\d\d)(?::00)?[Zz]?", re.ASCII)
_WEEK = re.compile(r"(\d{4})-?[Ww](\d{1,2})", re.ASCII)
_YEAR_FIRST = re.compile(r"(?P<year>\d{4})([-/.])(?P<month>\d{1,2})\2(?P<day>\d{1,2})", re.ASCII)
_PLAIN_DAY = re.compile(r"(?P<year>\d{4})(?P<month>\d\d)(?P<day>\d\d)", re.ASCII)
_YEAR_LAST = re.compile(r"(\d{1,2})([-/.])(\d{1,2})\2(\d{4})", re.ASCII)
_MONTH = re.compile(r"(\d{4})(?:[-/.](\d{1,2}))?|(\d{1,2})[-/.](\d{4})", re.ASCII)
_WORD, _YEAR = r"(?P<month>[A-Za-z]{3,9})\.?", r"(?:,?\s+(?P<year>\d{4}))?"
_DAY_NAME = re.compile(rf"(?P<day>\d{{1,2}})\.?\s+{_WORD}{_YEAR}", re.ASCII)
_NAME_DAY = re.compile(rf"{_WORD}\s+(?P<day>\d{{1,2}}){_YEAR}", re.ASCII)
_NAME_YEAR = re.compile(r"([A-Za-z]{3,9})\.?\s+(\d{4})", re.ASCII)
_GROUP = re.compile(r"\d{4}-(W\d{2}|\d{2}|\d{2}-\d{2})", re.ASCII)
_TIME = re.compile(r"(?:(?P<day>.*?),?\s*\b)?(?P<hour>\d{1,2}):(?P<minute>\d\d)", re.ASCII)
_AFTERWARDS = re.compile(r"(\s*\([^()]*\))?(, days in \S+)?\.?")
_BETWEEN = re.compile(r"\s*\.\.\.?\s*|\s+to\s+|\s*–\s*|\s+-\s+")
_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october",
    "november", "december",
)  # fmt: skip

Ends = tuple[datetime.date, datetime.date]


@dataclass(frozen=True)
class NamedPeriod:
    """A period from a first to a last day, both included.

    Attributes:
        first: The first day, or the start of the first hour, UTC.
        last: The last day, or the start of the last hour, UTC.
    """

    first: datetime.date | datetime.datetime
    last: datetime.date | datetime.datetime


@dataclass(frozen=True)
class Length:
    """A length of time: a number of hours or of days."""

    units: int
    is_hours: bool


def plain_period(text: str) -> str:
    """Return a period's name without what answers print after it, such as "(7 days, Europe/Berlin)"."""
    stripped = text.strip()
    ends = (match.start() for match in _AFTERWARDS.finditer(stripped) if match.end() == len(stripped))
    return stripped[: next(ends, len(stripped))].rstrip()


def length_of(text: str) -> Length:
    """Return a length of time such as 7d, 12h, 2w or 7 days.

    Raises:
        UsageError: If the text is not a length of time.
    """
    match = _LENGTH.fullmatch(text.strip())
    if not match or not int(match[1]):
        hint = f"; to name a period by its date, use {option('window')}" if _is_period(text) else ""
        raise UsageError(f"a length of time must look like 7d, 12h, 2w or all, not {text}{hint}")
    unit = match[2][0].lower()
    return Length(int(match[1]) * (7 if unit == "w" else 1), unit == "h")


def _is_period(text: str) -> bool:
    try:
        named_period(text, Calendar(), datetime.datetime.now(datetime.UTC))
    except UsageError:
        return False
    return True


def named_period(text: str, calendar: Calendar, at: datetime.datetime) -> NamedPeriod:
    """Return the period that a text names.

    A date in figures is accepted if it can be read in only one way: with dots the day comes first, and with
    slashes or dashes one of the two numbers must be above 12.

    Args:
        text: A day (2026-11-21, 28.11.2026, 11/28/2026, 28 Nov, today, yesterday), week (2026-W47), month
            (2026-11) or year, an hour (2026-11-21T14, UTC), or two of these with ".." or "to" between them;
            or times of day in the calendar's zone (27 Nov, 08:00 to 20:00), as answers print them.
        calendar: The experiment's calendar.
        at: The current time, UTC.

    Raises:
        UsageError: If the text does not name a period, or a range ends before it begins.
    """
    stripped = plain_period(text)
    if stripped.lower() == ALL or _LENGTH.fullmatch(stripped):
        raise UsageError(f"{text} is a length of time: write {option('last', stripped)}")
    sides = _BETWEEN.split(stripped)
    if len(sides) > 2 or not all(sides):
        raise _refusal(text)
    today = calendar.today(at)
    if len(sides) == 1:
        return _one(stripped, text, calendar, today)
    first_text, last_text = sides
    if hours := _hours(first_text, last_text, text, calendar, today):
        return hours
    # In "21 to 27 Nov" and "Nov 21 – 27", one side names the month for both.
    if re.fullmatch(r"\d{1,2}", first_text) and (match := _DAY_NAME.fullmatch(last_text)):
        first_text = f"{first_text} {match['month']}"
    elif re.fullmatch(r"\d{1,2}(, \d{4})?", last_text) and (match := _NAME_DAY.fullmatch(first_text)):
        last_text = f"{match['month']} {last_text}"
    last = _one(last_text, text, calendar, today)
    year = last.last.year if re.search(r"\d{4}", last_text) else None
    first = _one(first_text, text, calendar, today, year)
    period = NamedPeriod(first.first, last.last)
    if _moment(first.first) > _moment(last.last):
        raise UsageError(
            f"a range of days must start with the earlier day, as in 2026-11-01..2026-11-07, not {text}"
        )
    return period


def _hours(first: str, last: str, text: str, calendar: Calendar, today: datetime.date) -> NamedPeriod | None:
    """Return the hours between two times of day in the calendar's zone, or None if the texts are not times.

    Raises:
        UsageError: If a time is not a whole hour in UTC, or comes twice or never on that day.
    """
    begin, end = _TIME.fullmatch(first), _TIME.fullmatch(last.removesuffix(calendar.zone_name).rstrip())
    if begin is None or end is None or not begin["day"]:
        return None
    moments = list[datetime.datetime]()
    for match in (begin, end):
        named = _one(match["day"] or begin["day"], text, calendar, today)
        hour, minute = int(match["hour"]), int(match["minute"])
        if named.first != named.last or isinstance(named.first, datetime.datetime) or minute > 59:
            raise _refusal(text)
        day = named.first + DAY * (hour == 24)
        if hour > 24 or (hour == 24 and minute):
            raise _refusal(text)
        moments.append(_utc(datetime.datetime.combine(day, datetime.time(hour % 24, minute)), calendar))
    if moments[0] >= moments[1]:
        raise UsageError(f"a range of hours must start with the earlier hour, not {text}")
    return NamedPeriod(moments[0], moments[1] - HOUR)


def _utc(time: datetime.datetime, calendar: Calendar) -> datetime.datetime:
    """Return a local time in UTC."""
    early, late = (time.replace(tzinfo=calendar.zone, fold=fold).astimezone(datetime.UTC) for fold in (0, 1))
    names = f"{early:%Y-%m-%dT%H} or {late:%Y-%m-%dT%H}"
    # Midnight that clocks skip still begins the day.
    if early != late and (early < late or time.time() != datetime.time()):
        problem = "comes twice" if early < late else "does not exist"
        raise UsageError(f"{time:%Y-%m-%d %H:%M} {problem} in {calendar.zone_name}: write {names}, in UTC")
    if early.minute:
        hour = early.replace(minute=0)
        raise UsageError(
            f"reports are counted by the hour in UTC: write {hour:%Y-%m-%dT%H} or {hour + HOUR:%Y-%m-%dT%H}, "
            f"not {time:%H:%M}"
        )
    return early


def _moment(end: datetime.date | datetime.datetime) -> tuple[datetime.date, int]:
    return (end.date(), end.hour) if isinstance(end, datetime.datetime) else (end, 0)


def _refusal(text: str) -> UsageError:
    return UsageError(f"a period must look like {_EXAMPLES}, not {text[:40]}")


def _one(
    side: str, text: str, calendar: Calendar, today: datetime.date, year: int | None = None
) -> NamedPeriod:
    """Return the period of one side of a range, or of a text without a range.

    Args:
        side: The side.
        text: The whole text, for messages.
        calendar: The experiment's calendar.
        today: The current day.
        year: The year of a day without one; None for the current year.
    """
    if side.lower() in ("today", "yesterday"):
        day = today - DAY if side.lower() == "yesterday" else today
        return NamedPeriod(day, day)
    try:
        if match := _HOUR.fullmatch(side):
            day = datetime.date.fromisoformat(match[1])
            hour = datetime.datetime.combine(day, datetime.time(int(match[2])), datetime.UTC)
            return NamedPeriod(hour, hour)
        ends = _week(side, calendar) or _day(side, year or today.year) or _month(side)
    except (ValueError, OverflowError):
        raise UsageError(f"there is no {side} in the calendar; a period must look like {_EXAMPLES}") from None
    if ends is None:
        raise _refusal(text)
    return NamedPeriod(*ends)


def _week(side: str, calendar: Calendar) -> Ends | None:
    match = _WEEK.fullmatch(side)
    if not match:
        return None
    first = calendar.week_start(int(match[1]), int(match[2]))
    return first, first + 6 * DAY


def _day(side: str, year: int) -> Ends | None:
    """Return a day as its first and last day, or None; without a year, it is in `year`."""
    if match := _YEAR_FIRST.fullmatch(side) or _PLAIN_DAY.fullmatch(side):
        day = datetime.date(int(match["year"]), int(match["month"]), int(match["day"]))
    elif match := _YEAR_LAST.fullmatch(side):
        day = _day_in_figures(side, int(match[1]), int(match[3]), int(match[4]), match[2])
    elif match := _DAY_NAME.fullmatch(side) or _NAME_DAY.fullmatch(side):
        month = _month_number(match["month"])
        if month is None:
            return None
        day = datetime.date(int(match["year"] or year), month, int(match["day"]))
    else:
        return None
    return day, day


def _day_in_figures(side: str, one: int, two: int, year: int, delimiter: str) -> datetime.date:
    if delimiter != "." and one <= 12 and two <= 12 and one != two:
        day_first, month_first = datetime.date(year, two, one), datetime.date(year, one, two)
        raise UsageError(f"{side} can be read in two ways: write {day_first} or {month_first}")
    return datetime.date(year, one, two) if two > 12 else datetime.date(year, two, one)


def _month(side: str) -> Ends | None:
    if match := _NAME_YEAR.fullmatch(side):
        year, month = int(match[2]), _month_number(match[1])
        if month is None:
            return None
    elif match := _MONTH.fullmatch(side):
        year = int(match[1] or match[4])
        month = int(match[2] or match[3] or 0)
        if not (match[2] or match[3]):
            return datetime.date(year, 1, 1), datetime.date(year, 12, 31)
    else:
        return None
    first = datetime.date(year, month, 1)
    after = datetime.date(year + month // 12, month % 12 + 1, 1)
    return first, after - DAY


def _month_number(name: str) -> int | None:
    name = "sep" if name.lower() == "sept" else name.lower()
    return next((n for n, month in enumerate(_MONTHS, 1) if name in (month, month[:3])), None)


def days_of_group(name: str, calendar: Calendar) -> Ends | None:
    """Return the first and the last day of a group, such as 2026-11-21, 2026-W47 or 2026-11, or None."""
    if not _GROUP.fullmatch(name):
        return None
    try:
        return _week(name, calendar) or _day(name, 1) or _month(name)
    except (ValueError, OverflowError):
        return None
