"""Verdicts: stop, proceed, not yet, silence, Holm's method, decided questions, and false verdicts."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from hushmote.server.estimate.statistic import Statistic
from hushmote.server.release.boundary import bounds
from hushmote.server.release.difference import Look, ReleaseError, SideDays, looks
from hushmote.server.release.plan import QuestionPlan, ReleasePlan, SilencePlan
from hushmote.server.release.silence import SilenceLook
from hushmote.server.release.verdict import QuestionVerdict, Verdict, release_verdict

DAYS = 14
ERROR = 0.015  # of the difference at the planned end
SEED = 20261129


def question(name: str = "crashed", margin: float | None = 0.05, worse: str = "more") -> QuestionPlan:
    """Return a question whose 1,000 effective reports give ERROR."""
    return QuestionPlan(name, "more" if worse == "more" else "less", margin, ERROR**-2, 1000 * ERROR**2)


def plan(*questions: QuestionPlan, silence: SilencePlan | None = None, alpha: float = 0.05) -> ReleasePlan:
    return ReleasePlan("firmware", "2.4.0", ("2.3.1",), questions or (question(),), silence, alpha)


def series(*values: float) -> list[Look]:
    """Return looks on consecutive days with these differences."""
    effective = [1000 * (day + 1) / DAYS for day in range(len(values))]
    return [
        Look(day, value, ERROR**2 * 1000 / n, 0.0, n, n)
        for day, (value, n) in enumerate(zip(values, effective, strict=True))
    ]


def boundary(day: int, level: float = 0.05) -> float:
    """Return the difference at which a question is decided on a day."""
    fractions = tuple((k + 1) / DAYS for k in range(day + 1))
    return bounds(fractions, level)[day] * ERROR / math.sqrt(fractions[day])


def only(*values: float, margin: float | None = 0.05, worse: str = "more") -> QuestionVerdict:
    """Return the verdict on one question."""
    result = release_verdict(plan(question("crashed", margin, worse)), {"crashed": series(*values)})
    return result.questions[0]


class TestIncompletePlan:
    def test_prevents_only_proceed(self):
        for value, verdict in ((-0.5, Verdict.NOT_YET), (0.5, Verdict.STOP)):
            looks = {"crashed": series(*[value] * DAYS)}
            result = release_verdict(plan(), looks, is_complete=False)
            assert result.verdict is verdict
        assert release_verdict(plan(), {"crashed": series(-0.5)}).verdict is Verdict.PROCEED


class TestOneQuestion:
    def test_stops_at_the_boundary(self):
        at = boundary(6)
        assert only(*[0.0] * 6, at * 0.999, margin=None).verdict is Verdict.NOT_YET
        decided = only(*[0.0] * 6, at * 1.001, margin=None)
        assert (decided.verdict, decided.decision_day) == (Verdict.STOP, 6)
        assert decided.low > 0
        assert decided.value == pytest.approx(at * 1.001)
        assert decided.fraction == pytest.approx(0.5)

    def test_proceeds_below_the_margin(self):
        at = boundary(13)
        assert only(*[0.024] * 13, 0.05 - at * 0.999).verdict is Verdict.NOT_YET
        decided = only(*[0.024] * 13, 0.05 - at * 1.001)
        assert (decided.verdict, decided.decision_day) == (Verdict.PROCEED, 13)
        assert decided.high < 0.05

    def test_a_decided_question_stays_decided(self):
        values = [0.0] * 5 + [0.09] + [0.02] * 8
        stop = only(*values, margin=None)
        assert (stop.verdict, stop.decision_day) == (Verdict.STOP, 5)
        assert stop.value is not None
        assert 0 < stop.low <= stop.value <= stop.high

    def test_a_small_certain_rise_may_proceed(self):
        result = only(*[0.04] * 14, margin=0.1)
        assert result.verdict is Verdict.PROCEED
        assert result.low > 0
        assert only(*[0.04] * 14, margin=None).verdict is Verdict.STOP

    @pytest.mark.parametrize("value", [0.07, -0.05, 0.01])
    def test_less_is_worse_mirrors_more(self, value: float):
        more, less = only(*[value] * 10), only(*[-value] * 10, worse="less")
        assert less.verdict is more.verdict
        assert (less.low, less.high) == pytest.approx((-more.high, -more.low))
        assert less.value == pytest.approx(-value)

    def test_bounds_of_contradicting_looks_are_the_last(self):
        result = only(*[0.15] * 5, *[-0.1] * 9, margin=None)
        assert result.low < result.high < 0.05
        assert result.verdict is Verdict.STOP

    def test_before_the_first_look(self):
        result = only()
        assert (result.verdict, result.value, result.fraction) == (Verdict.NOT_YET, None, 0.0)
        assert math.isinf(result.low)
        assert math.isinf(result.high)

    def test_skew_widens_the_better_release_only(self):
        """A release that seems better also seems to vary less, so its test allows for that."""
        skewed = [replace(look, skew=0.002) for look in series(*[0.0] * 14)]
        plain = only(*[0.0] * 14)
        result = release_verdict(plan(), {"crashed": skewed}).questions[0]
        assert result.low == pytest.approx(plain.low)
        assert result.high > plain.high
        limit = bounds(tuple((k + 1) / DAYS for k in range(DAYS)), 0.05)[-1]
        interval = Statistic(0.0, ERROR, 0.002).interval(1 - 2 * float(stats.norm.sf(limit)))
        assert result.high == pytest.approx(interval[1])

    def test_says_what_is_needed(self):
        early, late = only(*[0.0] * 4), only(*[0.0] * 9)
        assert early.remaining is not None
        assert late.remaining is None or late.remaining.days < early.remaining.days
        assert only(*[0.0] * 4, margin=None).remaining is None


class TestHolm:
    def test_one_of_three_needs_a_third_of_alpha(self):
        questions = tuple(question(name, None) for name in "abc")
        between = (boundary(13) + boundary(13, 0.05 / 3)) / 2
        values = {"a": series(*[0.0] * 13, between), "b": series(*[0.0] * 14), "c": series(*[0.0] * 14)}
        assert release_verdict(plan(*questions), values).verdict is Verdict.NOT_YET
        values["a"] = series(*[0.0] * 13, boundary(13, 0.05 / 3) * 1.001)
        result = release_verdict(plan(*questions), values)
        assert [q.verdict for q in result.questions] == [Verdict.STOP, Verdict.NOT_YET, Verdict.NOT_YET]

    def test_a_rejection_helps_the_others(self):
        """The first of two questions is decided on day 8, and lets an earlier look of the second decide."""
        late = boundary(13, 0.05) * 1.001
        assert late < boundary(13, 0.025)
        first, second = question("a", None), question("b", None)
        values = {"a": series(*[0.0] * 8, 0.2, *[0.1] * 5), "b": series(*[0.0] * 13, late)}
        result = release_verdict(plan(first, second), values)
        assert [(q.verdict, q.decision_day) for q in result.questions] == [
            (Verdict.STOP, 8),
            (Verdict.STOP, 13),
        ]
        values = {"a": series(*[0.0] * 13, 0.2), "b": series(*[0.0] * 6, boundary(6) * 1.001, *[0.0] * 7)}
        result = release_verdict(plan(first, second), values)
        assert [(q.verdict, q.decision_day) for q in result.questions] == [
            (Verdict.STOP, 13),
            (Verdict.STOP, 13),
        ]


class TestAllQuestions:
    def test_all_with_a_margin_must_proceed(self):
        questions = question("a"), question("b"), question("c", None)
        values = {"a": series(*[-0.02] * 14), "b": series(*[0.04] * 14), "c": series(*[0.0] * 14)}
        wide = plan(replace(questions[0]), replace(questions[1], margin=0.1), questions[2])
        assert release_verdict(wide, values).verdict is Verdict.PROCEED
        narrow = plan(*questions)
        assert release_verdict(narrow, values | {"b": series(*[0.03] * 14)}).verdict is Verdict.NOT_YET

    def test_one_bad_question_stops(self):
        values = {"a": series(*[-0.02] * 14), "b": series(*[0.2] * 14)}
        assert release_verdict(plan(question("a"), question("b")), values).verdict is Verdict.STOP

    def test_without_a_margin_nothing_proceeds(self):
        result = release_verdict(plan(question(margin=None)), {"crashed": series(*[-0.2] * 14)})
        assert result.verdict is Verdict.NOT_YET

    def test_rejects_other_questions(self):
        with pytest.raises(ReleaseError, match="the plan has the questions crashed, not battery"):
            release_verdict(plan(), {"battery": []})
        with pytest.raises(ReleaseError, match="does not check for missing reports"):
            release_verdict(plan(), {"crashed": []}, [SilenceLook(0, 10, 5, 0.1)])


class TestSilence:
    def test_missing_reports_stop(self):
        watching = plan(silence=SilencePlan(300.0))
        silent = [SilenceLook(0, 100, 4, 0.02), SilenceLook(1, 300, 9, 0.007)]
        result = release_verdict(watching, {"crashed": []}, silent)
        assert result.verdict is Verdict.STOP
        assert result.is_silent
        assert result.silence is not None
        assert result.silence.decision_day == 1
        assert result.silence.missing_share == pytest.approx(0.97)
        assert 0.1 < result.silence.low < 0.97
        assert (result.silence.expected_reports, result.silence.received_reports) == (300, 9)

    def test_tolerates_a_small_shortfall(self):
        watching = plan(silence=SilencePlan(300.0))
        result = release_verdict(
            watching, {"crashed": series(*[0.0] * 14)}, [SilenceLook(9, 1e6, 0.91e6, 1e-4)]
        )
        assert not result.is_silent
        assert result.verdict is Verdict.PROCEED

    def test_prevents_proceed_before_its_first_look(self):
        looks = {"crashed": series(-0.5)}
        assert release_verdict(plan(), looks).verdict is Verdict.PROCEED
        assert release_verdict(plan(silence=SilencePlan(300.0)), looks).verdict is Verdict.NOT_YET

    def test_before_its_first_look(self):
        result = release_verdict(plan(silence=SilencePlan(300.0)), {"crashed": []})
        assert result.silence is not None
        assert (result.silence.missing_share, result.is_silent) == (None, False)
        assert not release_verdict(plan(), {"crashed": []}).is_silent


class TestFalseVerdicts:
    @pytest.mark.slow
    @pytest.mark.parametrize(("rise", "verdict"), [(0.0, Verdict.STOP), (0.04, Verdict.PROCEED)])
    def test_are_rare(self, rise: float, verdict: Verdict):
        """800 releases at ε = 2; at a rate of 5%, more than 82 are false by chance in fewer than 1e-9."""
        rng, releases = np.random.default_rng(SEED), 800
        truth = math.exp(2) / (1 + math.exp(2))

        def side(reports: int, share: float) -> SideDays:
            n = np.round(reports / DAYS * np.linspace(0.5, 1.5, DAYS)).astype(int)
            codes = rng.binomial(n, 1 - truth + share * (2 * truth - 1)) / n
            scale = 1 / (2 * truth - 1)
            estimate, variance = (codes - 1 + truth) * scale, codes * (1 - codes) * scale**2 / n
            return SideDays(n.astype(float), estimate, variance, (1 - 2 * codes) * scale / n)

        variance = 0.181 + 0.05 * 0.95
        margin = None if rise == 0 else rise
        release_plan = plan(
            QuestionPlan("a", "more", margin, 950 / variance, variance),
            QuestionPlan("b", "more", margin, 950 / variance, variance),
        )
        false = 0
        for _ in range(releases):
            # Another question's true rise does not matter: at the margin, one alone may not say "proceed".
            rises = {"a": rise, "b": -0.2 if rise else 0.0}
            evidence = {
                name: looks(side(1000, 0.3 + value), side(19_000, 0.3)) for name, value in rises.items()
            }
            false += release_verdict(release_plan, evidence).verdict is verdict
        assert 0 < false <= stats.binom.isf(1e-9, releases, 0.05)
