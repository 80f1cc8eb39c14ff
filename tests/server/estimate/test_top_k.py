"""Top k compared with enumeration, exact sums and simulated fleets."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from designs import draw, drawn_counts, number_with_mechanism
from scipy import stats

from hushmote.server.estimate import estimate
from hushmote.server.estimate.pooling import pool
from hushmote.server.estimate.statistic import EstimateError
from hushmote.server.estimate.top_k import Posterior, _prior, fewer_above, membership, top

RR = number_with_mechanism("rr", 2, 1)
GRR = number_with_mechanism("grr", 12, 2)
OLH = number_with_mechanism("olh", 64, 2, g=7)
HH = number_with_mechanism("hh", 48, 2, fanout=4, cells=[3, 5, 7])


def skewed(domain: int) -> np.ndarray:
    shares = 1 / (1.0 + np.arange(domain))
    return shares / shares.sum()


class TestPrior:
    def test_adds_half_of_its_own_estimate(self):
        likelihood, pseudo = np.array([[1.0, 4.0, 2.0]]), 0.1
        _, prior = _prior(likelihood, np.arange(3)[None], np.ones(1), 3, pseudo)
        fixed_point = likelihood * (pseudo + prior / 2)
        assert prior == pytest.approx(fixed_point / fixed_point.sum(), abs=1e-6)


class TestSums:
    @pytest.mark.parametrize(
        ("n", "k", "power"), [(2, 1, 1), (6, 3, 1), (60, 5, 6), (300, 20, 8), (300, 150, 1)]
    )
    def test_unequal_draws_are_exact(self, n, k, power):
        """Compare with term-by-term convolution of draws with probabilities from 0 to 1, some tiny."""
        chance = np.random.default_rng(n).random(n) ** power
        chance[: n // 4] = np.linspace(0, 0.019, n // 4)
        chance[n // 4 : n // 3] = 1 - chance[: n // 3 - n // 4]
        values = np.arange(0, n, max(1, n // 12))
        actual = fewer_above(chance, values, k)
        for i, value in zip(values, actual, strict=True):
            counts = np.ones(1)
            for p in np.delete(chance, i):
                counts = np.convolve(counts, [1 - p, p])
            assert value == pytest.approx(counts[:k].sum(), abs=2e-5)

    @pytest.mark.parametrize("k", [14, 19, 23])
    def test_rare_draws_are_within_a_millionth(self, k):
        actual = fewer_above(np.full(1000, 0.019), np.array([0]), k)
        assert actual[0] == pytest.approx(stats.binom.cdf(k - 1, 999, 0.019), abs=1e-6)


class TestTop:
    @pytest.mark.parametrize("exp", [GRR, OLH, HH], ids=lambda e: e.mechanism)
    @pytest.mark.parametrize("reports", [2, 300, 100_000])
    def test_lists_largest_estimates_and_probabilities_sum_to_k(self, exp, reports):
        rng = np.random.default_rng(2)
        counts = drawn_counts(exp, skewed(exp.domain), reports, rng)
        if exp is HH:
            counts[-1] += 2  # the last level needs at least one report
        e = estimate(exp, counts)
        for k in (1, 5, exp.domain - 1):
            result = top(e, k)
            listed = [one.index for one in result.listed]
            assert len(set(listed)) == k
            assert e.frequencies[listed].min() >= np.delete(e.frequencies, listed).max()
            frequency, alone = result.listed[0].frequency, e.frequency(listed[0])
            assert (frequency.value, frequency.stderr) == pytest.approx((alone.value, alone.stderr), rel=1e-9)
            assert result.probabilities.sum() == pytest.approx(k, rel=0.02, abs=0.05)
            assert sum(c.probability for c in result.listed) == pytest.approx(
                result.probabilities[listed].sum()
            )
            near = [one.probability for one in result.near]
            assert near == sorted(near, reverse=True)
            outside = np.delete(result.probabilities, listed)
            assert near == sorted(outside[outside > 0.05].tolist(), reverse=True)

    def test_is_certain_with_many_reports(self):
        result = top(draw(OLH, skewed(64), 3_000_000, np.random.default_rng(3)), 4)
        assert [one.index for one in result.listed] == [0, 1, 2, 3]
        assert min(one.probability for one in result.listed) > 0.999
        assert not result.near

    def test_of_two_values_depends_on_the_counts_imbalance(self):
        even = top(estimate(RR, [5000, 5000]), 1)
        assert even.probabilities == pytest.approx([0.5, 0.5])
        assert len(even.near) == 1
        sure = top(estimate(RR, [4000, 6000]), 1)
        assert sure.listed[0].index == 1
        assert sure.probabilities == pytest.approx([0, 1], abs=1e-6)
        assert 0.7 < top(estimate(RR, [4930, 5070]), 1).listed[0].probability < 0.99

    def test_of_a_pool_counts_all_reports(self):
        rng = np.random.default_rng(4)
        e = pool([draw(OLH, skewed(64), 200_000, rng) for _ in range(2)])
        assert top(e, 1).listed[0].index == 0
        assert top(e, 1).reports == 400_000

    @pytest.mark.parametrize("k", [0, -1, 12, 1000, True, 2.5])
    def test_rejects_k_out_of_range(self, k):
        with pytest.raises(
            EstimateError, match=r"^k must be from 1 to 11, one less than the number of values, not"
        ):
            top(estimate(GRR, np.full(12, 10)), k)


class TestMembership:
    def test_matches_enumeration(self):
        """Four values are on five atoms; values on the same atom are in random order."""
        rng = np.random.default_rng(1)
        first = np.array([0, 1, 2, 1])
        mass = rng.dirichlet(np.ones(3), size=4)
        for k in (1, 2, 3):
            exact = np.zeros(4)
            for places in itertools.product(range(3), repeat=4):
                at = first + places
                weight = np.prod(mass[np.arange(4), places])
                for i in range(4):
                    above, same = int((at > at[i]).sum()), int((at == at[i]).sum())
                    exact[i] += weight * float(min(Fraction(1), max(Fraction(0), Fraction(k - above, same))))
            actual = membership(Posterior(first, mass, 5), k)
            np.testing.assert_allclose(actual, exact, atol=1e-4)
            assert actual.sum() == pytest.approx(k, abs=1e-4)

    @pytest.mark.slow
    @pytest.mark.parametrize("exp", [GRR, OLH, HH], ids=lambda e: e.mechanism)
    def test_is_stable_in_the_last_digit_of_an_estimate(self, exp):
        """For 3 fleets, a probability may change by at most a million times the change in the estimates."""
        rng = np.random.default_rng(6)
        for _ in range(3):
            counts = drawn_counts(exp, rng.dirichlet(np.full(exp.domain, 30.0)), 3000, rng)
            e, moved = estimate(exp, counts), estimate(exp, counts)
            moved.frequencies = e.frequencies * (1 + 1e-12 * rng.standard_normal(exp.domain))
            np.testing.assert_allclose(top(moved, 5).probabilities, top(e, 5).probabilities, atol=1e-6)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "exp", [GRR, pytest.param(OLH, marks=pytest.mark.long), HH], ids=lambda e: e.mechanism
    )
    def test_probabilities_are_calibrated(self, exp):
        """Draw 80 independent fleets of 3,000 reports, each from a random population; k = 3.

        Over listed values with a probability between 0.3 and 0.95, the mean of probability less membership
        must be within 0.08 (the method is approximate) and six standard errors of the sum over fleets, a
        fleet being one draw: less than 1e-9 for a fresh seed.
        """
        rng = np.random.default_rng(5)
        off, listed = [], 0
        for _ in range(80):
            f = rng.dirichlet(np.full(exp.domain, 0.3))
            truth = np.argsort(-f)[:3]
            result = [c for c in top(draw(exp, f, 3000, rng), 3).listed if 0.3 < c.probability < 0.95]
            listed += len(result)
            off.append(sum(c.probability - (c.index in truth) for c in result))
        assert listed > 40
        assert abs(sum(off)) < 0.08 * listed + 6.1 * np.std(off) * np.sqrt(len(off))
