"""Fake devices: their gain, its limits, and their detection."""

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import DOOR, hushmote
from designs import choice, number, number_with_mechanism

from hushmote.device.ldp_client import Experiment
from hushmote.server.estimate import estimate
from hushmote.server.mechanisms.channel import level_channel
from hushmote.server.store import Store
from hushmote.simulator import attack, vectorised
from hushmote.simulator.attack import AttackError

TABLE = {
    "rr, 1": number_with_mechanism("rr", 2, 1, high=64_000),
    "grr, 1": number_with_mechanism("grr", 64, 1, high=64_000),
    "grr, 4": number_with_mechanism("grr", 64, 4, high=64_000),
    "olh, 1": number_with_mechanism("olh", 64, 1, g=3, high=64_000),
    "olh, 4": number_with_mechanism("olh", 64, 4, g=53, high=64_000),
    "hh, 1": number(64, 1),
    "hh, 4": number(64, 4),
}
"""The experiments of the page's table, each a number from 0 to 64."""


class TestGain:
    @pytest.mark.parametrize("kind", ["random:0.1", "promote:6.4:0.1", "shift:0:32:0.1", "flood:6.4:0.1"])
    @pytest.mark.parametrize("experiment", [*TABLE.values(), number(300, 3)], ids=[*TABLE, "hh, 3"])
    def test_matches_theory(self, experiment: Experiment, kind: str):
        """Forge a tenth of 200,000 reports; the gain is within 6.5 standard errors (1e-10 each).

        The error covers forged and honest reports; forged reports vary no more than honest ones.
        """
        rng = np.random.default_rng(1)
        people = rng.multinomial(180_000, np.full(experiment.domain, 1 / experiment.domain))
        truth = people / people.sum()
        honest = vectorised.histogram(experiment, people, rng)
        plan = attack.parse(experiment, kind)
        outcome, counts = attack.run(experiment, plan, 20_000, 1, honest, truth, rng)
        assert outcome.reports == counts.sum() == 200_000
        assert outcome.share == 0.1
        weights = plan.weights(experiment)
        if plan.kind == "random":
            weights[np.argmax(truth)] = 1
        error = estimate(experiment, counts).linear(weights).stderr
        assert abs(outcome.attacked - outcome.truth - outcome.theory) < 6.5 * error

    def test_promoted_value_matches_the_paper(self):
        """Compare with Cao, Jia and Gong 2021: share * ((1 - q) / (p - q) - f), direct and hashed.

        If the domain is not a power of g, the gain is slightly smaller because the sum of all shares is
        known.
        """
        powers = [number_with_mechanism("olh", 81, 1, g=3), number_with_mechanism("olh", 49, 2, g=7)]
        flat = [experiment for experiment in TABLE.values() if experiment.mechanism != "hh"]
        for experiment in flat + powers:
            truth = np.full(experiment.domain, 1 / experiment.domain)
            plan = attack.parse(experiment, "promote:0.1:0.1")
            channel = level_channel(experiment.levels[0])
            paper = 0.05 * ((1 - channel.q) / (channel.p - channel.q) - truth[0])
            gain = attack.gain(experiment, plan, 0.05, truth, plan.weights(experiment))
            if experiment.mechanism == "olh" and experiment not in powers:
                assert 0.98 * paper < gain < paper
            else:
                assert gain == pytest.approx(paper, rel=1e-9)

    def test_is_largest_for_the_sent_codes(self):
        experiment = number_with_mechanism("olh", 64, 1, g=3)
        truth = np.full(64, 1 / 64)
        plan = attack.parse(experiment, "shift:0.2:0.5:0.1")
        best = attack.gain(experiment, plan, 0.05, truth, plan.weights(experiment))
        rng = np.random.default_rng(1)
        honest = np.zeros(experiment.code_count, int)
        honest[0] = 2
        for _ in range(50):
            seeds = rng.multinomial(10_000, np.full(80, 1 / 80))
            cells = rng.integers(0, 3, 80)
            counts = np.zeros((80, 3), int)
            counts[np.arange(80), cells] = seeds
            value = estimate(experiment, counts.reshape(-1)).frequencies @ plan.weights(experiment)
            assert 0.05 * (value - plan.weights(experiment) @ truth) < best

    def test_is_limited_by_each_devices_cap(self):
        fields = {"budget": {"rule": "sum", "cap": 3_000_000}, "every": 10}
        experiment = number_with_mechanism("grr", 16, 1, **fields)
        honest = np.full(16, 100)
        plan = attack.parse(experiment, "promote:0.1:0.1")
        for calls, reports in ((2, 2), (3, 3), (1000, 3)):
            outcome, _ = attack.run(
                experiment, plan, 10, calls, honest, np.full(16, 1 / 16), np.random.default_rng(1)
            )
            assert outcome.forged == 10 * reports
            assert (outcome.uncapped > outcome.theory) == (calls > 3)


class TestSpecification:
    def test_rejects_malformed_text(self):
        temperature, mode = number_with_mechanism("grr", 16, 1), choice(["a", "b"], 1)
        for experiment, text, words in [
            (temperature, "bribe", "an attack must be random:SHARE, promote:VALUE:SHARE"),
            (temperature, "promote", "not promote"),
            (temperature, "promote:0.1", "not promote:0.1"),
            (temperature, "random:0.1:0.1", "not random:0.1:0.1"),
            (temperature, "random:1", "above 0 and below 1, not 1"),
            (temperature, "random:nan", "above 0 and below 1, not nan"),
            (temperature, "promote:warm:0.1", "a reading such as 21.5, not warm"),
            (temperature, "promote:nan:0.1", "must be finite"),
            (temperature, "shift:9:0.1", "a range must be low:high"),
            (mode, "flood:c:0.1", "mode has no value c; it has a, b, other"),
        ]:
            with pytest.raises(AttackError, match=words):
                attack.parse(experiment, text)
        assert attack.parse(mode, "promote:b:0.1").low == 1
        assert attack.parse(temperature, "shift:0.25:0.5:0.1").target == "0.25 to 0.5"


class TestPage:
    @pytest.mark.parametrize("name", TABLE)
    def test_matches_theory_and_the_checks(self, name: str):
        """Draw a fleet of 100,000 reports for each attack; detection is wrong with chance below 1e-9.

        Shifts are not tested for detection because some come close to the alarm threshold.
        """
        experiment, rng = TABLE[name], np.random.default_rng(2)
        page = (Path(__file__).parents[2] / "docs" / "threat-model.md").read_text(encoding="utf-8")
        row = next(line for line in page.splitlines() if line.startswith(f"| {name} |"))
        _, worth, *cells = (cell.strip() for cell in row.strip("|").split("|"))
        channel = level_channel(experiment.levels[-1])
        assert float(worth) == pytest.approx((1 - channel.q) / (channel.p - channel.q), abs=0.006)
        people = rng.multinomial(95_000, np.full(experiment.domain, 1 / experiment.domain))
        truth = np.full(experiment.domain, 1 / experiment.domain)
        honest = vectorised.histogram(experiment, people, rng)
        attacks = ("promote:20", "shift:16:32", "flood:20", "random")
        if experiment.domain == 2:
            attacks = ("promote:40", "shift:32:64", "flood:40", "random")
        for text, cell in zip(attacks, cells, strict=True):
            plan = attack.parse(experiment, f"{text}:0.05")
            outcome, _ = attack.run(experiment, plan, 5000, 1, honest, truth, rng)
            if text != "random":  # its target is one of several equally common values
                theory = float(cell[cell.index("(") + 1 : cell.index(")")])
                assert 100 * outcome.theory == pytest.approx(theory, abs=0.02)
            if not text.startswith("shift"):
                assert outcome.plausibility.implausible == ("**seen**" in cell)


class TestCommands:
    @pytest.mark.slow
    def test_simulate_shows_attack_and_honest_estimate(self, tmp_path: Path):
        (tmp_path / "door.toml").write_text(DOOR)
        base = ("simulate", "door.toml", "--population", "weights:7:3", "--calls", "1", "--seed", "1")
        forge = (*base, "--attack", "promote:yes:0.1")
        result = json.loads(hushmote(*forge, "--json", cwd=tmp_path))["attack"]
        # 0.1 * ((1 - q) / (p - q) - 0.3) at ε = 2; the true share differs from 0.3 by 0.0015.
        assert result["theory"] == pytest.approx(0.1 * (1.1565 - 0.3), abs=0.001)
        assert (result["target"], result["forged"], result["reports"]) == ("yes", 10_000, 100_000)
        assert not result["plausibility"]["implausible"]
        text = hushmote(*forge, cwd=tmp_path)
        assert "10,000 fake devices sent 10,000 of 100,000 reports (10.00%)" in text
        assert max(map(len, text.splitlines())) <= 80
        for more, words in [
            (("--attack", "random:1e-6"), "a share of 1e-06 of 100,000 devices rounds to 0"),
            (("--attack", "random:0.1", "--faithful"), "use --attack without --faithful"),
        ]:
            assert words in hushmote(*base, *more, cwd=tmp_path, expect=1)

    @pytest.mark.slow
    def test_status_warns_of_implausible_histogram(self, tmp_path: Path):
        (tmp_path / "door.toml").write_text(DOOR)
        hushmote("experiment", "add", "door.toml", "--fleet", "cold", "--open", cwd=tmp_path)
        clean = json.loads(hushmote("status", "--json", cwd=tmp_path))["experiments"][0]["plausibility"]
        assert clean["words"] == "0 reports are too few for a check; 100 are needed"
        with Store("sqlite:///" + str(tmp_path / "hushmote.sqlite")) as store:
            version = store.experiments()[0]
            with store.ingest() as transaction:
                transaction.write({}, {(version.id, "all", 0, 1): 400}, {})
        result = json.loads(hushmote("status", "--json", cwd=tmp_path))["experiments"][0]["plausibility"]
        assert result["implausible"]
        assert result["words"][1:] in " ".join(hushmote("status", cwd=tmp_path).split())
        assert "implausible: door_open" in hushmote("status", "--verbose", cwd=tmp_path)
