"""A file's planned case, simulated."""

import datetime

import numpy as np
import pytest

from hushmote.planning.answer import answer
from hushmote.planning.experiment_file import ExperimentInfo
from hushmote.planning.request import PlanRequest
from hushmote.server.experiments.definition import Definition, parse
from hushmote.simulator.simulate import simulate

LABELS = PlanRequest(devices=20_000, epsilon=2, values="a,b,c,d", share=0.3)


def planned_file(plan_request: PlanRequest) -> Definition:
    info = ExperimentInfo("a", None, "me", datetime.date(2027, 1, 1))
    return parse(answer(plan_request).file(info))


@pytest.mark.parametrize(
    "plan_request",
    [
        PlanRequest(devices=20_000, epsilon=2, values=16, low=0, high=16, share=0.1),
        LABELS,
        PlanRequest(devices=20_000, epsilon=2, values=16, low=0, high=16, quantile=0.9),
        PlanRequest(devices=20_000, epsilon=2, values=16, low=0, high=16, statistics="mean", deviation=2),
        PlanRequest(devices=2_000, lifetime=8, horizon="1y", call="1d", values="yes-no", share=0.05),
    ],
    ids=["range", "labels", "quantile", "mean", "lifetime"],
)
def test_simulate_shows_the_planned_case(plan_request: PlanRequest):
    plan = answer(plan_request)
    definition = planned_file(plan_request)
    simulated = simulate(definition, seed=1)
    assert simulated.devices == plan_request.devices
    assert simulated.planned is not None
    assert simulated.reporting is not None
    assert definition.planned is not None
    assert simulated.reporting.calls == definition.planned.calls
    assert simulated.planned.measured == pytest.approx(simulated.planned.planned, rel=0.1)
    if plan_request.lifetime is None:
        assert simulated.planned.planned == pytest.approx(plan.error, rel=1e-3)


@pytest.mark.parametrize(("population", "values"), [(None, 1), ("zipf:1", 5)])
def test_error_is_that_of_the_planned_value_or_of_all(population: str | None, values: int):
    """Only the file's population has the planned share, at its first label."""
    simulated = simulate(planned_file(LABELS), population=population, seed=1)
    rows = simulated.histogram().rows[:values]
    errors = [row.value - row.truth for row in rows if row.truth is not None]
    assert len(errors) == values
    assert simulated.planned is not None
    assert simulated.planned.missed == pytest.approx(np.sqrt(np.mean(np.square(errors))))


def test_mean_is_compared_in_any_population():
    mean = PlanRequest(devices=20_000, epsilon=2, values=16, low=0, high=16, statistics="mean", deviation=2)
    simulated = simulate(planned_file(mean), population="normal:5:2", seed=1)
    row, *_ = simulated.mean().rows
    assert simulated.planned is not None
    assert row.truth is not None
    assert abs(simulated.planned.missed) == pytest.approx(abs(row.value - row.truth) / 16)
