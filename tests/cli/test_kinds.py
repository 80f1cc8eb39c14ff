"""Commands on a store with an experiment of each kind; unsupported questions give one-line errors."""

import json
from pathlib import Path

import pytest
from command_line import Run, runner
from experiment_kinds import WORDS, fill_kinds
from refusals import Refusal, refusals

from hushmote.server.store import Store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kinds")
    with Store(f"sqlite:///{folder / 'hushmote.sqlite'}") as opened:
        fill_kinds(opened)
    return folder


@pytest.fixture
def run(store: Path, monkeypatch: pytest.MonkeyPatch):
    def command_runner(command: str) -> Run:
        return runner(command, store, monkeypatch)

    return command_runner


class TestMean:
    @pytest.mark.slow
    def test_is_shown_by_default_without_histogram(self, run):
        result = json.loads(run("estimate")("delay", "--json"))
        assert [answer["kind"] for answer in result["answers"]] == ["moments"]
        mean = result["answers"][0]["rows"][0]
        assert mean["name"] == "mean"
        assert mean["low"] < 5 < mean["high"]
        table = run("estimate")("delay")
        assert "share of the fleet" not in table
        assert "With four times as many reports (48,000), the intervals would be half as wide." in " ".join(
            table.split()
        )
        days = ("--window", "2026-11-21", "--against", "2026-11-19")
        change = json.loads(run("estimate")("delay", *days, "--json"))
        changed = [row["name"] for answer in change["answers"] for row in answer["rows"]]
        assert changed == ["mean", "standard deviation"]
        trend = json.loads(run("estimate")("delay", "--trend", "--json"))
        assert [row["name"] for answer in trend["answers"] for row in answer["rows"]] == ["mean"] * 3

    @refusals(
        *(
            (asked, f"hushmote: delay answers only its mean: omit {asked.split()[0]}\n")
            for asked in ("--range 3:", "--quantile 0.5", "--top 3", "--cdf", "--rows 4")
        ),
        command="estimate delay",
    )
    def test_rejects_unsupported_questions(self, refusal: Refusal, store: Path):
        refusal.check(store)


class TestPair:
    def test_is_shown_by_default(self, run):
        """With 12,000 reports, the crash share given 1.0 is within 10 standard errors of 50%."""
        result = json.loads(run("estimate")("crash_by_version", "--json"))
        rows = {row["name"]: row for row in result["answers"][-1]["rows"]}
        (given,) = (row for name, row in rows.items() if "1.0" in name)
        assert abs(given["value"] - 0.5) < 2.5 * (given["high"] - given["low"]) < 0.5


class TestTexts:
    def test_are_given_by_name(self, run):
        result = json.loads(run("estimate")("firmware", "--range", WORDS[0], "--json"))
        assert result["answers"][0]["rows"][0]["low"] < 0.5 < result["answers"][0]["rows"][0]["high"]

    @pytest.mark.slow
    def test_discovers_unlisted(self, run):
        """With 6,000 reports, ε = 4 and four levels, the half holding 1.0.0 is 40 standard errors above 0."""
        result = json.loads(run("estimate")("crash", "--json"))
        assert result["answers"][0]["rows"][0]["name"].startswith("1.0.0")
        assert run("estimate")("crash", "--range", "1.0.0", expect=1).endswith("omit --range\n")


class TestListings:
    @pytest.mark.slow
    def test_include_every_experiment(self, run):
        rows = json.loads(run("status")("--json"))["experiments"]
        named = {row["experiment"] for row in rows}
        assert named == {"room", "delay", "firmware", "crash", "crash_by_version"}
        assert not any(row["plausibility"]["implausible"] for row in rows)
        by_name = {e["name"]: e for e in json.loads(run("experiment")("list", "--json"))}
        assert by_name["delay"]["answers"] == ["mean"]
        assert by_name["firmware"]["answers"] == ["candidates"]
        assert by_name["firmware"]["slots"] == 256
        assert (by_name["crash"]["answers"], by_name["crash"]["domain"]) == (["discovery"], 1024**4)
        assert "firmware" in run("ledger")()

    def test_status_shows_mean_and_hint_for_texts(self, run):
        lines = run("status")().splitlines()
        delay = next(i for i, line in enumerate(lines) if "delay" in line)
        finding, silence, mean = (line.strip() for line in lines[delay + 1 : delay + 4])
        assert finding.startswith("Mean: ")
        assert silence.startswith("No report has arrived since ")
        assert mean.startswith("mean ")
        output = " ".join(" ".join(lines).split())
        only = "firmware answers only the shares of texts that you name: ask it with hushmote estimate."
        assert only in output


class TestBeliefs:
    @pytest.mark.slow
    def test_need_listable_values(self, run):
        for name in ("firmware", "crash"):
            line = run("epsilon")("--prior", f"{name}@home", expect=1)
            assert "texts cannot all be listed; give" in line
            command, *arguments = line.split(" Example: hushmote ")[1].split()
            assert "Use ε = " in run(command)(*arguments)
        line = run("epsilon")("--prior", "delay@home", expect=1)
        assert line.startswith("hushmote: delay answers only its mean: give another prior")


_FILE = """
name = "x"
purpose = "x"
owner = "me"
expires = 9999-12-31
epsilon = 2
{reading}
[budget]
rule = "sum"
cap = 8
"""
