"""Optimal composition of different ε, compared with enumeration at 60 digits and another accountant."""

import math
from typing import Any

import numpy as np
import pytest
import reference_composition as composition
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import example, given, settings
from hypothesis import strategies as st
from refusals import Refusal, refusals

from hushmote.server.accounting import (
    AccountingError,
    History,
    ReportCost,
    optimal_delta,
    optimal_total,
)
from hushmote.studies.mixture import MAX_CELLS, LossLaw, mixed_delta, mixed_total

any_epsilon = st.integers(1_000, 4_000_000)
coarse_epsilon = st.integers(1, 40).map(lambda n: n * 100_000)


def chance_near(epsilons, total, width):
    """Return the probability of a loss within a number of micro-nats of the total."""
    losses, chances = np.zeros(1), np.ones(1)
    for epsilon in epsilons:
        truth = 1 / (1 + math.exp(-epsilon / 1e6))
        losses = np.concatenate([losses + epsilon, losses - epsilon])
        chances = np.concatenate([chances * truth, chances * (1 - truth)])
    return float(chances[abs(losses - total) <= width].sum())


class TestGrid:
    def test_rounding_grid_is_as_good_as_an_exact_one(self):
        """Compare the releases on their own grid with a split over cells that fit none of their ε."""
        history = History(((ReportCost(100_000), 300), (ReportCost(250_000), 40)))
        exact = LossLaw.of(history)
        rounded = LossLaw.of(history, cells=301)
        assert not exact.rounded
        assert rounded.rounded
        for delta in (1e-3, 1e-6, 1e-10):
            ours = float(rounded.total(delta))
            assert float(exact.total(delta)) <= ours < 1.005 * float(exact.total(delta))


def randomized_response(epsilon: float, step: float, pessimistic: bool):
    return privacy_loss_distribution.from_randomized_response(
        2 / (1 + math.exp(epsilon)), 2, value_discretization_interval=step, pessimistic_estimate=pessimistic
    )


class TestOtherAccountant:
    @pytest.mark.slow
    def test_has_estimates_on_both_sides(self):
        rng = np.random.default_rng(11)
        for _ in range(3):
            kinds = [
                (int(e), int(n)) for e, n in zip(rng.integers(5_000, 800_000, 4), (3, 10, 40, 5), strict=True)
            ]
            history = History(tuple((ReportCost(e), n) for e, n in kinds))
            between = []
            for pessimistic in (False, True):
                parts = [randomized_response(e / 1e6, 1e-4, pessimistic).self_compose(n) for e, n in kinds]
                composed = parts[0]
                for part in parts[1:]:
                    composed = composed.compose(part)
                between.append(composed)
            for total in (0.5, 2.0, 5.0):
                low, high = (x.get_delta_for_epsilon(total) for x in between)
                # the Fourier transform is accurate to about 1e-13
                assert low - 1e-12 <= mixed_delta(history, total) <= high + 1e-12
                assert high - low < 0.02 * high + 1e-12


class TestDelta:
    @pytest.mark.slow
    @settings(max_examples=60)
    @given(st.lists(st.one_of(any_epsilon, coarse_epsilon), min_size=1, max_size=8), st.floats(0.001, 1.05))
    @example([1382, 901382, 899792, 902176, 902150, 200000, 200000, 3700000], 0.47968850010126135)
    def test_is_never_below_the_enumeration_and_barely_above(self, epsilons, share):
        """A split over two cells adds at most a quarter cell, and only if the total is between them.

        On one side of the total, 1 - e^(total - loss) is linear in 1 and e^-loss, which the split preserves.
        """
        total = max(1, round(sum(epsilons) * share))
        exact: Any = composition.mixed_delta(epsilons, total)
        delta = mixed_delta(epsilons, total / 1e6)
        assert delta >= exact
        if total >= sum(epsilons):
            assert delta == 0
            return
        law, over = LossLaw.of(epsilons), 0.0
        if law.rounded:
            assert law.step <= 2 * sum(epsilons) / MAX_CELLS + 1
            near = chance_near(epsilons, total, len(epsilons) * law.step)
            over = 1.01 * len(epsilons) * law.step / 4e6 * near
        assert delta <= exact * (1 + 1e-6) + over + 1e-15

    @pytest.mark.parametrize(
        ("epsilon", "count"), [(10_000, 562), (100_000, 238), (500_000, 16), (3_000_001, 7)]
    )
    def test_single_epsilon_equals_the_closed_sum(self, epsilon, count):
        equal = History.equal(epsilon, count)
        for total in (0.3, 1.0, 7.9):
            expected = optimal_delta(epsilon / 1e6, count, total)
            assert mixed_delta(equal, total) == pytest.approx(expected, rel=1e-7)
        assert float(mixed_total(equal, 1e-6)) == pytest.approx(
            optimal_total(epsilon / 1e6, count, 1e-6), abs=2e-9
        )

    def test_reports_own_delta_is_included(self):
        history = History(((ReportCost(500_000), 2), (ReportCost(1_000_000, 0.01), 3)))
        pure = History(((ReportCost(500_000), 2), (ReportCost(1_000_000), 3)))
        probability = 0.99**3
        assert mixed_delta(history, 2.0) == pytest.approx(1 - (1 - mixed_delta(pure, 2.0)) * probability)
        assert mixed_delta(history, 4.0) == pytest.approx(1 - probability)
        assert mixed_delta(history, 4.0) >= 1 - probability


class TestTotal:
    @pytest.mark.slow
    @settings(max_examples=30)
    @given(st.lists(any_epsilon, min_size=2, max_size=7), st.sampled_from([1e-2, 1e-5, 1e-9]))
    def test_is_the_smallest_epsilon_that_keeps_delta(self, epsilons, delta):
        total = mixed_total(epsilons, delta)
        micro = math.ceil(total * 10**6)
        assert composition.mixed_delta(epsilons, micro) <= delta
        # Splitting losses over the grid's cells moves each report's loss by at most a step.
        law = LossLaw.of(epsilons)
        rounding = 3 + (len(epsilons) * law.step if law.rounded else 0)
        if micro >= rounding:
            assert composition.mixed_delta(epsilons, micro - rounding) > delta

    @pytest.mark.slow
    def test_3_000_releases_are_below_other_theorems(self):
        epsilons = np.random.default_rng(3).integers(10_000, 500_000, 3_000).tolist()
        total = float(mixed_total(epsilons, 1e-6))
        assert 1 < float(LossLaw.of(epsilons, 1 << 14).total(1e-6)) / total < 1.0006
        squares = sum((e / 1e6) ** 2 for e in epsilons)
        assert total < squares / 2 + math.sqrt(2 * squares * math.log(1e6))
        mean = sum(e / 1e6 * math.tanh(e / 2e6) for e in epsilons)
        spread = math.sqrt(sum((e / 1e6) ** 2 / math.cosh(e / 2e6) ** 2 for e in epsilons))
        # Nearly normal, and δ is less than the tail.
        assert total == pytest.approx(mean + 4.7 * spread, rel=0.05)

    def test_handles_certain_losses_and_a_delta_of_0(self):
        assert float(mixed_total([700_000_000, 1_000_000], 0)) == 701
        assert mixed_delta([700_000_000, 1_000_000], 701) == 0
        assert mixed_delta([700_000_000, 1_000_000], 699) > 0.6
        assert float(mixed_total([1_000, 2_000], 0.5)) == 0


class TestArguments:
    @refusals(
        ([], "1 to 10,000,000"),
        (History.equal(1_000, 10_000_001), "1 to 10,000,000"),
        (History.equal(10**13 + 1, 1), "that many nats"),
        call=lambda releases: mixed_delta(releases, 1.0),
        error=AccountingError,
    )
    def test_rejects_oversized_input(self, refusal: Refusal):
        refusal.check()
