"""The square wave on the server: weights, reach and means."""

import math

import numpy as np
import pytest
from experiments import number_json
from scipy import stats

from hushmote.device.ldp_client import Experiment, truth_threshold
from hushmote.server.arrays import Floats
from hushmote.server.estimate import estimate, plausibility
from hushmote.server.estimate.pooling import pool
from hushmote.server.mechanisms import mechanism_of
from hushmote.server.mechanisms.sw import Wave, best_reach, even_variance
from hushmote.simulator import vectorised


def square_wave(bins: int, reach: int, epsilon: int = 1_000_000) -> Experiment:
    return Experiment.parse(number_json(bins, mechanism="sw", reach=reach, epsilon=epsilon))


def wave(bins: int, reach: int, epsilon: int) -> Wave:
    return Wave(bins, reach, truth_threshold(epsilon, bins, 2 * reach + 1))


def positions(bins: int) -> Floats:
    return (np.arange(bins) + 0.5) / bins


def populations(bins: int) -> dict[str, Floats]:
    edges = np.arange(bins + 1) / bins
    shares = {
        "normal": np.diff(stats.norm.cdf(edges, 0.45, 1 / 16)),
        "beta(5, 2)": np.diff(stats.beta.cdf(edges, 5, 2)),
        "skewed": 1 / np.arange(1, bins + 1) ** 1.1,
    }
    return {name: f / f.sum() for name, f in shares.items()}


class TestWeights:
    @pytest.mark.parametrize(("bins", "reach"), [(64, 15), (64, 0), (7, 3), (5, 9), (33, 16), (2, 0)])
    def test_match_full_least_squares(self, bins: int, reach: int):
        channel = wave(bins, reach, 1_000_000)
        half = (np.arange(bins) < bins // 2).astype(float)
        statistic: Floats = np.column_stack([positions(bins), positions(bins) ** 2, half])
        law = channel.law(np.eye(bins))
        scaled = law / law.mean(axis=1, keepdims=True)
        dense = scaled @ np.linalg.solve(law.T @ scaled, statistic)
        np.testing.assert_allclose(channel.weights(statistic), dense, rtol=1e-9, atol=1e-9)

    @pytest.mark.parametrize("epsilon", [1_000, 500_000, 2_000_000, 8_000_000])
    @pytest.mark.parametrize(
        ("bins", "reach"),
        [(4096, 0), (4096, 1023), (4096, 2047), (4096, 4096), (4093, 1840), (100_000, 25_000)],
    )
    def test_are_unbiased_on_large_domains(self, bins: int, reach: int, epsilon: int):
        channel = wave(bins, reach, epsilon)
        weights = channel.weights(positions(bins)[:, None])[:, 0]
        off = channel.law_transposed(weights) - positions(bins)
        # At an ε of a thousandth, weights are in the millions, and rounding errors are amplified accordingly.
        assert np.abs(off).max() < 1e-9 * max(1.0, np.abs(weights).max() / 1e5)


# The mean's standard deviation times the root of the number of reports, as a fraction of the range, 64
# values.
KNOWN = [
    (0.5, 126, (1.97, None, None)),
    (1.0, 120, (0.98, 0.99, 1.03)),
    (2.0, 94, (0.39, 0.46, 0.52)),
    (4.0, 80, (0.15, 0.23, 0.30)),
]


class TestReach:
    @pytest.mark.parametrize("epsilon", [50_000, 1_000_000, 8_000_000])
    @pytest.mark.parametrize("bins", [3, 4, 33, 64])
    def test_is_the_best(self, bins: int, epsilon: int):
        reach, variance = best_reach(bins, epsilon)
        variances = [even_variance(bins, epsilon, b) for b in range(2 * bins)]
        assert variance == pytest.approx(min(variances), rel=1e-12)
        assert variances[reach] == variance
        assert math.isinf(even_variance(12_000_000, 1_000, 1))

    @pytest.mark.parametrize(
        ("epsilon", "codes", "deviations"), KNOWN, ids=[f"epsilon {row[0]:g}" for row in KNOWN]
    )
    def test_of_64_values_has_known_codes_and_errors(
        self, epsilon: float, codes: int, deviations: tuple[float | None, ...]
    ):
        micro = round(epsilon * 1e6)
        reach, _ = best_reach(64, micro)
        mechanism = mechanism_of(square_wave(64, reach, micro))
        assert mechanism.experiment.code_count == codes
        for expected, shares in zip(deviations, populations(64).values(), strict=True):
            measured = math.sqrt(mechanism.variances(positions(64)[:, None], shares)[0])
            assert expected is None or measured == pytest.approx(expected, rel=0.03)


class TestMean:
    @pytest.mark.slow
    @pytest.mark.parametrize("bins", [64, 256])
    def test_interval_covers_for_mostly_zero_readings(self, bins: int):
        """Draw 600 fleets of 3,000 reports, 98% in one bin: the coverage must be at least 93%.

        Fewer than the bound come with a chance below 1e-9 where intervals cover 93 % or more.
        """
        shares = np.full(bins, 0.02 / bins)
        shares[0] += 0.98
        truth = float(shares @ positions(bins))
        experiment = square_wave(bins, best_reach(bins, 1_000_000)[0])
        law = mechanism_of(experiment).code_law(shares)
        rng = np.random.default_rng(3)
        hits = 0
        for _ in range(600):
            low, high = (
                estimate(experiment, rng.multinomial(3000, law)).linear(positions(bins)).interval(0.95)
            )
            hits += low <= truth <= high
        assert hits >= stats.binom.ppf(1e-9, 600, 0.93)

    def test_pools_over_reaches_and_mechanisms(self):
        """For three versions of 20,000 reports, each pool is within 6.5 standard errors (misses: 1e-10)."""
        rng = np.random.default_rng(4)
        shares = populations(64)["beta(5, 2)"]
        truth = float(shares @ positions(64))
        fields = {"mechanism": "hh", "fanout": 4, "cells": [4, 3, 3]}
        versions = [
            square_wave(64, 28),
            square_wave(64, 15, 2_000_000),
            Experiment.parse(number_json(64, **fields, epsilon=1_000_000)),
        ]
        estimates = [
            estimate(e, vectorised.histogram(e, rng.multinomial(20_000, shares), rng)) for e in versions
        ]
        stderrs = []
        for by in ("reports", "variance"):
            mean = pool(estimates, by).linear(positions(64))
            assert abs(mean.value - truth) < 6.5 * mean.stderr
            stderrs.append(mean.stderr)
        # By variance, the version with ε = 2 has the most weight, and the tree, which is worse for a mean,
        # the least.
        least = math.sqrt(1 / sum(1 / e.linear(positions(64)).stderr ** 2 for e in estimates))
        assert least * 0.999 < stderrs[1] < least * 1.03 < stderrs[0]


class TestPlausibility:
    def test_detects_impossible_reports(self):
        """All of 4,000 reports have the last code, which no population can make so common."""
        experiment = square_wave(64, 15, 2_000_000)
        rng = np.random.default_rng(5)
        counts = vectorised.histogram(experiment, rng.multinomial(20_000, populations(64)["skewed"]), rng)
        assert not plausibility.check(experiment, counts).implausible
        counts[-1] += 4000
        finding = plausibility.check(experiment, counts)
        assert finding.implausible
        assert "more reports than if all devices" in finding.words
        counts[-1] = 0
        counts[40] = 0
        finding = plausibility.check(experiment, counts)
        assert finding.implausible
        assert "fewer reports than if no device" in finding.words
