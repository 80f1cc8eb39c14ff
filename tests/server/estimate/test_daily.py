"""Daily series: agreement with single-day estimates, ratios, versions and earlier looks."""

import numpy as np
import pytest
from experiments import experiment_json, number_json

from hushmote.device.ldp_client import Experiment
from hushmote.server.arrays import Floats
from hushmote.server.estimate import estimate
from hushmote.server.estimate.conditional import ratios
from hushmote.server.estimate.daily import DayCounts, VersionDays
from hushmote.server.estimate.pooling import pool
from hushmote.server.wire.experiments import parse_experiment
from hushmote.simulator import vectorised

YES = experiment_json(name="door", epsilon=2_000_000)
TREE = number_json(64, name="room", low=0, high=64_000, mechanism="hh", fanout=4, cells=[4, 5, 5])
FLAT = number_json(64, name="room", low=0, high=64_000, mechanism="olh", g=3)
PAIR = experiment_json(
    name="crash", type="pair", mechanism="views", views=[[0], [1], [0, 1]], cells=[4, 2, 7],
    of=[
        {"name": "version", "type": "choice", "labels": ["1.0", "1.1", "1.2"]},
        {"name": "crashed", "type": "bool"},
    ],
    epsilon=4_000_000,
)  # fmt: skip


def histograms(experiment: Experiment, days: int, reports: int, seed: int = 1) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    even = np.full(experiment.domain, 1 / experiment.domain)
    return [vectorised.histogram(experiment, rng.multinomial(reports, even), rng) for _ in range(days)]


def version(experiment: Experiment, days: list[np.ndarray], first: int = 0) -> VersionDays:
    codes = [np.flatnonzero(day) for day in days]
    day = np.concatenate([np.full(len(code), first + i) for i, code in enumerate(codes)])
    count = np.concatenate([one[code] for one, code in zip(days, codes, strict=True)])
    return VersionDays(experiment, day, np.concatenate(codes), count)


def quarter(experiment: Experiment) -> Floats:
    return (np.arange(experiment.domain) < max(1, experiment.domain // 4)).astype(float)[:, None]


class TestLinear:
    @pytest.mark.parametrize("payload", [YES, FLAT], ids=["rr", "olh"])
    def test_values_are_those_of_each_day(self, payload: bytes):
        experiment = parse_experiment(payload)
        days = histograms(experiment, 10, 500)
        series = DayCounts(np.arange(10), (version(experiment, days),)).series(quarter)
        assert series is not None
        view = series.view(0, 10)
        assert view is not None
        statistics = [estimate(experiment, day).linear(quarter(experiment)[:, 0]) for day in days]
        assert view.value == pytest.approx([one.value for one in statistics])
        mean = float(np.mean([one.stderr**2 for one in statistics]))
        assert view.variance == pytest.approx(np.full(10, mean), rel=0.1)
        whole = estimate(experiment, sum(days)).linear(quarter(experiment)[:, 0])
        assert view.third[0] / view.variance[0] == pytest.approx(10 * whole.skew, rel=0.3, abs=5e-3)

    def test_tree_variance_depends_on_each_levels_reports(self):
        experiment = parse_experiment(TREE)
        days = histograms(experiment, 10, 2_000)
        series = DayCounts(np.arange(10), (version(experiment, days),)).series(quarter)
        assert series is not None
        view = series.view(0, 10)
        assert view is not None
        statistics = [estimate(experiment, day).linear(quarter(experiment)[:, 0]) for day in days]
        assert view.value == pytest.approx([one.value for one in statistics], abs=0.02)
        assert view.variance == pytest.approx([one.stderr**2 for one in statistics], rel=0.15)

    def test_versions_are_weighted_by_their_reports(self):
        old = parse_experiment(YES)
        new = parse_experiment(experiment_json(name="door", epsilon=1_000_000))
        before, after = histograms(old, 6, 300), histograms(new, 6, 900, seed=2)
        versions = version(old, before), version(new, after, first=3)
        series = DayCounts(np.arange(9), versions).series(quarter)
        assert series is not None
        view = series.view(0, 9)
        assert view is not None
        both = pool([estimate(old, before[4]), estimate(new, after[1])])
        assert view.value[4] == pytest.approx(both.linear([1.0, 0.0]).value)
        assert view.variance[4] == pytest.approx(both.linear([1.0, 0.0]).stderr ** 2, rel=0.1)
        # the variance falls to a third because of ε rather than the number of reports
        assert view.variance[8] > view.variance[0] / 3 * 1.5

    def test_look_does_not_see_later_days(self):
        experiment = parse_experiment(YES)
        days = histograms(experiment, 10, 500)
        short = DayCounts(np.arange(6), (version(experiment, days[:6]),)).series(quarter)
        long = DayCounts(np.arange(10), (version(experiment, days),)).series(quarter)
        assert short is not None
        assert long is not None
        one, other = short.view(1, 6), long.view(1, 6)
        assert one is not None
        assert other is not None
        assert np.array_equal(one.value, other.value)
        assert np.array_equal(one.variance, other.variance)

    def test_day_without_reports_has_infinite_variance(self):
        experiment = parse_experiment(YES)
        days = histograms(experiment, 3, 500)
        days[1] *= 0
        series = DayCounts(np.arange(3), (version(experiment, days),)).series(quarter)
        assert series is not None
        view = series.view(0, 3)
        assert view is not None
        assert np.isinf(view.variance).tolist() == [False, True, False]

    def test_omits_version_on_days_with_an_empty_level(self):
        experiment = parse_experiment(TREE)
        days = histograms(experiment, 3, 2_000)
        days[1][:4] = 0  # the top level
        series = DayCounts(np.arange(3), (version(experiment, days),)).series(quarter)
        assert series is not None
        view = series.view(0, 3)
        assert view is not None
        assert np.isinf(view.variance).tolist() == [False, True, False]


class TestRatio:
    def weights(self, experiment: Experiment) -> Floats:
        index = np.arange(experiment.domain)
        given = (index // 2 == 0).astype(float)
        return np.stack([given * (index % 2), given], axis=1)

    def test_level_is_the_ratio_of_sums(self):
        experiment = parse_experiment(PAIR)
        days = histograms(experiment, 10, 2_000)
        series = DayCounts(np.arange(10), (version(experiment, days),)).series(self.weights)
        assert series is not None
        weights = self.weights(experiment)
        (ratio,) = ratios(estimate(experiment, sum(days)), weights[:, :1], weights[:, 1:])
        assert series.level(0, 10) == pytest.approx(ratio.value, abs=0.02)
        view = series.view(0, 10)
        assert view is not None
        assert (1 / (1 / view.variance).sum()) ** 0.5 == pytest.approx(ratio.stderr, rel=0.15)

    def test_unknown_denominator_gives_no_information(self):
        experiment = parse_experiment(PAIR)
        series = DayCounts(np.arange(3), (version(experiment, histograms(experiment, 3, 20)),))
        ratio = series.series(self.weights)
        assert ratio is not None
        assert ratio.view(0, 3) is None
