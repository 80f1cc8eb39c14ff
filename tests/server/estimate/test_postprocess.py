"""Post-processing compared with dense linear algebra and simulated fleets.

Statistical tests use fixed seeds, so they are deterministic; each states its number of independent fleets and
the probability that correct code fails with a fresh seed.
"""

import designs
import numpy as np
import pytest
from designs import choice, draw, drawn_counts, level_channel, number_with_mechanism
from experiments import experiment_json
from scipy import optimize, stats

from hushmote.device.ldp_client import Experiment
from hushmote.server.estimate import estimate, postprocess
from hushmote.server.estimate.pooling import pool
from hushmote.server.estimate.postprocess import METHODS, nonnegative, raw, smooth
from hushmote.server.estimate.statistic import EstimateError
from hushmote.server.mechanisms.decoded_histogram import simplex
from hushmote.server.mechanisms.tree import least_squares as hierarchy
from hushmote.server.mechanisms.tree.hierarchy import Hierarchy

RR = number_with_mechanism("rr", 2, 1)
GRR = number_with_mechanism("grr", 10, 2)
OLH = number_with_mechanism("olh", 40, 2, g=7)
HH = number_with_mechanism("hh", 50, 2, fanout=3, cells=[2, 5, 7, 7], weights=[1, 0, 2, 3])
SW = number_with_mechanism("sw", 50, 1, reach=12)
OF_ALL = ("raw", "nonnegative", "smooth")
each_experiment = pytest.mark.parametrize("exp", [RR, GRR, OLH, HH], ids=lambda e: e.mechanism)


def bell(domain: int) -> np.ndarray:
    return designs.bell(domain, 0.45 * domain + 0.5, domain / 10)


def channel(exp: Experiment) -> np.ndarray:
    return np.vstack([level_channel(level, exp.domain) for level in exp.levels])


class TestMaximumLikelihood:
    @each_experiment
    def test_step_equals_the_dense_channels(self, exp):
        rng = np.random.default_rng(1)
        counts = drawn_counts(exp, bell(exp.domain), 3000, rng)
        f = rng.dirichlet(np.ones(exp.domain))
        dense = channel(exp)
        expected = f * (dense.T @ (counts / (dense @ f))) / counts.sum()
        levels = tuple(postprocess._histograms(estimate(exp, counts)))
        actual, likelihood = postprocess.expectation_maximisation(levels, f)
        np.testing.assert_allclose(actual, expected, rtol=1e-10)
        after = postprocess.expectation_maximisation(levels, actual)[1]
        gain = counts @ (np.log(dense @ actual) - np.log(dense @ f))
        assert after - likelihood == pytest.approx(gain, rel=1e-6)
        assert gain > 0

    @each_experiment
    def test_fixed_point_maximizes_the_likelihood(self, exp):
        """No gradient into the simplex exceeds a thousandth of a single report's contribution."""
        counts = drawn_counts(exp, bell(exp.domain), 20_000, np.random.default_rng(2))
        levels = tuple(postprocess._histograms(estimate(exp, counts)))
        result = postprocess._find_fixed_point(levels, np.full(exp.domain, 1 / exp.domain), 0.0)
        dense = channel(exp)
        gradient = dense.T @ (counts / (dense @ result)) / counts.sum()
        assert result.sum() == pytest.approx(1)
        # a step multiplies f by the gradient, which is at most 1 at the maximum
        assert gradient.max() < 1 + 2e-3


class TestMethods:
    @pytest.mark.slow
    @each_experiment
    @pytest.mark.parametrize("name", OF_ALL)
    def test_have_name_and_notes_and_give_distributions(self, exp, name):
        e = draw(exp, bell(exp.domain), 500, np.random.default_rng(4))
        result = METHODS[name](e)
        assert (result.method, result.experiment, result.reports) == (name, exp, 500)
        assert result.notes
        assert any("no intervals" in note for note in result.notes) == (name != "raw")
        assert result.frequencies.shape == (exp.domain,)
        assert not result.frequencies.flags.writeable
        if name == "raw":
            np.testing.assert_array_equal(raw(e).frequencies, e.frequencies)
        else:
            assert result.frequencies.min() >= 0
            assert result.frequencies.sum() == pytest.approx(1)

    @pytest.mark.slow
    @pytest.mark.parametrize("exp", [OLH, pytest.param(HH, marks=pytest.mark.long)], ids=["olh", "hh"])
    def test_reduce_the_error_if_the_population_is_smooth(self, exp):
        """Simulate 24 fleets of 3,000 reports.

        The mean logarithm of the ratio of squared errors is 7 to 25 of its standard errors above 0, so
        another seed brings it below 0 with a chance of less than 1e-9.
        """
        rng = np.random.default_rng(7)
        f = bell(exp.domain)
        errors = {name: [] for name in OF_ALL}
        for _ in range(24):
            e = draw(exp, f, 3000, rng)
            for name in OF_ALL:
                errors[name].append(((METHODS[name](e).frequencies - f) ** 2).sum())
        for better, worse in (("nonnegative", "raw"), ("smooth", "nonnegative")):
            ratio = np.log(np.array(errors[worse]) / errors[better])
            assert ratio.mean() > 0


class TestSmoothing:
    def test_blur_keeps_sums_and_minimizes_its_objective(self):
        x = np.random.default_rng(5).normal(size=30)
        actual = postprocess.blur(x, 7.0)
        steps = np.diff(np.eye(30), axis=0)
        np.testing.assert_allclose(
            actual, np.linalg.solve(np.eye(30) + 7 / 4 * steps.T @ steps, x), atol=1e-12
        )
        assert actual.sum() == pytest.approx(x.sum())

    def test_of_a_nearly_even_population_blurs_the_raw_shares(self):
        """There, a maximization step is linear; its fixed point has only an error of second order."""
        ripple = 1 + 0.02 * np.cos(np.pi * (np.arange(10) + 0.5) / 5)
        e = draw(GRR, ripple / 10, 300_000, np.random.default_rng(1))
        blurred = postprocess.blur(e.frequencies, postprocess.smoothing(e)[0])
        assert np.abs(e.frequencies - blurred).max() > 1e-3
        np.testing.assert_allclose(smooth(e).frequencies, blurred, atol=5e-5)

    @each_experiment
    def test_of_many_reports_gives_the_truth(self, exp):
        """With the expected counts of 10^11 reports on a rough population, nothing is smoothed away."""
        rough = np.where(np.arange(exp.domain) % 2, 3.0, 1.0)
        rough /= rough.sum()
        shares = np.array([level.weight for level in exp.levels]) / exp.weight_sum
        parts = [
            w * level_channel(level, exp.domain) @ rough for w, level in zip(shares, exp.levels, strict=True)
        ]
        counts = np.rint(1e11 * np.concatenate(parts)).astype(np.int64)
        np.testing.assert_allclose(smooth(estimate(exp, counts)).frequencies, rough, rtol=2e-3)

    @pytest.mark.slow
    def test_of_pooled_halves_equals_that_of_the_whole(self):
        rng = np.random.default_rng(6)
        a, b = (drawn_counts(OLH, bell(40), 5000, rng) for _ in range(2))
        pooled = smooth(pool([estimate(OLH, a), estimate(OLH, b)]))
        assert pooled.reports == 10_000
        assert len(pooled.notes) == len(smooth(estimate(OLH, a)).notes) + 1
        # The strengths differ slightly: one is from the mean of two histograms' errors, one from one
        # histogram's.
        np.testing.assert_allclose(pooled.frequencies, smooth(estimate(OLH, a + b)).frequencies, atol=2e-3)

    def test_rejects_labels(self):
        for exp in (Experiment.parse(experiment_json()), choice(["off", "on"], 1)):
            e = estimate(exp, np.full(exp.code_count, 50))
            with pytest.raises(EstimateError, match=r"^smooth supports only numbers.*use nonnegative$"):
                smooth(e)
            assert nonnegative(e).frequencies.sum() == pytest.approx(1)

    def test_gives_shares_if_only_the_mean_is_estimated(self):
        """Compare squared distances to a bell with a uniform guess's, over 20 fleets of 20,000 reports.

        Over 1,000 fleets with other seeds, the mean is 0.15 and the standard deviation 0.2.
        """
        rng = np.random.default_rng(11)
        f = bell(50)
        off = [((smooth(draw(SW, f, 20_000, rng)).frequencies - f) ** 2).sum() for _ in range(20)]
        assert np.mean(off) / ((f - 1 / 50) ** 2).sum() < 0.5
        both = pool([draw(SW, f, reports, rng) for reports in (20_000, 5000)])
        notes = smooth(both).notes
        assert any("one population" in note for note in notes)
        assert any("no intervals" in note for note in notes)


class TestProjection:
    @pytest.mark.slow
    def test_is_the_nearest_distribution(self):
        counts = drawn_counts(OLH, bell(40), 2000, np.random.default_rng(3))
        e = estimate(OLH, counts)
        x, actual = e.frequencies, nonnegative(e).frequencies
        best = optimize.minimize(
            lambda y: ((y - x) ** 2).sum(),
            np.full(40, 1 / 40),
            jac=lambda y: 2 * (y - x),
            bounds=[(0, None)] * 40,
            constraints={"type": "eq", "fun": lambda y: y.sum() - 1, "jac": np.ones_like},
            options={"ftol": 1e-14},
            method="SLSQP",
        )
        assert x.min() < 0
        np.testing.assert_allclose(actual, best.x, atol=1e-6)

    def test_does_not_amplify_forged_reports(self):
        """It amplifies neither the squared distance nor, if the sum does not fall, the supported value."""
        rng = np.random.default_rng(9)
        for _ in range(300):
            clean = rng.normal(0.1, 0.2, 10)
            gain = rng.exponential(0.3)
            forged = clean - gain * rng.random() * rng.dirichlet(np.full(10, 0.5))
            forged[3] = clean[3] + gain
            moved = simplex(forged) - simplex(clean)
            assert moved @ moved <= (forged - clean) @ (forged - clean) + 1e-12
            assert moved[3] <= gain + 1e-12

    def test_treats_families_of_a_hierarchy_and_the_largest_tree(self):
        rng = np.random.default_rng(10)
        other = number_with_mechanism("hh", 50, 2, fanout=25, cells=[2, 50])
        flat = number_with_mechanism("grr", 50, 2)
        sizes = ((HH, 4000), (other, 3000), (flat, 20_000))
        parts = [draw(exp, bell(50), n, rng) for exp, n in sizes]
        tree = Hierarchy(HH).tree(parts[0].decoded.reports)
        for raw_estimate in (parts[0], pool(parts), pool([pool(parts[1:]), parts[0]])):
            x, actual = raw_estimate.frequencies, nonnegative(raw_estimate).frequencies
            assert x.min() < 0
            np.testing.assert_array_equal(actual, hierarchy.nonnegative(tree, x))
        assert np.abs(nonnegative(parts[0]).frequencies - simplex(parts[0].frequencies)).max() > 1e-3
        np.testing.assert_array_equal(nonnegative(parts[2]).frequencies, simplex(parts[2].frequencies))

    def test_preserves_ranges_of_a_hierarchy(self):
        """Simulate 60 fleets of 30,000 reports over a narrow bell.

        The logarithm of the ratio of squared errors of all ranges is on average 18 of its standard errors
        below that of 1.05, so another seed brings it above with a chance of less than 1e-9. After a
        projection on the simplex, which ignores the tree, it is 36 above.
        """
        exp = number_with_mechanism("hh", 64, 1, fanout=2, cells=[2, 2, 2, 3, 3, 3])
        rng = np.random.default_rng(11)
        f = np.exp(-0.5 * ((np.arange(64) - 28.8) / 4) ** 2)
        f /= f.sum()
        low, high = np.triu_indices(65, 1)

        def range_error(shares: np.ndarray) -> float:
            off = np.append(0.0, np.cumsum(shares - f))
            return float(((off[high] - off[low]) ** 2).mean())

        ratios = []
        for _ in range(60):
            e = draw(exp, f, 30_000, rng)
            ratios.append(range_error(nonnegative(e).frequencies) / range_error(e.frequencies))
        assert np.log(ratios).mean() < np.log(1.05)

    def test_moves_missing_share_to_empty_bins(self):
        """Simulate 100 fleets of 1,000 reports, all boards with one value.

        The bias is 13 standard errors of the mean, so another seed brings it above 0 with a chance of less
        than 1e-9, and raw's beyond the bound below as rarely.
        """
        rng = np.random.default_rng(8)
        one = np.eye(40)[11]
        result = []
        for _ in range(100):
            e = draw(OLH, one, 1000, rng)
            result.append([nonnegative(e).frequencies[11] - 1, raw(e).frequencies[11] - 1])
        projected, unbiased = np.array(result).T
        assert projected.mean() < 0
        assert abs(unbiased.mean()) < stats.t.isf(0.5e-9, 99) * unbiased.std(ddof=1) / 10

    def test_needs_estimated_shares(self):
        e = draw(SW, bell(50), 500, np.random.default_rng(13))
        with pytest.raises(
            EstimateError, match="nonnegative needs estimated shares, which x does not have; use smooth"
        ):
            nonnegative(e)
