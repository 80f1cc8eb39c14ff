"""Estimates in sentences: shares, readings, changes, how exact they are, and how to improve them.

`write` determines how numbers and days are written: plainly, or in the locale of a reader of the page.
"""

import datetime
import math
from collections.abc import Iterable, Sequence
from typing import Protocol

from .numbers import ENGLISH, Numbers, counted, decimals, few_boards, two_digits

_CHANGED, _CHANCE = "It changed.", "That may be chance."


class Interval(Protocol):
    """A number with the ends of its interval."""

    @property
    def value(self) -> float:
        """The number."""
        ...

    @property
    def low(self) -> float:
        """The lower end of the interval."""
        ...

    @property
    def high(self) -> float:
        """The upper end of the interval."""
        ...


class Difference(Interval, Protocol):
    """A difference, and how often chance alone does as much."""

    @property
    def p(self) -> float: ...


class Change(Interval, Protocol):
    """The value after less the value before, and how often chance alone causes as much.

    `p` is for this change by itself, `p_adjusted` among all changes that are compared.
    """

    @property
    def before(self) -> float:
        """The value before."""
        ...

    @property
    def after(self) -> float:
        """The value after."""
        ...

    @property
    def p(self) -> float:
        """The probability that chance alone causes as much."""
        ...

    @property
    def p_adjusted(self) -> float:
        """The same among all changes that are compared."""
        ...


def capitalize(text: str) -> str:
    """Return a text with its first letter capitalized."""
    return text[:1].upper() + text[1:]


def reading(value: float, unit: str, write: Numbers, places: int | None = None) -> str:
    """Return a reading with its unit; without `places` it is written exactly, as for an edge."""
    if places is None:
        places = len(f"{value:.10f}".rstrip("0").partition(".")[2])
    return f"{write.number(value, places)} {unit}".rstrip()


def bins(lower: float, upper: float, ends: tuple[float, float], unit: str, write: Numbers) -> str:
    """Return the readings of a row: 18 to 22 °C, below 18 °C, 22 °C and above.

    Args:
        lower: The lower edge.
        upper: The upper edge.
        ends: The lowest and the highest edge of all readings.
        unit: The unit.
        write: The way to write numbers.
    """
    first, last = lower <= ends[0], upper >= ends[1]
    if first and last:
        return "any reading"
    if first:
        return f"below {reading(upper, unit, write)}"
    if last:
        return f"{reading(lower, unit, write)} and above"
    return f"{reading(lower, '', write)} to {reading(upper, unit, write)}"


def period(chosen: Sequence[str], windows: Sequence[str], write: Numbers) -> str:
    """Return when reports were made: Oct 23, 2026 to Nov 21, 2026, all 30 windows.

    Args:
        chosen: The windows that are added up, oldest first.
        windows: All windows, oldest first.
        write: The way to write numbers and days.
    """
    try:
        first, last = (_moment(window, write) for window in (chosen[0], chosen[-1]))
    except (IndexError, ValueError):  # "all" is not a day
        return "all reports"
    if len(windows) == 1 or first == last:
        return first
    many, there = (write.number(len(x), 0) for x in (chosen, windows))
    of = f"all {many}" if len(chosen) == len(windows) else f"{many} of {there}"
    return f"{first} to {last}, {of} windows"


def _moment(window: str, write: Numbers) -> str:
    """Return the day or hour, UTC, of a window; raise ValueError for another text."""
    day = write.day(datetime.date.fromisoformat(window[:10]))
    return f"{day}, {window[11:13]}:00 UTC" if "T" in window else day


def scaled(unit: str | None) -> tuple[int, str]:
    """Return the factor and the unit in which numbers are shown; None is for a share."""
    return (100, "points") if unit is None else (1, unit)


def exact(
    parts: Iterable[tuple[str, float, str | None]],
    confidence: float,
    where: str = "",
    write: Numbers = ENGLISH,
) -> str:
    """Return how exact estimates are.

    Args:
        parts: Name, half-width of the interval, and unit (None for a share) of each estimate.
        confidence: The confidence of the intervals.
        where: The place of the estimates in the sentence, or "".
        write: The way to write numbers.
    """
    clauses = []
    for what, half, unit in parts:
        scale, of = scaled(unit)
        is_known = "" if clauses else " is known"
        clauses.append(f"{what}{is_known} to about ±{two_digits(half * scale, write)} {of}".rstrip())
    return capitalize(f"{where}{' and '.join(clauses)}; {sure(confidence, write)}")


def best_to_worst(title: str, ends: Sequence[tuple[str, float]], unit: str | None, confidence: float) -> str:
    """Return how exact the rows of a table are.

    Args:
        title: The title of the table.
        ends: Name and half-width of its best and its worst row, or of its only row.
        unit: The unit, or None for shares.
        confidence: The confidence of the intervals.
    """
    scale, of = scaled(unit)
    errors = [f"±{two_digits(half * scale)}" for _, half in ends]
    if len(ends) == 1:
        text = f'"{title}" is known to about {errors[0]} {of}'
    else:
        about = " to ".join(f"{error} ({name})" for error, (name, _) in zip(errors, ends, strict=True))
        text = f'Rows of "{title}" are known to about {about} {of}'
    return f"{text.rstrip()}; {sure(confidence)}"


def sure(confidence: float, write: Numbers = ENGLISH) -> str:
    """Return the meaning of a confidence."""
    return f"{write.number(confidence * 100)} of 100 such intervals hold the truth."


APPROXIMATE = (
    "Approximate: the intervals include an error, such as that of fixed hash functions, which more reports "
    "do not remove."
)
"""The note on answers of an approximate mechanism."""


FOUR_TIMES = "four times as many"
HALF_AS_WIDE = "the intervals would be half as wide."


def halved(reports: int, write: Numbers = ENGLISH, *, approximate: bool = False) -> str:
    """Return what would make intervals half as wide; if `approximate`, nothing would."""
    if approximate:
        return "more reports narrow the intervals only as far as the mechanism's own error."
    return f"with {FOUR_TIMES} reports ({write.number(4 * reports, 0)}), {HALF_AS_WIDE}"


def to_one_point(boards: float, half: float) -> str:
    """Return how many devices ±1 point takes, if `boards` devices reach a half-width of `half`."""
    return f"±1 point takes {few_boards(boards * (half / 0.01) ** 2):,} devices."


def often(p: float, write: Numbers) -> str:
    """Return how often chance alone causes as large a change."""
    if p > 0.1:
        return f"{write.number(math.ceil(p * 100), 0)} times in 100" if p <= 0.9 else "nearly always"
    if p < 1e-4:
        return f"less than 1 time in {write.number(10_000, 0)}"
    return f"about 1 time in {two_digits(1 / p, write)}"


def chance(p: float, write: Numbers = ENGLISH) -> str:
    """Return how often chance alone causes as much: "chance alone: less than 1 in 10,000"."""
    return f"chance alone: {often(p, write).replace(' time in', ' in')}"


def change(of: Change, name: str, unit: str | None, confidence: float, rows: int, write: Numbers) -> str:
    """Return a sentence: mean rose by 7.66 °C, between 6.12 and 9.21: from 18.03 to 25.69; by chance: ...

    Args:
        of: The change.
        name: The name of the statistic.
        unit: The unit of a reading, or None for a share.
        confidence: The confidence of the interval.
        rows: The number of rows that are compared.
        write: The way to write numbers.
    """
    scale, points = scaled(unit)
    places = decimals(of.low * scale, of.high * scale)

    def number(x: float) -> str:
        return write.number(x * scale, places)

    def by(x: float) -> str:
        return f"{number(x)} {points}".rstrip()

    before = f"from {number(of.before)} to {number(of.after)}{'%' if unit is None else ''}"
    if of.low < 0 < of.high:
        movement = f"went {before}: somewhere between a fall of {number(-of.low)} and a rise of {by(of.high)}"
    elif of.low >= 0:
        movement = f"rose by {by(of.value)}, between {number(of.low)} and {number(of.high)}: {before}"
    else:
        movement = (
            f"fell by {by(abs(of.value))}, between {number(abs(of.high))} and {number(-of.low)}: {before}"
        )
    verdict = _CHANGED if of.p_adjusted < 1 - confidence else _CHANCE
    alone, together = (often(p, write) for p in (of.p, of.p_adjusted))
    chance = f"If nothing had changed, that much would be seen {alone}"
    if together != alone:
        compared = f"all {write.number(rows, 0)} rows that are compared here taken into account"
        chance += f", looked at alone; with {compared}, {together}"
    return f"{name} {movement}. {chance}. {verdict}"


def too_few(count: int, write: Numbers) -> str:
    """Return the message shown instead of an estimate from too few reports."""
    so_far = counted(count, write=write) if count else "No report"
    return f"{so_far} {'has' if count <= 1 else 'have'} been counted so far. An estimate needs 2 reports."
