"""`hushmote epsilon` as a decision maker uses it: from a risk to an ε, with one-line errors."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from boards import ask_fleet
from command_line import Run, runner
from designs import choice_payload
from matplotlib.axes import Axes
from page_commands import command_examples, prints
from refusals import Refusal, refusals

from hushmote.cli.epsilon import plot
from hushmote.device.ldp_client import Experiment
from hushmote.server.store import Store
from hushmote.simulator import vectorised

REPOSITORY = Path(__file__).parents[2]
ROOM = str(REPOSITORY / "examples" / "room_temp.toml")


@pytest.fixture
def hushmote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner("epsilon", tmp_path, monkeypatch)


def ask(hushmote, *arguments: str) -> dict:
    return json.loads(hushmote(*arguments, "--json"))


class TestBeliefs:
    @pytest.mark.slow
    def test_follow_from_epsilon(self, hushmote):
        result = ask(hushmote, "2", "--epsilon", "1", "--reports", "3")
        share = math.e / (1 + math.e)
        assert result["beliefs"][0]["posterior"] == pytest.approx(share, rel=1e-6)
        assert result["theorems"][0]["posterior"] == pytest.approx(1 / (1 + math.exp(-3)))
        assert result["repeated"]["worst_beliefs"] == pytest.approx([1 / (1 + math.exp(-3))] * 2, rel=1e-6)
        assert result["repeated"]["best_guess_right"] == pytest.approx(share**3 + 3 * share**2 * (1 - share))
        assert "the best guess is right 82.19" in hushmote("2", "--epsilon", "1", "--reports", "3")

    @pytest.mark.slow
    def test_observer_of_histogram_learns_less(self, hushmote):
        arguments = ("8:grr", "--epsilon", "1", "--histogram", "2000")
        text = " ".join(hushmote(*arguments).split())
        assert "someone who sees only a histogram of 2,000 reports, one of them the device's" in text
        assert "The beliefs stay below these except with probability 1e-06: odds move by" in text
        assert "not against the broker, the aggregator's operator or the database's journal" in text
        result = ask(hushmote, *arguments)
        view = result["histogram"]
        assert view["epsilon"] < view["loss"] < 1
        assert view["beliefs"][0]["prior"] == 0.125
        assert view["beliefs"][0]["posterior"] < result["beliefs"][0]["posterior"]
        assert "journal" in view["holds"]
        with_risk = ask(hushmote, arguments[0], "--risk", "1/4", "--histogram", "2000")
        assert with_risk["histogram"]["local"] > with_risk["epsilon_any_mechanism"]
        assert "histogram" not in ask(hushmote, *arguments[:3])


class TestSources:
    @pytest.mark.slow
    def test_file_gives_mechanism_unit_and_epsilon(self, hushmote):
        result = ask(hushmote, ROOM, "--prior", "normal:21:3", "--about", "30:", "--risk", "x3")
        assert result["mechanism"]["mechanism"] == "hh"
        assert result["tightest"]["target"] == "30 and above"
        assert result["tightest"]["posterior"] == pytest.approx(3 * result["tightest"]["prior"])
        assert result["epsilon_one_report"] >= result["epsilon_any_mechanism"]
        custom = ask(hushmote, ROOM, "--prior", "normal:21:3", "--about", "30:", "--reports", "4")
        assert custom["epsilon"] == 1.0
        assert custom["theorems"][0]["loss"] == 4.0
        assert "new hash or level" in custom["repeated_refused"]
        for arguments in (("--risk", "x3"), ("--reports", "4")):
            hushmote(ROOM, "--prior", "normal:21:3", *arguments)

    def test_says_that_a_group_is_not_protected(self, hushmote):
        file = str(REPOSITORY / "examples" / "board_crash.toml")
        assert "ε does not cover it" in " ".join(hushmote(file).split())
        assert ask(hushmote, file)["answer"][-1].endswith("and ε does not cover it.")

    def test_prior_from_file_column_or_weights(self, hushmote, tmp_path: Path):
        (tmp_path / "rooms.csv").write_text("celsius\n" + "18\n" * 3 + "31\n")
        result = ask(hushmote, ROOM, "--prior", "rooms.csv:celsius", "--about", "30:")
        assert result["beliefs"][0]["prior"] == 0.25
        result = ask(hushmote, "3", "--prior", "weights:2:1:1", "--epsilon", "1")
        assert {b["prior"] for b in result["beliefs"]} == {0.5, 0.25}
        assert "a column of readings requires an experiment file" in hushmote(
            "3", "--prior", "rooms.csv:celsius", "--risk", "1/2", expect=1
        )

    def test_prior_from_stored_reports(self, hushmote, tmp_path: Path):
        payload, rng = choice_payload(["idle", "heating", "door"], 3), np.random.default_rng(1)
        experiment = Experiment.parse(payload)
        histogram = vectorised.histogram(experiment, np.array([60_000, 30_000, 10_000, 0]), rng)
        url = f"sqlite:///{tmp_path / 'hushmote.sqlite'}"
        with Store(url) as opened:
            ask_fleet(opened, "home", payload)
            (version,) = opened.experiments("home")
            with opened.ingest() as transaction:
                counts = {(version.id, "2026-11-21", 0, c): int(n) for c, n in enumerate(histogram) if n}
                transaction.write({}, counts, {})
        name = experiment.name
        result = ask(hushmote, "--store", url, "--prior", f"{name}@", "--about", "heating", "--risk", "1/2")
        assert result["tightest"]["target"] == "heating"
        assert result["tightest"]["prior"] == pytest.approx(0.3, abs=0.03)
        text = hushmote("--store", url, "--prior", f"{name}@", "--risk", "1/2", expect=1)
        assert text.startswith("hushmote: idle: the belief is already 0.")
        mistake = hushmote("--store", url, "--prior", "other@home", expect=1)
        assert "no experiment other in fleet home; its experiments: mode" in mistake


class TestRisk:
    @pytest.mark.slow
    def test_gives_epsilon_and_sentence(self, hushmote):
        text = hushmote("10:grr", "--risk", "1/4", "--reports", "4")
        assert text.startswith("Use ε = 0.274 per report: 4 reports from a device keep the risk together")
        assert "an attacker who thought 1 in 10 then thinks at most 1 in 4." in text
        assert text.count("1.098612") >= 2
        assert "no promise" not in text
        assert (
            "The theorem none, which guarantees nothing about beliefs, is omitted; --json includes it."
            in " ".join(text.split())
        )
        result = ask(hushmote, "10:grr", "--risk", "1/4", "--reports", "4")
        assert result["epsilon_any_mechanism"] == int(math.log(3) * 1e6) / 1e6
        assert result["beliefs"][0]["alike"] == 9
        basic = result["theorems"][0]
        assert (basic["theorem"], basic["epsilon"], basic["fails"]) == ("basic", 0.274653, 0.0)
        assert basic["exact_chance"] == 0.0
        assert next(r for r in result["theorems"] if r["theorem"] == "none")["fails"] is None

    def test_hint_at_smallest_epsilon_needs_smaller_one(self, hushmote):
        """A loss of ln 3 in 1,098 reports is ε = 0.001 for each, which boards accept."""
        hint = "No experiment can have an ε below 0.001"
        for reports, epsilon, is_shown in (("1098", "0.001000", False), ("1099", "0.000999", True)):
            text = hushmote("2", "--risk", "3/4", "--reports", reports, "--delta", "0")
            assert f" {epsilon} " in text
            assert (hint in text) is is_shown

    def test_shows_gain_from_delta_for_many_reports(self, hushmote):
        text = hushmote("10", "--risk", "1/4", "--reports", "500")
        answer = " ".join(text.split("\n\n")[0].split())
        assert "ε = 0.00219 per report: 500 reports from a device keep the risk" in answer
        assert "Accepting a chance of 1e-06 that they do not, optimal allows ε = 0.00975." in answer


class TestOutput:
    @pytest.mark.slow
    def test_matches_documentation(self, hushmote, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.chdir(REPOSITORY)
        pairs = command_examples((REPOSITORY / "docs" / "planning.md").read_text("utf-8"), "epsilon")
        assert len(pairs) == 2
        for (_, *arguments), expected in pairs:
            output = hushmote(*arguments)
            assert prints(output, expected), output

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            ("10 --risk 1/4", "Use ε = 1.098 per report, or for all of a device's reports together."),
            ("10 --risk 1/4 --reports 50000", "No ε keeps this risk in 50,000 reports"),
            ("10 --risk 0.10001", "No ε keeps this risk: it would be below 0.001."),
            ("2 --epsilon 2 --reports 3", "thinks at most 89 in 100 after one report, and at most 998"),
        ],
    )
    def test_answer_is_first_sentence(self, hushmote, arguments: str, expected: str):
        text = hushmote(*arguments.split())
        assert expected in " ".join(text.split("\n\n")[0].split())
        if "No ε" not in expected:
            assert "can raise someone's confidence" in " ".join(text.split("\n\n")[0].split())
            assert " ".join(ask(hushmote, *arguments.split())["answer"]) in " ".join(text.split())

    @pytest.mark.slow
    def test_plot_marks_the_bound_and_the_exact_epsilon(self, hushmote, tmp_path: Path):
        result = ask(hushmote, "64", "--risk", "1/8", "--plot", "risk.svg")
        marks = re.findall(r"<!-- ε = (\S+) -->", (tmp_path / "risk.svg").read_text("utf-8"))
        assert marks == [f"{result[name]:.4g}" for name in ("epsilon_any_mechanism", "epsilon_one_report")]

    @pytest.mark.slow
    def test_writes_plots(self, hushmote, tmp_path: Path):
        hushmote("64", "--risk", "1/8", "--plot", "local.png")
        assert "wrote loss.svg" in hushmote("8", "--epsilon", "4", "--plot", "loss.svg")
        assert "<svg" in (tmp_path / "loss.svg").read_text("utf-8")
        assert (tmp_path / "local.png").read_bytes().startswith(b"\x89PNG")

    def test_plot_marks_risk_at_both_epsilons(self, hushmote, monkeypatch: pytest.MonkeyPatch):
        marks: list[tuple[float, float]] = []
        mark = plot._mark

        def record(axes: Axes, epsilon: float, belief: float, above: bool, text: str = "") -> None:
            marks.append((epsilon, belief))
            mark(axes, epsilon, belief, above, text)

        monkeypatch.setattr(plot, "_mark", record)
        hushmote("64:grr", "--risk", "1/8", "--plot", "local.png")
        result = ask(hushmote, "64:grr", "--risk", "1/8")
        assert [epsilon for epsilon, _ in marks] == [
            result["epsilon_any_mechanism"],
            result["epsilon_one_report"],
        ]
        assert [belief for _, belief in marks] == pytest.approx([1 / 8, 1 / 8], rel=1e-5)


class TestRefusals:
    @pytest.mark.slow
    @refusals(
        ("8 --epsilon -1", "must be a positive multiple of one millionth, not -1"),
        ("8 --epsilon 0", "must be a positive multiple of one millionth, not 0"),
        ("8 --epsilon 20", "from 0.001 to 16"),
        ("8 --risk 1", "between 0 and 1"),
        ("8 --risk -0.2", "between 0 and 1"),
        ("8 --risk high", "0.25 or 1/4, not high"),
        ("8 --risk 0.1", "value 0: the belief is already 0.125 before any report"),
        ("8 --risk x1", "above 1"),
        ("8 --risk 1/2 --epsilon 2", "give either"),
        ("8", "give --risk"),
        ("1 --risk 1/2", "2 to 16,777,216 values"),
        ("0 --risk 1/2", "2 to 16,777,216 values"),
        ("3:rr --risk 1/2", "rr supports only 2 values"),
        ("3:gr --risk 1/2", "unknown mechanism gr; choose from auto, rr, grr"),
        ("3 --prior 0.5,0.4,0.3 --risk 0.9", "sums to 1.2, not 1"),
        ("3 --prior 0.5,0.8,-0.3 --risk 0.9", "0 or more"),
        ("3 --prior 0.5,0.5 --risk 0.9", "2 numbers, but there are 3"),
        ("3 --prior normal:1:1 --risk 0.9", "give the experiment's file"),
        ("3 --about 2:9 --risk 0.9", "values must be 0 to 2"),
        ("3 --risk 0.9 --reports 0", "whole number of at least 1"),
        ("3 --risk 0.9 --delta 1", "delta"),
        ("3 --risk 0.9 --delta 1e-6", "add --reports or --histogram, or omit --delta"),
        ("3 --risk 0.9 --store sqlite:///a.sqlite", "add --prior EXPERIMENT@FLEET, or omit --store"),
        ("3 --epsilon 1 --plot x.txt", "x.txt must end in .png, .pdf or .svg"),
        ("3 --epsilon 1 --histogram 0", "reports in the histogram"),
        ("3 --epsilon 1 --histogram 2 --reports 3", "cannot contain 3 from one"),
        ("", "give an experiment's file, or a number of values"),
        ("3 --prior room@home --risk 1/2", "omit the number of values"),
        command="epsilon",
    )
    def test_is_one_line(self, refusal: Refusal, tmp_path: Path):
        refusal.check(tmp_path)
