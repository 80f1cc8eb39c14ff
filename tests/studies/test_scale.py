"""The model of a fleet's needs: constants, predictions, pages and commands."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hushmote.cli.main import app
from hushmote.studies import fleet_needs as scale
from hushmote.studies.fleet_needs import CLUSTER, GROUP, ONE, Fleet, Machine, ScaleError, needs, smallest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import scale as benchmark  # noqa: E402  # pyright: ignore[reportMissingImports]

WEEK = 7 * scale.DAY_S
EIGHT = 5 * scale.YEAR_S / 8  # the interval between reports of a board that makes 8 in 5 years


class TestConstants:
    def test_match_the_results(self):
        assert (ROOT / "studies/scale.csv").read_text() == benchmark.text()
        for constant in scale.constants().values():
            assert (ROOT / constant.source).exists()
            assert constant.value >= 0

    def test_predict_measurements_within_a_quarter(self):
        off = {check.what: check.ratio for check in benchmark.checks() if not 0.75 <= check.ratio <= 1.25}
        assert off == {}


class TestServer:
    @pytest.mark.parametrize("broker", [scale.MOSQUITTO, scale.NATS])
    def test_spends_its_measured_time_on_a_connection(self, broker: str):
        measured = [scale.constants()[f"{broker} {step}"] for step in ("connect", "subscribe", "status")]
        assert scale.server(broker, 1).board_s * 1e6 == pytest.approx(sum(c.value for c in measured))

    def test_uses_one_core_for_mosquitto_and_all_for_nats(self):
        for broker, factor in ((scale.MOSQUITTO, 1), (scale.NATS, 3)):
            assert scale.server(broker, 3).per_s == pytest.approx(factor * scale.server(broker, 1).per_s)


class TestPages:
    def test_have_the_models_tables(self):
        pages = [path.read_text() for path in benchmark.PAGES]
        assert pages == [benchmark.page(page) for page in pages]
        assert sum(page.count(": made by benchmarks/scale.py") for page in pages) == len(benchmark.TABLES)


class TestSetup:
    def test_is_the_smallest_sufficient_and_the_largest_is_split(self):
        assert smallest(Fleet(1_000, WEEK)).setup is ONE
        assert smallest(Fleet(10**6, 60.0)).setup is not ONE  # 17,000 reports a second
        huge = smallest(Fleet(10**9, EIGHT, stays=True))
        assert huge.setup is CLUSTER
        assert huge.regions > 1
        region = needs(Fleet(10**9 // huge.regions, EIGHT, stays=True), CLUSTER)
        assert region.first.load <= 1.01
        assert huge.brokers >= 3 * huge.regions

    def test_is_limited_by_its_most_loaded_part(self):
        needed = needs(Fleet(10**7, EIGHT, stays=True), GROUP)
        assert [limit.load for limit in needed.limits] == sorted(
            (x.load for x in needed.limits), reverse=True
        )
        assert needed.first.what.startswith("mosquitto")
        small = needs(Fleet(10**7, EIGHT, stays=True), GROUP, Machine(memory_gib=1))
        assert small.first.what == "mosquitto's memory"

    @pytest.mark.parametrize("setup", scale.SETUPS, ids=lambda setup: setup.name)
    @pytest.mark.parametrize("stays", [False, True], ids=["sleeps", "stays"])
    def test_setup_lasts_until_its_breaking_point(self, setup: scale.Setup, stays: bool):
        fleet = Fleet(7, WEEK, stays=stays)
        needed = scale.breaks_at(fleet, setup)
        assert needed is not None
        assert needs(replace(fleet, boards=needed[0]), setup).regions == 2
        assert needs(replace(fleet, boards=needed[0] - 1), setup).regions == 1


class TestNeeds:
    def test_double_with_the_number_of_boards(self):
        for setup in scale.SETUPS:
            single, two = needs(Fleet(10**6, WEEK), setup), needs(Fleet(2 * 10**6, WEEK), setup)
            for name in (
                "reports_per_s",
                "standing",
                "arriving",
                "broker_cores",
                "broker_gib",
                "network_mbit",
            ):
                assert getattr(two, name) == pytest.approx(2 * getattr(single, name))

    def test_are_smaller_for_boards_that_sleep(self):
        for boards in (10**6, 10**8, 10**9):
            sleep, stay = (smallest(Fleet(boards, EIGHT, stays=stays)) for stays in (False, True))
            assert sleep.machines < stay.machines
            assert sleep.broker_gib < stay.broker_gib / 3

    def test_fall_for_the_broker_with_a_wider_spread(self):
        fleet = Fleet(10**6, EIGHT, stays=True, region=1.0)
        quick, slow = (needs(replace(fleet, spread_s=s), CLUSTER) for s in (60.0, 3600.0))
        assert quick.arriving == pytest.approx(60 * slow.arriving)
        assert quick.broker_cores > 10 * slow.broker_cores

    @pytest.mark.parametrize(
        "fleet",
        [Fleet(0, WEEK), Fleet(10**11, WEEK), Fleet(10, 0.1)],
        ids=["no boards", "too many boards", "too often"],
    )
    def test_invalid_fleets_are_rejected(self, fleet: Fleet):
        with pytest.raises(ScaleError):
            needs(fleet, ONE)

    def test_include_the_list_of_all_boards_on_every_server(self):
        needed = needs(Fleet(10**6, EIGHT, stays=True), CLUSTER)
        constants = scale.constants()
        region = constants["nats 3 retained"].value / 3 + constants["nats listed"].value
        assert needed.every_gib * scale.GIB == pytest.approx(10**6 * region)
        assert needed.broker_gib == pytest.approx(needed.divided_gib + needed.brokers * needed.every_gib)


class TestCommand:
    def test_recommends_a_setup(self):
        invoked = CliRunner().invoke(app, ["study", "scale", "--boards=2000000", "--every=1w", "--json"])
        assert invoked.exit_code == 0, invoked.output
        result = json.loads(invoked.stdout)
        assert result["chosen"] == smallest(Fleet(2_000_000, WEEK)).setup.name
        assert [row["setup"] for row in result["setups"]] == [setup.name for setup in scale.SETUPS]
        invoked = CliRunner().invoke(app, ["study", "scale", "--boards=2000000", "--every=1w"])
        assert re.search(r"^take, by size alone: ", invoked.stdout, re.MULTILINE)
        assert max(map(len, invoked.stdout.splitlines())) <= 110

    def test_shows_the_load_of_what_breaks_first(self):
        invoked = CliRunner().invoke(app, ["study", "scale", "--boards=50000"])
        assert re.search(r"^asked of what breaks first +< 1% +< 1% +1%$", invoked.stdout, re.MULTILINE)

    @pytest.mark.parametrize("boards", ["1", "50000", "1000000000"])
    @pytest.mark.parametrize("way", [["--stay"], []], ids=["stays", "sleeps"])
    def test_table_is_readable_and_has_80_columns(self, boards: str, way: list[str]):
        invoked = CliRunner().invoke(
            app, ["study", "scale", f"--boards={boards}", *way], env={"COLUMNS": "80"}
        )
        table, _, result = invoked.stdout.partition("\n\n")
        assert max(map(len, table.splitlines())) <= 80
        assert not re.search(r"e-\d|0\.00\d", table)
        assert "breaks first: " in result

    @pytest.mark.slow
    def test_simulates_with_and_without_a_spread(self, tmp_path):
        picture = tmp_path / "arrival.png"
        arguments = ["study", "arrival", "--boards=500", "--seed", "1", "--output", str(picture), "--json"]
        invoked = CliRunner().invoke(app, arguments)
        assert invoked.exit_code == 0, invoked.output
        result = json.loads(invoked.stdout)
        assert [row["spread_s"] for row in result["ways"]] == [None, result["enough_s"]]
        assert picture.stat().st_size > 10_000
