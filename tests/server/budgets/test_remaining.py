"""Remaining budgets worked by hand; tests/cli/test_ledger.py compares whole fleets with real boards."""

import datetime
from collections import Counter

import pytest
from experiments import experiment_json

from hushmote.device.ldp_client import Experiment
from hushmote.server.budgets.forecast import Forecast
from hushmote.server.budgets.policy import Policy
from hushmote.server.budgets.remaining import BudgetLine, FleetLedger, picture_horizons
from hushmote.server.budgets.words import sentences

DAY = datetime.date(2026, 11, 27)


def count_line(name: str, cap: int, per_day: int) -> BudgetLine:
    """Return an experiment of ε = 1 whose boards make `cap` reports each, and made `per_day` yesterday."""
    experiment = Experiment.parse(experiment_json(name=name, budget={"rule": "count", "cap": cap}))
    return BudgetLine(
        experiment, "current", 1_000_000, 1_000_000, 100, {DAY - datetime.timedelta(1): per_day}
    )


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


@pytest.mark.parametrize(("total", "left", "days"), [(None, 500, 100), (10, 50, 5)])
def test_experiments_share_the_lifetime_budget(total: int | None, left: int, days: int):
    """5 boards report once a day to each of two experiments, which allow 100 reports from a board."""
    policy = None if total is None else Policy(total * 10**6, 0, 1_000_000, ("count",), ("door", "temp"))
    budgets = count_line("door", 100, 5), count_line("temp", 100, 5)
    for line in FleetLedger("home", budgets, {(0, 0): 5}, policy).lines(DAY):
        assert (line.boards, line.total_left, line.per_day) == (5, left, 5)
        assert line.half == line.dry == DAY + datetime.timedelta(days)


def test_pictures_extend_until_hardly_any_board_can_report():
    """91 boards end after 50 days, and 9 after 100; counting started yesterday."""
    lines = FleetLedger("home", (count_line("door", 100, 100),), {(0,): 9, (50,): 91}).lines(DAY)
    assert picture_horizons(lines, DAY) == pytest.approx((30, 105))
    assert picture_horizons([], DAY) == pytest.approx((30, 1.05 * 365))


@pytest.mark.parametrize(
    ("cap", "profiles", "sentence"),
    [
        (10, {}, "No device has reported for door yet."),
        (10, {(10,): 3}, "No device in home that has reported can send any more reports for door."),
        (10, {(4,): 1, (10,): 2}, "Devices in home can still send 6 reports for door."),
        (1, {}, "No device has reported for door yet."),
        (1, {(0,): 1, (1,): 1}, "door asks each device once: 1 device has answered."),
        (1, {(1,): 2}, "door asks each device once: 2 devices have answered."),
    ],
)
def test_first_sentence_says_what_is_left(cap: int, profiles: dict[tuple[int, ...], int], sentence: str):
    (line,) = FleetLedger("home", (count_line("door", cap, 1),), profiles).lines(DAY)
    assert sentences("home", line, DAY)[0] == sentence
