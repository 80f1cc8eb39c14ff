"""`hushmote budget`: theorems side by side, with what each guarantees."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from hushmote.cli.budget.command import budget_app
from hushmote.server.accounting import AccountingError
from hushmote.server.epsilon import micro_nats
from hushmote.server.errors import UsageError


def run(*arguments: str):
    return CliRunner().invoke(budget_app, list(arguments))


def rows(*arguments: str) -> dict[str, dict]:
    result = run("compare", *arguments, "--json")
    assert result.exit_code == 0, result.output
    return {row["theorem"]: row for row in json.loads(result.output)}


def test_reports_allowed_at_one_epsilon():
    found = rows("--total", "8", "--delta", "1e-6", "--epsilon", "0.5")
    counts = {name: row["reports"] for name, row in found.items()}
    assert (counts["basic"], counts["rogers"], counts["zcdp"], counts["optimal"]) == (16, 3, 7, 16)
    assert counts["none"] is None
    assert (found["zcdp"]["rule"], found["zcdp"]["cap"]) == ("squares", 1.81941365938)
    assert (found["optimal"]["rule"], found["optimal"]["cap"]) == ("count", 16)


def test_epsilon_allowed_for_a_number_of_reports_and_what_majority_hides():
    found = rows("--total", "10", "--delta", "1e-6", "--reports", "100")
    assert found["basic"]["epsilon"] == 0.1
    majority = found["majority"]
    assert majority["kind"] == "guessing one fixed bit, not LDP"
    assert majority["epsilon"] == 0.786764  # the envelope; the raw curve has 0.7698 for ties
    assert majority["sum"] == pytest.approx(78.6764)
    assert majority["delta"] == pytest.approx(0.993, abs=5e-4)
    assert majority["cap"] == 100


def test_without_a_delta_only_theorems_that_need_none_are_compared():
    assert list(rows("--total", "8", "--epsilon", "0.5")) == ["basic", "majority", "none"]


def test_the_table_says_of_each_theorem_what_it_guarantees_and_fits_80_columns():
    output = run("compare", "--total", "8", "--delta", "1e-6", "--epsilon", "0.1", "--all").output
    assert "(8, 1e-06)-LDP" in output
    assert "one fixed bit, not LDP" in output
    assert "462.7-LDP" in output
    assert max(map(len, output.splitlines())) <= 80


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (("--total", "8"), UsageError, "either --reports or --epsilon"),
        (("--total", "8", "--reports", "3", "--epsilon", "1"), UsageError, "either --reports or --epsilon"),
        (("--total", "0", "--reports", "3"), AccountingError, "the total is a number above 0"),
        (("--total", "8", "--reports", "0"), AccountingError, "the number of reports"),
        (("--total", "8", "--delta", "1", "--reports", "3"), AccountingError, "from 0 to below 1"),
        (("--total", "8", "--epsilon", "-1"), AccountingError, "millionths above 0"),
        (("--total", "8", "--epsilon", "0.1234567"), AccountingError, "millionths above 0"),
    ],
)
def test_budgets_that_make_no_sense_are_refused(arguments, error, text):
    with pytest.raises(error, match=text):
        raise run("compare", *arguments).exception or AssertionError("no error")


def test_epsilon_in_nats_is_read_exactly():
    assert micro_nats(0.29, AccountingError) == 290_000
