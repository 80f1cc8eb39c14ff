"""Reports of a fleet's calls: the draw of `every` and the end of budgets."""

import numpy as np
import pytest
from experiments import experiment_json
from scipy import stats

from hushmote.device.ldp_client import Experiment
from hushmote.simulator import calls
from hushmote.simulator.faithful import SimulatedFleet
from hushmote.simulator.population import PopulationError

N = 200_000


def every_experiment(every: int = 3, **changes) -> Experiment:
    return Experiment.parse(experiment_json(every=every, **changes))


def test_draws_match_a_draw_per_call_up_to_the_cap():
    """12 calls, each drawn here; means within 7 standard errors of their difference."""
    rng = np.random.default_rng(1)
    simulated = np.minimum((rng.random((N, 12)) < 1 / 3).sum(axis=1), 4)
    drawn = calls.draw(every_experiment(), N, 12, rng)
    for statistic, seen in (
        (drawn.reports, simulated),
        (drawn.reporting_devices, simulated > 0),
        (drawn.spent, simulated == 4),
    ):
        assert abs(statistic - seen.sum()) < 7 * np.sqrt(2 * N) * seen.std()
    assert (drawn.calls, drawn.calls_are_fixed, drawn.readings) == (12, True, 12 * N)


def test_draws_match_real_clients():
    """300 clients, 6 calls each: within 7 standard errors of Binomial(6, 1/3) cut off at 4 (3e-12)."""
    rng = np.random.default_rng(2)
    fleet = SimulatedFleet("f", [experiment_json(every=3)], size=300, rng=rng, repeatable=True)
    progress: list[int] = []
    for _ in range(6):
        for delivery in fleet.make_reports({"e": [True] * 300}, progress.append):
            fleet.acknowledge(delivery)
    assert sum(progress) == 6 * 300
    reports, chances = np.minimum(np.arange(7), 4), stats.binom.pmf(np.arange(7), 6, 1 / 3)
    mean = reports @ chances
    deviation = np.sqrt((reports - mean) ** 2 @ chances)
    assert abs(len(fleet.acknowledged) - 300 * mean) < 7 * np.sqrt(300) * deviation


def test_progress_counts_each_device_once():
    for size in (1, 255, 256, 257, 600):
        rng, progress = np.random.default_rng(3), list[int]()
        fleet = SimulatedFleet("f", [experiment_json()], size=size, rng=rng, repeatable=True)
        list(fleet.make_reports({"e": [True] * size}, progress.append))
        assert sum(progress) == size
        assert max(progress) <= 256


def test_every_call_reports_if_every_is_one():
    drawn = calls.draw(every_experiment(1), 1_000, 3, np.random.default_rng(4))
    assert (drawn.reports, drawn.reporting_devices, drawn.spent) == (3_000, 1_000, 0)
    drawn = calls.draw(every_experiment(1), 1_000, 300, np.random.default_rng(4))
    assert (drawn.reports, drawn.reporting_devices, drawn.spent) == (4_000, 1_000, 1_000)


def test_unlimited_calls_spend_all_budgets():
    rng = np.random.default_rng(5)
    drawn = calls.draw(every_experiment(90), 1_000, None, rng)
    assert (drawn.reports, drawn.reporting_devices, drawn.spent, drawn.calls) == (4_000, 1_000, 1_000, 360)
    experiment = every_experiment(1, budget={"rule": "count", "cap": 5_000})
    assert calls.draw(experiment, 1_000, None, rng).reports == 10_000
    unlimited = every_experiment(7, budget={"rule": "unlimited"})
    drawn = calls.draw(unlimited, 1_000, None, rng)
    assert (drawn.reports, drawn.spent, drawn.calls) == (1_000, 0, 7)


def test_rejects_more_reports_than_can_be_drawn():
    for number in (None, 1, 1_000):
        with pytest.raises(PopulationError, match="the limit is 1,000,000,000"):
            calls.draw(every_experiment(), 10**15, number, np.random.default_rng(6))
    with pytest.raises(PopulationError, match="from 1 to 1,000,000"):
        calls.draw(every_experiment(), 10, 10**7, np.random.default_rng(6))
