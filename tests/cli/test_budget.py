"""`hushmote budget`: mixed lists and the majority rule as someone who asks meets them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Run, runner
from shown import shown


@pytest.fixture
def hushmote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return runner("budget", tmp_path, monkeypatch, capsys)


def test_three_thousand_mixed_releases(hushmote):
    text = hushmote("compose", "0.5x1000", "1x1000", "0.5:0.01x1000", "--all")
    assert text.startswith("These 3,000 releases promise next to nothing together")
    assert "3,000 releases, Σε = 2,000, Σδ = 10" in text
    assert "basic: Σε = 2,000 with Σδ = 10 is (inf, 1): a δ of 1 or more promises nothing." in text
    assert "advanced: not valid here: its δ, 10, is not below 1." in text
    assert max(map(len, text.splitlines())) <= 80


def test_the_page_shows_what_its_command_prints(hushmote):
    pairs = shown((Path(__file__).parents[2] / "docs" / "theorems.md").read_text("utf-8"), "budget")
    assert len(pairs) == 1
    for (_, *arguments), expected in pairs:
        assert [line.rstrip() for line in hushmote(*arguments).rstrip().splitlines()] == expected


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            "compare --total 8 --delta 1e-6 --reports 100",
            "For each take ε = 0.156: 100 reports are (8, 1e-06)-LDP",
        ),
        ("compare --total 8 --delta 1e-6 --reports 100", "Without a δ, by basic, it is 0.08."),
        (
            "compare --total 2.9 --delta 1e-6 --epsilon 1.45",
            "may make 2 reports of ε = 1.45 in its life: they are 2.9-LDP",
        ),
        ("compare --total 2 --epsilon 2", "A board may make 1 report of ε = 2"),
        ("compare --total 1 --epsilon 2", "No report of ε = 2 fits into a total of 1: take a smaller ε."),
        ("compare --total 0.5 --reports 1000", "a total of 0.5 is too little for 1,000 reports"),
        ("compose 1.45x2 0.5x3", "These 5 releases are 4.4-LDP together, by basic."),
        (
            "compose 0.1x100 0.2x50 0.1:1e-9x50",
            "These 200 releases are (9.93, 1.05e-06)-LDP together, by optimal.",
        ),
        ("histogram --epsilon 0.05 --devices 20000 --domain 2", "Take ε = 1.464 per report, with rr"),
        (
            "histogram --local 1.45 --devices 20000 --domain 2",
            "has ε = 0.0493 (δ = 1e-06, rr), where a report has 1.45.",
        ),
        (
            "majority --total 2 --reports 20",
            "This is not local differential privacy: 20 reports of ε = 0.5112",
        ),
    ],
)
def test_the_answer_stands_first_and_is_a_sentence(hushmote, arguments: str, says: str):
    text = hushmote(*arguments.split())
    answer = " ".join(text.split("\n\n")[0].split())
    assert says in answer
    if "take a smaller" not in says and "too little" not in says and "majority" not in arguments:
        assert answer.endswith(".")


@pytest.mark.parametrize(
    "arguments",
    [
        "compare --total 8 --reports 4",
        "compose 1x2",
        "histogram --local 1 --devices 1000 --domain 2",
        "policy --epsilon 2 --experiments a --json",
    ],
)
def test_what_an_epsilon_means_stands_beside_each_that_is_chosen(hushmote, arguments: str):
    assert "ho gave a reading 1 chance in 10 gives it at most" in " ".join(
        hushmote(*arguments.split()).split()
    )


def test_theorems_that_promise_nothing_are_listed_on_demand(hushmote):
    arguments = ("compare", "--total", "8", "--reports", "4")
    few, everything = hushmote(*arguments), hushmote(*arguments, "--all")
    assert "Left out, as they promise no LDP: majority, none. --all shows them." in few
    assert "not LDP" not in few
    assert "one fixed bit, not LDP" in everything
    assert "nothing together" in everything
    assert {row["theorem"] for row in json.loads(hushmote(*arguments, "--json"))} >= {"majority", "none"}


def test_a_list_is_the_same_from_arguments_and_from_a_file(hushmote, tmp_path: Path):
    (tmp_path / "releases.csv").write_text("epsilon,delta,count\n0.5,,2\n1,0.001,\n0.25,0,4\n", "utf-8")
    arguments = json.loads(hushmote("compose", "0.5x2", "1:0.001", "0.25×4", "--json"))
    assert arguments == json.loads(hushmote("compose", "--input", "releases.csv", "--json"))
    assert arguments == json.loads(hushmote("compose", "0.5x2", "1:0.001", "0.25x4", "--json"))
    assert (arguments["count"], arguments["sum"], arguments["sum_delta"]) == (7, 3.0, 0.001)
    rows = {row["theorem"]: row for row in arguments["theorems"]}
    assert (rows["basic"]["epsilon"], rows["basic"]["delta"]) == (3.0, 0.001)
    assert rows["majority"]["epsilon"] is None
    assert "not valid" in rows["majority"]["refused"]
    table = hushmote("compose", "0.5x2", "1:0.001", "0.25x4")
    assert f"{rows['optimal']['epsilon']:.6f}" in table


def test_pure_releases_say_which_theorems_bound_the_odds(hushmote):
    text = " ".join(hushmote("compose", "0.1x100", "--all").split())
    assert "the odds pass e^ε with probability at most δ" in text
    assert "majority: not LDP; a vote of all tells one fixed bit as one release at ε = 0.81" in text


@pytest.mark.parametrize(
    ("total", "reports", "raw", "envelope"), [(10, 100, "0.7698", "0.7868"), (2, 20, "0.4236", "0.5112")]
)
def test_the_majority_rule_s_curve_and_envelope_stand_side_by_side(hushmote, total, reports, raw, envelope):
    text = hushmote("majority", "--total", str(total), "--reports", str(reports))
    line = next(x for x in text.splitlines() if x.strip().startswith(f"{reports} "))
    assert line.split()[1:3] == [raw, envelope]
    assert "not LDP" in text
    assert max(map(len, text.splitlines())) <= 80
    row = json.loads(hushmote("majority", "--total", str(total), "--reports", str(reports), "--json"))[
        "rows"
    ][1]
    assert f"{row['raw']:.4f} {row['envelope']:.4f}" == f"{raw} {envelope}"


@pytest.mark.slow
def test_a_histogram_s_epsilon_both_ways_with_its_limits(hushmote):
    text = hushmote("histogram", "--devices", "2000", "--local", "2", "--domain", "16")
    limits = "not against the broker, the aggregator's operator or the database's journal"
    assert limits in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80
    there = json.loads(hushmote("histogram", "--devices", "2000", "--local", "2", "--domain", "16", "--json"))
    for row in there["rows"]:
        wanted = str(row["histogram"] * 1.002)
        back = json.loads(
            hushmote("histogram", "--devices", "2000", "--epsilon", wanted, "--domain", "16", "--json")
        )
        same = next(x for x in back["rows"] if x["mechanism"] == row["mechanism"])
        assert same["local"] == pytest.approx(2, rel=0.02)
    few = hushmote("histogram", "--devices", "1", "--epsilon", "0.0001", "--domain", "2")
    assert "none: no ε of a report from 0.001 to 16 does" in few


def test_a_picture_that_is_there_is_kept_until_it_is_forced(hushmote, tmp_path: Path):
    (tmp_path / "mine.svg").write_text("mine")
    assert "mine.svg is there already" in hushmote("compose", "1", "--output", "mine.svg", expect=1)
    assert "mine.svg is there already" in hushmote("plot", "--output", "mine.svg", expect=1)
    assert (tmp_path / "mine.svg").read_text() == "mine"
    hushmote("compose", "1", "--output", "mine.svg", "--force")
    assert "<svg" in (tmp_path / "mine.svg").read_text()


@pytest.mark.slow
def test_pictures_are_drawn(hushmote, tmp_path: Path):
    hushmote("compose", "0.5x10", "1x10", "0.5:0.2x10", "--plot", "mixed.svg")
    hushmote("plot", "--output", "majority.png", "--show", "majority", "--total", "2", "--reports", "20")
    text = (tmp_path / "mixed.svg").read_text("utf-8")
    assert "<svg" in text
    assert (tmp_path / "majority.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("compose",), "say what was released"),
        (("compose", "0.5xx"), "a release is EPSILON[:DELTA][xCOUNT]"),
        (("compose", "half"), "not half"),
        (("compose", "0"), "millionths above 0"),
        (("compose", "inf"), "millionths above 0"),
        (("compose", "0.5:1"), "a report's delta is a number from 0 to below 1"),
        (("compose", "0.5x0"), "number of releases"),
        (("compose", "0.5", "--delta", "1"), "delta is a number from 0 to below 1"),
        (("compose", "0.5", "--plot", "x.txt"), "x.txt must end in .png or .pdf or .svg"),
        (("compose", "--input", "missing.csv"), "missing.csv"),
        (("compose", "0.5x20000000", "0.1"), "1 to 10,000,000"),
        (("histogram", "--devices", "100"), "give either --epsilon"),
        (("histogram", "--devices", "100", "--epsilon", "1", "--local", "1"), "give either --epsilon"),
        (("histogram", "--devices", "0", "--local", "1"), "the number of devices"),
        (("histogram", "--devices", "9", "--local", "99"), "from 0.001 to 16"),
        (("histogram", "--devices", "9", "--epsilon", "0"), "above 0"),
        (("histogram", "--devices", "9", "--local", "1", "--domain", "1"), "2 to 16,777,216 values"),
        (("histogram", "--devices", "9", "--local", "1", "--reports-each", "0"), "reports of each"),
        (("histogram", "--devices", "9", "--local", "1", "--delta", "1"), "delta is a number"),
        (("majority", "--total", "651", "--reports", "3"), "up to 650 nats"),
        (("majority", "--total", "1", "--reports", "0"), "whole number from 1 up"),
        (("plot", "--output", "x.png", "--show", "majority", "--reports", "1"), "whole number from 2 up"),
    ],
)
def test_a_mistake_is_one_line(hushmote, arguments, says):
    text = hushmote(*arguments, expect=1)
    assert says in text
    assert len(text.strip().splitlines()) == 1


@pytest.mark.parametrize("content", ["a,b\n1,2\n", "epsilon\nhalf\n", "epsilon,count\n0.5,many\n", ""])
def test_a_file_that_is_no_list_of_releases_is_one_line(hushmote, tmp_path: Path, content: str):
    (tmp_path / "bad.csv").write_text(content, "utf-8")
    assert "bad.csv" in hushmote("compose", "--input", "bad.csv", expect=1)
