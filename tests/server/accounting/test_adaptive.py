"""Filters and odometers against the worst adaptive adversary, computed exactly.

The adversary sees every answer and chooses the next report's ε, or stops. Answers are binary randomized
response; any other ε-LDP report is a coarser answer, so this is the worst case. The best strategy is a
recursion over the reports so far and the loss L; both are on a grid, and no sampling is involved.
"""

import functools
import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import Refusal, refusals

from hushmote.server.accounting import (
    AccountingError,
    Basic,
    BudgetExceeded,
    Filter,
    History,
    Kind,
    Odometer,
    ReportCost,
    ZcdpFilter,
)

UNIT = 100_000  # micro-nats; the grid of ε
MENU = (1, 2, 4)  # the adversary's choices of ε, in units

Counts = tuple[int, ...]


def worst(allows: Callable[[Counts], bool], prize: Callable[[Counts, int], float]) -> float:
    """Return an adversary's largest mean of prize(number of reports per ε, loss in units)."""
    truth = {e: 1 / (1 + math.exp(-e * UNIT / 1e6)) for e in MENU}

    @functools.cache
    def value(counts: Counts, loss: int) -> float:
        best = prize(counts, loss)
        for i, e in enumerate(MENU):
            larger = (*counts[:i], counts[i] + 1, *counts[i + 1 :])
            if allows(larger):
                won, lost = value(larger, loss + e), value(larger, loss - e)
                best = max(best, truth[e] * won + (1 - truth[e]) * lost)
        return best

    return value((0,) * len(MENU), 0)


def spent(counts: Counts) -> tuple[int, int]:
    """Return Σε and Σε² in micro-nats."""
    total = sum(n * e for n, e in zip(counts, MENU, strict=True)) * UNIT
    return total, sum(n * e * e for n, e in zip(counts, MENU, strict=True)) * UNIT**2


def overrun(total: float) -> Callable[[Counts, int], float]:
    """Return (1 - e^{total - L})+; its worst mean is the smallest δ for (total, δ)-LDP."""
    return lambda _, loss: max(0.0, -math.expm1(total - loss * UNIT / 1e6))


def either(sum_cap: int, squares_cap: int) -> Callable[[Counts], bool]:
    def allows(counts: Counts) -> bool:
        total, squares = spent(counts)
        return total <= sum_cap or squares <= squares_cap

    return allows


class TestAdversary:
    @pytest.mark.slow
    @pytest.mark.parametrize(("total", "delta"), [(2.0, 0.05), (1.2, 0.2), (2.4, 0.01)])
    def test_cannot_exceed_the_filter_of_either_theorem(self, total, delta):
        rule = Filter(total, delta)
        allows = either(rule.sum_cap, rule.squares_cap)
        chance = worst(allows, lambda _, loss: float(loss * UNIT / 1e6 > total + 1e-9))
        assert 0 < worst(allows, overrun(total)) <= chance <= delta

    @pytest.mark.slow
    def test_would_exceed_a_cap_that_is_too_large(self):
        rule = Filter(2.0, 0.05)
        allows = either(rule.sum_cap, 2 * rule.squares_cap)
        assert worst(allows, lambda _, loss: float(loss * UNIT / 1e6 > 2 + 1e-9)) > 0.05

    def test_never_exceeds_a_filter_of_only_the_sum(self):
        rule = Filter(2.0)
        assert rule.squares_cap == 0
        assert worst(either(rule.sum_cap, 0), overrun(2.0)) == 0

    @pytest.mark.slow
    @pytest.mark.parametrize("sharpest", [0.5, 2.0])
    def test_exceeds_odometer_with_at_most_delta(self, sharpest):
        delta = 0.05

        @functools.cache
        def bound(counts: Counts) -> float:
            odometer = Odometer(delta, sharpest=sharpest)
            odometer.history = History(
                tuple((ReportCost(e * UNIT), n) for n, e in zip(counts, MENU, strict=True) if n)
            )
            return odometer.spent().epsilon

        chance = worst(
            lambda counts: sum(counts) <= 24,
            lambda counts, loss: float(loss * UNIT / 1e6 > bound(counts) + 1e-9),
        )
        assert 0 < chance <= delta


class TestFilter:
    def test_uses_the_theorem_that_allows_more(self):
        few_large, many_small = Filter(8, 1e-6), Filter(8, 1e-6)
        assert few_large.remaining_reports(500_000) == 16  # the zCDP filter alone allows 7
        assert many_small.remaining_reports(100_000) == 181  # the sum alone allows 80
        for _ in range(181):
            many_small.spend(100_000)
        assert many_small.history == History.equal(100_000, 181)
        with pytest.raises(BudgetExceeded, match=r"Σε to 18.2 of 8 and Σε² to 1.82 of 1.81941"):
            many_small.spend(100_000)
        assert many_small.history.count == 181  # the rejected report is not counted
        many_small.spend(90_000)

    @pytest.mark.slow
    @settings(max_examples=100)
    @given(
        st.lists(st.integers(1_000, 900_000), min_size=1, max_size=40),
        st.floats(0.5, 6),
        st.sampled_from([0.0, 1e-6, 1e-2]),
    )
    def test_stops_at_first_report_over_both_theorems(self, history, total, delta):
        rule = Filter(total, delta)
        theorems = [Basic(total), *([ZcdpFilter(total, delta)] if delta else [])]
        for i, epsilon in enumerate(history):
            fits = any(theorem.allowed(history[: i + 1]) for theorem in theorems)
            assert rule.allows(epsilon) == fits == (rule.remaining_reports(epsilon) > 0)
            if not fits:
                with pytest.raises(BudgetExceeded):
                    rule.spend(epsilon)
                break
            rule.spend(epsilon)

    def test_guarantee_depends_on_delta(self):
        assert Filter(8).guarantee().kind == Kind.PURE
        assert Filter(8, 1e-6).guarantee().kind == Kind.APPROXIMATE
        both = Filter(8, 1e-6).guarantee()
        assert (both.epsilon, both.delta) == (8, 1e-6)


class TestOwnDeltas:
    def test_are_counted_separately_and_lower_the_squares_cap(self):
        rule = Filter(8, 1e-6, own=4e-7)
        assert rule.squares_cap == ZcdpFilter(8, 6e-7).cap(1)
        rule.spend(ReportCost(100_000, 3e-7))
        with pytest.raises(BudgetExceeded, match="own δ would come to 6e-07"):
            rule.spend(ReportCost(100_000, 3e-7))
        rule.spend(100_000)
        only_sum = Filter(8, 1e-6, own=1e-6)
        assert only_sum.squares_cap == 0
        assert only_sum.guarantee() == Basic(8, 1e-6).guarantee()
        odometer = Odometer(1e-6, own=4e-7)
        odometer.add(ReportCost(100_000, 4e-7))
        assert odometer.spent().epsilon == 0.1
        with pytest.raises(BudgetExceeded, match="own δ"):
            odometer.add(ReportCost(100_000, 1e-9))


class TestOdometer:
    def test_is_near_sharpest_filter_and_below_the_sum(self):
        odometer, pure = Odometer(1e-6, sharpest=8), Odometer()
        for i in range(1, 301):
            for meter in (odometer, pure):
                meter.add(100_000)
            assert odometer.spent().epsilon <= i / 10
            assert pure.spent().epsilon == i / 10
            if i == 181:
                assert ZcdpFilter(8, 1e-6).spent(odometer.history).epsilon < odometer.spent().epsilon < 8.6


class TestArguments:
    @refusals(
        (lambda: Filter(0), "the total must be a positive number"),
        (lambda: Filter(1, 1), "delta must be at least 0"),
        (lambda: Filter(1, 1e-6, 2e-6), "own must be at most delta"),
        (lambda: Odometer(-1), "delta must be at least 0"),
        (lambda: Odometer(1e-6, 2e-6), "own must be at most delta"),
        (lambda: Odometer(1e-6, sharpest=0), "sharpest must be a positive number"),
        (lambda: Filter(1).spend(0), "at least 1"),
        call=lambda make: make(),
        error=AccountingError,
    )
    def test_rejects_invalid_values(self, refusal: Refusal):
        refusal.check()
