"""Vectorised draws follow exactly the shipped randomizer's channel.

Chi-square statistics are compared with the 1e-12 quantile, and every cell expects over 500 reports because
the chi-square distribution must hold far out in the tail. There are fewer than 200 comparisons, so the
probability that any fails by chance is below 1e-9. Generators are seeded, so a passing test always passes.
"""

import tracemalloc
from typing import Any

import numpy as np
import pytest
from enumeration import distribution
from experiments import experiment_json
from scipy.stats import chi2

from hushmote.device.ldp_client import ONE, Experiment
from hushmote.simulator import vectorised

N = 1_000_000
FALSE_ALARM = 1e-12


def number(bins: int, **fields: Any) -> Experiment:
    return Experiment.parse(
        experiment_json(**{"type": "number", "low": -20_000, "high": 50_000, "bins": bins, **fields})
    )


EXPERIMENTS = {
    "rr": Experiment.parse(experiment_json()),
    "grr": number(7, mechanism="grr"),
    "grr of labels": Experiment.parse(
        experiment_json(type="choice", labels=["a", "b", "c"], mechanism="grr", epsilon=250_000)
    ),
    "olh": number(27, mechanism="olh", g=3),
    "olh, incomplete": number(20, mechanism="olh", g=3),
    "olh, g 2": number(30, mechanism="olh", g=2, epsilon=500_000),
    "olh, g 5": number(12, mechanism="olh", g=5, epsilon=1_500_000),
    "hh": number(16, mechanism="hh", fanout=4, cells=[4, 5]),
    "hh, weights, incomplete": number(14, mechanism="hh", fanout=3, cells=[2, 3, 3], weights=[3, 1, 2]),
    "hh, a weight of 0": number(9, mechanism="hh", fanout=2, cells=[2, 3, 3, 5], weights=[0, 2, 0, 1]),
}


def chi_square(counts: np.ndarray, expected: np.ndarray) -> tuple[float, float]:
    """Return the statistic and its limit; fail if an impossible code was drawn."""
    assert (counts[expected == 0] == 0).all()
    counts, expected = counts[expected > 0], expected[expected > 0]
    assert expected.min() > 500
    statistic = float(((counts - expected) ** 2 / expected).sum())
    return statistic, float(chi2.isf(FALSE_ALARM, len(counts) - 1))


def channel(experiment: Experiment, index: int | None) -> np.ndarray:
    """Return all codes' exact probabilities, from every branch of the shipped randomizer: (code_count,)."""
    exact = distribution(lambda rng: experiment.randomize(index, rng))
    assert sum(exact.values()) == 1
    return np.array([float(exact.get(code, 0)) for code in range(experiment.code_count)])


class Truthful:
    """Primitives that draw a given seed and the truth."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def bernoulli(self, threshold: int) -> bool:
        return True

    def below(self, n: int) -> int:
        return self._seed if n > 300 else 0


class TestCodes:
    @pytest.mark.parametrize("name", EXPERIMENTS)
    def test_follow_their_indexs_exact_channel(self, name):
        # Compare all pairs of index and code; the number of reports with each index is fixed.
        experiment = EXPERIMENTS[name]
        rng = np.random.default_rng(4)
        n = 4 * N
        indices = rng.integers(-1, experiment.domain, n)
        codes = vectorised.codes(experiment, indices, rng)
        assert codes.shape == (n,)
        pairs = np.bincount((indices + 1) * experiment.code_count + codes, minlength=0)
        pairs = np.append(pairs, np.zeros((experiment.domain + 1) * experiment.code_count - len(pairs), int))
        index_counts = np.bincount(indices + 1)
        inputs = [None, *range(experiment.domain)]
        expected = np.concatenate(
            [m * channel(experiment, i) for m, i in zip(index_counts, inputs, strict=True)]
        )
        statistic, limit = chi_square(pairs, expected)
        assert statistic < limit

    def test_differ_for_another_epsilon_or_index(self):
        # The statistic grows by over 350 for every 4 million reports, so the test detects 2% of epsilon.
        index_counts = np.zeros(27, int)
        index_counts[5] = 8 * N
        counts = vectorised.histogram(EXPERIMENTS["olh"], index_counts, np.random.default_rng(5))
        other_channel = channel(number(27, mechanism="olh", g=3, epsilon=1_020_000), 5)
        for expected in (other_channel, channel(EXPERIMENTS["olh"], 6)):
            statistic, limit = chi_square(counts, 8 * N * expected)
            assert statistic > limit

    @pytest.mark.parametrize(("bins", "g"), [(1024, 2), (1024, 3), (1024, 23), (65_536, 3), (60_000, 251)])
    def test_large_hashes_match_the_board(self, bins, g):
        # The number of reports whose cell matches the board's hash for the same seed is binomial with the
        # truth's probability; any different hash gives less. 7 standard deviations have probability 3e-12.
        experiment = number(bins, mechanism="olh", g=g, epsilon=6_000_000)
        level = experiment.levels[0]
        rng = np.random.default_rng(7)
        indices = rng.integers(0, bins, 20_000)
        codes = vectorised.codes(experiment, indices, rng)
        same = sum(
            experiment.randomize(index, Truthful(code // g)) == code
            for index, code in zip(indices.tolist(), codes.tolist(), strict=True)
        )
        p = level.threshold / ONE
        assert abs(same - 20_000 * p) < 7 * (20_000 * p * (1 - p)) ** 0.5
        assert codes.max() < experiment.code_count


class TestHistogram:
    @pytest.mark.parametrize("name", ["olh", "hh, weights, incomplete"])
    def test_follows_the_exact_channel(self, name):
        """Test one index and no reading; every mechanism draws codes in the same way."""
        experiment, rng = EXPERIMENTS[name], np.random.default_rng(2)
        for index in (0, experiment.domain // 2, experiment.domain - 1, None):
            index_counts = np.zeros(experiment.domain + 1, int)
            index_counts[-1 if index is None else index] = N
            counts = vectorised.histogram(
                experiment, index_counts[:-1], rng, no_reading=int(index_counts[-1])
            )
            statistic, limit = chi_square(counts, N * channel(experiment, index))
            assert statistic < limit

    def test_counts_every_report_once_in_any_chunks(self):
        few, many = (number(bins, mechanism="olh", g=3) for bins in (1024, 65_536))
        rng = np.random.default_rng(8)
        index_counts = rng.integers(0, 300, 1024)
        index_counts[17] = 100_000  # more than a chunk
        index_counts[900:950] = 0
        counts = vectorised.histogram(few, index_counts, rng, no_reading=70_001)
        assert counts.sum() == index_counts.sum() + 70_001
        assert many.code_count > 500_000  # too many to go through all of them for each chunk
        counts = vectorised.histogram(many, np.full(65_536, 2), rng)
        assert counts.shape == (many.code_count,)
        assert counts.sum() == 2 * 65_536

    @pytest.mark.slow
    def test_takes_memory_independent_of_reports(self):
        experiment = number(1024, mechanism="olh", g=3)

        def peak_bytes(count: int) -> int:
            tracemalloc.start()
            vectorised.histogram(
                experiment, np.full(1024, count), np.random.default_rng(11), no_reading=count
            )
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            return peak

        peak_bytes(100)  # tables are built only once
        assert peak_bytes(8_000) < 1.2 * peak_bytes(500) < 16 << 20


class TestArguments:
    def test_rejects_invalid_counts_and_indices(self):
        experiment = EXPERIMENTS["grr"]
        rng = np.random.default_rng(12)
        with pytest.raises(ValueError, match=r"integers of shape \(7,\)"):
            vectorised.histogram(experiment, np.ones(8, int), rng)
        with pytest.raises(ValueError, match=r"integers of shape \(7,\)"):
            vectorised.histogram(experiment, np.ones(7), rng)
        with pytest.raises(ValueError, match="negative"):
            vectorised.histogram(experiment, np.array([1, 1, -1, 1, 1, 1, 1]), rng)
        with pytest.raises(ValueError, match="negative"):
            vectorised.histogram(experiment, np.ones(7, int), rng, no_reading=-1)
        for index in (-2, 7):
            with pytest.raises(ValueError, match=r"range\(7\), or -1"):
                vectorised.codes(experiment, np.array([0, index]), rng)

    def test_no_devices_give_no_codes(self):
        experiment = EXPERIMENTS["hh"]
        rng = np.random.default_rng(14)
        assert vectorised.codes(experiment, np.array([], int), rng).shape == (0,)
        assert vectorised.histogram(experiment, np.zeros(16, int), rng).sum() == 0

    def test_missing_reading_is_the_last_index_if_supported(self):
        exp = Experiment.parse(experiment_json(mechanism="grr", missing=1, epsilon=16_000_000))
        codes = vectorised.codes(exp, np.full(1000, vectorised.NO_READING), np.random.default_rng(1))
        # At ε = 16 a lie has probability 2e-7; 5 lies in 1,000 reports have a probability below 1e-19.
        assert (codes == 2).sum() > 995
        counts = vectorised.histogram(exp, np.array([500, 0, 100]), np.random.default_rng(1), no_reading=400)
        assert counts[0] > 495
        assert counts[2] > 495
