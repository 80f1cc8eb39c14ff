"""The lifetime study: known numbers, predictions compared with simulated fleets, and its command."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from hushmote.cli.main import app
from hushmote.planning.devices import MICRO
from hushmote.server.errors import HushmoteError
from hushmote.studies import lifetime

KNOWN_NUMBERS = {  # for 10^6 boards, 365 daily windows and 64 values, as published with this project's design
    "once": (0.0372, 0.0166, 0.0052, 0.0023),
    "optimal": (0.16, 0.08, 0.04, 0.025),
}


class TestPrediction:
    @pytest.mark.parametrize("way", KNOWN_NUMBERS)
    def test_matches_known_numbers(self, way: str) -> None:
        for budget, known in zip(lifetime.LIFETIMES, KNOWN_NUMBERS[way], strict=True):
            reports = 1_000_000 / 365 if way == "once" else 1_000_000
            design = lifetime.flat_design(lifetime.epsilon_of(way, budget))
            got = lifetime.predicted_error(design, lifetime.shares(), reports)
            rounding = 0.5 * 10 ** -len(str(known).partition(".")[2])
            assert got == pytest.approx(known, rel=0.04, abs=rounding)

    def test_two_cells_beat_three_for_small_reports(self) -> None:
        """The known number for 365 basic reports with a lifetime ε of 1 is 0.77, with three cells."""
        design = lifetime.flat_design(MICRO // 365)
        assert design.choice.parameters == (("g", 2),)
        assert lifetime.predicted_error(design, lifetime.shares(), 1_000_000) == pytest.approx(
            0.719, abs=5e-4
        )

    @pytest.mark.parametrize("way", lifetime.WAYS)
    def test_matches_drawn_fleets(self, way: str) -> None:
        """Simulate 20,000 boards for a year or 40 days; 7 standard errors have a false alarm below 1e-9."""
        result = lifetime.cell(20_000, 4, way, 1, 40, np.random.default_rng(9))
        assert abs(result["measured"] - result["predicted"]) < 7 * result["uncertainty"]
        assert result["uncertainty"] < 0.03 * result["predicted"]
        assert 1 <= result["reports"] <= 20_000


class TestSplit:
    @pytest.mark.long
    def test_one_report_is_best_unless_sampling_dominates(self) -> None:
        result = lifetime.splits()
        assert len(result) == 36
        others = [s for s in result if s["best"] != 1]
        assert {(s["lifetime"], s["domain"]) for s in others} == {(8, 16)}
        assert all(s["best"] == 2 and s["relative"][1] > 0.85 for s in others)


class TestEvery:
    @pytest.mark.slow
    def test_costs_a_quarter_more_error_than_a_calendar(self) -> None:
        cells = [lifetime.cell(20_000, 2, way, 1, 2, np.random.default_rng(1)) for way in ("once", "coin")]
        assert cells[1]["predicted"] / cells[0]["predicted"] == pytest.approx(1.31, abs=0.01)

    def test_uses_the_predicted_share_of_a_budget(self) -> None:
        """Simulate 100,000 boards; 7 standard errors have a false alarm below 1e-11 (two-sided normal)."""
        for reports, share in ((1, 0.63), (4, 0.81), (10, 0.87)):
            use = lifetime.budget_use(reports, 100_000, np.random.default_rng(3))
            assert use["predicted"] == pytest.approx(share, abs=0.006)
            assert abs(use["measured"] - use["predicted"]) < 7 * use["uncertainty"]


class TestCommand:
    @pytest.mark.slow
    def test_prints_a_table_and_writes_its_files(self, tmp_path: Path, monkeypatch) -> None:
        monkeypatch.setattr(lifetime, "SPLIT_DOMAINS", (16,))
        plot, table = tmp_path / "lifetime.png", tmp_path / "lifetime.csv"
        arguments = ["study", "lifetime", "--quick", "--devices=10000", "--seed", "4", "--json"]
        invoked = CliRunner().invoke(app, [*arguments, "--plot", str(plot), "--output", str(table)])
        assert invoked.exit_code == 0, invoked.output
        result = json.loads(invoked.stdout)
        assert len(result["cells"]) == 20
        assert len(result["splits"]) == 12
        assert all(abs(cell["off"]) < 0.25 for cell in result["cells"])
        assert plot.stat().st_size > 20_000
        with table.open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert [float(row["predicted"]) for row in rows] == [cell["predicted"] for cell in result["cells"]]

    @pytest.mark.parametrize(
        ("arguments", "text"),
        [
            (("--devices=10",), "10,000 to 10,000,000"),
            (("--quick", "--plot", "life.txt"), "must end in .csv, .png, .pdf or .svg"),
            (("--output", "/nowhere/life.csv", "--devices=1"), "folder /nowhere does not exist"),
        ],
    )
    def test_invalid_arguments_are_one_line(self, arguments: tuple[str, ...], text: str) -> None:
        result = CliRunner().invoke(app, ["study", "lifetime", *arguments])
        assert isinstance(result.exception, HushmoteError)
        assert text in str(result.exception)
        assert "\n" not in str(result.exception)
