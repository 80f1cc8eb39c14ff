"""The majority rule compared with exact sums, and its weak guarantee."""

import numpy as np
import pytest
import reference_composition as composition
from hypothesis import given, settings
from hypothesis import strategies as st

from hushmote.server.accounting import (
    AccountingError,
    Basic,
    History,
    optimal_delta,
)
from hushmote.studies.majority_rule import majority_envelope, majority_epsilon, majority_total


class TestPrivacy:
    def test_is_weak_for_the_same_reports(self):
        assert optimal_delta(0.7698, 100, 10) == pytest.approx(0.990, abs=5e-4)
        assert Basic(100).spent(History.equal(769_800, 100)).epsilon == 76.98


class TestEnvelope:
    def test_is_the_largest_for_at_least_these_reports(self):
        n = np.arange(1, 2002)
        for total in (0.05, 1.0, 2.0, 10.0, 300.0, 650.0):
            raw = majority_epsilon(n, total)
            envelope = majority_envelope(n, total)
            behind = np.maximum.accumulate(raw[::-1])[::-1]
            assert (envelope[:2000] == behind[:2000]).all()
            assert (np.diff(envelope) <= 0).all()
            assert (raw <= envelope).all()

    def test_allows_two_reports_which_ties_forbid(self):
        assert majority_epsilon(2, 0.5) == 0
        assert majority_envelope(2, 0.5) == majority_epsilon(3, 0.5) > 0.3


@composition.EXACT
def by_newton(reports: int, total: int) -> float:
    """Return the curve's point by Newton's method on the exact sum."""
    epsilon = composition.mpmath.mpf("0.0247")
    for _ in range(4):
        lost, slope = _lost_and_slope(reports, epsilon)
        epsilon -= (lost - composition.lost_report(total)) / slope
    return float(epsilon)


def _lost_and_slope(reports: int, epsilon):
    """Return the probability of a lost odd vote and its derivative by ε, summed downwards from one half."""
    mp = composition.mpmath
    half = (reports + 1) // 2
    truth = 1 / (1 + mp.exp(-epsilon))
    middle = mp.binomial(reports, half - 1)
    term = middle * truth ** (half - 1) * (1 - truth) ** (reports - half + 1)
    lost, odds = mp.mpf(0), mp.exp(-epsilon)
    for true in range(half - 1, half - 8_000, -1):
        lost += term
        term *= odds * true / (reports - true + 1)
    slope = -half * mp.binomial(reports, half) * truth ** (half - 1) * (1 - truth) ** (reports - half)
    return lost, slope * truth * (1 - truth)


class TestCurve:
    def test_passes_through_known_points(self):
        assert majority_epsilon(100, 10) == pytest.approx(0.7698, abs=5e-5)
        at_two = majority_epsilon(np.array([19, 20, 21]), 2)
        assert at_two == pytest.approx([0.5370, 0.4236, 0.5112], abs=5e-5)
        assert majority_epsilon(1, 10) == 10

    @settings(max_examples=60)
    @given(st.integers(1, 600), st.integers(200_000, 650_000_000))
    def test_satisfies_the_rule_at_60_digits_and_is_tight(self, reports, total):
        epsilon = majority_epsilon(reports, total / 1e6)
        micro = int(epsilon * 1e6)
        if micro:
            assert composition.lost_vote(micro, reports) >= composition.lost_report(total)
        over = int(epsilon * (1 + 1e-9) * 1e6) + 1
        assert composition.lost_vote(over, reports) < composition.lost_report(total)

    @pytest.mark.slow
    def test_100_000_points_are_finite_and_decreasing(self):
        for total in (0.5, 10):
            curve = majority_epsilon(np.arange(1, 100_001), total)
            assert (curve >= 0).all()
        assert np.isfinite(curve).all()
        assert (curve[2::2] < curve[:-2:2]).all()
        assert curve[99_998] == pytest.approx(by_newton(99_999, 10_000_000), rel=1e-8)

    def test_vote_and_total_are_inverse(self):
        for n in (1, 2, 3, 100, 99_999):
            for total in (1.0, 5.0, 40.0):
                epsilon = majority_epsilon(n, total)
                if epsilon:
                    assert majority_total(epsilon, n) == pytest.approx(total, rel=1e-7)
        assert majority_total(16, 10**6) == np.inf


class TestArguments:
    def test_rejects_totals_that_underflow_and_is_safe_below(self):
        with pytest.raises(AccountingError, match="up to 650 nats"):
            majority_epsilon(67, 689.999792)  # SciPy's betainc allowed 1.6e-5 too much here
        for reports in range(2, 200):
            epsilon = majority_epsilon(reports, 650)
            assert composition.lost_vote(int(epsilon * 1e6), reports) >= composition.lost_report(650_000_000)

    @pytest.mark.parametrize("reports", [0, -3, 1.5, np.array([0, 1]), np.array([1.5]), 1 << 40], ids=str)
    def test_rejects_invalid_numbers_of_reports(self, reports):
        for curve in (majority_epsilon, majority_envelope):
            with pytest.raises(AccountingError, match=r"numbers? of reports"):
                curve(reports, 1)
