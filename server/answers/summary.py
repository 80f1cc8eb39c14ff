"""Three plain sentences about answers: how private they are, how exact they are, and what to do next."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

from ..hints import option
from ..words import answers as words
from ..words.epsilon import belief_of_all
from .rows import AnswerRows
from .second_epsilon import TwoEpsilons

A = TypeVar("A", bound=AnswerRows)

_NOISY = 0.25  # a half-width above this fraction of the largest share hides the others
_OF_PAIRS = ("difference", "conditional", "marginal", "joint")
_MOMENTS = ("mean", "standard deviation")  # shown by default, unlike quantiles


@dataclass(frozen=True)
class Guide:
    """An explanation of answers for readers who do not know differential privacy."""

    private: str
    exact: str
    next: str

    def words(self) -> str:
        """Return the three sentences with labels, each on its own line."""
        return f"Privacy: {self.private}\nHow exact: {self.exact}\nNext: {self.next}"


def guide(answers: Sequence[AnswerRows], epsilons: TwoEpsilons, windows: int, unprotected: str = "") -> Guide:
    """Return the three sentences about these answers.

    Args:
        answers: The answers.
        epsilons: Both ε values of the answers.
        windows: The number of windows with reports if trends can be asked for, otherwise 1.
        unprotected: What reports contain in the clear, as a sentence, or "".
    """
    private = f"{belief_of_all((epsilons.report, epsilons.own))} {unprotected}".rstrip()
    return Guide(private, exactness(answers), _next_step(answers, windows))


def half_width(answer: AnswerRows) -> float:
    """Return half of a table's median interval width, or for moments, half of the mean's.

    The result is 0 if every interval has zero width.
    """
    rows = answer.rows[:1] if answer.kind == "moments" else answer.rows
    return median([row.half_width for row in rows if row.high > row.low] or [0.0])


def is_noisy(answer: AnswerRows) -> bool:
    """Return whether a table has so many rows that noise hides all but the largest shares."""
    return half_width(answer) > _NOISY * max(row.value for row in answer.rows)


def answer_in_focus(answers: Sequence[A]) -> A:
    """Return the table whose errors to describe: a pair's difference or conditional, otherwise the first."""
    pair_answers = [answer for kind in _OF_PAIRS[:2] for answer in answers if answer.kind == kind]
    return next(iter(pair_answers), answers[0])


def exactness(answers: Sequence[AnswerRows]) -> str:
    """Return a sentence on how exact the answers are; for a pair, on the most and least exact rows."""
    confidence = answers[0].confidence
    if answers[0].kind in _OF_PAIRS:
        answer = answer_in_focus(answers)
        widths = sorted(((row.name, row.half_width) for row in answer.rows), key=lambda row: row[1])
        unit = None if answer.quantity == "share" else answer.unit
        ends = widths if len(widths) == 1 else [widths[0], widths[-1]]
        return words.exactness_range(answer.heading, ends, unit, confidence)
    if not any(a.rows for a in answers):
        return "No text stands out from the noise."
    if not _any_informative(answers):
        return "There are too few reports to say anything."
    parts: list[tuple[str, float, str | None]] = []
    informative = [a for a in answers if _any_informative([a])]
    shares = [a for a in informative if a.quantity == "share"]
    readings = [a for a in informative if a.quantity == "reading"]
    range_rows = [row for a in shares if a.kind == "ranges" for row in a.rows]
    if range_rows:  # the widest one bounds them all
        subject = "the share that you asked for" if len(range_rows) == 1 else "each share that you asked for"
        parts.append((subject, max(row.half_width for row in range_rows), None))
    elif shares and half_width(shares[0]):
        parts.append(("a share", half_width(shares[0]), None))
    if readings:
        rows = [row for a in readings for row in a.rows]
        first = next((row for row in rows if row.name not in _MOMENTS), rows[0])
        halves = [row.half_width for row in rows if row.name == first.name]
        parts.append((f"the {first.name}", median(halves), readings[0].unit))
    if not parts:
        return "The ranges that you asked for include all reports, whatever the readings are."
    if answers[0].kind == "change":
        parts = [(f"a change in {what}", half, unit) for what, half, unit in parts]
    return words.exactness(parts, confidence, "at each point in time, " if answers[0].kind == "trend" else "")


def _any_informative(answers: Sequence[AnswerRows]) -> bool:
    return any(a.tells(row) for a in answers for row in a.rows)


def _next_step(answers: Sequence[AnswerRows], windows: int) -> str:
    first = answers[0]
    if first.approximate and first.rows:
        return words.capitalize(words.halving_advice(first.reports, approximate=True))
    if first.kind == "trend":
        return f"With {words.FOUR_TIMES} reports, {words.HALF_AS_WIDE}"
    if first.kind == "change":
        return f"With {words.FOUR_TIMES} reports on both sides, changes half as large would be detected."
    if not first.rows:
        more = f"{words.FOUR_TIMES} reports ({4 * first.reports:,})"
        return f"With {more}, texts with about half that share would be found."
    if not _any_informative(answers):
        return "Wait for more reports, or ask more devices."
    text = words.halving_advice(first.reports)
    if first.quantity == "share" and is_noisy(first):
        wider = (
            f"Ask for fewer, wider rows ({option('rows', '8')}, {option('range')}), or wait: "
            if first.rows[0].upper is not None
            else ""
        )
        text = wider + text
    trend = f" {option('trend')} shows how it changed over time." if windows > 1 else ""
    return words.capitalize(text) + trend
