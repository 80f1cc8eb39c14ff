"""Estimates among devices that have a reading: values, intervals, pools and post-processing."""

from typing import Any

import numpy as np
import pytest
from experiments import experiment_json

from hushmote.device.ldp_client import Experiment
from hushmote.server.answers.fleet_estimate import FleetEstimate
from hushmote.server.estimate import EstimateError, estimate
from hushmote.server.estimate.conditional import Ratio
from hushmote.server.estimate.pooling import pool
from hushmote.server.estimate.postprocess import METHODS
from hushmote.server.estimate.readings import (
    Ratios,
    ReadingEstimates,
    among_readings,
    missing_share,
)
from hushmote.server.estimate.statistic import Statistic
from hushmote.server.estimate.top_k import top
from hushmote.simulator import vectorised

NUMBER: dict[str, Any] = {"type": "number", "low": 0, "high": 15_000, "bins": 15, "epsilon": 3_000_000}
SHAPES: dict[str, dict[str, Any]] = {
    "bool": {"type": "bool", "mechanism": "grr", "epsilon": 3_000_000},
    "choice": {"type": "choice", "labels": ["a", "b"], "mechanism": "olh", "g": 3, "epsilon": 3_000_000},
    "grr": NUMBER | {"mechanism": "grr"},
    "hh": NUMBER | {"mechanism": "hh", "fanout": 4, "cells": [4, 7]},
    "pgr": NUMBER | {"mechanism": "pgr", "q": 7},
}
MISSING = 0.4


def parsed(shape: dict[str, Any], **changes: Any) -> Experiment:
    return Experiment.parse(experiment_json(**shape | {"missing": 1} | changes))


def population(e: Experiment) -> np.ndarray:
    """Return shares of the indices: 40% missing, and each further value a third less common."""
    values = 1.5 ** -np.arange(e.domain - 1.0)
    return np.append(values / values.sum() * (1 - MISSING), MISSING)


def drawn(e: Experiment, reports: int, rng: np.random.Generator) -> np.ndarray:
    return vectorised.histogram(e, rng.multinomial(reports, population(e)), rng)


@pytest.fixture(params=SHAPES)
def readings(request: pytest.FixtureRequest) -> ReadingEstimates:
    e = parsed(SHAPES[request.param])
    result = among_readings(estimate(e, drawn(e, 200_000, np.random.default_rng(5))))
    assert isinstance(result, ReadingEstimates)
    return result


class TestValues:
    def test_are_shares_of_devices_with_a_reading(self, readings: ReadingEstimates):
        truth = population(readings.experiment)[:-1] / (1 - MISSING)
        assert readings.frequencies.shape == truth.shape == (readings.domain,)
        assert readings.frequencies.sum() == pytest.approx(1)
        # 6 standard errors for at most 15 values: a false alarm in fewer than 1 of 1e7 seeds.
        assert (np.abs(readings.frequencies - truth) < 6 * readings.stderr).all()

    def test_missing_is_a_share_of_all_devices(self, readings: ReadingEstimates):
        missing = readings.missing
        assert missing.value == pytest.approx(readings.whole.frequencies[-1])
        assert abs(missing.value - MISSING) < 6 * missing.stderr
        assert missing_share(readings) == missing

    def test_range_is_a_ratio_with_a_fieller_interval(self, readings: ReadingEstimates):
        ratio = readings.range(0, 1)
        assert isinstance(ratio, Ratio)
        assert ratio.value == pytest.approx(readings.frequencies[0])
        assert ratio.denominator.value == pytest.approx(1 - readings.missing.value)
        assert ratio.stderr == pytest.approx(readings.stderr[0])

    def test_sum_is_certain(self, readings: ReadingEstimates):
        everything = readings.range(0, readings.domain)
        assert everything.interval() == pytest.approx((1, 1))
        assert readings.cdf()[-1] == pytest.approx(1)

    def test_array_intervals_equal_single_ones(self, readings: ReadingEstimates):
        low, high = readings.frequency_intervals(0.9)
        for i in range(readings.domain):
            assert readings.frequency(i).interval(0.9) == pytest.approx((low[i], high[i]))

    def test_quantile_is_among_devices_with_a_reading(self, readings: ReadingEstimates):
        truth = np.cumsum(population(readings.experiment)[:-1] / (1 - MISSING))
        for q in (0.25, 0.5, 0.9):
            assert readings.quantile(q).low <= np.searchsorted(truth, q) <= readings.quantile(q).high

    def test_halves_are_reading_estimates(self, readings: ReadingEstimates):
        halves = readings.halves()
        assert halves is not None
        assert all(half.domain == readings.domain for half in halves)
        assert sum(half.reports for half in halves) == readings.reports

    def test_top_is_among_the_values(self, readings: ReadingEstimates):
        assert top(readings, 1).listed[0].index == 0


class TestIntervals:
    @pytest.mark.parametrize("name", ["bool", "hh"])
    def test_cover_the_truth_at_their_nominal_rate(self, name: str):
        e, rng = parsed(SHAPES[name]), np.random.default_rng(11)
        truth = float(population(e)[0] / (1 - MISSING))
        held = 0
        for _ in range(400):
            ratio = among_readings(estimate(e, drawn(e, 3_000, rng))).range(0, 1)
            low, high = ratio.interval(0.9)
            held += low <= truth <= high
        # Binomial(400, 0.9) is below 322 with probability 2e-9.
        assert held >= 322

    def test_have_no_bounds_if_the_denominator_may_be_0(self):
        ratios = [Ratio(0.5, 0.1, 0.0, Statistic(1.0, error), 0.2) for error in (0.1, 0.6)]
        low, high = Ratios.of(ratios).interval()
        assert (low[0], high[0]) == pytest.approx(ratios[0].interval())
        assert (low[1], high[1]) == ratios[1].interval() == (-np.inf, np.inf)

    def test_raise_an_error_without_readings(self):
        e = parsed(SHAPES["bool"])
        counts = vectorised.histogram(e, np.array([0, 0, 5_000]), np.random.default_rng(1))
        nobody = among_readings(estimate(e, counts))
        with pytest.raises(EstimateError, match=r"^too few reports have a reading for e; \d+ to 100%"):
            nobody.range(0, 1)


class TestPooling:
    def test_versions_with_missing_pool(self):
        e, other = parsed(SHAPES["grr"]), parsed(SHAPES["hh"])
        rng = np.random.default_rng(3)
        parts = [estimate(x, drawn(x, 50_000, rng)) for x in (e, other)]
        both = among_readings(pool(parts))
        assert both.domain == 15
        assert both.reports == 100_000
        assert isinstance(both.range(0, 5), Ratio)

    def test_with_and_without_missing_pool_by_statistic(self):
        e, rng = parsed(SHAPES["grr"]), np.random.default_rng(3)
        plain = parsed(SHAPES["grr"], missing=None)
        values = population(e)[:-1] / (1 - MISSING)
        whole = vectorised.histogram(plain, rng.multinomial(50_000, values), rng)
        both = among_readings(pool([estimate(plain, whole), estimate(e, drawn(e, 50_000, rng))]))
        assert both.domain == 15
        assert missing_share(both) is None
        assert "Only some versions set missing" in FleetEstimate(both).histogram().note
        share = both.range(0, 5)
        assert abs(share.value - values[:5].sum()) < 6 * share.stderr
        with pytest.raises(
            EstimateError, match="nonnegative needs versions that either all set missing or all do not"
        ):
            METHODS["nonnegative"](both)

    def test_different_numbers_of_values_do_not_pool(self):
        e, rng = parsed(SHAPES["grr"]), np.random.default_rng(3)
        other = parsed(SHAPES["grr"], bins=16, missing=None)
        counts = [drawn(e, 100, rng), np.full(16, 9)]
        with pytest.raises(EstimateError, match="their number of values is the same, not 15 and 16"):
            pool([estimate(x, c) for x, c in zip((e, other), counts, strict=True)])


class TestPostProcessing:
    @pytest.mark.parametrize("name", ["nonnegative", "smooth"])
    def test_gives_shares_of_devices_with_a_reading(self, name: str):
        for shape in ("grr", "hh"):
            e = parsed(SHAPES[shape])
            readings = among_readings(estimate(e, drawn(e, 200_000, np.random.default_rng(5))))
            shares = METHODS[name](readings).frequencies
            assert shares.shape == (15,)
            assert shares.min() >= 0
            assert shares.sum() == pytest.approx(1)
            assert np.abs(shares - population(e)[:-1] / (1 - MISSING)).max() < 0.05


class TestAnswers:
    def test_histogram_shows_the_missing_share(self, readings: ReadingEstimates):
        answer = FleetEstimate(readings, missing_truth=MISSING).histogram()
        assert answer.missing is not None
        assert answer.missing.covered
        assert answer.notes[0].startswith("no reading: ")
        assert answer.to_dict()["missing"]["name"] == "no reading"
        assert len(answer.rows) <= 16

    def test_omit_the_missing_share_without_the_setting(self):
        e = parsed(SHAPES["grr"], missing=None)
        answer = FleetEstimate(estimate(e, np.full(15, 100))).histogram()
        assert answer.missing is None
        assert "missing" not in answer.to_dict()
        assert not any(note.startswith("no reading") for note in answer.notes)
