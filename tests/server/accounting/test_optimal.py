"""Optimal composition compared with its defining sum at 60 digits and with privacy loss distributions."""

import math
from typing import Any

import numpy as np
import pytest
import reference_composition as composition
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st

from hushmote.server.accounting import AccountingError, optimal_delta, optimal_epsilon, optimal_reports
from hushmote.server.accounting.binomial import falls_below, log_chances


class TestReports:
    @pytest.mark.parametrize(
        ("total", "epsilon", "reports"), [(1, 0.01, 562), (4, 0.05, 284), (8, 0.1, 238), (8, 0.5, 16)]
    )
    def test_match_published_numbers(self, total, epsilon, reports):
        assert optimal_reports(epsilon, total, 1e-6) == reports
        assert optimal_delta(epsilon, reports, total) <= 1e-6 < optimal_delta(epsilon, reports + 1, total)


class TestDelta:
    @pytest.mark.slow
    @settings(max_examples=150)
    @given(st.integers(1, 2000), st.integers(1_000, 16_000_000), st.floats(0.0005, 1.1).map(lambda x: x * x))
    def test_is_at_or_slightly_above_the_exact_value(self, reports, epsilon, share):
        total = max(1, round(reports * epsilon * share))
        exact: Any = composition.optimal_delta(epsilon, reports, total)
        delta = optimal_delta(epsilon / 1e6, reports, total / 1e6)
        assert delta >= min(exact, 1)  # 60 digits also round
        if exact == 0:
            assert delta == 0
        elif exact > 1e-300:
            assert delta <= exact * (1 + 1e-11 + 2e-15 * reports * (1 + epsilon / 1e6))


class TestEpsilon:
    @pytest.mark.slow
    @settings(max_examples=40)
    @given(st.integers(1, 500), st.integers(10_000, 20_000_000), st.floats(-12, -0.01).map(lambda x: 10**x))
    def test_largest_meets_delta_and_is_tight(self, n, total, delta):
        epsilon = optimal_epsilon(n, total / 1e6, delta)
        assert optimal_delta(epsilon, n, total / 1e6) <= delta
        micro = math.floor(epsilon * 1e6)
        if micro:
            assert composition.optimal_delta(micro, n, total) <= delta
        assert optimal_delta(epsilon * (1 + 1e-9), n, total / 1e6) > delta


class TestSpecialCases:
    def test_is_basic_composition_without_delta(self):
        assert optimal_reports(0.1, 1, 0) == 10  # although ten doubles of 0.1 exceed 1
        assert optimal_epsilon(10, 1, 0) == 0.1
        assert optimal_delta(0.1, 10, 1) == 0
        assert optimal_reports(2, 1, 0) == 0

    def test_is_randomized_response_for_one_report(self):
        truth = math.e**2 / (1 + math.e**2)
        assert optimal_delta(2, 1, 0.5) == pytest.approx(truth - math.e**0.5 * (1 - truth), rel=1e-11)

    def test_handles_million_reports_and_huge_exponents(self):
        assert 0 < optimal_delta(0.01, 10**6, 100) < 2e-7
        assert optimal_epsilon(10**6, 10, 1e-6) == pytest.approx(0.00184813640, rel=1e-8)
        assert 0 < optimal_delta(0.01, 10**6, 9_999) < 1e-300  # on the order of e^-10,000
        assert optimal_delta(16, 10**6, 10_000) == 1
        assert optimal_delta(1e-9, 10**6, 2e-3) == 0


class TestNegligibleTerms:
    @pytest.mark.parametrize(("inside", "limit"), [(200, 0), (200, 500), (200, 201), (199, 199)])
    def test_begin_at_the_first_chance_below_the_bound(self, inside: int, limit: int):
        chances = log_chances(np.arange(501.0), np.array([500.0]), math.log(1.5))
        step = 1 if limit >= inside else -1
        for bound in (-60.0, -4.0):
            indices = (i for i in range(inside, limit + step, step) if chances[i] < bound)
            assert falls_below(bound, inside, limit, 500, math.log(1.5)) == next(indices, limit)


class TestPrivacyLossDistributions:
    @pytest.mark.slow
    def test_agree_on_randomized_response(self):
        """Google's accountant composes the same randomized response on a grid of losses, pessimistically."""
        step = 1e-4
        for epsilon in (0.05, 0.5, 2.0):
            answer = privacy_loss_distribution.from_randomized_response(
                2 / (1 + math.exp(epsilon)), 2, value_discretization_interval=step
            )
            for reports in (2, 20, 100):
                composed = answer.self_compose(reports)
                for share in np.linspace(0.05, 0.95, 7):
                    total = share * reports * epsilon
                    ours, theirs = (
                        optimal_delta(epsilon, reports, total),
                        composed.get_delta_for_epsilon(total),
                    )
                    assert theirs >= ours * (1 - 1e-9) - 1e-12
                    assert theirs <= optimal_delta(epsilon, reports, total - reports * step) + 1e-12


class TestArguments:
    @pytest.mark.parametrize(
        ("call", "text"),
        [
            *(
                (lambda n=n: optimal_delta(1, n, 1), "the number of reports must be")
                for n in (0, -1, 1 << 40, True)
            ),
            (lambda: optimal_epsilon(1.5, 1, 0.1), "the number of reports must be"),  # type: ignore[arg-type]
            (lambda: optimal_delta(0, 3, 1), "a positive number"),
            (lambda: optimal_delta(1, 3, math.nan), "a positive number"),
            (lambda: optimal_reports(math.inf, 1, 0.1), "a positive number"),
            (lambda: optimal_epsilon(3, -1, 0.1), "a positive number"),
            (lambda: optimal_epsilon(3, 1, 1), "at least 0 and below 1"),
            (lambda: optimal_reports(1, 1, math.nan), "at least 0 and below 1"),
        ],
        ids=[
            *("no reports", "negative", "2**40 reports", "true", "fractional reports"),
            *("epsilon 0", "total nan", "epsilon inf", "negative total", "delta 1", "delta nan"),
        ],
    )
    def test_rejects_invalid_values(self, call, text):
        with pytest.raises(AccountingError, match=text):
            call()
