"""Make the plan of a release at its first look, and compare a later request with it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...arrays import Floats
from ...experiments.judged import JudgedQuestion
from ...release.difference import MIN_REPORTS, SideDays, report_variance
from ...release.plan import ALPHA, DAYS, QuestionPlan, ReleasePlan
from ...release.power import Rollout, reports_to_proceed
from .evidence import Comparison

RECENT_DAYS = 7
"""The days whose rate of reports is expected to continue."""

USUAL_STAGE = 0.05
"""The share of devices that the plan assumes while the new version has too few reports to show a rate."""


@dataclass(frozen=True)
class PlanRequest:
    """The settings that a call gives; None for those of the stored plan, or the defaults.

    Attributes:
        new: The new version.
        others: The versions that it is compared with, or () for those of the stored plan; kept sorted and
            without repetitions, so that the order of a call does not matter.
        days: The days to plan for, from the first day with reports of the new version.
        reports: The reports of the new version in these days.
        alpha: The probability of a false verdict.
        selection: How the boards with the new version were chosen, if not at random.
    """

    new: str
    others: tuple[str, ...] = ()
    days: int | None = None
    reports: int | None = None
    alpha: float | None = None
    selection: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "others", tuple(sorted(set(self.others))))

    def applied_to(self, plan: ReleasePlan) -> ReleasePlan:
        """Return a stored plan with this call's settings."""
        names = ("others", "days", "reports", "alpha", "selection")
        values = {name: getattr(self, name) for name in names if getattr(self, name) not in (None, ())}
        return replace(plan, **values)


@dataclass(frozen=True)
class Question:
    """A judged question, and its days.

    Attributes:
        name: The question's name.
        judged: The question.
        comparison: The days of both sides.
        every: n for the new version, where 1 in n calls of a board makes a report.
        other_every: The same for the others.
    """

    name: str
    judged: JudgedQuestion
    comparison: Comparison
    every: float
    other_every: float

    @property
    def can_be_planned(self) -> bool:
        """Whether the others have enough reports to estimate the variance of one."""
        other = self.comparison.other
        return other.reports.sum() >= MIN_REPORTS and _variance(other)[0] > 0


def first_plan(
    group: str, request: PlanRequest, questions: Sequence[Question], days_so_far: int
) -> ReleasePlan | None:
    """Return the plan of a release, or None if no question can be planned yet; silence_plan() adds silence.

    A question with a margin is planned for the reports that "proceed" needs, or if these are too many, for
    those that half of the devices would send in the planned days. Without a margin, it is planned for the
    reports in these days at the present rate. The plan uses only the number of reports, and the variance of
    one of the others'.

    Args:
        group: The group's name.
        request: The settings.
        questions: The questions.
        days_so_far: The completed days since the new version's first report.
    """
    alpha = ALPHA if request.alpha is None else request.alpha
    days = DAYS if request.days is None else request.days
    plans = [
        _question_plan(question, request.reports, days, days_so_far, alpha)
        for question in questions
        if question.can_be_planned
    ]
    if not plans:
        return None
    return ReleasePlan(
        group,
        request.new,
        request.others,
        tuple(plans),
        alpha=alpha,
        days=days,
        reports=request.reports,
        selection=request.selection or "",
    )


def _question_plan(
    question: Question, reports: int | None, days: int, days_so_far: int, alpha: float
) -> QuestionPlan:
    judged, comparison = question.judged, question.comparison
    variance, skew = _variance(comparison.other)
    remaining = max(0, days - days_so_far)
    new, other = (_expected(side.reports, remaining) for side in (comparison.new, comparison.other))
    if comparison.new.reports.sum() < MIN_REPORTS:  # too few to show a rate
        new = USUAL_STAGE / (1 - USUAL_STAGE) * other * question.other_every / question.every
    rollout = Rollout(max(reports or new, MIN_REPORTS) / days, other / days, days)
    information = rollout.information(variance)
    if judged.margin is not None and reports is None:
        sign = 1 if judged.worse == "more" else -1

        def one_report(rise: float) -> float:
            return max(variance + skew * rise, variance / 2)

        information = _half_rollout(question, rollout).information(variance)
        ratio = rollout.other / rollout.new
        enough = reports_to_proceed(days, 0.0, sign * judged.margin, one_report, alpha, ratio=ratio)
        if enough is not None:
            proceed = Rollout(enough / days, ratio * enough / days, days)
            information = min(information, proceed.information(variance))
    return QuestionPlan(question.name, judged.worse, judged.margin, information, variance, judged.ask.text)


def _half_rollout(question: Question, rollout: Rollout) -> Rollout:
    """Return the rollout on half of the devices, where the comparison is most precise."""
    devices = rollout.new * question.every + rollout.other * question.other_every
    return Rollout(devices / 2 / question.every, devices / 2 / question.other_every, rollout.days)


def _variance(side: SideDays) -> tuple[float, float]:
    return report_variance(side, np.flatnonzero(side.has_estimate()))


def _expected(reports: Floats, remaining: int) -> float:
    """Return the reports by the planned end, at the present rate."""
    recent = reports[-RECENT_DAYS:]
    rate = max(float(reports[-1]), float(recent.mean())) if len(reports) else 0.0
    return float(reports.sum()) + rate * remaining
