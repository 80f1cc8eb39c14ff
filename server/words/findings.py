"""Describe findings: the value, whether and how certainly it changed, or how many reports are needed."""

import datetime
import math
from collections.abc import Sequence
from typing import Literal, Protocol

from .answers import Change, Difference, Interval, capitalize, reading, scale_and_unit
from .numbers import (
    ENGLISH,
    READING_STEPS,
    SHARE_STEPS,
    Numbers,
    counted,
    decimals,
    format_estimate,
    two_digits,
)
from .scope import Population

CERTAIN = 1e-4
"""The probability of a false alarm below which a change is called certain."""


class Span(Protocol):
    """A period; see answers.periods.Period."""

    @property
    def begin(self) -> datetime.datetime:
        """The start, UTC."""
        ...

    @property
    def end(self) -> datetime.datetime:
        """The end, UTC."""
        ...

    @property
    def first_day(self) -> datetime.date:
        """The first day."""
        ...

    @property
    def last_day(self) -> datetime.date:
        """The last day."""
        ...

    @property
    def is_days(self) -> bool:
        """Whether it begins and ends at midnight."""
        ...

    @property
    def units(self) -> int:
        """The number of days or hours in it."""
        ...

    @property
    def present(self) -> int:
        """The number of these that have reports."""
        ...

    @property
    def zone(self) -> str:
        """The name of the time zone."""
        ...


def dates(period: Span | None, now: datetime.datetime, write: Numbers = ENGLISH) -> str:
    """Return a period's dates: "21 to 27 Nov", "27 Nov, 08:00 to 20:00 UTC", or "" for None.

    The year is omitted if it is the current one. If some days or hours have no reports, the text says so: "21
    to 27 Nov (6 of 7 days)".
    """
    if period is None:
        return ""
    if period.is_days:
        year = {period.first_day.year, period.last_day.year} != {now.year}
        text = write.days(period.first_day, period.last_day, year)
    else:
        text = _hours(period, now, write)
    if period.present < period.units:
        text = f"{text} ({period.present} of {period.units} {'days' if period.is_days else 'hours'})"
    return text


def _hours(period: Span, now: datetime.datetime, write: Numbers) -> str:
    """Return a period in hours: "27 Nov, 08:00 to 20:00 UTC", "27 Nov 22:00 to 28 Nov 03:00 UTC"."""
    first, last = (day(date, now, write) for date in (period.first_day, period.last_day))
    end = "24:00" if period.last_day < period.end.date() else f"{period.end:%H:%M}"
    if period.first_day == period.last_day:
        return f"{first}, {period.begin:%H:%M} to {end} {period.zone}"
    return f"{first} {period.begin:%H:%M} to {last} {end} {period.zone}"


def day(date: datetime.date, now: datetime.datetime, write: Numbers = ENGLISH) -> str:
    """Return a day, with its year unless it is the current one."""
    return write.days(date, date, date.year != now.year)


def end_sentence(text: str) -> str:
    """Add a full stop to a text, unless it already ends with one, as in "27. Nov."."""
    return text if text.endswith(".") else f"{text}."


def amount(
    of: Interval, unit: str | None, write: Numbers = ENGLISH, population: Population | Literal[""] = "devices"
) -> str:
    """Return a share of devices, or a reading, with its interval: "24% of devices (17 to 30%)".

    Args:
        of: The estimate and its interval; for a share, from 0 to 1, or slightly outside because of noise.
        unit: The unit of a reading, or None for a share.
        write: The way to write numbers.
        population: What a share is a share of; "" to omit it.
    """
    value, interval = format_estimate(of.value, of.low, of.high, unit, write)
    value = f"{value} of {population}" if unit is None and population else value
    return f"{value} ({interval})" if interval else value


def level(value: float, of: Interval, unit: str | None, write: Numbers = ENGLISH) -> str:
    """Format a value with the same precision as an estimate with an interval: "6%", "21.0 °C"."""
    if unit is not None:
        return reading(value, unit, write, decimals(of.low, of.high, READING_STEPS))
    low, high, percent = (100 * min(max(x, 0.0), 1.0) for x in (of.low, of.high, value))
    return write.percent(percent / 100, min(1, decimals(low, high, SHARE_STEPS)))


def size(amount: float, unit: str | None, write: Numbers = ENGLISH) -> str:
    """Return the size of a change: "12 points", "0.3 °C"."""
    scale, of = scale_and_unit(unit)
    number = two_digits(abs(amount) * scale, write)
    return f"{number} {'point' if unit is None and number == '1' else of}".rstrip()


def certainty(chance: float, write: Numbers = ENGLISH) -> str:
    """Describe how certain a change is: "certain", or "about 1 in 40 by chance"."""
    return "certain" if chance < CERTAIN else f"about 1 in {two_digits(1 / chance, write)} by chance"


def movement(rise: float, levels: str) -> str:
    """Describe a change: "Up from 6% before 8 Nov"; only the sign of `rise` matters."""
    return f"{'Up' if rise > 0 else 'Down'} from {levels}"


def movement_by_size(rise: float, size: str, day: str) -> str:
    """Describe a change by its size, for use when the levels before and after do not show it."""
    return f"{'Up' if rise > 0 else 'Down'} by about {size} around {day}"


def with_certainty(change: str, sure: str) -> str:
    """Return a sentence with a change and its certainty: "Up from 6% (1 to 7 Nov; certain)."."""
    return f"{change.removesuffix(')')}; {sure})." if change.endswith(")") else f"{change} ({sure})."


def no_change(since: str, detectable: str) -> str:
    """Return "No change since 29 Oct; a change of 0.3 °C would have been detected."."""
    noticed = f"; a change of {detectable} would have been detected" if detectable else ""
    return end_sentence(f"No change since {since}{noticed}")


def most_common(names: Sequence[str], chance: float, first: str) -> str:
    """Say which labels are likely to be the most common, without the final full stop.

    Args:
        names: The labels that include the most common one with a probability of at least 95%, likeliest
            first; empty if no label leads.
        chance: The probability that it is the first one.
        first: The share of the first one, as text.
    """
    if not names:
        return "No label leads yet"
    if len(names) == 1:
        return f"{capitalize(names[0])} is most common: {first}"
    listed = " or ".join([", ".join(names[:-1]), names[-1]])
    tenths = min(9, max(5, math.floor(10 * chance)))
    share = first.partition(" of ")[0]
    return f"{capitalize(listed)} is most common ({tenths} in 10 that it is {names[0]}, at {share})"


def pair(
    cases: Sequence[tuple[str, Interval]],
    of: str,
    unit: str | None,
    when: str,
    chance: float,
    write: Numbers = ENGLISH,
) -> str:
    """Describe two cases side by side: "crashed=yes: 12% (10 to 14%) with version=1.2; 4% ... with ...".

    Args:
        cases: The name and value of each case.
        of: The target.
        unit: The unit of a reading, or None for a share.
        when: The dates.
        chance: The probability of a false alarm, or 1 if a difference is not certain.
        write: The way to write numbers.
    """
    texts = "; ".join(f"{amount(row, unit, write, '')} with {name}" for name, row in cases)
    verdict = (
        f"They differ ({certainty(chance, write)})" if chance < 1 else "The difference is not certain yet"
    )
    return f"{end_sentence(f'{of}: {texts}' + (f', {when}' if when else ''))} {verdict}."


def comparison(
    by: Change,
    name: str,
    sides: tuple[str, str],
    unit: str | None,
    confidence: float,
    write: Numbers = ENGLISH,
) -> str:
    """Describe a comparison: "24 °C and above: 24%, 21 to 27 Nov, compared with 12%, ...".

    Args:
        by: The change.
        name: The name of the statistic.
        sides: The dates or fleets of the earlier value and of the later value.
        unit: The unit of a reading, or None for a share.
        confidence: The confidence of the interval.
        write: The way to write numbers.
    """
    scale, of = scale_and_unit(unit)
    places = decimals(by.low * scale, by.high * scale)
    before, after = (
        write.percent(min(max(x, 0.0), 1.0), places) if unit is None else reading(x, unit, write, places)
        for x in (by.before, by.after)
    )
    low, high = (write.number(x * scale, places) for x in (by.low, by.high))
    texts = f"{name}: {after}, {sides[1]}, compared with {before}, {sides[0]}"
    if by.p_adjusted >= 1 - confidence:
        between = f"{low} to {high} {of}".rstrip()
        # The interval is of this value alone, and p is adjusted for all that are compared.
        why = "" if by.low <= 0 <= by.high else ", as several values are compared"
        return f"{end_sentence(texts)} No clear difference{why} ({between})."
    ends = sorted((abs(by.low), abs(by.high)))
    low, high = (write.number(x * scale, places) for x in ends)
    direction = "Up" if by.value > 0 else "Down"
    sure = certainty(by.p_adjusted, write)
    return f"{end_sentence(texts)} {direction} {size(by.value, unit, write)} ({low} to {high}, {sure})."


def difference(by: Difference, unit: str | None, confidence: float) -> str:
    """Describe a difference in a sentence, such as "They differ by 12 points (10 to 14, certain)."."""
    scale, of = scale_and_unit(unit)
    places = decimals(by.low * scale, by.high * scale)
    low, high = (ENGLISH.number(x * scale, places) for x in (by.low, by.high))
    if by.p >= 1 - confidence:
        return f"No clear difference ({low} to {high} {of}".rstrip() + ")."
    ends = sorted((abs(by.low), abs(by.high)))
    low, high = (ENGLISH.number(x * scale, places) for x in ends)
    return f"They differ by {size(by.value, unit)} ({low} to {high}, {certainty(by.p)})."


def last_report(window: Span, now: datetime.datetime, write: Numbers = ENGLISH) -> str:
    """Say when the last report arrived; `window` is its day or hour."""
    return end_sentence(f"Last report {dates(window, now, write)}")


def few_able(spent: int, devices: int, write: Numbers = ENGLISH) -> str:
    """Say how many devices can no longer report, which is why shares are of readings, not of devices."""
    have = "has" if spent == 1 else "have"
    text = f"{write.number(spent, 0)} of {counted(devices, 'device', write)} {have} no reports left"
    return f"{text}, so shares are of readings, not of devices."


def nothing_left(reports: int, write: Numbers = ENGLISH) -> str:
    """Say that there are no reports left to estimate from."""
    return f"All windows have been erased, with a total of {counted(reports, write=write)}."


def unanswered(question: str, error: str) -> str:
    """Return the line for a question without an answer, beside the answers to others.

    Args:
        question: The question.
        error: Why it cannot be answered, or "" if it has too few reports.
    """
    subject = capitalize(question.removesuffix(":"))
    return end_sentence(f"{subject}: {error or 'too few reports to say'}")


def too_few(
    reports: int,
    needed: int | None,
    target: str,
    period: str,
    a_day: float,
    days: int | None,
    now: datetime.datetime,
    write: Numbers = ENGLISH,
) -> str:
    """Say how many reports an answer needs, and when they can be expected.

    Args:
        reports: The number of reports so far.
        needed: The number needed for the target, or None if unknown.
        target: The half-width to reach, such as "±10 points".
        period: When the reports arrived: "so far" or "in 7 days".
        a_day: The number of reports per day, or 0 if unknown.
        days: The length of the period if it is a moving window, or None if it keeps growing.
        now: The current time.
        write: The way to write numbers.
    """
    received = f"{counted(reports, write=write)} {period}"
    if needed is None or needed <= reports:
        return f"{received}: too few to say anything yet."
    text = f"{received}. About {write.number(_round(needed), 0)} are needed for {target}"
    if not a_day:
        return f"{text}."
    if days is not None and needed > days * a_day:
        longer = counted(math.ceil(needed / a_day), "day", write)
        return f"{text}; at this rate, that takes {longer}, so choose a longer period."
    wait = (needed - reports) / a_day
    then = (now + datetime.timedelta(days=wait)).date()
    by = "today" if then == now.date() else f"by {then:%A}" if wait < 6 else f"by {day(then, now, write)}"
    return end_sentence(f"{text}; at this rate, {by}")


def _round(count: float) -> int:
    """Return a number rounded up to two digits."""
    unit = 10 ** max(0, math.floor(math.log10(count)) - 1)
    return math.ceil(count / unit) * unit
