"""Remaining budgets worked by hand; tests/cli/test_ledger.py compares whole fleets with real boards."""

import datetime
from collections import Counter

import pytest
from experiments import experiment_json

from hushmote.device.ldp_client import Experiment
from hushmote.server.budgets.forecast import Forecast
from hushmote.server.budgets.policy import Policy
from hushmote.server.budgets.remaining import BudgetLine, FleetLedger

DAY = datetime.date(2026, 11, 27)


@pytest.mark.parametrize(
    ("rule", "cap", "reports", "left"),
    [
        ("sum", 10_000_000, 0, 10),
        ("sum", 10_000_000, 3, 4),  # 6 of 10 are spent
        ("squares", 25 * 10**12, 3, 13),  # 12 of 25
        ("squares", 25 * 10**12, 7, 0),  # 28 of 25
        ("count", 10, 3, 7),
        ("unlimited", None, 3, None),
    ],
)
def test_assumes_largest_past_cost_and_current_next_cost(
    rule: str, cap: int | None, reports: int, left: int | None
):
    """Versions have ε = 2 and 1, and the second is current."""
    budget = {"rule": rule} if cap is None else {"rule": rule, "cap": cap}
    experiment = Experiment.parse(experiment_json(budget=budget))
    line = BudgetLine(experiment, "current", 2_000_000, 1_000_000, 100, {})
    assert line.remaining_reports(reports) == left
    assert BudgetLine(experiment, "withdrawn", 2_000_000, 1_000_000, 100, {}).remaining_reports(reports) == 0


def test_lifetime_budget_uses_squares_of_largest_epsilon():
    """3 reports at ε = 2 use 12 of 25, so 13 at ε = 1 remain, although its own budget allows 100."""
    experiment = Experiment.parse(experiment_json(budget={"rule": "count", "cap": 100}))
    line = BudgetLine(experiment, "current", 2_000_000, 1_000_000, 100, {})
    policy = Policy(0, 25 * 10**12, 2_000_000, ("count",), ("e",))
    ledger = FleetLedger("home", (line,), {(3,): 1}, policy)
    assert ledger.remaining_reports((3,)) == (13,)
    assert ledger.remaining_reports((0,)) == (25,)


def test_forecast_excludes_boards_with_no_budget_left():
    """3 of 4 boards have used all 10 reports; the fourth sends 2 a day and has 6 left."""
    experiment = Experiment.parse(experiment_json(budget={"rule": "count", "cap": 10}))
    line = BudgetLine(experiment, "current", 1_000_000, 1_000_000, 100, {DAY: 2})
    (budget_line,) = FleetLedger("home", (line,), {(10,): 3, (4,): 1}).lines(DAY)
    assert budget_line.forecast == Forecast(Counter({0: 3, 6: 1}), experiment.every, 2.0)
