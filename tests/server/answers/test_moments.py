"""Mean and standard deviation compared with their definitions and with simulated fleets.

Each statistical test states its number of independent draws and the probability that correct code fails with
a fresh seed.
"""

import numpy as np
import pytest
from designs import bell, choice, draw, number, number_with_mechanism
from scipy import stats

from hushmote.server.answers import moments
from hushmote.server.estimate import estimate
from hushmote.server.experiments.units import UnitsError, bin_middles

FLEETS = 400


class TestErrors:
    @pytest.mark.slow
    @pytest.mark.parametrize("reports", [pytest.param(300, marks=pytest.mark.long), 20_000])
    def test_are_correct_and_estimates_unbiased(self, reports: int):
        """Simulate 400 fleets: the mean of z² has a chi-squared distribution.

        A band of 6% on either side allows for deviations from a normal distribution, and the mean of z is
        below 6.5 of its errors (1e-10 each).
        """
        experiment, f = number(64, 1), bell(64, 25, 9)
        x = np.arange(0.5, 64)
        mean = f @ x
        variance = f @ (x - mean) ** 2
        rng, z = np.random.default_rng(2), []
        for _ in range(FLEETS):
            e = draw(experiment, f, reports, rng)
            m, v = moments.mean(e), moments.deviation(e).variance
            z.append(((m.value - mean) / m.stderr, (v.value - variance) / v.stderr))
        scores = np.array(z)
        assert (abs(scores.mean(axis=0)) < 6.5 / np.sqrt(FLEETS) + 0.06).all()
        low, high = 0.94 * stats.chi2.ppf(5e-11, FLEETS), 1.06 * stats.chi2.isf(5e-11, FLEETS)
        assert (np.square(scores).sum(axis=0) > low).all()
        assert (np.square(scores).sum(axis=0) < high).all()

    def test_two_reports_give_finite_wide_intervals(self):
        experiment = number(16, 1)
        counts = np.zeros(experiment.code_count, dtype=int)
        counts[-1] = 2
        e = estimate(experiment, counts)
        low, high = moments.mean(e).interval()
        assert high - low > 64  # the whole range
        assert np.isfinite([*moments.deviation(e).interval(), low, high]).all()


class TestMean:
    def test_is_the_weighted_sum_of_bin_middles(self):
        experiment = number(16, 1, low=-8000, high=8000)
        e = draw(experiment, bell(16, 9, 3), 5000, np.random.default_rng(1))
        np.testing.assert_allclose(bin_middles(e.experiment), np.arange(-7.5, 8))
        # A hierarchy's frequencies sum to 1, so subtracting and adding the constant has no effect.
        assert moments.mean(e).value == pytest.approx(e.frequencies @ bin_middles(e.experiment))
        result = moments.deviation(e)
        centre = moments.mean(e)
        square = e.frequencies @ (bin_middles(e.experiment) - centre.value) ** 2
        assert result.variance.value == pytest.approx(square + centre.stderr**2)
        assert result.value == pytest.approx(np.sqrt(result.variance.value))

    def test_is_only_for_numbers(self):
        e = estimate(choice(["a", "b"], 1), [5, 6, 7])
        for function in (moments.mean, moments.deviation):
            with pytest.raises(UnitsError, match="mode is a choice"):
                function(e)


class TestDeviation:
    def test_variance_error_includes_the_error_of_the_mean(self):
        """A squared normal error of deviation s has variance 2 s⁴, which is significant for 50 reports."""
        e = draw(number(16, 1), bell(16, 9, 3), 50, np.random.default_rng(1))
        result, centre = moments.deviation(e), moments.mean(e)
        square = e.linear((bin_middles(e.experiment) - centre.value) ** 2)
        assert result.variance.stderr**2 == pytest.approx(square.stderr**2 + 2 * centre.stderr**4)
        assert result.variance.stderr > 1.01 * square.stderr

    def test_single_bin_is_near_zero_with_finite_interval(self):
        experiment = number(32, 4)
        f = np.eye(32)[7]
        result = moments.deviation(draw(experiment, f, 100_000, np.random.default_rng(3)))
        low, high = result.interval()
        assert low == 0
        assert 0 <= result.value <= high < 3

    @pytest.mark.slow
    def test_interval_covers_despite_a_wrong_mean(self):
        """Draw 400 fleets of 10,000 reports with flat hashing: 95% intervals must cover at least 94%.

        At a coverage of 94%, fewer intervals cover with probability 1e-10.
        """
        experiment = number_with_mechanism("olh", 128, 1, g=3)
        f = 1 / (1 + np.arange(128.0)) ** 1.3
        f /= f.sum()
        rng, hits = np.random.default_rng(5), 0
        x = bin_middles(experiment)
        truth = np.sqrt(f @ (x - f @ x) ** 2)
        for _ in range(400):
            low, high = moments.deviation(draw(experiment, f, 10_000, rng)).interval()
            hits += low <= truth <= high
        assert hits >= stats.binom.ppf(1e-10, 400, 0.94)

    def test_interval_combines_three_means(self):
        result = moments.deviation(draw(number(16, 1), bell(16, 9, 3), 500, np.random.default_rng(6)))
        assert result.centred_squares.value[[0, 2]] == pytest.approx([result.variance.value] * 2)
        low, high = result.centred_squares.interval(0.9)
        assert result.interval(0.9) == (np.sqrt(max(low.min(), 0)), np.sqrt(high.max()))
