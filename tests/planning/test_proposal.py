"""Plans proposed from a column of readings."""

import re
from pathlib import Path
from typing import Any

import pandas
import pytest
from refusals import fails

from hushmote.planning.devices import PlanError
from hushmote.planning.proposal import column_of, propose
from hushmote.planning.request import PlanRequest

ROWS = "id;Temperatur (°C);temp_f;rooms;mode;open;same;note;empty;tiny\n" + "".join(
    f"x{i};{15 + i / 10:.1f};{60 + i},5;{1 + i % 6};"
    f"{('heat', 'idle', 'other')[i % 3]};{('Yes', 'no')[i % 2]};"
    f"7,5;n{i};;{i / 10000}\n".replace(".", ",", 1)
    for i in range(100)
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    file = tmp_path / "data.csv"
    file.write_text(ROWS, encoding="utf-8-sig")
    return file


class TestColumn:
    def test_proposes_type_range_bins_and_unit(self, data: Path):
        request = propose(f"{data}:Temperatur (°C)", PlanRequest()).request
        assert (request.values, request.low, request.high, request.unit) == (50, 15.0, 25.0, "°C")
        assert (request.epsilon, request.error, request.devices) == (2.0, 0.05, None)
        request = propose(f"{data}:temp_f", PlanRequest(devices=1000, low=0, high=200)).request
        assert (request.low, request.high, request.unit, request.epsilon, request.error) == (
            0,
            200,
            "°F",
            2.0,
            None,
        )
        request = propose(f"{data}:rooms", PlanRequest()).request
        assert (request.values, request.low, request.high, request.unit) == (6, 1, 7, "")
        assert propose(f"{data}:mode", PlanRequest()).request.values == ("heat", "idle")
        assert propose(f"{data}:open", PlanRequest()).request.values == "yes-no"

    @pytest.mark.parametrize(
        "fields",
        [{"lifetime": 4.0, "horizon": "1y", "call": "1h"}, {"histogram_epsilon": 0.1}],
        ids=["lifetime", "histogram"],
    )
    def test_another_epsilon_replaces_the_defaults(self, fields: dict[str, Any], data: Path):
        proposal = propose(f"{data}:open", PlanRequest(devices=5_000, **fields))
        assert (proposal.request.epsilon, proposal.request.error) == (None, None)
        assert "defaults" not in proposal.lines[-1]

    def test_ignores_a_few_extreme_readings(self, tmp_path: Path):
        file = tmp_path / "a.csv"
        file.write_text("x\n" + "".join(f"{20 + i / 1000}\n" for i in range(999)) + "9999\n")
        proposal = propose(f"{file}:x", PlanRequest())
        assert (proposal.request.low, proposal.request.high) == (20.0, 21.0)
        assert "1 reading beyond that" in proposal.lines[-1]

    @pytest.mark.parametrize(
        ("column", "bins", "message"),
        [
            (":none", None, "has no column 'none'; it has id, Temperatur"),
            ("", None, "--input requires a column, such as --input "),
            (":empty", None, "has no readings because all its cells are empty"),
            *((":same", bins, "all readings in same of") for bins in (None, 64)),
            (":note", None, "each of the 100 texts in note occurs only once; give --values a,b,c for labels"),
            (":tiny", None, "boards measure in thousandths"),
        ],
    )
    def test_unusable_data_is_one_line(self, data: Path, column: str, bins: int | None, message: str):
        with fails(re.escape(message), PlanError):
            propose(f"{data}{column}", PlanRequest(values=bins))

    def test_first_usable_column_is_named(self, data: Path, tmp_path: Path):
        assert column_of(data) == "Temperatur (°C)"
        (tmp_path / "none.csv").write_text("")
        with fails(r"none.csv is empty$", PlanError):
            column_of(tmp_path / "none.csv")


class TestSkew:
    READINGS = tuple(1.5**i for i in range(24))  # every factor of 1.5 once, to 11,223

    def test_proposes_logarithmic_bins(self):
        proposal = propose([*self.READINGS, 0] * 10, PlanRequest())
        request = proposal.request
        assert (request.values, request.low, request.high, request.scale) == (24, 1, 20000, "log")
        assert (
            "They range from 0 to 11222.7; one of 60 equal bins would hold 60% of them, so the plan uses "
            "24 logarithmic bins from 1 to 20000, of which the fullest holds 12%."
        ) in proposal.lines[-1]

    @pytest.mark.parametrize(
        "readings",
        [
            [-x for x in READINGS],
            [*[0] * 90, *range(1, 11)],  # a bin for each number
            [*[0.0] * 90, *(x / 10 for x in range(10, 1010, 100))],  # the first logarithmic bin is as full
            [*range(100), *[50] * 80],
        ],
        ids=["negative", "whole numbers", "zeros", "less than half"],
    )
    def test_keeps_equal_bins_otherwise(self, readings: list[float]):
        proposal = propose(readings, PlanRequest())
        assert proposal.request.scale is None
        assert "log" not in proposal.lines[-1]

    def test_only_hints_if_the_range_is_stated(self):
        proposal = propose(self.READINGS * 10, PlanRequest(low=0, high=12_000))
        assert proposal.request.scale is None
        assert (
            "But one of 60 equal bins would hold 58% of them, so --scale log may suit them"
            in (proposal.lines[-1])
        )


class TestLists:
    def test_have_the_name_of_a_data_frames_column(self):
        assert propose(pandas.Series([1.5, 2, 3], name="t"), PlanRequest()).lines[0] == "t has 3 readings."
        assert propose([1.5, 2, 3], PlanRequest()).lines[0] == "the list has 3 readings."


class TestMissing:
    def test_blanks_propose_the_setting(self, tmp_path: Path):
        file = tmp_path / "a.csv"
        file.write_text("t,open\n" + "21.5,yes\n20,no\n,\n22.25,yes\n" * 30)
        proposal = propose(f"{file}:t", PlanRequest())
        assert proposal.request.missing == 0.25
        assert "30 of 120 cells are missing, so the file gets missing = true." in proposal.lines
        assert propose(f"{file}:open", PlanRequest()).request.missing == 0.25
        assert propose(f"{file}:open", PlanRequest(missing=0.1)).request.missing == 0.1

    def test_full_column_leaves_the_setting_out(self, tmp_path: Path):
        file = tmp_path / "a.csv"
        file.write_text("t\n" + "21.5\n20\n22.25\n" * 30)
        proposal = propose(f"{file}:t", PlanRequest())
        assert proposal.request.missing is None
        assert "missing" not in " ".join(proposal.lines)

    def test_reduces_power_of_two_bins_by_one(self, tmp_path: Path):
        file = tmp_path / "a.csv"
        file.write_text("t\n" + "".join(f"{i / 10}\n" for i in range(321)))
        bins = [
            propose(f"{file}:t", PlanRequest(low=0, high=64, missing=m)).request.values for m in (None, 0.1)
        ]
        assert bins == [64, 63]
