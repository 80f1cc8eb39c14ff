"""Answers a question to a store: names resolved once, versions read once, estimates kept by their counts.

The command `estimate`, the page, Python and published results ask through this one module, so that they say
the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..plain import plain
from . import second_epsilon
from .answer import Answer, Answers
from .candidates import MOST_SHOWN
from .fleet_estimate import MEAN, FleetEstimate, trend
from .guide import NOISY, Guide, guide, half_width
from .query import Facts, Selection
from .question import COMPARED, FINE, ROWS, EstimateQuestion, check_answered
from .rows import Kind
from .second_epsilon import TwoEpsilons

_FINER = (16, 64)  # rows that are tried before single bins


@dataclass(frozen=True)
class Reply:
    """A question's answers, and what belongs to all of them."""

    question: EstimateQuestion
    estimate: FleetEstimate
    answers: Answers
    epsilons: TwoEpsilons
    guide: Guide

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        first = self.answers[0]
        return {
            "experiment": self.estimate.experiment.name,
            "unit": first.unit,
            "selection": self.estimate.which,
            "against": first.against or None,
            "reports": self.estimate.reports,
            "confidence": self.question.confidence,
            "stderr_method": self.estimate.estimates.stderr_method,
            "epsilon": plain(self.epsilons),
            "in_words": plain(self.guide),
            "answers": plain(self.answers),
        }

    def to_json(self) -> str:
        """A file of JSON."""
        return json.dumps(self.to_dict(), indent=2) + "\n"

    def pictured(self) -> Answers:
        """What a picture shows: what was asked for, and where nothing was, the histogram."""
        if self.estimate.experiment.type == "pair" and not self.question.compares and not self.question.pair:
            return Answers([self.estimate.pairs.joint(self.question.rows or ROWS)])
        asked = Answers(one for one in self.answers if one.kind not in ("histogram", "moments"))
        return asked or Answers(self.answers[:1])


def ask(facts: Facts, question: EstimateQuestion) -> Reply:
    """Answer a question. Raises UsageError, UnitsError or EstimateError for what cannot be answered."""
    selection, shuffling = question.selection, question.shuffling
    estimate, answers = answered(facts, question)
    if question.trend:
        answers = second_epsilon.beside(facts, answers, selection, shuffling)
        epsilons = second_epsilon.of_windows(facts, selection, shuffling)
    else:
        sides = (question.against, selection) if question.against else (selection,)
        epsilons = second_epsilon.of_selections(facts, *sides, shuffling=shuffling)
    windows = len({source.window for source in estimate.sources}) if COMPARED & estimate.answers else 1
    return Reply(question, estimate, answers, epsilons, guide(answers, epsilons, windows))


def answered(facts: Facts, question: EstimateQuestion) -> tuple[FleetEstimate, Answers]:
    """The estimate that a question rests on, and its answers, without any ε. Errors as ask()."""
    check_answered([v.experiment for v in facts.selected(question.selection).versions], question)
    estimate = estimate_of(facts, question.selection, question)
    if question.trend:
        asked = [*question.ranges, *([MEAN] if MEAN in estimate.answers else [])]
        return estimate, over_time(facts, question, asked)
    if question.against is None:
        return estimate, asked_of(estimate, question)
    before = estimate_of(facts, question.against, question)
    rows, how = question.rows or ROWS, {"quantiles": question.quantiles, "cdf": question.cdf}
    return estimate, estimate.change_since(before, *question.ranges, rows=rows, pair=question.pair, **how)


def estimate_of(facts: Facts, selection: Selection, question: EstimateQuestion) -> FleetEstimate:
    """The estimate of a selection, with a question's weights, unit and confidence. Errors as ask()."""
    selected = facts.selected(selection)
    unit = selected.unit if question.unit is None else question.unit
    estimates = selected.estimate(question.weigh)
    return FleetEstimate(estimates, str(selection), unit, question.confidence, None, selected.sources)


def asked_of(estimate: FleetEstimate, question: EstimateQuestion) -> Answers:
    """What a question asks of one estimate, in the way of its kind."""
    answer = next((OTHER[word] for word in OTHER if word in estimate.answers), _of_values)
    return answer(estimate, question)


def over_time(facts: Facts, question: EstimateQuestion, statistics: Sequence[str]) -> Answers:
    """How "mean", ranges, labels and a question's quantiles or pair went over windows. Errors as ask()."""
    selected = facts.selected(question.selection)
    unit = selected.unit if question.unit is None else question.unit
    how = (unit, question.confidence, question.quantiles, question.selection.fleet, question.pair)
    return trend(selected.by_window(question.weigh), statistics, *how)


def _of_values(estimate: FleetEstimate, question: EstimateQuestion) -> Answers:
    """Its histogram, ranges, quantiles, mean, top and cdf, in this order, as far as it has them."""
    q, can = question, estimate.answers
    tables: tuple[tuple[Kind, object, Callable[[], Iterable[Answer]]], ...] = (
        (
            "histogram",
            "frequencies" in can or q.post != "raw",
            lambda: [estimate.histogram(_rows(estimate, q), post=q.post)],
        ),
        ("ranges", q.ranges, lambda: [_shares(estimate, q)]),
        ("quantiles", q.quantiles, lambda: [estimate.quantile(*q.quantiles)]),
        ("moments", MEAN in can, lambda: [estimate.mean()]),
        ("top", q.top, lambda: estimate.top(q.top)),
        ("cdf", q.cdf, lambda: [estimate.cdf()]),
    )
    wanted = (table for kind, there, table in tables if there and (not q.tables or kind in q.tables))
    return Answers(answer for table in wanted for answer in table())


def _shares(estimate: FleetEstimate, question: EstimateQuestion) -> Answer:
    shares = estimate.together if question.together else estimate.share
    return shares(*question.ranges, post=question.post)


def _rows(estimate: FleetEstimate, question: EstimateQuestion) -> int:
    if question.rows == FINE:
        return fine_enough(estimate)
    return question.rows or ROWS


def fine_enough(estimate: FleetEstimate) -> int:
    """Rows of a number's histogram: as many as its reports can tell apart, at least 16."""
    good = _FINER[0]
    for rows in (*_FINER, estimate.experiment.domain):
        if rows > estimate.experiment.domain or estimate.experiment.type != "number":
            break
        answer = estimate.histogram(rows)
        if half_width(answer) > NOISY * max(row.value for row in answer.rows):
            break
        good = rows
    return good


def _of_texts(estimate: FleetEstimate, question: EstimateQuestion) -> Answers:
    """The shares of the texts that are named."""
    if question.together:
        return Answers([estimate.together(*question.ranges)])
    return Answers([estimate.candidates(question.ranges, most=question.top or MOST_SHOWN)])


def _of_unlisted(estimate: FleetEstimate, question: EstimateQuestion) -> Answers:
    """The texts that are found."""
    return Answers([estimate.discover(question.alphabet)])


def _of_pair(estimate: FleetEstimate, question: EstimateQuestion) -> Answers:
    return estimate.pairs.ask(question.pair, question.rows or ROWS)


OTHER: Mapping[str, Callable[[FleetEstimate, EstimateQuestion], Answers]] = {
    "candidates": _of_texts,
    "discovery": _of_unlisted,
    "pairs": _of_pair,
}
"""What answers an experiment that has neither shares of values nor a mean, by its word of answers_of()."""
