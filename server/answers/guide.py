"""Answers in three plain sentences: how private, how exact, what next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

from ..words.epsilon import belief
from ..words.numbers import two_digits
from .rows import AnswerRows
from .second_epsilon import TwoEpsilons

A = TypeVar("A", bound=AnswerRows)

NOISY = 0.25
"""Part of the largest share: an interval of more on each side hides what the others are."""

_OF_PAIRS = ("difference", "conditional", "marginal", "joint")
_MOMENTS = ("mean", "standard deviation")  # shown unasked; a quantile was asked for
_MOST_NATS = 16.0  # of all reports of a board: beyond, no belief is bounded in any useful way


@dataclass(frozen=True)
class Guide:
    """What somebody who knows nothing of differential privacy needs to know of answers."""

    private: str
    exact: str
    next: str

    def words(self) -> str:
        """Three lines."""
        return f"How private: {self.private}\nHow exact: {self.exact}\nWhat next: {self.next}"


def guide(answers: Sequence[AnswerRows], epsilons: TwoEpsilons, windows: int) -> Guide:
    """Sentences on answers; windows: in how many the reports came, where more could be asked about them."""
    return Guide(_private(epsilons), exact(answers), _next(answers, windows))


def _private(epsilons: TwoEpsilons) -> str:
    one = belief(epsilons.report)
    together = epsilons.report * epsilons.own
    if epsilons.own == 1:
        return one
    if together > _MOST_NATS:
        return f"{one} A board's many reports about one reading that never changes tell more than that."
    all_of_them = belief(together, seen=f"all {epsilons.own:,} of its reports")
    return f"{one} {all_of_them}"


def half_width(answer: AnswerRows) -> float:
    """Half the width of the table's middle interval, of moments the mean's; 0 where all hold everything."""
    rows = answer.rows[:1] if answer.kind == "moments" else answer.rows
    return median([(row.high - row.low) / 2 for row in rows if row.high > row.low] or [0.0])


def asked_about(answers: Sequence[A]) -> A:
    """The table that errors are said of: a pair's difference, or one part given another, or the first."""
    of_pairs = [one for kind in _OF_PAIRS[:2] for one in answers if one.kind == kind]
    return next(iter(of_pairs), answers[0])


def exact(answers: Sequence[AnswerRows]) -> str:
    """How exact the answers are, in a sentence; of a pair from the best known row to the worst."""
    sure = f"{answers[0].confidence * 100:g} of 100 such intervals hold the truth"
    if answers[0].kind in _OF_PAIRS:
        return f"{_from_best_to_worst(asked_about(answers))}; {sure}."
    parts, known = [], " is known"
    shares = [a for a in answers if a.quantity == "share"]
    readings = [a for a in answers if a.quantity == "reading"]
    kind = {"trend": "in a window, ", "change": "of a change, "}.get(answers[0].kind, "")
    asked = [row for a in shares if a.kind == "ranges" for row in a.rows]
    if asked:  # the widest of them: what holds for it holds for each
        widest = max(row.high - row.low for row in asked) / 2
        which = "the share that you asked for" if len(asked) == 1 else "each share that you asked for"
        parts.append(f"{which}{known} to about ±{two_digits(widest * 100)} percentage points")
    elif shares and half_width(shares[0]):
        parts.append(f"a share{known} to about ±{two_digits(half_width(shares[0]) * 100)} percentage points")
    if readings:
        rows = [row for a in readings for row in a.rows]
        first = next((row for row in rows if row.name not in _MOMENTS), rows[0])
        same = [row for row in rows if row.name == first.name]
        reading = median((row.high - row.low) / 2 for row in same)
        error = f"{two_digits(reading)} {readings[0].unit}".strip()
        parts.append(f"the {first.name}{'' if parts else known} to about ±{error}")
    if not any(a.rows for a in answers):
        return "No text stands out from what chance shows."
    if not parts:
        return "What was asked for holds all reports, whatever the readings are."
    text = f"{kind}{' and '.join(parts)}; {sure}."
    return text[0].upper() + text[1:]


def _from_best_to_worst(answer: AnswerRows) -> str:
    scale, unit = (100, "percentage points") if answer.quantity == "share" else (1, answer.unit)
    rows = sorted(answer.rows, key=lambda row: row.high - row.low)
    ends = [f"±{two_digits((row.high - row.low) / 2 * scale)}" for row in (rows[0], rows[-1])]
    if len(rows) == 1:
        return f'"{answer.heading}" is known to about {ends[0]} {unit}'.rstrip()
    about = " to ".join(f"{end} ({row.name})" for end, row in zip(ends, (rows[0], rows[-1]), strict=True))
    return f'Rows of "{answer.heading}" are known to about {about} {unit}'.rstrip()


def _next(answers: Sequence[AnswerRows], windows: int) -> str:
    first = answers[0]
    if first.kind == "trend":
        return "Four times as many reports in each window halve the intervals."
    if first.kind == "change":
        return "Four times as many reports on both sides show changes half as large."
    if not first.rows:
        return f"Four times as many reports ({4 * first.reports:,}) find texts of about half that share."
    halve = f"four times as many reports ({4 * first.reports:,}) halve the intervals"
    if first.quantity == "share" and half_width(first) > NOISY * max(row.value for row in first.rows):
        wider = "Ask for fewer, wider rows (--rows 8, --range)" if first.rows[0].upper is not None else ""
        text = f"{wider}, or wait: {halve}." if wider else f"{halve}."
    else:
        text = f"{halve}."
    trend = f" --trend shows the {windows} windows one by one." if windows > 1 else ""
    return text[0].upper() + text[1:] + trend
