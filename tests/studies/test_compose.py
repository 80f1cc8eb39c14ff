"""The commands compose, majority and curves."""

import json
from pathlib import Path

import pytest
from command_line import Run, runner

from hushmote.server.accounting import Kind
from hushmote.studies import curves


@pytest.fixture
def hushmote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner("study", tmp_path, monkeypatch)


class TestCompose:
    def test_summarizes_three_thousand_mixed_releases(self, hushmote):
        text = hushmote("compose", "--releases=0.5x1000,1x1000,0.5:0.01x1000", "--all")
        assert text.startswith("These 3,000 releases promise next to nothing together")
        assert "3,000 releases, Σε = 2,000, Σδ = 10" in text
        assert "basic: Σε = 2,000 with Σδ = 10 is (inf, 1): a δ of 1 or more promises nothing." in text
        assert "advanced: not valid here: its δ, 10, is not below 1." in text
        assert max(map(len, text.splitlines())) <= 80

    def test_reads_the_same_list_from_arguments_and_file(self, hushmote, tmp_path: Path):
        (tmp_path / "releases.csv").write_text("epsilon,delta,count\n0.5,,2\n1,0.001,\n0.25,0,4\n", "utf-8")
        arguments = json.loads(hushmote("compose", "--releases=0.5x2,1:0.001,0.25×4", "--json"))
        assert arguments == json.loads(hushmote("compose", "--input=releases.csv", "--json"))
        assert arguments == json.loads(hushmote("compose", "--releases=0.5x2,1:0.001,0.25x4", "--json"))
        assert (arguments["count"], arguments["sum"], arguments["sum_delta"]) == (7, 3.0, 0.001)
        rows = {row["theorem"]: row for row in arguments["theorems"]}
        assert (rows["basic"]["epsilon"], rows["basic"]["delta"]) == (3.0, 0.001)
        table = hushmote("compose", "--releases=0.5x2,1:0.001,0.25x4")
        assert f"{rows['optimal']['epsilon']:.6f}" in table

    def test_delta_of_one_half_promises_nothing(self, hushmote):
        text = hushmote("compose", "--releases=1x10", "--delta=0.5")
        assert text.startswith("These 10 releases are 10-LDP together, by basic.")
        text = hushmote("compose", "--releases=1x10", "--delta=0.4")
        assert text.startswith("These 10 releases are (4.58, 0.4)-LDP together, by optimal.")

    def test_says_which_theorems_bound_the_odds_of_pure_releases(self, hushmote):
        text = " ".join(hushmote("compose", "--releases=0.1x100", "--all").split())
        assert "the odds pass e^ε with probability at most δ" in text


class TestMajority:
    @pytest.mark.parametrize(
        ("total", "reports", "raw", "envelope"), [(10, 100, "0.7698", "0.7868"), (2, 20, "0.4236", "0.5112")]
    )
    def test_shows_curve_and_envelope_side_by_side(self, hushmote, total, reports, raw, envelope):
        text = hushmote("majority", f"--total={total}", f"--reports={reports}")
        line = next(x for x in text.splitlines() if x.strip().startswith(f"{reports} "))
        assert line.split()[1:3] == [raw, envelope]
        assert "not LDP" in text
        assert max(map(len, text.splitlines())) <= 80
        row = json.loads(hushmote("majority", f"--total={total}", f"--reports={reports}", "--json"))["rows"][
            1
        ]
        assert f"{row['raw']:.4f} {row['envelope']:.4f}" == f"{raw} {envelope}"


class TestOutput:
    def test_existing_picture_is_kept(self, hushmote, tmp_path: Path):
        (tmp_path / "mine.svg").write_text("mine")
        output = ("--output", "mine.svg")
        assert "mine.svg already exists" in hushmote(
            "compose", "--releases=1", "--output", "mine.svg", expect=1
        )
        assert "mine.svg already exists" in hushmote("curves", *output, expect=1)
        assert (tmp_path / "mine.svg").read_text() == "mine"

    @pytest.mark.slow
    def test_pictures_are_drawn(self, hushmote, tmp_path: Path):
        hushmote("compose", "--releases=0.5x10,1x10,0.5:0.2x10", "--plot", "mixed.svg")
        hushmote("majority", "--total=2", "--reports=20", "--output", "majority.png")
        for show in ("epsilon", "spent", "reports"):
            hushmote("curves", f"--show={show}", "--totals=2", "--reports=20", "--output", f"{show}.svg")
            assert "<svg" in (tmp_path / f"{show}.svg").read_text("utf-8")
        text = (tmp_path / "mixed.svg").read_text("utf-8")
        assert "<svg" in text
        assert (tmp_path / "majority.png").read_bytes().startswith(b"\x89PNG")

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ("compose --releases 1.45x2,0.5x3", "These 5 releases are 4.4-LDP together, by basic."),
            (
                "compose --releases 0.1x100,0.2x50,0.1:1e-9x50",
                "These 200 releases are (9.93, 1.05e-06)-LDP together, by optimal.",
            ),
            ("compose --releases 1x2", "all of them together can raise someone's confidence"),
            (
                "majority --total 2 --reports 20",
                "This is not local differential privacy: 20 reports of ε = 0.5112",
            ),
        ],
    )
    def test_starts_with_the_answer_in_a_sentence(self, hushmote, arguments: str, message: str):
        assert message in " ".join(hushmote(*arguments.split()).split("\n\n")[0].split())


class TestErrors:
    @pytest.mark.parametrize("content", ["a,b\n1,2\n", "epsilon\nhalf\n", "epsilon,count\n0.5,many\n", ""])
    def test_malformed_list_of_releases_is_one_line(self, hushmote, tmp_path: Path, content: str):
        (tmp_path / "bad.csv").write_text(content, "utf-8")
        assert "bad.csv" in hushmote("compose", "--input=bad.csv", expect=1)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("compose",), "say what was released"),
            (("compose", "--releases=0.5xx"), "a release is EPSILON[:DELTA][xCOUNT]"),
            (("compose", "--releases=half"), "not half"),
            (("compose", "--releases=0"), "must be a positive multiple of one millionth"),
            (("compose", "--releases=inf"), "must be a positive multiple of one millionth"),
            (("compose", "--releases=0.5:1"), "a report's delta must be at least 0 and below 1"),
            (("compose", "--releases=0.5x0"), "number of releases"),
            (("compose", "--releases=0.5", "--delta=1"), "delta must be at least 0 and below 1"),
            (("compose", "--releases=0.5", "--plot", "x.txt"), "x.txt must end in .png, .pdf or .svg"),
            (("compose", "--input=missing.csv"), "missing.csv"),
            (("compose", "--releases=0.5x20000000,0.1"), "1 to 10,000,000"),
            (("majority", "--total=651", "--reports=3"), "up to 650 nats"),
            (("majority", "--total=1", "--reports=0"), "whole number of at least 1"),
            (("majority", "--reports=1", "--output", "x.png"), "whole number of at least 2"),
            (("curves", "--show=nothing"), "--show must be 'epsilon', 'spent' or 'reports', not 'nothing'"),
        ],
    )
    def test_invalid_arguments_are_one_line(self, hushmote, arguments, message):
        text = hushmote(*arguments, expect=1)
        assert message in text
        assert len(text.strip().splitlines()) == 1


class TestCurves:
    @pytest.mark.slow
    def test_are_available_as_json(self, hushmote):
        result = json.loads(hushmote("curves", "--totals=2", "--delta=1e-6", "--reports=30", "--json"))
        basic = next(curve for curve in result["curves"] if curve["theorem"] == "basic")
        assert basic["x"][-1] == 30
        assert basic["y"][-1] == pytest.approx(2 / 30, abs=1e-6)

    @pytest.mark.slow
    def test_are_at_most_four_per_plot(self):
        for drawn in (
            list(curves.epsilon_curves(2.0, 1e-6, 12)),
            list(curves.report_curves(2.0, 1e-6)),
            list(curves.spent_curves(100_000, 1e-6, 12)),
        ):
            assert len(drawn) == 4
            assert len({curve.label for curve in drawn}) == 4
            assert all(str(Kind.PURE) in c.label or str(Kind.APPROXIMATE) in c.label for c in drawn)
        assert [curve.label for curve in curves.epsilon_curves(2.0, 0, 12)] == ["basic: ε-LDP"]

    @pytest.mark.slow
    def test_pass_through_known_points(self):
        by_label = {curve.label: curve for curve in curves.epsilon_curves(10.0, 1e-6, 100)}
        assert by_label["basic: ε-LDP"].y[-1] == 0.1
