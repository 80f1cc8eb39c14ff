"""Commands over a store with an experiment of each kind: what one lacks is one line, nothing breaks."""

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
    def of(command: str) -> Run:
        return runner(command, store, monkeypatch)

    return of


@pytest.mark.slow
def test_a_mean_is_shown_unasked_and_no_histogram(run):
    said = json.loads(run("estimate")("delay", "--json"))
    assert [answer["kind"] for answer in said["answers"]] == ["moments"]
    mean = said["answers"][0]["rows"][0]
    assert mean["name"] == "mean"
    assert mean["low"] < 5 < mean["high"]
    shown = run("estimate")("delay")
    assert "share of the fleet" not in shown
    assert "Four times as many reports (48,000) halve the intervals." in shown
    days = ("--window", "2026-11-21", "--against", "2026-11-19")
    change = json.loads(run("estimate")("delay", *days, "--json"))
    changed = [row["name"] for answer in change["answers"] for row in answer["rows"]]
    assert changed == ["mean", "standard deviation"]
    trend = json.loads(run("estimate")("delay", "--trend", "--json"))
    assert [row["name"] for answer in trend["answers"] for row in answer["rows"]] == ["mean"] * 3


@refusals(
    *(
        (asked, f"hushmote: delay answers only its mean: leave {asked.split()[0]} out\n")
        for asked in ("--range 3:", "--quantile 0.5", "--top 3", "--cdf", "--rows 4")
    ),
    command="estimate delay",
)
def test_mean_rejects_unsupported_questions(refusal: Refusal, store: Path):
    refusal.check(store)


def test_texts_are_named(run):
    said = json.loads(run("estimate")("firmware", "--range", WORDS[0], "--json"))
    assert said["answers"][0]["rows"][0]["low"] < 0.5 < said["answers"][0]["rows"][0]["high"]


@pytest.mark.slow
def test_listings_include_every_experiment(run):
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


def test_two_readings_together_are_shown_unasked(run):
    """12,000 reports: the share of crashes given 1.0 is 50 %, and less than 10 of its errors from there."""
    said = json.loads(run("estimate")("crash_by_version", "--json"))
    rows = {row["name"]: row for row in said["answers"][-1]["rows"]}
    (given,) = (row for name, row in rows.items() if "1.0" in name)
    assert abs(given["value"] - 0.5) < 2.5 * (given["high"] - given["low"]) < 0.5


@pytest.mark.slow
def test_estimate_discovers_unlisted_texts(run):
    """6,000 reports of ε = 4 on four levels: half of the boards hold 1.0.0, which is 40 errors from none."""
    said = json.loads(run("estimate")("crash", "--json"))
    assert said["answers"][0]["rows"][0]["name"].startswith("1.0.0")
    assert run("estimate")("crash", "--range", "1.0.0", expect=1).endswith("leave --range out\n")


def test_status_shows_mean_without_bars_and_hints_for_texts(run):
    lines = run("status")().splitlines()
    delay = next(i for i, line in enumerate(lines) if "delay" in line)
    assert lines[delay + 1].strip().startswith("Mean: ")
    assert lines[delay + 2].strip().startswith("mean ")
    assert lines[delay + 3].strip() == "over 3 windows; ε 2 of a report"
    said = " ".join(" ".join(lines).split())
    only = "firmware answers only the shares of texts that you name: ask it with hushmote estimate."
    assert f"{only} over 3 windows; ε 2 of a report" in said


@pytest.mark.slow
def test_beliefs_are_about_values_that_can_be_listed(run):
    for name in ("firmware", "crash"):
        line = run("epsilon")("--prior", f"{name}@home", expect=1)
        assert "texts cannot all be listed: give" in line
        command, *arguments = line.split(" Example: hushmote ")[1].split()
        assert "Take ε = " in run(command)(*arguments)
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
