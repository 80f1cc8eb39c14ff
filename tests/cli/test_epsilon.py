"""`hushmote epsilon` as a decision maker sees it: a risk in, a number out, mistakes in one line."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from boards import ask_fleet
from command_line import Run, runner
from designs import choice_payload
from page_commands import prints, shown
from refusals import Refusal, refusals

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
        found = ask(hushmote, "2", "--epsilon", "1", "--reports", "3")
        share = math.e / (1 + math.e)
        assert found["beliefs"][0]["posterior"] == pytest.approx(share, rel=1e-6)
        assert found["theorems"][0]["posterior"] == pytest.approx(1 / (1 + math.exp(-3)))
        assert found["repeated"]["worst_beliefs"] == pytest.approx([1 / (1 + math.exp(-3))] * 2, rel=1e-6)
        assert found["repeated"]["best_guess_right"] == pytest.approx(share**3 + 3 * share**2 * (1 - share))
        assert "the best guess is right 82.19" in hushmote("2", "--epsilon", "1", "--reports", "3")

    @pytest.mark.slow
    def test_observer_of_histogram_learns_less(self, hushmote):
        arguments = ("8:grr", "--epsilon", "1", "--histogram", "2000")
        text = " ".join(hushmote(*arguments).split())
        assert "someone who sees only a histogram of 2,000 reports, one of them the device's" in text
        assert "not against the broker, the aggregator's operator or the database's journal" in text
        found = ask(hushmote, *arguments)
        view = found["histogram"]
        assert view["epsilon"] < view["loss"] < 1
        assert view["beliefs"][0]["prior"] == 0.125
        assert view["beliefs"][0]["posterior"] < found["beliefs"][0]["posterior"]
        assert "journal" in view["holds"]
        with_risk = ask(hushmote, arguments[0], "--risk", "1/4", "--histogram", "2000")
        assert with_risk["histogram"]["local"] > with_risk["epsilon_any_mechanism"]
        assert "histogram" not in ask(hushmote, *arguments[:3])


class TestSources:
    @pytest.mark.slow
    def test_file_gives_mechanism_unit_and_epsilon(self, hushmote):
        found = ask(hushmote, ROOM, "--prior", "normal:21:3", "--about", "30:", "--risk", "x3")
        assert found["mechanism"]["mechanism"] == "hh"
        assert found["tightest"]["target"] == "30 and above"
        assert found["tightest"]["posterior"] == pytest.approx(3 * found["tightest"]["prior"])
        assert found["epsilon_one_report"] >= found["epsilon_any_mechanism"]
        own = ask(hushmote, ROOM, "--prior", "normal:21:3", "--about", "30:", "--reports", "4")
        assert own["epsilon"] == 1.0
        assert own["theorems"][0]["loss"] == 4.0
        assert "new hash or level" in own["repeated_refused"]
        for arguments in (("--risk", "x3"), ("--reports", "4")):
            hushmote(ROOM, "--prior", "normal:21:3", *arguments)

    def test_prior_from_file_column_or_weights(self, hushmote, tmp_path: Path):
        (tmp_path / "rooms.csv").write_text("celsius\n" + "18\n" * 3 + "31\n")
        found = ask(hushmote, ROOM, "--prior", "rooms.csv:celsius", "--about", "30:")
        assert found["beliefs"][0]["prior"] == 0.25
        found = ask(hushmote, "3", "--prior", "weights:2:1:1", "--epsilon", "1")
        assert {b["prior"] for b in found["beliefs"]} == {0.5, 0.25}
        assert "a column of readings needs" in hushmote(
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
                counts = {(version.id, "2026-11-21", c): int(n) for c, n in enumerate(histogram) if n}
                transaction.write({}, counts, {})
        name = experiment.name
        found = ask(hushmote, "--store", url, "--prior", f"{name}@", "--about", "heating", "--risk", "1/2")
        assert found["tightest"]["target"] == "heating"
        assert found["tightest"]["prior"] == pytest.approx(0.3, abs=0.03)
        text = hushmote("--store", url, "--prior", f"{name}@", "--risk", "1/2", expect=1)
        assert text.startswith("hushmote: idle: before any report the belief is 0.")
        mistake = hushmote("--store", url, "--prior", "other@home", expect=1)
        assert "no experiment other in fleet home; its experiments: mode" in mistake


class TestRisk:
    @pytest.mark.slow
    def test_gives_epsilon_and_sentence(self, hushmote):
        text = hushmote("10:grr", "--risk", "1/4", "--reports", "4")
        assert text.startswith("Take ε = 0.274 per report: 4 reports of a device keep the risk together")
        assert "an attacker who thought 1 in 10 then thinks at most 1 in 4." in text
        assert text.count("1.098612") >= 2
        assert "no promise" not in text
        assert "Left out: none, which promises nothing about beliefs. --json has it." in " ".join(
            text.split()
        )
        found = ask(hushmote, "10:grr", "--risk", "1/4", "--reports", "4")
        assert found["epsilon_any_mechanism"] == int(math.log(3) * 1e6) / 1e6
        assert found["beliefs"][0]["alike"] == 9
        basic = found["theorems"][0]
        assert (basic["theorem"], basic["epsilon"], basic["fails"]) == ("basic", 0.274653, 0.0)
        assert basic["exact_chance"] == 0.0
        assert next(r for r in found["theorems"] if r["theorem"] == "none")["fails"] is None

    def test_shows_gain_from_delta_for_many_reports(self, hushmote):
        text = hushmote("10", "--risk", "1/4", "--reports", "500")
        answer = " ".join(text.split("\n\n")[0].split())
        assert "ε = 0.00219 per report: 500 reports of a device keep the risk" in answer
        assert "With a chance of 1e-06 that they do not, by optimal: ε = 0.00975." in answer


class TestOutput:
    @pytest.mark.slow
    def test_matches_documentation(self, hushmote, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.chdir(REPOSITORY)
        pairs = shown((REPOSITORY / "docs" / "planning.md").read_text("utf-8"), "epsilon")
        assert len(pairs) == 2
        for (_, *arguments), expected in pairs:
            output = hushmote(*arguments)
            assert prints(output, expected), output

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            ("10 --risk 1/4", "Take ε = 1.098 per report, or for all reports of a device together."),
            ("10 --risk 1/4 --reports 50000", "No ε keeps this risk in 50,000 reports"),
            ("10 --risk 0.10001", "No ε keeps this risk: it would be below 0.001."),
            ("2 --epsilon 2 --reports 3", "thinks at most 89 in 100 after one report, and at most 998"),
        ],
    )
    def test_answer_is_first_sentence(self, hushmote, arguments: str, says: str):
        text = hushmote(*arguments.split())
        assert says in " ".join(text.split("\n\n")[0].split())
        if "No ε" not in says:
            assert "can raise someone's confidence" in " ".join(text.split("\n\n")[0].split())
            assert " ".join(ask(hushmote, *arguments.split())["answer"]) in " ".join(text.split())

    @pytest.mark.slow
    def test_writes_plots(self, hushmote, tmp_path: Path):
        hushmote("64", "--risk", "1/8", "--plot", "local.png")
        assert "wrote loss.svg" in hushmote("8", "--epsilon", "4", "--plot", "loss.svg")
        assert "<svg" in (tmp_path / "loss.svg").read_text("utf-8")
        assert (tmp_path / "local.png").read_bytes().startswith(b"\x89PNG")


class TestRefusals:
    @pytest.mark.slow
    @refusals(
        ("8 --epsilon -1", "above 0, not -1"),
        ("8 --epsilon 0", "above 0, not 0"),
        ("8 --epsilon 20", "from 0.001 to 16"),
        ("8 --risk 1", "between 0 and 1"),
        ("8 --risk -0.2", "between 0 and 1"),
        ("8 --risk high", "0.25 or 1/4, not high"),
        ("8 --risk 0.1", "value 0: before any report the belief is 0.125 already"),
        ("8 --risk x1", "above 1"),
        ("8 --risk 1/2 --epsilon 2", "give either"),
        ("8", "give --risk"),
        ("1 --risk 1/2", "2 to 16,777,216 values"),
        ("0 --risk 1/2", "2 to 16,777,216 values"),
        ("3:rr --risk 1/2", "rr is for 2 values"),
        ("3:gr --risk 1/2", "no mechanism gr: there are auto, rr, grr"),
        ("3 --prior 0.5,0.4,0.3 --risk 0.9", "sums to 1.2, not 1"),
        ("3 --prior 0.5,0.8,-0.3 --risk 0.9", "0 or more"),
        ("3 --prior 0.5,0.5 --risk 0.9", "2 numbers, there are 3"),
        ("3 --prior normal:1:1 --risk 0.9", "give its file"),
        ("3 --about 2:9 --risk 0.9", "values are 0 to 2"),
        ("3 --risk 0.9 --reports 0", "whole number from 1"),
        ("3 --risk 0.9 --delta 1", "delta"),
        ("3 --epsilon 1 --plot x.txt", "x.txt must end in .png or .pdf or .svg"),
        ("3 --epsilon 1 --histogram 0", "reports in the histogram"),
        ("3 --epsilon 1 --histogram 2 --reports 3", "does not hold 3 of one"),
        ("", "give an experiment's file, or a number of values"),
        ("3 --prior room@home --risk 1/2", "leave the number of values out"),
        command="epsilon",
    )
    def test_is_one_line(self, refusal: Refusal, tmp_path: Path):
        refusal.check(tmp_path)
