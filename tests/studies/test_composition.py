"""`hushmote study composition`: exact views, and the numbers of the theorem and the misprint."""

import json
import math
from fractions import Fraction
from math import comb

import numpy as np
import pytest
from typer.testing import CliRunner

from hushmote.cli.main import app
from hushmote.server.accounting import AccountingError, optimal_delta
from hushmote.server.errors import UsageError
from hushmote.studies.composition import advanced, misprint, tutorial, until_spent, view
from hushmote.studies.majority_rule import majority_total


def test_reproduces_tutorial_example_and_its_misprint():
    study = tutorial()
    assert (f"{study['advanced']:.2f}", f"{study['misprint']:.2f}") == ("133.60", "153.67")
    assert {name: f"{nats:.3f}" for name, nats in study["few"].items()} == {
        "advanced": "2.832",
        "misprint": "4.690",
    }
    assert study["pays"] == {"advanced": 38, "misprint": 150}
    for formula, first in ((advanced, 38), (misprint, 150)):
        assert formula(500_000, first, 0.1) < first / 2
        assert formula(500_000, first - 1, 0.1) > (first - 1) / 2
    # the k for which 0.5 sqrt(2k ln 10) + 0.5k (e^0.5 - 1) = 0.5k
    root = 0.5 * math.sqrt(2 * math.log(10)) / (0.5 - 0.5 * math.expm1(0.5))
    assert root**2 == pytest.approx(37.3, abs=0.05)


def test_view_is_the_answers_exact_distribution():
    epsilon = 1_098_612  # e^ε = 3 to six digits, so three of four answers are true
    result = view(epsilon, 3)
    exact = [Fraction(comb(3, i) * 3**i, 64) for i in range(4)]
    assert result.given_yes == pytest.approx([float(x) for x in exact], rel=1e-5)
    assert result.right == pytest.approx(54 / 64, rel=1e-5)  # at least two of three answers are true


def test_best_guess_is_majority_with_total_variation_success():
    for releases in (3, 3_001):
        result = view(100_000, releases)
        odds = np.exp(majority_total(0.1, releases))
        assert result.right == pytest.approx(odds / (1 + odds), rel=1e-6)
        assert optimal_delta(0.1, releases, 1e-9) == pytest.approx(2 * result.right - 1, rel=1e-6)
    assert view(100_000, 3).right < 0.58
    assert view(100_000, 3_000).right > 0.996


def test_counts_reports_until_the_budget_is_spent():
    row = until_spent(100_000, 8, 1e-6)
    wrong = row.pop("misprint")
    assert row == {"epsilon": 0.1, "basic": 80, "zcdp": 181, "optimal": 238, "advanced": 149}
    assert misprint(100_000, wrong, 1e-6) <= 8 < misprint(100_000, wrong + 1, 1e-6)


@pytest.mark.slow
def test_command_shows_the_misprint_and_draws(tmp_path):
    path = tmp_path / "composition.svg"
    result = CliRunner().invoke(app, ["study", "composition", "--output", str(path)])
    assert result.exit_code == 0, result.output
    assert "133.60" in result.output
    assert "153.67" in result.output
    assert "4.690" in result.output
    assert "no theorem" in result.output
    assert max(map(len, result.output.splitlines()[:-1])) <= 80
    assert path.stat().st_size > 10_000
    values = json.loads(CliRunner().invoke(app, ["study", "composition", "--json"]).output)
    assert values["tutorial"]["advanced"] == pytest.approx(133.60, abs=0.005)
    assert [row["releases"] for row in values["views"]] == [3, 3_000]


@pytest.mark.parametrize(
    "arguments",
    [["--total=0"], ["--delta=0"], ["--delta=1"], ["--epsilon=0"], ["--output", "x.txt"]],
    ids=" ".join,
)
def test_rejects_invalid_arguments_in_one_line(arguments):
    result = CliRunner().invoke(app, ["study", "composition", *arguments])
    assert isinstance(result.exception, AccountingError | UsageError)
    assert "\n" not in str(result.exception)
