"""Planning: the rises that a rollout finds, and the reports that verdicts take."""

import math

import numpy as np
import pytest
from scipy import stats

from hushmote.server.release.difference import ReleaseError, effective_reports
from hushmote.server.release.plan import QuestionPlan
from hushmote.server.release.power import (
    Rollout,
    Variance,
    detectable_rise,
    proceed_power,
    reports_to_proceed,
    reports_to_stop,
    silence_information,
    stage,
    stop_power,
    yes_no_variance,
)

VARIANCE: Variance = yes_no_variance(2.0)
ROLLOUT = Rollout(1000 / 14, 19_000 / 14, 14)


class TestDetectableRise:
    def test_of_a_thousand_new_reports(self):
        """One look at the end finds 4.15 points; 13 more cost 0.1 points, and three questions 0.8."""
        rises = [detectable_rise(ROLLOUT, 0.05, VARIANCE, 0.05 / m) for m in (1, 2, 3)]
        assert rises == pytest.approx([0.0427, 0.0482, 0.0511], abs=2e-4)
        once = detectable_rise(Rollout(1000, 19_000, 1), 0.05, VARIANCE)
        assert once == pytest.approx(0.0415, abs=2e-4)

    def test_has_the_power(self):
        rise = detectable_rise(ROLLOUT, 0.05, VARIANCE, power=0.9)
        assert rise is not None
        assert stop_power(ROLLOUT, 0.05, rise, VARIANCE) == pytest.approx(0.9, abs=1e-3)

    def test_both_directions_are_alike(self):
        falls = detectable_rise(ROLLOUT, 0.95, VARIANCE, sign=-1)
        assert falls == pytest.approx(detectable_rise(ROLLOUT, 0.05, VARIANCE), rel=1e-3)

    def test_is_none_if_no_share_is_large_enough(self):
        assert detectable_rise(Rollout(1, 19, 5), 0.5, VARIANCE) is None


class TestReports:
    def test_to_proceed_with_two_points(self):
        """With the variance of a release without a rise in place of the margin's, it would be 4,680."""
        assert reports_to_proceed(14, 0.05, 0.02, VARIANCE, other=19_000) == pytest.approx(4957, rel=0.005)
        assert reports_to_proceed(14, 0.05, 0.02, VARIANCE, ratio=19.0) == pytest.approx(4175, rel=0.005)

    def test_do_not_depend_on_the_direction(self):
        more = reports_to_proceed(14, 0.05, 0.02, VARIANCE, ratio=19.0)
        less = reports_to_proceed(14, 0.95, -0.02, VARIANCE, ratio=19.0)
        assert less == pytest.approx(more, rel=1e-3)

    def test_have_the_power(self):
        count = reports_to_stop(19.0, 14, 0.05, 0.03, VARIANCE)
        assert count is not None
        rollout = Rollout(count / 14, 19 * count / 14, 14)
        assert stop_power(rollout, 0.05, 0.03, VARIANCE) == pytest.approx(0.8, abs=1e-3)
        count = reports_to_proceed(10, 0.1, 0.03, VARIANCE, ratio=3.0)
        assert count is not None
        rollout = Rollout(count / 10, 3 * count / 10, 10)
        assert proceed_power(rollout, 0.1, 0.03, VARIANCE) == pytest.approx(0.8, abs=1e-3)

    def test_three_questions_that_must_proceed_need_more(self):
        one, three = (reports_to_proceed(14, 0.05, 0.02, VARIANCE, ratio=19.0, questions=m) for m in (1, 3))
        assert one is not None
        assert three is not None
        assert 1.3 * one < three < 2 * one

    def test_are_none_if_the_others_are_too_few(self):
        assert reports_to_proceed(14, 0.05, 0.02, VARIANCE, other=1000) is None

    def test_need_one_description_of_the_others(self):
        with pytest.raises(ReleaseError, match="either the ratio"):
            reports_to_proceed(14, 0.05, 0.02, VARIANCE)


class TestStage:
    def test_larger_parts_show_more(self):
        stages = [stage(p, 1429, 14, 0.05, VARIANCE, margin=0.02) for p in (0.05, 0.25, 0.5)]
        rises = [s.rise for s in stages if s is not None]
        chances = [s.proceed_chance for s in stages if s is not None and s.proceed_chance is not None]
        assert rises == sorted(rises, reverse=True)
        assert chances == sorted(chances)
        assert len(rises) == len(chances) == 3

    def test_without_enough_reports_or_margin(self):
        assert stage(0.05, 2, 5, 0.05, VARIANCE) is None
        small = stage(0.05, 1000, 14, 0.05, VARIANCE)
        assert small is not None
        assert small.proceed_chance is None

    def test_rejects_impossible_sizes(self):
        with pytest.raises(ReleaseError, match="between 0 and 1, not 1"):
            stage(1.0, 100, 14, 0.05, VARIANCE)
        with pytest.raises(ReleaseError, match="reports of both sides every day"):
            Rollout(0, 100, 14)


class TestRollout:
    def test_information_is_used_up_on_the_last_day(self):
        question = QuestionPlan("crashed", "more", 0.02, ROLLOUT.information(0.23), 0.23)
        days = np.ones(14)
        effective = effective_reports(ROLLOUT.new * days, ROLLOUT.other * days)
        assert question.fraction(effective) == pytest.approx(1.0)
        assert ROLLOUT.fractions[6] == 0.5


class TestVariance:
    def test_of_a_yes_or_no_report(self):
        truth = math.exp(2) / (1 + math.exp(2))
        code = 0.3 * truth + 0.7 * (1 - truth)
        assert VARIANCE(0.3) == pytest.approx(code * (1 - code) / (2 * truth - 1) ** 2)


class TestSilenceInformation:
    def test_is_more_than_that_of_one_test(self):
        level = 0.005
        once = ((stats.norm.isf(level) + stats.norm.isf(0.2)) / 0.2) ** 2
        assert once < silence_information(0.3, 0.1, level) < 1.1 * once

    def test_needs_more_than_the_tolerance(self):
        with pytest.raises(ReleaseError, match=r"above the tolerance \(0\.1\)"):
            silence_information(0.1, 0.1, 0.005)
