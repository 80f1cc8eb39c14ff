"""Format counts, shares, errors, probabilities and durations for sentences and tables."""

import datetime
import math
from typing import Protocol

SHARE_STEPS, READING_STEPS = 1, 3
"""The `steps` of decimals() for sentences, in which most percentages are whole numbers."""

MAX_HALF_WIDTH = 0.3
"""The largest informative half-width, as a fraction of the whole range of shares or readings."""

DAY_S = 86_400
# Units of ages, each with the least age that it describes, and its size, in seconds.
_AGES = (
    (730 * DAY_S, 365 * DAY_S, "years"),
    (60 * DAY_S, 30 * DAY_S, "months"),
    (2 * DAY_S, DAY_S, "days"),
    (3600, 3600, "h"),
    (60, 60, "min"),
    (10, 1, "s"),
)
_LENGTHS = (("year", 365 * DAY_S), ("week", 7 * DAY_S), ("day", DAY_S), ("hour", 3600), ("minute", 60))


class Numbers(Protocol):
    """A format for numbers and days; the page has one for each reader's locale."""

    def number(self, value: float, digits: int | None = None) -> str:
        """Format a number to `digits` decimal places, or exactly if None."""
        ...

    def percent(self, share: float, digits: int = 1) -> str:
        """Format a share."""
        ...

    def day(self, day: datetime.date) -> str:
        """Format a day."""
        ...

    def days(self, first: datetime.date, last: datetime.date, year: bool) -> str:
        """Format a day, or a range of days, in a short form; `year` is whether to include the year."""
        ...


class _English:
    def number(self, value: float, digits: int | None = None) -> str:
        return f"{value:,.10g}" if digits is None else f"{value:,.{digits}f}"

    def percent(self, share: float, digits: int = 1) -> str:
        return f"{100 * share:,.{digits}f}%"

    def day(self, day: datetime.date) -> str:
        return day.isoformat()

    def days(self, first: datetime.date, last: datetime.date, year: bool) -> str:
        end = f"{last.day} {last:%b}" + (f" {last.year}" if year else "")
        if first == last:
            return end
        if (first.year, first.month) == (last.year, last.month):
            return f"{first.day} to {end}"
        begin = f"{first.day} {first:%b}" + (f" {first.year}" if year and first.year != last.year else "")
        return f"{begin} to {end}"


ENGLISH: Numbers = _English()
"""The number format of the command line."""


def counted(count: int, noun: str = "report", write: Numbers = ENGLISH) -> str:
    """Return a count with its noun: "1 report", "2,000 reports", "2 entries"."""
    plural = f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}s"
    return f"{write.number(count, 0)} {noun if count == 1 else plural}"


def format_expected_count(count: float) -> str:
    """Format an expected count: "1,240", or "0.57" if it is small."""
    return f"{count:,.0f}" if count >= 10 else f"{count:.2g}"


def decimals(low: float, high: float, steps: int = 10) -> int:
    """Return the number of decimals for an estimate with this interval, few enough not to show noise.

    The half-width is at least `steps` units of the last decimal; with 10, it has two digits.
    """
    half = (high - low) / 2
    if not 0 < half < math.inf:
        return 2
    return min(9, max(0, math.ceil(math.log10(steps) - math.log10(half) - 1e-9)))


def format_estimate(
    value: float, low: float, high: float, unit: str | None = None, write: Numbers = ENGLISH
) -> tuple[str, str]:
    """Return an estimate and its interval for a sentence: "24%" and "17 to 30%".

    The interval is "" if the estimate already implies it, such as "at most 5%".

    Args:
        value: A reading, or a share from 0 to 1 (or slightly outside, because of noise).
        low: The lower bound of its interval.
        high: The upper bound.
        unit: The unit of a reading; None for a share.
        write: The format of numbers.
    """
    if unit is not None:
        places = decimals(low, high, READING_STEPS)
        text, lowest, highest = (write.number(x, places) for x in (value, low, high))
        return f"{text} {unit}".rstrip(), "" if lowest == highest else f"{lowest} to {highest}"
    low, value, high = (100 * min(max(x, 0.0), 1.0) for x in (low, value, high))
    places = decimals(low, high, SHARE_STEPS)
    lowest, highest = round(low, places), round(high, places)
    if lowest <= 0 and highest >= 100:
        return "any share", ""
    if lowest <= 0:
        return f"at most {_bound(high, write)}", ""
    if highest >= 100:
        return f"at least {_bound(100 - low, write, subtract_from=100)}", ""
    interval = f"{write.number(lowest, places)} to {write.percent(highest / 100, places)}"
    return write.percent(value / 100, places), interval


def _bound(percent: float, write: Numbers, *, subtract_from: float = 0.0) -> str:
    """Return a percentage rounded up: to whole percent from 1%, to tenths below, and at least 0.1%.

    If `subtract_from` is above 0, the result is subtracted from it.
    """
    step = 1.0 if percent >= 1 else 0.1
    bound = max(0.1, round(math.ceil(percent / step - 1e-9) * step, 1))
    bound = subtract_from - bound if subtract_from else bound
    return write.percent(bound / 100, 0 if bound == round(bound) else 1)


def two_digits(number: float, write: Numbers = ENGLISH) -> str:
    """Return a number with two significant digits: "0.57", "1,200"."""
    rounded = float(f"{number:.2g}")
    return write.number(rounded, len(f"{rounded:.10f}".rstrip("0").partition(".")[2]))


def round_up_boards(boards: float) -> int:
    """Round a number of boards up to two digits, at least 2."""
    unit = 10 ** max(0, math.floor(math.log10(max(boards, 1))) - 1)
    return max(2, math.ceil(boards / unit) * unit)


def is_too_wide(half_width: float, extent: float = 1.0) -> bool:
    """Return whether an interval is too wide to be informative, because there are too few reports.

    Args:
        half_width: Half the interval's width, in the unit of `extent`.
        extent: The distance between the lowest and highest possible values; 1 for shares.
    """
    return half_width > MAX_HALF_WIDTH * extent


def points(error: float, of: str = "points") -> str:
    """Format a share's half-width for a sentence: "±1.59 points"."""
    return with_unit(f"±{100 * error:.3g}", of)


def with_unit(number: str, unit: str) -> str:
    """Return a number and its unit, with a space unless the unit begins with a percent sign."""
    return number + unit if unit.startswith("%") else f"{number} {unit}"


def length(seconds: float) -> str:
    """Return a duration in the largest unit that fits: "2 years", "10 minutes", "90 seconds"."""
    n, unit = length_in_units(seconds)
    return f"{seconds:g} seconds" if unit == "second" else counted(int(n), unit)


def length_in_units(seconds: float) -> tuple[float, str]:
    """Return a duration in the largest unit that fits, and the unit: (2, "year"), (90, "second")."""
    for name, size in _LENGTHS:
        if seconds >= size and seconds % size == 0:
            return seconds // size, name
    return seconds, "second"


def odds(probability: float, up: bool = True) -> float:
    """Return the n of "1 in n", with three digits.

    Args:
        probability: The probability.
        up: Whether the stated probability must be at least the true one.
    """
    times = 1 / probability
    scale = 10 ** max(0, 2 - math.floor(math.log10(times)))
    return math.floor(times * scale * (1 + 1e-12)) / scale if up else round(times * scale) / scale


def chance(probability: float, up: bool = False) -> str:
    """Describe a probability: "1 in 4", "76 in 100".

    Args:
        probability: The probability.
        up: Whether to round it up, as "at most" requires.
    """
    if probability <= 0:
        return "never"
    if probability >= 1:
        return "certain"
    if probability <= 0.5:
        one_in = odds(probability, up)
        return f"1 in {f'{one_in:,.2f}'.rstrip('0').rstrip('.')}"
    total = 100
    while True:
        shares = math.ceil(probability * total * (1 - 1e-15)) if up else round(probability * total)
        if shares < total:
            return f"{shares:,} in {total:,}"
        if total >= 10**6:
            return "nearly certain"
        total *= 10


def time_since(then: float, now: float) -> str:
    """Say how long ago something happened: "just now", "2 min ago", "25 h ago", "3 months ago".

    `web/static/page.js` has the same function, because the browser updates ages without the server.

    Args:
        then: The time, unix seconds; it may be in the future if it comes from another machine's clock.
        now: The current time, unix seconds.
    """
    seconds = int(now - then)
    suffix = "ago" if seconds >= 0 else "ahead of this clock"
    for least, size, unit in _AGES:
        if abs(seconds) >= least:
            return f"{abs(seconds) // size} {unit} {suffix}"
    return "just now"
