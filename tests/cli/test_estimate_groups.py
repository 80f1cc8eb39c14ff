"""`hushmote estimate --group`: the reports of one value of an open group."""

import json
from pathlib import Path

import pytest
from command_line import Run, runner
from open_groups import DAYS, fill_groups
from refusals import Refusal, refusals

from hushmote.server.store import Store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("groups")
    with Store(f"sqlite:///{folder / 'hushmote.sqlite'}") as opened:
        fill_groups(opened, "home")
    return folder


@pytest.fixture
def estimate(store: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner("estimate", store, monkeypatch, "crashed")


class TestGroup:
    def test_names_boards_and_reports_by_value(self, estimate: Run):
        lines = [line.strip() for line in estimate("--group", "2.4.0").splitlines()]
        assert ", boards with firmware 2.4.0, 1 to 7 Nov." in lines[0]
        assert (
            "crashed: 1,500 reports, fleet home, 2026-11-03 to 2026-11-07 (5 days), "
            "boards with firmware 2.4.0 share of the fleet"
        ) in " ".join(lines)
        rows = [line.split(maxsplit=1) for line in lines]
        table = rows.index(["firmware", "reports"])
        assert rows[table + 1 : table + 5] == [
            ["2.3.1", "6,300"],
            ["2.4.0", "1,500"],
            ["2.5.0", "fewer than 50 reports"],
            ["other", "not shown, as the next smallest"],
        ]

    def test_pooled_has_the_same_table(self, estimate: Run):
        assert "fewer than 50 reports" in estimate()

    def test_compares_two_values(self, estimate: Run):
        text = estimate("--group", "2.4.0", "--against", "group=2.3.1")
        assert "boards with firmware 2.4.0" in text
        assert "compared with" in text

    def test_json_has_its_reports(self, estimate: Run):
        reply = json.loads(estimate("--group", "2.4.0", "--json"))
        assert reply["selection"].endswith("boards with firmware 2.4.0")
        assert reply["reports"] == 1_500
        assert reply["group"]["value"] == "2.4.0"
        assert [row["reports"] for row in reply["group"]["reports"]] == [6_300, 1_500, None, None]


class TestSuppression:
    @refusals(
        (
            "--group 2.5.0",
            "boards with firmware 2.5.0 sent fewer than 50 reports in this period; 50 are needed",
        ),
        ("--group 2.5.0 --json", "ask for a longer period, such as --last 28d"),
        ("--group 2.5.0 --trend", "fewer than 50 reports"),
        ("--group 2.5.0 --trend --rows 4", "fewer than 50 reports"),
        ("--group 2.5.0 --output out.json", "fewer than 50 reports"),
        ("--group 2.5.0 --range yes", "fewer than 50 reports"),
        ("--group other", "subtracting them from all boards would reveal another firmware"),
        (f"--group 2.4.0 --window {DAYS[6]}", "subtracting them from all boards"),
        ("--group 2.3.1 --against group=2.5.0", "fewer than 50 reports"),
        ("--group 2.3.1 --against group=other", "subtracting them from all boards"),
        ("--against group=2.3.1", "would be on both sides"),
        ("--group 2.3.1 --against group=2.3.1", "both sides are the same"),
        ("--group 9", "no value 9 in group firmware of crashed; its values: 2.3.1, 2.4.0, 2.5.0, other"),
        command="estimate crashed",
    )
    def test_is_one_line(self, refusal: Refusal, store: Path):
        refusal.check(store)
