"""A finding in words: the value, whether it changed and how certain that is, or how many reports it needs."""

import datetime
import math
from collections.abc import Sequence
from typing import Protocol

from .answers import Change, Difference, Interval, capitalize, reading, scaled
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
        """The number of days in it, or of hours."""
        ...

    @property
    def present(self) -> int:
        """How many of these have reports."""
        ...


def dates(period: Span | None, now: datetime.datetime, write: Numbers = ENGLISH) -> str:
    """Return the dates of a period: "21 to 27 Nov", "27 Nov, 08:00 to 20:00 UTC", or "" for None.

    The year is included unless it is this year. Days or hours without reports are counted: "21 to 27 Nov (6
    of 7 days)".
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
    """Return a period of hours: "27 Nov, 08:00 to 20:00 UTC", "27 Nov 22:00 to 28 Nov 03:00 UTC"."""
    first, last = (day(date, now, write) for date in (period.first_day, period.last_day))
    end = "24:00" if period.last_day < period.end.date() else f"{period.end:%H:%M}"
    if period.first_day == period.last_day:
        return f"{first}, {period.begin:%H:%M} to {end} UTC"
    return f"{first} {period.begin:%H:%M} to {last} {end} UTC"


def day(date: datetime.date, now: datetime.datetime, write: Numbers = ENGLISH) -> str:
    """Return a day, with its year unless that is this year."""
    return write.days(date, date, date.year != now.year)


def ended(text: str) -> str:
    """Return a text with a full stop, unless it ends with a day, such as "27. Nov.", that has one."""
    return text if text.endswith(".") else f"{text}."


def amount(of: Interval, unit: str | None, write: Numbers = ENGLISH) -> str:
    """Return a share of devices, or a reading, with its interval: "24% of devices (17 to 30%)".

    Args:
        of: The estimate and the ends of its interval; a share from 0 to 1, which noise may put outside.
        unit: The unit of a reading, or None for a share.
        write: The way to write numbers.
    """
    value, interval = format_estimate(of.value, of.low, of.high, unit, write)
    value = f"{value} of devices" if unit is None else value
    return f"{value} ({interval})" if interval else value


def level(value: float, of: Interval, unit: str | None, write: Numbers = ENGLISH) -> str:
    """Return another value with as many digits as one with an interval: "6%", "21.0 °C"."""
    if unit is not None:
        return reading(value, unit, write, decimals(of.low, of.high, READING_STEPS))
    low, high, percent = (100 * min(max(x, 0.0), 1.0) for x in (of.low, of.high, value))
    return write.percent(percent / 100, min(1, decimals(low, high, SHARE_STEPS)))


def size(amount: float, unit: str | None, write: Numbers = ENGLISH) -> str:
    """Return the size of a change: "12 points", "0.3 °C"."""
    scale, of = scaled(unit)
    number = two_digits(abs(amount) * scale, write)
    return f"{number} {'point' if unit is None and number == '1' else of}".rstrip()


def certainty(chance: float, write: Numbers = ENGLISH) -> str:
    """Return how certain a change is: "certain", or "about 1 in 40 by chance"."""
    return "certain" if chance < CERTAIN else f"about 1 in {two_digits(1 / chance, write)} by chance"


def moved(rise: float, levels: str) -> str:
    """Return a change in words: "Up from 6% before 8 Nov"; only the sign of `rise` counts."""
    return f"{'Up' if rise > 0 else 'Down'} from {levels}"


def moved_by(rise: float, size: str, day: str) -> str:
    """Return a change by its size, if the levels before and after do not show it."""
    return f"{'Up' if rise > 0 else 'Down'} by about {size} around {day}"


def with_certainty(change: str, sure: str) -> str:
    """Return a sentence of a change and its certainty: "Up from 6% (1 to 7 Nov; certain)."."""
    return f"{change.removesuffix(')')}; {sure})." if change.endswith(")") else f"{change} ({sure})."


def unchanged(since: str, detectable: str) -> str:
    """Return "No change since 29 Oct; a change of 0.3 °C would have been detected."."""
    noticed = f"; a change of {detectable} would have been detected" if detectable else ""
    return ended(f"No change since {since}{noticed}")


def leading(names: Sequence[str], chance: float, first: str) -> str:
    """Return which labels are likely to be the most common, without the last full stop.

    Args:
        names: The labels that together include the most common one with a probability of at least 95%, the
            likeliest first; empty if no label leads.
        chance: The probability that it is the first one.
        first: The share of the first one, as text.
    """
    if not names:
        return "No label leads yet"
    if len(names) == 1:
        return f"{capitalize(names[0])} is most common: {first}"
    listed = " or ".join([", ".join(names[:-1]), names[-1]])
    of_ten = min(9, max(5, math.floor(10 * chance)))
    share = first.partition(" of devices")[0]
    return f"{capitalize(listed)} is most common ({of_ten} in 10 that it is {names[0]}, at {share})"


def pair(
    cases: Sequence[tuple[str, Interval]],
    of: str,
    unit: str | None,
    when: str,
    chance: float,
    write: Numbers = ENGLISH,
) -> str:
    """Return two cases side by side: "crashed=yes: 12% (10 to 14%) with version=1.2; 4% ... with ...".

    Args:
        cases: Name and value of each case.
        of: The target.
        unit: The unit of a reading, or None for a share.
        when: The dates.
        chance: The probability of a false alarm, or 1 if the cases may not differ.
        write: The way to write numbers.
    """
    texts = "; ".join(
        f"{amount(row, unit, write).replace(' of devices', '')} with {name}" for name, row in cases
    )
    verdict = f"They differ ({certainty(chance, write)})" if chance < 1 else "No clear difference yet"
    return f"{ended(f'{of}: {texts}' + (f', {when}' if when else ''))} {verdict}."


def compared(
    by: Change,
    name: str,
    sides: tuple[str, str],
    unit: str | None,
    confidence: float,
    write: Numbers = ENGLISH,
) -> str:
    """Return two sides of a comparison: "24 °C and above: 24%, 21 to 27 Nov, compared with 12%, ...".

    Args:
        by: The change.
        name: The name of the statistic.
        sides: The dates or fleets of the value before and of the one after.
        unit: The unit of a reading, or None for a share.
        confidence: The confidence of the interval.
        write: The way to write numbers.
    """
    scale, of = scaled(unit)
    places = decimals(by.low * scale, by.high * scale)
    before, after = (
        write.percent(min(max(x, 0.0), 1.0), places) if unit is None else reading(x, unit, write, places)
        for x in (by.before, by.after)
    )
    low, high = (write.number(x * scale, places) for x in (by.low, by.high))
    texts = f"{name}: {after}, {sides[1]}, compared with {before}, {sides[0]}"
    if by.p_adjusted >= 1 - confidence:
        between = f"{low} to {high} {of}".rstrip()
        return f"{ended(texts)} No clear difference ({between})."
    ends = sorted((abs(by.low), abs(by.high)))
    low, high = (write.number(x * scale, places) for x in ends)
    direction = "Up" if by.value > 0 else "Down"
    sure = certainty(by.p_adjusted, write)
    return f"{ended(texts)} {direction} {size(by.value, unit, write)} ({low} to {high}, {sure})."


def difference(by: Difference, unit: str | None, confidence: float) -> str:
    """Return a difference in a sentence, such as "They differ by 12 points (10 to 14, certain)"."""
    scale, of = scaled(unit)
    places = decimals(by.low * scale, by.high * scale)
    low, high = (ENGLISH.number(x * scale, places) for x in (by.low, by.high))
    if by.p >= 1 - confidence:
        return f"No clear difference ({low} to {high} {of}".rstrip() + ")."
    ends = sorted((abs(by.low), abs(by.high)))
    low, high = (ENGLISH.number(x * scale, places) for x in ends)
    return f"They differ by {size(by.value, unit)} ({low} to {high}, {certainty(by.p)})."


def last_report(window: Span, now: datetime.datetime, write: Numbers = ENGLISH) -> str:
    """Return when the last report came; `window` is its day or hour."""
    return ended(f"Last report {dates(window, now, write)}")


def all_erased(reports: int, write: Numbers = ENGLISH) -> str:
    """Return a sentence that nothing is left to estimate from."""
    return f"All windows were erased, with {counted(reports, write=write)}."


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
    """Return how many reports an answer needs, and when they will have arrived.

    Args:
        reports: The number of reports so far.
        needed: The number needed for the target, or None if it is not known.
        target: Half an interval, such as "±10 points".
        period: When the reports came: "so far", or "in 7 days".
        a_day: The number of reports that come in a day, or 0 if it is not known.
        days: The length of the period if it moves with time, or None if it grows.
        now: The time.
        write: The way to write numbers.
    """
    came = f"{counted(reports, write=write)} {period}"
    if needed is None or needed <= reports:
        return f"{came}: too few to say anything yet."
    text = f"{came}. About {write.number(_round(needed), 0)} are needed for {target}"
    if not a_day:
        return f"{text}."
    if days is not None and needed > days * a_day:
        longer = counted(math.ceil(needed / a_day), "day", write)
        return f"{text}; that takes {longer} at this rate: choose a longer period."
    wait = (needed - reports) / a_day
    then = (now + datetime.timedelta(days=wait)).date()
    by = "today" if then == now.date() else f"by {then:%A}" if wait < 6 else f"by {day(then, now, write)}"
    return ended(f"{text}; at this rate, {by}")


def _round(count: float) -> int:
    """Return a number rounded up to two digits."""
    unit = 10 ** max(0, math.floor(math.log10(count)) - 1)
    return math.ceil(count / unit) * unit
