"""Every question of the library is planned, simulated and estimated."""

import pytest

from hushmote.planning import library
from hushmote.planning.question_set import SetPlan, set_question
from hushmote.server.experiments.asks import asks_of
from hushmote.simulator.simulate import SimulatedEstimate, simulate

pytestmark = pytest.mark.slow


def estimate_of(name: str) -> SimulatedEstimate:
    """Return 20,000 devices' reports of five years, as the question's file plans them."""
    return simulate(library.question(name), seed=58)


@pytest.mark.parametrize("name", library.QUESTIONS)
def test_plan_is_the_error_of_a_simulated_fleet(name: str):
    definition = library.question(name)
    simulated = estimate_of(name)
    plan = SetPlan((set_question(definition),), simulated.devices)
    assert definition.planned is not None
    assert simulated.planned is not None
    assert simulated.reporting is not None
    assert simulated.reports == pytest.approx(plan.shared.reports.sum() * simulated.devices, rel=0.01)
    assert float(definition.planned.error) == pytest.approx(plan.all_reports(plan.questions[0]), rel=1e-3)
    assert simulated.planned.measured == pytest.approx(simulated.planned.planned, rel=0.05)


@pytest.mark.parametrize("name", library.QUESTIONS)
def test_asks_are_estimated_near_the_truth(name: str):
    """Six standard errors of each ask: chance exceeds them in fewer than 1 of 10^8 estimates."""
    simulated = estimate_of(name)
    for ask in asks_of(simulated.experiment, library.question(name).asks):
        if ask.kind == "quantile":
            row = simulated.quantile(ask.level).rows[0]
            low, high = (row.value + 3.1 * (end - row.value) for end in (row.low, row.high))
            bin_width = (simulated.experiment.high - simulated.experiment.low) / 1000 / 16
            assert row.truth is not None
            assert low - bin_width <= row.truth <= high + bin_width
            continue
        row = simulated.share(ask.text).rows[0]
        assert row.truth is not None
        assert abs(row.value - row.truth) <= 6 / 1.96 * (row.high - row.low) / 2
