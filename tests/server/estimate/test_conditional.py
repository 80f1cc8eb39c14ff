"""Ratios of linear statistics and their differences: values, intervals and p-values."""

import math

import numpy as np
import pytest
from designs import draw
from experiments import experiment_json
from scipy import stats

from hushmote.device.ldp_client import Experiment
from hushmote.server.arrays import Floats
from hushmote.server.estimate.conditional import (
    MIN_ERRORS,
    Ratio,
    RatioDifference,
    independent_difference,
    paired_difference,
    ratios,
    reports_needed,
)
from hushmote.server.estimate.estimate import Estimates
from hushmote.server.estimate.pooling import pool
from hushmote.server.estimate.statistic import EstimateError, Statistic

FALSE_ALARM = 1e-11
VERSIONS = np.array([0.1, 0.3, 0.6])
RATES = np.array([0.15, 0.10, 0.04])
TABLE = np.stack([VERSIONS * (1 - RATES), VERSIONS * RATES], axis=1).ravel()
CRASHED = np.tile([0.0, 1.0], 3)
VERSION_CELLS = np.repeat(np.eye(3), 2, axis=0)  # indicators of each version's cells


OF = [{"name": "version", "type": "choice", "labels": ["1.2", "1.3"]}, {"name": "crashed", "type": "bool"}]
EXPERIMENT = Experiment.parse(
    experiment_json(type="pair", of=OF, mechanism="grr", epsilon=4_000_000, budget={"rule": "unlimited"})
)


def fleet(reports: int, seed: int, table: Floats = TABLE) -> Estimates:
    return draw(EXPERIMENT, table, reports, np.random.default_rng(seed))


def given_versions(estimates: Estimates) -> list[Ratio]:
    return ratios(estimates, CRASHED[:, None] * VERSION_CELLS, VERSION_CELLS)


def two(estimates: Estimates, first: int = 0, second: int = 2) -> RatioDifference:
    below = VERSION_CELLS[:, [first, second]]
    return paired_difference(estimates, CRASHED[:, None] * below, below)


class TestDifference:
    def test_error_accounts_for_shared_reports(self):
        estimates = fleet(20_000, 7)
        first, _, second = given_versions(estimates)
        result = two(estimates)
        assert result.value == pytest.approx(first.value - second.value)
        lines = CRASHED[:, None] * VERSION_CELLS - np.array([first.value, 0, second.value]) * VERSION_CELLS
        joined = lines[:, 0] / first.denominator.value - lines[:, 2] / second.denominator.value
        assert result.stderr == pytest.approx(estimates.linear(joined).stderr)
        assert result.is_known
        turned = two(estimates, 2, 0)
        np.testing.assert_allclose(turned.interval(), (-result.interval()[1], -result.interval()[0]))

    def test_correlated_errors_cancel(self):
        """Normal errors of 3 and 4 give 1 at a correlation of 1, 5 at 0 and 7 at -1, each times z."""
        first, second, z = Ratio(0.5, 3.0), Ratio(0.2, 4.0), stats.norm.isf(0.025)
        for correlation, error in ((1.0, 1.0), (0.0, 5.0), (-1.0, 7.0), (0.5, math.sqrt(13))):
            apart = RatioDifference(0.3, error, 0.0, first, second, correlation)
            np.testing.assert_allclose(apart.interval(), [0.3 - z * error, 0.3 + z * error])

    def test_ratio_correlates_with_itself_and_its_complement(self):
        """The crashed and not-crashed shares have opposite errors."""
        estimates = fleet(20_000, 11)
        below = VERSION_CELLS[:, [0, 0]]
        same = two(estimates, 0, 0)
        assert same.correlation == pytest.approx(1)
        # only the skew remains
        np.testing.assert_allclose(same.interval(), (0, 0), atol=0.1 * same.first.stderr)
        above = np.stack([CRASHED, 1 - CRASHED], axis=1) * below
        opposite = paired_difference(estimates, above, below)
        assert opposite.correlation == pytest.approx(-1)
        low, high = opposite.first.interval()
        assert opposite.interval()[1] - opposite.interval()[0] == pytest.approx(2 * (high - low))

    def test_separate_estimates_are_uncorrelated(self):
        one, other = fleet(30_000, 9), fleet(30_000, 10)
        a, b = given_versions(one)[0], given_versions(other)[0]
        apart = independent_difference(a, b)
        assert apart.stderr == pytest.approx(math.hypot(a.stderr, b.stderr))
        assert apart.correlation == 0
        pooled = given_versions(pool([one, other]))[0]
        assert pooled.stderr == pytest.approx(a.stderr / math.sqrt(2), rel=0.1)
        assert min(a.value, b.value) <= pooled.value <= max(a.value, b.value)


def hits(kind: str, reports: int, fleets: int) -> tuple[int, int]:
    """Return how many of the 95% intervals for known ratios cover the truth, and their number."""
    covered = known_count = 0
    for seed in range(fleets):
        estimates = fleet(reports, 10_000 + seed)
        if kind == "difference":
            result, truths = [two(estimates)], [RATES[0] - RATES[2]]
        elif kind == "change":
            pairs = zip(given_versions(estimates), given_versions(fleet(reports, 50_000 + seed)), strict=True)
            result, truths = [independent_difference(a, b) for a, b in pairs], [0.0] * 3
        else:
            result, truths = given_versions(estimates), RATES.tolist()
        for one, truth in zip(result, truths, strict=True):
            if one.is_known:
                low, high = one.interval()
                known_count += 1
                covered += low <= truth <= high
    return covered, known_count


class TestInterval:
    @pytest.mark.parametrize("confidence", [0.5, 0.95, 0.99])
    def test_fieller_bounds_are_z_errors_from_zero(self, confidence):
        """X - θ Y at a bound is z standard errors; the omitted skew can only widen the interval."""
        estimates = fleet(3_000, 3)
        z = stats.norm.isf((1 - confidence) / 2)
        for i, ratio in enumerate(given_versions(estimates)):
            plain = Ratio(ratio.value, ratio.stderr, 0.0, ratio.denominator, ratio.correlation)
            ends = plain.interval(confidence)
            normal = Statistic(ratio.value, ratio.stderr).interval(confidence)
            for end, delta, outer in zip(ends, normal, (min, max), strict=True):
                line = estimates.linear(CRASHED * VERSION_CELLS[:, i] - end * VERSION_CELLS[:, i])
                assert end == outer(end, delta)
                if end != delta:
                    assert abs(line.value) == pytest.approx(z * line.stderr, rel=1e-6)
            low, high = ratio.interval(confidence)
            assert low <= ends[0] < ends[1] <= high

    def test_precise_denominator_gives_the_delta_method_interval(self):
        ratio = given_versions(fleet(5_000_000, 4))[2]
        normal = Statistic(ratio.value, ratio.stderr, ratio.skew).interval()
        np.testing.assert_allclose(ratio.interval(), normal, rtol=2e-3)

    def test_p_value_matches_its_confidence(self):
        estimates = fleet(4_000, 8)
        for result in (two(estimates), given_versions(estimates)[0]):
            for value in (0.0, result.value + 0.03, result.value - 0.1):
                p = result.p_value(value)
                wide, narrow = result.interval(1 - p * 0.999), result.interval(1 - p * 1.001)
                assert wide[0] <= value <= wide[1]
                assert not narrow[0] < value < narrow[1]
        assert two(estimates, 0, 0).value == 0
        assert two(estimates, 0, 0).p == pytest.approx(1, abs=1e-6)

    @pytest.mark.slow
    @pytest.mark.parametrize("reports", [300, 3_000])
    @pytest.mark.parametrize("kind", ["share", "difference", "change"])
    def test_covers_the_ratio_of_the_population(self, kind, reports):
        """Draw 300 fleets; the rarest version has at least 30 reports, and intervals cover at least 92%.

        Fewer hits than the bound have probability 1e-11. benchmarks/pairs.py measures the coverage.
        """
        covered, known_count = hits(kind, reports, 300)
        assert known_count >= 100
        assert covered >= stats.binom.ppf(FALSE_ALARM, known_count, 0.92)


class TestRatio:
    def test_value_and_error_follow_the_delta_method(self):
        estimates = fleet(20_000, 1)
        result = given_versions(estimates)
        for i, ratio in enumerate(result):
            above, below = (
                estimates.linear(CRASHED * VERSION_CELLS[:, i]),
                estimates.linear(VERSION_CELLS[:, i]),
            )
            assert ratio.value == pytest.approx(above.value / below.value)
            line = estimates.linear(CRASHED * VERSION_CELLS[:, i] - ratio.value * VERSION_CELLS[:, i])
            assert ratio.stderr == pytest.approx(line.stderr / below.value)
            assert (ratio.denominator.value, ratio.denominator.stderr) == pytest.approx(
                (below.value, below.stderr)
            )
            assert ratio.is_known

    def test_mean_does_not_depend_on_the_zero_of_its_unit(self):
        estimates, x = fleet(20_000, 2), np.arange(6.0)
        ratios_at_x = ratios(estimates, x[:, None] * VERSION_CELLS, VERSION_CELLS)
        shifted_ratios = ratios(estimates, (x[:, None] + 1e6) * VERSION_CELLS, VERSION_CELLS)
        for a, b in zip(ratios_at_x, shifted_ratios, strict=True):
            assert b.value - 1e6 == pytest.approx(a.value, abs=1e-6)
            assert b.stderr == pytest.approx(a.stderr, rel=1e-6)
            np.testing.assert_allclose(np.array(b.interval()) - 1e6, a.interval(), atol=1e-5)

    def test_possibly_zero_denominator_gives_no_bounds(self):
        table = np.array([0, 0, 0.5, 0.1, 0.3, 0.1])
        ratio = given_versions(fleet(2_000, 5, table))[0]
        assert not ratio.is_known
        assert ratio.interval() == (-math.inf, math.inf)
        assert ratio.p_value(0.5) == pytest.approx(1, abs=1e-6) or ratio.denominator.value > 0
        assert reports_needed(2_000, [ratio]) > 2_000
        assert reports_needed(2_000, [given_versions(fleet(2_000, 5))[2]]) == 2_000

    def test_rejects_weights_of_different_shapes(self):
        with pytest.raises(EstimateError, match="numerators and denominators must have the same shape"):
            ratios(fleet(100, 6), VERSION_CELLS, VERSION_CELLS[:, :2])

    def test_is_known_if_denominator_is_clearly_positive(self):
        below = Statistic(0.03, 0.01001)
        assert MIN_ERRORS == 3
        assert not Ratio(0.1, 0.1, 0.0, below).is_known
        assert Ratio(0.1, 0.1, 0.0, Statistic(0.03, 0.00999)).is_known
        known, unknown = Ratio(0.1, 0.1), Ratio(0.1, 0.1, 0.0, below)
        for first, second in ((known, unknown), (unknown, known)):
            assert not independent_difference(first, second).is_known
        assert independent_difference(known, known).is_known

    def test_reports_needed_follow_the_denominators_error(self):
        """A value of 0.03 with an error of 0.02 needs an error of 0.01; the worst ratio determines it."""
        unknown = Ratio(0.1, 0.1, 0.0, Statistic(0.03, 0.02))
        assert reports_needed(100, [unknown]) == reports_needed(100, [Ratio(0.1, 0.1), unknown]) == 400
