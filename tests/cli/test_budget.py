"""`hushmote budget`: totals, policies and histograms as a planner sees them."""

import json
from pathlib import Path

import pytest
from command_line import Run, runner
from refusals import Refusal, refusals


@pytest.fixture
def hushmote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner("budget", tmp_path, monkeypatch)


class TestAnswer:
    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            (
                "compare --total 8 --delta 1e-6 --reports 100",
                "For each report, use ε = 0.156: 100 reports are (8, 1e-06)-LDP",
            ),
            ("compare --total 8 --delta 1e-6 --reports 100", "Without a δ, basic composition allows 0.08."),
            (
                "compare --total 2.9 --delta 1e-6 --epsilon 1.45",
                "may make 2 reports of ε = 1.45 in its lifetime: they are 2.9-LDP",
            ),
            ("compare --total 2 --epsilon 2", "A device may make 1 report of ε = 2"),
            ("compare --total 2 --reports 1", "Use ε = 2: 1 report is 2-LDP, by basic."),
            ("compare --total 2 --epsilon 1.5", "it is 2-LDP, by basic."),
            (
                "compare --total 1 --epsilon 2",
                "A report at ε = 2 does not fit into a total of 1; use a smaller ε.",
            ),
            ("compare --total 0.5 --reports 1000", "A total of 0.5 is too small for 1,000 reports"),
            ("histogram --epsilon 0.05 --devices 20000 --domain 2", "Use ε = 1.464 per report, with rr"),
            (
                "histogram --local 1.45 --devices 20000 --domain 2",
                "has ε = 0.0493 (δ = 1e-06, rr), compared with 1.45 for one report.",
            ),
        ],
    )
    def test_is_first_sentence(self, hushmote, arguments: str, expected: str):
        text = hushmote(*arguments.split())
        answer = " ".join(text.split("\n\n")[0].split())
        assert expected in answer
        if "take a smaller" not in expected and "too little" not in expected:
            assert answer.endswith(".")

    @pytest.mark.parametrize(
        "arguments",
        [
            "compare --total 8 --reports 4",
            "histogram --local 1 --devices 1000 --domain 2",
            "policy --epsilon 2 --experiments a --json",
        ],
    )
    def test_explains_chosen_epsilon(self, hushmote, arguments: str):
        assert "can raise someone's confidence in a guess about the reading from 10% to at most" in " ".join(
            hushmote(*arguments.split()).split()
        )


class TestCompare:
    def test_caps_are_in_nats(self, hushmote):
        rows = json.loads(
            hushmote("compare", "--total", "4", "--delta", "1e-6", "--epsilon", "0.5", "--json")
        )
        caps = {row["theorem"]: (row["rule"], row["cap"]) for row in rows}
        assert caps["basic"] == ("sum", 4)
        assert caps["zcdp"][0] == "squares"
        assert caps["zcdp"][1] == pytest.approx(0.507871156578)
        assert caps["optimal"] == (
            "count",
            next(row["reports"] for row in rows if row["theorem"] == "optimal"),
        )
        assert caps["none"] == ("unlimited", None)

    def test_only_json_lists_theorems_without_guarantee(self, hushmote):
        arguments = ("compare", "--total", "8", "--reports", "4")
        output = hushmote(*arguments)
        assert "none" not in output
        assert "hushmote budget histogram" in output
        theorems = [row["theorem"] for row in json.loads(hushmote(*arguments, "--json"))]
        assert theorems == ["basic", "none", "shuffle"]

    def test_leaves_out_theorems_that_do_not_apply(self, hushmote):
        arguments = ("compare", "--total", "80", "--delta", "1e-6", "--reports", "200000000")
        text = hushmote(*arguments)
        assert "zCDP filter" in text
        at_most = "the number of reports must be at most 134,217,728, not 200,000,000"
        words = " ".join(text.split())
        assert f"not compared: optimal; {at_most}" in words
        assert f"not compared: advanced; {at_most}" in words
        rows = {row["theorem"]: row for row in json.loads(hushmote(*arguments, "--json"))}
        assert (rows["advanced"]["epsilon"], rows["basic"]["epsilon"]) == (None, 0.0)


class TestShuffle:
    COMPARE = ("compare", "--total", "2", "--delta", "1e-6", "--epsilon", "1")

    def test_is_last_row_with_limits(self, hushmote: Run):
        text = hushmote(*self.COMPARE, "--devices", "500", "--domain", "2")
        assert max(map(len, text.splitlines())) <= 80
        _, table = text.split("\ntheorem ")
        rows = [line.split()[0] for line in table.splitlines()[1:6]]
        assert rows == ["basic", "zCDP", "optimal", "advanced", "shuffle"]
        assert "shuffle holds against whoever sees histograms only; not against the broker" in table
        assert "not compared" not in text

    def test_reads_values_and_devices_from_file(
        self, hushmote: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        plan = ("--values", "yes-no", "--devices", "500", "--epsilon", "1", "--output", "door.toml")
        runner("plan", tmp_path, monkeypatch)(*plan)
        answers = [
            json.loads(hushmote(*self.COMPARE, *options, "--json"))[-1]
            for options in (("--experiment", "door.toml"), ("--devices", "500", "--domain", "2"))
        ]
        assert answers[0] == answers[1]
        assert answers[0]["kind"] == "(ε, δ)-DP of the histogram of all reports"
        assert answers[0]["reports"] > 2

    @pytest.mark.parametrize(
        ("options", "line"),
        [
            ((), "not compared: shuffle; add --devices, --domain (or --experiment FILE)"),
            (("--devices", "500"), "not compared: shuffle; add --domain (or --experiment FILE)"),
            (("--domain", "2"), "not compared: shuffle; add --devices"),
            (("--devices", "500", "--domain", "2", "--delta", "0"), "not compared: shuffle; add --delta"),
        ],
        ids=["devices and domain", "domain", "devices", "delta"],
    )
    def test_names_missing_options(self, hushmote: Run, options: tuple[str, ...], line: str):
        assert line in hushmote(*self.COMPARE, *options).splitlines()
        row = json.loads(hushmote(*self.COMPARE, *options, "--json"))[-1]
        assert (row["theorem"], row["reports"], row["words"]) == ("shuffle", None, line)

    def test_names_theorems_that_need_delta(self, hushmote: Run):
        text = hushmote("compare", "--total", "2", "--epsilon", "1")
        assert "not compared: zCDP filter, optimal, advanced; add --delta" in text.splitlines()


class TestHistogram:
    @pytest.mark.slow
    def test_converts_epsilon_both_ways_and_states_limits(self, hushmote):
        text = hushmote("histogram", "--devices", "2000", "--local", "2", "--domain", "16")
        limits = "not against the broker, the aggregator's operator or the database's journal"
        assert limits in " ".join(text.split())
        assert max(map(len, text.splitlines())) <= 80
        result = json.loads(
            hushmote("histogram", "--devices", "2000", "--local", "2", "--domain", "16", "--json")
        )
        for row in result["rows"][::4]:
            wanted = str(row["histogram"] * 1.002)
            back = json.loads(
                hushmote("histogram", "--devices", "2000", "--epsilon", wanted, "--domain", "16", "--json")
            )
            same = next(x for x in back["rows"] if x["mechanism"] == row["mechanism"])
            assert same["local"] == pytest.approx(2, rel=0.02)
        output = hushmote("histogram", "--devices", "1", "--epsilon", "0.0001", "--domain", "2")
        assert "No per-report ε keeps the histogram at ε = 0.0001" in output


COMPARE = " ".join(TestShuffle.COMPARE)


class TestRefusals:
    @refusals(
        ("histogram --devices 100", "give either --epsilon"),
        ("histogram --devices 100 --epsilon 1 --local 1", "give either --epsilon"),
        ("histogram --devices 0 --local 1", "the number of devices"),
        ("histogram --devices 9 --local 99", "from 0.001 to 16"),
        ("histogram --devices 9 --epsilon 0", "must be a positive number of nats"),
        ("histogram --devices 9 --local 1 --domain 1", "2 to 16,777,216 values"),
        ("histogram --devices 9x0 --local 1", "reports of each"),
        ("histogram --devices few --local 1", "20000x2, not few"),
        ("histogram --devices 9 --local 1 --delta 1", "delta must be at least 0"),
        (f"{COMPARE} --devices 0 --domain 2", "the number of devices"),
        (f"{COMPARE} --devices 9 --domain 1", "2 to 16,777,216 values"),
        (f"{COMPARE} --domain 2 --experiment a.toml", "omit --domain"),
        command="budget",
    )
    def test_is_one_line(self, refusal: Refusal, tmp_path: Path):
        refusal.check(tmp_path)
