"""Experiments whose mechanism answers only the mean."""

from collections.abc import Callable

import numpy as np
import pytest
from designs import draw
from experiments import number_json

from hushmote.device.ldp_client import Experiment
from hushmote.server.answers import moments
from hushmote.server.answers.answer import Frame
from hushmote.server.answers.fleet_estimate import FleetEstimate, trend
from hushmote.server.answers.rows import ChangeRow, PostRow
from hushmote.server.arrays import Floats
from hushmote.server.estimate import Estimate, estimate
from hushmote.server.estimate.pooling import pool
from hushmote.server.experiments.answerable import UnanswerableError
from hushmote.server.wire.experiments import parse_experiment


def version(reach: int, epsilon: int = 2_000_000) -> Experiment:
    return Experiment.parse(number_json(40, mechanism="sw", reach=reach, epsilon=epsilon))


def shares(middle: float) -> Floats:
    f = np.exp(-0.5 * ((np.arange(40) - middle) / 4) ** 2)
    return f / f.sum()


def fleet(experiment: Experiment, middle: float, seed: int) -> Estimate:
    return draw(experiment, shares(middle), 20_000, np.random.default_rng(seed))


def mean_of(middle: float) -> float:
    return float(shares(middle) @ (np.arange(40) + 0.5) / 40)


class TestChange:
    def test_is_detected_between_versions_of_different_reach(self):
        """With 20,000 reports each, a move by a tenth of the range is 24 standard errors."""
        before, after = (
            FleetEstimate(fleet(v, at, 2)) for v, at in ((version(10), 15.0), (version(4), 19.0))
        )
        (readings,) = after.change_since(before)
        mean = readings.rows[0]
        assert isinstance(mean, ChangeRow)
        assert mean.name == "mean"
        assert mean.p < 1e-9
        assert mean.low < mean_of(19) - mean_of(15) < mean.high

    def test_trend_across_windows_has_a_test(self):
        """Three windows are equal and one differs; intervals have confidence 1 - 1e-9."""
        windows = {f"2026-11-2{i}": fleet(version(10), 15, 10 + i) for i in range(3)}
        (calm,) = trend(windows, ["mean"], Frame(confidence=1 - 1e-9))
        assert dict(calm.p_values)["mean"] > 1e-9
        assert all(row.low < mean_of(15) < row.high for row in calm.rows)
        (moved,) = trend(windows | {"2026-11-24": fleet(version(10), 19, 14)}, ["mean"])
        assert dict(moved.p_values)["mean"] < 1e-9


class TestPool:
    def test_has_one_mean(self):
        both = FleetEstimate(
            pool([fleet(version(10), 15, 3), fleet(version(3, 1_000_000), 15, 4)]), confidence=1 - 1e-9
        )
        row = both.mean().rows[0]
        assert row.low < mean_of(15) < row.high
        alone = FleetEstimate(fleet(version(3, 1_000_000), 15, 4), confidence=1 - 1e-9).mean().rows[0]
        assert row.high - row.low < alone.high - alone.low

    def test_is_weighted_by_variance_of_the_mean(self):
        """Variances of 1 and 4 are weighted 4 to 1, which gives 1 / (1/a + 1/b), below either."""
        parts = [fleet(version(10), 15, 3), fleet(version(3, 1_000_000), 15, 4)]
        a, b = (part.mean_variance() for part in parts)
        assert a < b
        best = pool(parts, by="variance")
        np.testing.assert_allclose(best.weights, [b / (a + b), a / (a + b)])
        assert best.mean_variance() == pytest.approx(a * b / (a + b))
        assert best.mean_variance() < a < pool(parts).mean_variance()

    def test_answers_only_questions_common_to_versions(self):
        means, shares_too = fleet(version(10), 15, 3), fleet(Experiment.parse(number_json(40)), 15, 4)
        assert "frequencies" in shares_too.answers - means.answers
        assert pool([means, shares_too]).answers == pool([shares_too, means]).answers == means.answers


ONE_BIT = """
from pathlib import Path
import numpy as np
from hushmote.device import ldp_client
from hushmote.device.ldp_client import ONE
from hushmote.server.mechanisms import Mechanism

class Coin(Mechanism):
    answers = frozenset({"mean"})
    board = Path(__file__)
    examples = ({"type": "number", "low": 0, "high": 1000, "bins": 5},)

    def __init__(self, experiment):
        super().__init__(experiment)
        self.ones = np.array(experiment.steps) / ONE

    def law(self, shares):
        return [np.stack([1 - self.ones, self.ones]) @ shares]

    def weights(self, statistic, reports):
        first, last = self.ones[[0, -1]]
        slope = (statistic[-1] - statistic[0]) / (last - first)
        return [np.array([[-first], [1 - first]]) * slope], statistic[0].copy()

    def draw(self, indices, rng):
        steps = np.array(self.experiment.steps)[indices]
        return (rng.integers(0, ONE, len(indices)) < steps).astype(np.uint32)

def take(exp, fields):
    exp.code_count = 2
    lie = ONE - ldp_client.truth_threshold(exp.epsilon, 2)
    exp.steps = tuple(lie + i * (ONE - 2 * lie) // (exp.domain - 1) for i in range(exp.domain))

def randomize(exp, index, rng):
    return int(rng.bernoulli(exp.steps[index]))

def register(name):
    ldp_client.MECHANISMS[name + ":Coin"] = (take, randomize)

register(__name__)
"""
"""A bit that is 1 the more often, the higher the reading: it tells the mean, and no square."""


class TestOneBit:
    def test_has_a_mean_but_no_standard_deviation(self, own_folder: Callable[[str, str], str]):
        """Draw 20,000 reports: an interval misses with probability 1e-9. Two values have both statistics."""
        word = own_folder("one_bit_of_a_mean", ONE_BIT)
        bits = {n: parse_experiment(number_json(n, mechanism=word, epsilon=2_000_000)) for n in (2, 40)}
        fleet_estimate = FleetEstimate(fleet(bits[40], 15, 6), confidence=1 - 1e-9, truth=shares(15))
        (row,) = fleet_estimate.mean().rows
        assert row.name == "mean"
        assert row.covered
        with pytest.raises(UnanswerableError, match="x answers only its mean"):
            fleet_estimate.histogram(8, post="smooth")
        (changed,) = FleetEstimate(fleet(bits[40], 19, 7)).change_since(fleet_estimate)
        assert [row.name for row in changed.rows] == ["mean"]
        wave = FleetEstimate(fleet(version(10), 15, 3))
        for before, after in ((fleet_estimate, wave), (wave, fleet_estimate)):
            (changed,) = after.change_since(before)
            assert [row.name for row in changed.rows] == ["mean"]
        both = FleetEstimate(pool([fleet(version(10), 15, 3), fleet_estimate.estimates]))
        assert [row.name for row in both.mean().rows] == ["mean"]
        assert len(FleetEstimate(estimate(bits[2], [40, 60])).mean().rows) == 2


class TestSummary:
    def test_is_mean_and_standard_deviation(self):
        """Each interval misses with probability 1e-9."""
        fleet_estimate = FleetEstimate(fleet(version(10), 15, 1), confidence=1 - 1e-9, truth=shares(15))
        (moments,) = fleet_estimate.summary()
        assert [row.name for row in moments.rows] == ["mean", "standard deviation"]
        assert all(row.covered for row in moments.rows)
        assert moments.rows[0].truth == pytest.approx(mean_of(15))
        for question in (
            fleet_estimate.histogram,
            fleet_estimate.cdf,
            lambda: fleet_estimate.top(3),
            lambda: fleet_estimate.share("0:0.5"),
            fleet_estimate.quantile,
        ):
            with pytest.raises(UnanswerableError, match="x answers only its mean"):
                question()

    def test_histogram_needs_a_named_method(self):
        table = FleetEstimate(fleet(version(10), 15, 5)).histogram(8, post="smooth")
        processed = [row.processed for row in table.rows if isinstance(row, PostRow)]
        assert len(processed) == len(table.rows) == 8
        assert sum(processed) == pytest.approx(1)
        assert table.post == "smooth"
        assert "no intervals" in table.note

    def test_notes_binning_error_when_significant(self):
        """Half of a bin of 0.025 is small compared with the error of 20 reports, but not of 20,000."""
        note = "Each reading is counted at the midpoint of its bin, which is 0.025 V wide, so the mean may be"
        assert FleetEstimate(fleet(version(10), 15, 1), unit="V").mean().notes == (
            f"{note} off by up to another 0.0125 V.",
        )
        ends = np.zeros(version(10).code_count, int)
        ends[[0, -1]] = 10
        coarse = FleetEstimate(estimate(version(10), ends), unit="V")
        assert coarse.mean().notes == ()
        edge = [moments.bins_note(coarse.estimates, "V", bins * 0.025) for bins in (4.99, 5.01)]
        assert edge == [f"{note} off by up to another 0.0125 V.", ""]
