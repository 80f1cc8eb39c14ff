"""The verdict on a release at a look: stop, proceed, or not yet.

* Stop: the new version is worse beyond chance in some question, or its boards are silent. The probability
  of a false "stop" is at most alpha over all questions and looks (Holm's method with weights over the
  questions, alpha spending over the looks).
* Proceed: it is worse by no more than the margin in every question that has one. This is an
  intersection-union test: it is false only if the question with too large a rise passes as well, so alpha
  needs no correction. A question with a margin that is not in the plan prevents it.
* Not yet: neither; with an estimate of the reports and days still needed.

A look's verdict is computed from all looks up to then, each with the data of its time, so that a question
that has been decided stays decided. A rise that is certain, but smaller than the margin, does not stop a
release.

Holm, Scandinavian Journal of Statistics 1979; Berger, Technometrics 1982 (intersection-union tests);
Jennison and Turnbull, JRSS B 1989 (repeated confidence intervals); Maurer and Bretz, Statistics in
Biopharmaceutical Research 2013 (Holm's method and group sequential tests).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from .boundary import bounds
from .difference import Look, ReleaseError
from .plan import QuestionPlan, ReleasePlan
from .remaining_reports import RemainingReports, reports_until_proceed
from .silence import SilenceLook


class Verdict(StrEnum):
    """A verdict, on one question or on all."""

    STOP = "stop"
    PROCEED = "proceed"
    NOT_YET = "not yet"


@dataclass(frozen=True)
class QuestionVerdict:
    """The verdict on one question.

    Attributes:
        name: The question.
        verdict: The verdict.
        value: The new version minus the others, or None before the first look.
        low: The lower bound of `value`.
        high: Its upper bound. The bound on the better side is false at any look with a probability of at
            most the question's level for "stop", and that on the worse side of at most alpha. The bounds
            agree with the verdict: "stop" if the former excludes zero, "proceed" if the latter excludes
            the margin.
        fraction: The information so far, as a fraction of the planned information.
        decision_day: The day of the look that decided, counted from 0; None if none did.
        remaining: The further reports that "proceed" is likely to need, or None if it cannot be reached or
            needs none.
    """

    name: str
    verdict: Verdict
    value: float | None
    low: float
    high: float
    fraction: float
    decision_day: int | None
    remaining: RemainingReports | None


@dataclass(frozen=True)
class SilenceVerdict:
    """The verdict on missing reports.

    Attributes:
        is_silent: Whether reports are missing beyond chance and the plan's tolerance.
        missing_share: The missing share of reports, or None before the first look.
        low: Its lower bound, valid at every look.
        expected_reports: The reports expected so far.
        received_reports: The reports received so far.
        decision_day: The day of the look that decided, or None.
    """

    is_silent: bool
    missing_share: float | None
    low: float
    expected_reports: float
    received_reports: float
    decision_day: int | None


@dataclass(frozen=True)
class ReleaseVerdict:
    """The verdict on a release.

    Attributes:
        verdict: The verdict on all questions.
        questions: The verdict on each, in the order of the plan.
        silence: The verdict on missing reports, or None if the plan does not check for them.
    """

    verdict: Verdict
    questions: tuple[QuestionVerdict, ...]
    silence: SilenceVerdict | None

    @property
    def is_silent(self) -> bool:
        """Whether the verdict is "stop" because reports are missing."""
        return self.silence is not None and self.silence.is_silent


@dataclass(frozen=True)
class _Test:
    """The looks of a one-sided test: days, fractions of information, effects with errors and skews."""

    days: tuple[int, ...]
    fractions: tuple[float, ...]
    effects: tuple[float, ...]
    errors: tuple[float, ...]
    skews: tuple[float, ...]

    def lower_bounds(self, level: float) -> list[float]:
        """Return each look's lower bound; with a chance of at most `level`, one exceeds the true effect."""
        limits = bounds(self.fractions, level)
        looks = zip(self.effects, limits, self.errors, self.skews, strict=True)
        return [_lower_bound(*look) for look in looks]

    def crossing_day(self, level: float) -> int | None:
        """Return the day of the first look that rejects "no effect", or None."""
        pairs = zip(self.days, self.lower_bounds(level), strict=True)
        return next((day for day, low in pairs if low > 0), None)


def _lower_bound(effect: float, limit: float, error: float, skew: float) -> float:
    """Return the lower end of an interval of `limit` standard errors; see estimate.statistic.intervals()."""
    if math.isinf(limit):
        return -math.inf
    shift = limit**2 * skew / 2
    return effect + min(shift - math.hypot(shift, limit * error), -limit * error)


def release_verdict(
    plan: ReleasePlan,
    looks: Mapping[str, Sequence[Look]],
    silence: Sequence[SilenceLook] = (),
    *,
    is_complete: bool = True,
) -> ReleaseVerdict:
    """Return the verdict at the last look.

    Args:
        plan: The plan stored at the first look.
        looks: Each question's looks so far, oldest first, by its name; difference.looks() returns them.
        silence: The looks at missing reports so far, if the plan checks for them.
        is_complete: Whether the planned questions are still asked, and include all with a margin; if not,
            the verdict is never "proceed".

    Raises:
        ReleaseError: If the questions are not those of the plan, or the plan does not check for silence.
    """
    names = [question.name for question in plan.questions]
    if set(looks) != set(names):
        raise ReleaseError(
            f"the plan has the questions {', '.join(names)}, not {', '.join(looks) or 'nothing'}"
        )
    if silence and plan.silence is None:
        raise ReleaseError("the plan does not check for missing reports, so it cannot judge them")
    tests = {question.name: _worse_test(question, looks[question.name]) for question in plan.questions}
    if plan.silence is not None:
        tests[""] = _silence_test(plan, silence)
    levels, since = _weighted_holm(tests, plan.weights(), plan.alpha)
    questions = tuple(
        _question_verdict(plan, question, looks[question.name], tests[question.name], levels, since)
        for question in plan.questions
    )
    missing = None if plan.silence is None else _silence_verdict(plan, silence, tests[""], levels, since)
    verdict = _verdict_on_all(questions, plan, missing)
    if verdict is Verdict.PROCEED and not is_complete:
        verdict = Verdict.NOT_YET
    return ReleaseVerdict(verdict, questions, missing)


def _verdict_on_all(
    questions: Sequence[QuestionVerdict], plan: ReleasePlan, silence: SilenceVerdict | None
) -> Verdict:
    if (silence is not None and silence.is_silent) or any(q.verdict is Verdict.STOP for q in questions):
        return Verdict.STOP
    if silence is not None and silence.missing_share is None:
        return Verdict.NOT_YET  # the plan checks for silent boards, and this call could not
    pairs = zip(questions, plan.questions, strict=True)
    with_margin = [q.verdict is Verdict.PROCEED for q, planned in pairs if planned.margin is not None]
    return Verdict.PROCEED if with_margin and all(with_margin) else Verdict.NOT_YET


def _weighted_holm(
    tests: Mapping[str, _Test], weights: Mapping[str, float], alpha: float
) -> tuple[dict[str, float], dict[str, int]]:
    """Return the level of each test now, and the day on which each rejection happened."""
    remaining, since = dict(weights), dict[str, int]()
    levels: dict[str, float] = {}
    day = 0
    while remaining:
        total = sum(remaining.values())
        levels |= {name: alpha * weight / total for name, weight in remaining.items()}
        days = {name: tests[name].crossing_day(levels[name]) for name in remaining}
        rejections = {name: max(day, at) for name, at in days.items() if at is not None}
        if not rejections:
            break
        first = min(rejections, key=lambda name: rejections[name])
        day = since[first] = rejections[first]
        del remaining[first]
    return levels, since


def _worse_test(question: QuestionPlan, looks: Sequence[Look]) -> _Test:
    """Return the test of whether the new version is worse."""
    return _Test(
        tuple(look.day for look in looks),
        tuple(question.fraction(look.effective_reports) for look in looks),
        tuple(question.sign * look.value for look in looks),
        tuple(look.stderr for look in looks),
        tuple(question.sign * look.skew for look in looks),
    )


def _margin_test(test: _Test, margin: float) -> _Test:
    """Return the test of whether the new version is worse by less than the margin."""
    effects, skews = (margin - effect for effect in test.effects), (-skew for skew in test.skews)
    return _Test(test.days, test.fractions, tuple(effects), test.errors, tuple(skews))


def _silence_test(plan: ReleasePlan, looks: Sequence[SilenceLook]) -> _Test:
    assert plan.silence is not None
    return _Test(
        tuple(look.day for look in looks),
        tuple(look.information / plan.silence.information for look in looks),
        tuple(look.missing_share - plan.silence.tolerance for look in looks),
        tuple(math.sqrt(look.variance) for look in looks),
        (0.0,) * len(looks),
    )


def _question_verdict(
    plan: ReleasePlan,
    question: QuestionPlan,
    looks: Sequence[Look],
    test: _Test,
    levels: Mapping[str, float],
    since: Mapping[str, int],
) -> QuestionVerdict:
    if not looks:
        return QuestionVerdict(question.name, Verdict.NOT_YET, None, -math.inf, math.inf, 0.0, None, None)
    margin = question.margin
    better = max(test.lower_bounds(levels[question.name]))
    distances = _margin_test(test, 0.0).lower_bounds(plan.alpha)  # of minus the effect
    worse = -max(distances)
    effect = test.effects[-1]
    if better > worse:  # the bounds of different looks contradict each other, so show the last look's
        better, worse = test.lower_bounds(levels[question.name])[-1], -distances[-1]
    effect = min(max(effect, better), worse)
    verdict, day, remaining = Verdict.NOT_YET, None, None
    proceeds = None if margin is None else _margin_test(test, margin).crossing_day(plan.alpha)
    if proceeds is not None:
        verdict, day = Verdict.PROCEED, proceeds
    elif question.name in since:
        verdict, day = Verdict.STOP, since[question.name]
    elif margin is not None:
        remaining = reports_until_proceed(question, margin, looks, plan.alpha)
    ends = sorted((question.sign * better, question.sign * worse))
    return QuestionVerdict(
        question.name, verdict, question.sign * effect, ends[0], ends[1], test.fractions[-1], day, remaining
    )


def _silence_verdict(
    plan: ReleasePlan,
    looks: Sequence[SilenceLook],
    test: _Test,
    levels: Mapping[str, float],
    since: Mapping[str, int],
) -> SilenceVerdict:
    if not looks:
        return SilenceVerdict(False, None, -math.inf, 0.0, 0.0, None)
    assert plan.silence is not None
    low = max(test.lower_bounds(levels[""])) + plan.silence.tolerance
    last = looks[-1]
    return SilenceVerdict(
        "" in since, last.missing_share, low, last.expected_reports, last.received_reports, since.get("")
    )
