"""Describe estimates in sentences: shares, readings, changes, how exact they are, and how to improve them.

`write` determines the format of numbers and days: plain, or in the locale of the page's reader.
"""

import datetime
import math
from collections.abc import Iterable, Sequence
from typing import Protocol

from .numbers import ENGLISH, Numbers, counted, decimals, round_up_boards, two_digits

_CHANGED, _CHANCE = "It changed.", "That may be chance."


class Interval(Protocol):
    """A number with the bounds of its interval."""

    @property
    def value(self) -> float:
        """The number."""
        ...

    @property
    def low(self) -> float:
        """The lower bound of the interval."""
        ...

    @property
    def high(self) -> float:
        """The upper bound of the interval."""
        ...


class Difference(Interval, Protocol):
    """A difference, and the probability of such a large difference by chance alone."""

    @property
    def p(self) -> float: ...


class Change(Interval, Protocol):
    """The value after minus the value before, and the probability of such a large change by chance alone.

    `p` is for this change on its own; `p_adjusted` takes all compared changes into account.
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
        """The probability of such a large change by chance alone."""
        ...

    @property
    def p_adjusted(self) -> float:
        """The same, with all compared changes taken into account."""
        ...


def capitalize(text: str) -> str:
    """Capitalize the first letter of a text."""
    return text[:1].upper() + text[1:]


def reading(value: float, unit: str, write: Numbers, places: int | None = None) -> str:
    """Return a reading with its unit; without `places`, it is written exactly, as for an edge."""
    if places is None:
        places = len(f"{value:.10f}".rstrip("0").partition(".")[2])
    return f"{write.number(value, places)} {unit}".rstrip()


def bin_range(lower: float, upper: float, ends: tuple[float, float], unit: str, write: Numbers) -> str:
    """Describe the readings in a row: "18 to 22 °C", "below 18 °C", "22 °C and above".

    Args:
        lower: The lower edge.
        upper: The upper edge.
        ends: The lowest and highest edges of the whole range.
        unit: The unit.
        write: The format of numbers.
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
    """Describe the period of the reports: "Oct 23, 2026 to Nov 21, 2026, all 30 windows".

    Args:
        chosen: The selected windows, oldest first.
        windows: All windows, oldest first.
        write: The format of numbers and days.
    """
    try:
        first, last = (_moment(window, write) for window in (chosen[0], chosen[-1]))
    except (IndexError, ValueError):  # "all" is not a day
        return "all reports"
    if len(windows) == 1 or first == last:
        return first
    selected, total = (write.number(len(x), 0) for x in (chosen, windows))
    count = f"all {selected}" if len(chosen) == len(windows) else f"{selected} of {total}"
    return f"{first} to {last}, {count} windows"


def _moment(window: str, write: Numbers) -> str:
    """Return a window's day or hour, UTC; raise ValueError if the text names neither."""
    day = write.day(datetime.date.fromisoformat(window[:10]))
    return f"{day}, {window[11:13]}:00 UTC" if "T" in window else day


def scale_and_unit(unit: str | None) -> tuple[int, str]:
    """Return the factor and the unit for displaying numbers; pass None for a share."""
    return (100, "points") if unit is None else (1, unit)


def exactness(
    parts: Iterable[tuple[str, float, str | None]],
    confidence: float,
    where: str = "",
    write: Numbers = ENGLISH,
) -> str:
    """Describe how exact estimates are.

    Args:
        parts: The name, interval half-width and unit (None for a share) of each estimate.
        confidence: The confidence of the intervals.
        where: A phrase that starts the sentence, or "".
        write: The format of numbers.
    """
    clauses = []
    for what, half, unit in parts:
        scale, noun = scale_and_unit(unit)
        is_known = "" if clauses else " is known"
        clauses.append(f"{what}{is_known} to about ±{two_digits(half * scale, write)} {noun}".rstrip())
    return capitalize(f"{where}{' and '.join(clauses)}; {confidence_note(confidence, write)}")


def exactness_range(
    title: str, ends: Sequence[tuple[str, float]], unit: str | None, confidence: float
) -> str:
    """Describe how exact a table's rows are.

    Args:
        title: The table's title.
        ends: The names and half-widths of its best and worst rows, or of its only row.
        unit: The unit, or None for shares.
        confidence: The confidence of the intervals.
    """
    scale, noun = scale_and_unit(unit)
    errors = [f"±{two_digits(half * scale)}" for _, half in ends]
    if len(ends) == 1:
        text = f'"{title}" is known to about {errors[0]} {noun}'
    else:
        about = " to ".join(f"{error} ({name})" for error, (name, _) in zip(errors, ends, strict=True))
        text = f'Rows of "{title}" are known to about {about} {noun}'
    return f"{text.rstrip()}; {confidence_note(confidence)}"


def confidence_note(confidence: float, write: Numbers = ENGLISH) -> str:
    """Explain a confidence level."""
    return f"{write.number(confidence * 100)} of 100 such intervals contain the true value."


APPROXIMATE = (
    "Approximate: the intervals include an error, such as that of fixed hash functions, which more reports "
    "do not reduce."
)
"""The note on answers from an approximate mechanism."""


FOUR_TIMES = "four times as many"
HALF_AS_WIDE = "the intervals would be half as wide."


def halving_advice(reports: int, write: Numbers = ENGLISH, *, approximate: bool = False) -> str:
    """Say what would make intervals half as wide, or if `approximate`, that nothing would."""
    if approximate:
        return "more reports narrow the intervals only as far as the mechanism's error."
    return f"with {FOUR_TIMES} reports ({write.number(4 * reports, 0)}), {HALF_AS_WIDE}"


def devices_for_one_point(boards: float, half: float) -> str:
    """Say how many devices ±1 point would take, given that `boards` devices reach a half-width of `half`."""
    return f"±1 point takes {round_up_boards(boards * (half / 0.01) ** 2):,} devices."


def frequency_of_chance(p: float, write: Numbers) -> str:
    """Describe how frequently chance alone would cause such a large change."""
    if p > 0.1:
        return f"{write.number(math.ceil(p * 100), 0)} times in 100" if p <= 0.9 else "nearly always"
    if p < 1e-4:
        return f"less than 1 time in {write.number(10_000, 0)}"
    return f"about 1 time in {two_digits(1 / p, write)}"


def chance(p: float, write: Numbers = ENGLISH) -> str:
    """Describe the probability of a result by chance: "chance alone: less than 1 in 10,000"."""
    return f"chance alone: {frequency_of_chance(p, write).replace(' time in', ' in')}"


def change(of: Change, name: str, unit: str | None, confidence: float, rows: int, write: Numbers) -> str:
    """Describe a change: "mean rose by 7.66 °C, between 6.12 and 9.21: from 18.03 to 25.69. ...".

    Args:
        of: The change.
        name: The name of the statistic.
        unit: The unit of a reading, or None for a share.
        confidence: The confidence of the interval.
        rows: The number of rows being compared.
        write: The format of numbers.
    """
    scale, points = scale_and_unit(unit)
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
    alone, together = (frequency_of_chance(p, write) for p in (of.p, of.p_adjusted))
    chance = f"If nothing had changed, that much would be seen {alone}"
    if together != alone:
        compared = f"all {write.number(rows, 0)} rows compared here taken into account"
        chance += f", considered alone; with {compared}, {together}"
    return f"{name} {movement}. {chance}. {verdict}"


def too_few(count: int, write: Numbers) -> str:
    """Return the message shown in place of an estimate if there are too few reports."""
    so_far = counted(count, write=write) if count else "No report"
    return f"{so_far} {'has' if count <= 1 else 'have'} been counted so far. An estimate needs 2 reports."
