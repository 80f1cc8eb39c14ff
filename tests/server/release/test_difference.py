"""Differences within days: weights, ramps, days without one side, and what each look may know."""

from dataclasses import replace

import numpy as np
import pytest
from experiments import experiment_json

from hushmote.device.ldp_client import Experiment
from hushmote.server.estimate import estimate
from hushmote.server.estimate.statistic import difference
from hushmote.server.release.difference import (
    MIN_REPORTS,
    Look,
    ReleaseError,
    SideDays,
    effective_reports,
    looks,
)


def side(reports: list[float], estimate: list[float], variance: float = 0.25, skew: float = 0.0) -> SideDays:
    """Return days with the variance and skew of one report; a day's variance is around its own mean."""
    n = np.array(reports, float)
    each = np.divide(1.0, n, out=np.full_like(n, np.nan), where=n > 0)
    return SideDays(n, np.array(estimate, float), variance * each * (1 - each), skew * each)


def last_look(new: SideDays, other: SideDays) -> Look:
    return looks(new, other)[-1]


class TestLooks:
    def test_pools_days_by_precision(self):
        new, other = side([100, 300], [0.10, 0.14]), side([100, 100], [0.06, 0.02], 0.16)
        look = last_look(new, other)
        variances = np.array([0.25 / 100 + 0.16 / 100, 0.25 / 300 + 0.16 / 100])
        assert look.value == pytest.approx(np.average([0.04, 0.12], weights=1 / variances))
        assert look.variance == pytest.approx(1 / np.sum(1 / variances))
        assert look.information == pytest.approx(np.sum(1 / variances))
        assert look.stderr == pytest.approx(look.variance**0.5)
        assert (look.day, look.reports) == (1, 400)
        assert look.effective_reports == pytest.approx(100 * 100 / 200 + 300 * 100 / 400)

    def test_a_ramp_and_a_trend_are_no_difference(self):
        """The share rises with time, and so does the new version's part of the fleet."""
        share = [0.02, 0.05, 0.10, 0.20]
        new, other = side([20, 100, 400, 900], share), side([980, 900, 600, 100], share)
        assert last_look(new, other).value == pytest.approx(0.0)
        naive = np.average(share, weights=new.reports) - np.average(share, weights=other.reports)
        assert naive > 0.08

    def test_weights_do_not_depend_on_a_days_estimate(self):
        """A day that happens to have a low share also has a low variance, but no greater weight."""
        new, other = side([100, 100], [0.0, 0.2]), side([1000, 1000], [0.1, 0.1])
        unequal = replace(new, variance=np.array([0.0001, 0.0049]) * 0.99)
        look = last_look(unequal, other)
        assert look.value == pytest.approx(0.0)
        assert look.variance == pytest.approx((0.0025 + 0.00025) / 2)

    def test_days_without_one_side_add_nothing(self):
        new = side([0, 80, 80, 80], [np.nan, 0.1, 0.3, 0.9])
        other = side([500, 500, 500, 0], [0.9, 0.1, 0.1, np.nan])
        assert [look.day for look in looks(new, other)] == [1, 2]
        assert last_look(new, other).value == pytest.approx(0.1)
        assert last_look(new, other).reports == 160

    def test_a_single_report_counts_with_the_variance_of_others(self):
        new = side([1, 99], [1.0, 0.1])
        new = replace(new, variance=np.array([0.0, 0.25 / 99 * 98 / 99]), skew=np.array([np.nan, 0.0]))
        look = last_look(new, side([1000, 1000], [0.1, 0.1]))
        assert 0.005 < look.value < 0.015
        assert look.variance == pytest.approx(0.0025 + 0.25 / 2000, rel=0.1)

    def test_first_look_needs_reports_of_both_sides(self):
        other = side([10] * 8, [0.1] * 8)
        assert [look.day for look in looks(side([20] * 8, [0.1] * 8), other)] == [4, 5, 6, 7]
        assert MIN_REPORTS == 50
        assert looks(side([], []), side([], [])) == ()

    def test_reports_that_never_vary_give_no_look(self):
        constant, varied = side([60], [0.0], variance=0.0), side([60], [0.1])
        assert looks(constant, varied) == looks(varied, constant) == ()

    def test_each_look_has_only_its_own_days(self):
        rng = np.random.default_rng(1)
        reports = rng.integers(50, 500, size=(2, 9)).astype(float)
        shares = rng.uniform(0, 0.2, size=(2, 9))
        new, other = (side(list(n), list(x)) for n, x in zip(reports, shares, strict=True))
        all_looks = looks(new, other)
        for day in range(9):
            cut = [
                SideDays(*(getattr(s, f)[: day + 1] for f in ("reports", "estimate", "variance", "skew")))
                for s in (new, other)
            ]
            assert looks(*cut) == all_looks[: day + 1]

    def test_skew_is_that_of_the_difference(self):
        """With one day, it is that of statistic.difference()."""
        new, other = side([100], [0.1], 0.25, 0.8), side([400], [0.1], 0.16, 0.6)
        v_new, v_other, skew_new, skew_other = 0.0025, 0.0004, 0.008, 0.0015
        expected = (skew_new * v_new - skew_other * v_other) / (v_new + v_other)
        assert last_look(new, other).skew == pytest.approx(expected)

    def test_rejects_sides_with_different_days(self):
        with pytest.raises(ReleaseError, match="the same days, not 2 and 1"):
            looks(side([60, 60], [0, 0]), side([60], [0]))
        with pytest.raises(ReleaseError, match="one value for each day"):
            SideDays(np.ones(2), np.ones(2), np.ones(1), np.ones(2))


class TestSideDays:
    def test_of_estimates_agrees_with_their_difference(self):
        """One day of real counts: the variance is larger only by what a day's mean costs, 1 / (n - 1)."""
        crashed = Experiment.parse(experiment_json(type="bool", mechanism="rr", epsilon=2_000_000))
        yes = [estimate(crashed, np.array(counts)).range(1, 2) for counts in ([880, 120], [1700, 300])]
        sides = [SideDays.of([n, 0], [x, None]) for n, x in zip((1000, 2000), yes, strict=True)]
        look, expected = last_look(*sides), difference(*yes)
        assert look.value == pytest.approx(expected.value)
        assert look.stderr == pytest.approx(expected.stderr, rel=1e-3)
        assert look.skew == pytest.approx(expected.skew, rel=5e-3)
        assert look.day == 0

    def test_of_no_days_has_no_looks(self):
        assert looks(SideDays.of([], []), SideDays.of([], [])) == ()


class TestEffectiveReports:
    def test_is_limited_by_the_smaller_side(self):
        assert effective_reports(1000, 1e9) == pytest.approx(1000, rel=1e-5)
        assert effective_reports(1000, 1000) == 500
        assert effective_reports(np.array([10.0, 0.0]), np.array([10.0, 50.0])) == 5
