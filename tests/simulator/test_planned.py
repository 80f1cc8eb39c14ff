"""A file's planned case, simulated."""

import datetime

import pytest

from hushmote.planning.answer import answer
from hushmote.planning.experiment_file import ExperimentInfo
from hushmote.planning.request import PlanRequest
from hushmote.server.experiments.definition import parse
from hushmote.simulator.simulate import simulate


@pytest.mark.parametrize(
    "plan_request",
    [
        PlanRequest(devices=20_000, epsilon=2, values=16, low=0, high=16, share=0.1),
        PlanRequest(devices=20_000, epsilon=2, values="a,b,c,d", share=0.3),
        PlanRequest(devices=20_000, epsilon=2, values=16, low=0, high=16, quantile=0.9),
        PlanRequest(devices=20_000, epsilon=2, values=16, low=0, high=16, statistics="mean", deviation=2),
        PlanRequest(devices=2_000, lifetime=8, horizon="1y", call="1d", values="yes-no", share=0.05),
    ],
    ids=["range", "labels", "quantile", "mean", "lifetime"],
)
def test_simulate_shows_the_planned_case(plan_request: PlanRequest):
    plan = answer(plan_request)
    definition = parse(plan.file(ExperimentInfo("a", None, "me", datetime.date(2027, 1, 1))))
    simulated = simulate(definition, seed=1)
    assert simulated.devices == plan_request.devices
    assert simulated.planned is not None
    assert simulated.planned.measured == pytest.approx(simulated.planned.planned, rel=0.1)
    if plan_request.lifetime is None:
        assert simulated.planned.planned == pytest.approx(plan.error, rel=1e-3)
