"""The privacy audit is exact if possible, keeps its confidence, and flags broken randomizers.

Draws come from the real randomizer with its real DRBG in a separate process. Broken randomizers are the
shipped file with one line replaced.
"""

import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command_line import hushmote
from custom_mechanisms import EXAMPLES
from enumeration import distribution, worst_ratio
from experiments import experiment_json
from refusals import fails
from runtimes_here import runtimes_here
from scipy.stats import binom, binomtest

from hushmote.cli.check_mechanism import example_payloads
from hushmote.fleet.audit import serial_port
from hushmote.fleet.audit.audit import (
    SILENCE,
    AuditError,
    AuditResult,
    channel,
    exact_epsilon,
    judge,
    learn_event,
    likelier_codes,
    lower_bound,
    subject,
)
from hushmote.fleet.audit.serial_port import Job
from hushmote.fleet.provisioning.board_runtimes import CLIENT, CPYTHON, Runtime, RuntimeFault
from hushmote.server.mechanisms import MECHANISMS, MechanismError
from hushmote.simulator.board.board import SoftwareBoard

FALSE_ALARM = 1e-10  # probability per finding
SHAPES = {word: example_payloads(word)[0] for word in MECHANISMS}


def audit(client: Path, *payload: bytes, whole=False, draws=6_000, runtime=CPYTHON) -> list[AuditResult]:
    subjects = [subject(p, whole) for p in payload]
    tallies = serial_port.draw(runtime, [Job(s, (draws // 2, draws // 2)) for s in subjects], client=client)
    return [judge(s, t.runtime, t.halves, FALSE_ALARM) for s, t in zip(subjects, tallies, strict=True)]


NUMBER = {"type": "number", "low": 0, "high": 64_000}
EXACT = [
    experiment_json(),
    experiment_json(type="choice", labels=["a", "b"], mechanism="grr", epsilon=2_000_000),
    experiment_json(**NUMBER, bins=10, mechanism="olh", g=3),
    experiment_json(**NUMBER, bins=16, mechanism="olh", g=5, epsilon=300_000),
    experiment_json(**NUMBER, bins=5, mechanism="hh", fanout=2, cells=[2, 2, 5], weights=[3, 0, 1]),
    experiment_json(**NUMBER, bins=27, mechanism="hh", fanout=5, cells=[2, 3, 7]),
]


class TestBound:
    @pytest.mark.parametrize(
        ("hits", "misses"), [(0, 0), (1, 0), (40, 7), (500, 500), (1000, 0), (1000, 1000)]
    )
    def test_is_clopper_pearson(self, hits, misses):
        alpha = 1e-4
        low = binomtest(hits, 1000).proportion_ci(1 - 2 * alpha, "exact").low
        high = binomtest(misses, 1000).proportion_ci(1 - 2 * alpha, "exact").high
        wanted = max(math.log(low / high), 0) if low else 0
        assert lower_bound(hits, misses, (1000, 1000), alpha) == pytest.approx(wanted, abs=1e-9)

    @pytest.mark.slow
    @pytest.mark.parametrize("name", ["grr", "olh"])
    def test_exceeds_truth_no_more_often_than_stated(self, name):
        """Run 1,000 audits of 300 draws at an error of 0.5; a false alarm has chance < 1e-9 (binomial)."""
        audited = subject(SHAPES[name], False)
        rng = np.random.default_rng(3)
        chances = [channel(audited.experiment, index) for index in audited.indices]

        def tally(chance, draws):
            counts = rng.multinomial(draws, chance / chance.sum())
            return {int(code): int(counts[code]) for code in np.flatnonzero(counts)}

        def half():
            return tally(chances[0], 150), tally(chances[1], 150)

        above = sum(judge(audited, "", (half(), half()), 0.5).lower > audited.nominal for _ in range(1000))
        assert above <= binom.isf(1e-9, 1000, 0.5)
        # Testing an event on the draws from which it was learned overstates ε, so this comparison can fail.
        if name == "olh":
            fooled = 0
            for _ in range(200):
                half_audit = half()
                event = learn_event(half_audit[0], half_audit[1], (150, 150), 0.0625)
                hits, misses = (sum(t.get(code, 0) for code in event) for t in half_audit)
                fooled += float(lower_bound(hits, misses, (150, 150), 0.0625)) > audited.nominal
            assert fooled > 150


BROKEN_CLIENTS = {
    "never lies": (
        "lie = not rng.bernoulli(self.threshold)",
        "lie = rng.bernoulli(self.threshold) and False",
        ("rr", "grr", "olh", "hh"),
    ),
    "lie from all cells": ("other = 1 + rng.below(g - 1)", "other = rng.below(g)", ("rr", "olh")),
    "threshold of another ε": (
        "self.threshold = truth_threshold(epsilon, g)",
        "self.threshold = truth_threshold(2 * epsilon, g)",
        ("rr", "grr", "olh", "hh"),
    ),
    "seed depends on the value": (
        "seed = 1 + rng.below(self.seeds)",
        "seed = 1 + (rng.below(self.seeds) // 2 * 2 + node % 2) % self.seeds",
        ("olh", "hh"),
    ),
    "level depends on the value": (
        "    level = pick(exp, rng)",
        "    level = exp.levels[-1] if index > 9 else pick(exp, rng)",
        ("hh",),
    ),
    "stuck generator": ("p = self._pool or self.generate(32)", "p = self._pool or bytes(range(32))", ("rr",)),
    "two bits lost": (
        "return self._bits() < threshold",
        "return self._bits() & 0x0FFFFFFF < threshold",
        ("rr", "grr", "olh", "hh"),
    ),
    "cell not hashed": (
        "                cell += node % g * (seed % g)",
        "                cell += node % g",
        ("olh",),
    ),
}


def broken_client(folder: Path, right: str, wrong: str) -> Path:
    text = CLIENT.read_text()
    assert text.count(right) == 1, right
    path = folder / "broken_client.py"
    path.write_text(text.replace(right, wrong))
    return path


class TestExactEvent:
    @pytest.mark.parametrize(
        "payload", EXACT, ids=["rr", "grr", "olh-10-3", "olh-16-5", "hh with weight 0", "hh"]
    )
    def test_channel_and_epsilon_match_enumerated_code(self, payload):
        experiment = subject(payload, False).experiment
        every = {
            i: distribution(lambda rng, i=i: experiment.randomize(i, rng)) for i in range(experiment.domain)
        }
        for index, codes in every.items():
            wanted = [float(codes.get(code, 0)) for code in range(experiment.code_count)]
            assert channel(experiment, index) == pytest.approx(wanted, rel=1e-12)
        ratio = worst_ratio(every)
        if ratio is None:  # codes of a level with weight 0 never occur
            drawn = [code for code in range(experiment.code_count) if every[0].get(code)]
            ratio = max(a[c] / b[c] for c in drawn for a in every.values() for b in every.values())
        assert exact_epsilon(experiment) == pytest.approx(math.log(ratio), abs=1e-12)
        assert experiment.epsilon / 1e6 - 1e-6 < exact_epsilon(experiment) < experiment.epsilon / 1e6

    @pytest.mark.parametrize("name", SHAPES)
    def test_excludes_codes_equally_likely_for_both_inputs(self, name):
        """The event must match the enumerated probabilities exactly; rounding must not add equal codes."""
        audited = subject(SHAPES[name], False)
        first, second = (
            distribution(lambda rng, i=i: audited.experiment.randomize(i, rng)) for i in audited.indices
        )
        wanted = {code for code in {*first, *second} if first.get(code, 0) > second.get(code, 0)}
        event = likelier_codes(*(channel(audited.experiment, index) for index in audited.indices))
        assert set(np.flatnonzero(event).tolist()) == wanted


class TestRuntimes:
    def test_audits_thinning_as_possibly_silent_draws(self):
        audited = subject(experiment_json(every=90), True)
        assert audited.experiment.every == 2
        draws = serial_port.draw(CPYTHON, [Job(audited, (200, 200))])[0].halves[0][0]
        assert 40 < draws[SILENCE] < 160  # binomial(200, 1/2) is outside with probability 2e-18
        assert subject(experiment_json(every=90), False).experiment.every == 1

    @pytest.mark.parametrize("whole", [False, True])
    def test_audits_an_experiment_with_an_open_group(self, whole):
        payload = experiment_json(group="firmware", groups=["1.0"], every=[1, 130])
        (result,) = audit(CLIENT, payload, whole=whole)
        assert result.private

    def test_failure_is_one_line(self, tmp_path):
        job = [Job(subject(SHAPES["rr"], False), (100, 100))]
        for argv, text in [
            (("/no/such/python",), "cannot run .*No such file"),
            (("true",), "did not finish: no reason given"),
            (("echo", "JOB"), "did not finish"),
            (("cat", "/dev/null"), "did not finish"),
        ]:
            with fails(text, RuntimeFault):
                serial_port.draw(Runtime("x", argv), job)
        client = broken_client(
            tmp_path, "        return code + (cell + lie * other) % g\n", "        return 1 // 0\n"
        )
        with fails("did not finish: ZeroDivisionError", RuntimeFault):
            serial_port.draw(CPYTHON, job, client=client)
        client = broken_client(tmp_path, "            if x < n:\n", "            if False:\n")
        with fails("has printed nothing for 2 s: it may hang", RuntimeFault):
            serial_port.draw(CPYTHON, job, client=client, silence_s=2)
        client = broken_client(tmp_path, "return 1 if value else 0", "return 0 if value else 1")
        with fails("fell into 1 and 0, not 0 and 1", AuditError):
            serial_port.draw(CPYTHON, job, client=client)

    def test_board_is_audited_with_its_installed_files(self, tmp_path):
        commands = {runtime.name: runtime.argv for runtime in runtimes_here()}
        if "unix32f" not in commands:
            pytest.skip("needs unix32f: python firmware_tests/runtimes.py --install")
        with SoftwareBoard(commands["unix32f"], tmp_path / "board.img") as board:
            with fails("has no ldp_client: run `hushmote flash", AuditError):
                serial_port.connect(board.port)
            client = broken_client(tmp_path, *BROKEN_CLIENTS["never lies"][:2])
            mpremote = (sys.executable, "-m", "mpremote", "connect", board.port)
            subprocess.run([*mpremote, "fs", "cp", str(client), ":ldp_client.py"], check=True)
            (finding,) = audit(CLIENT, SHAPES["rr"], draws=400, runtime=serial_port.connect(board.port))
            line = hushmote(
                "check-mechanism", "rr", "--port", board.port, "--samples", "400", expect=1, cwd=tmp_path
            )
        assert finding.runtime.startswith("board: micropython")
        assert not finding.private, "the file on the board was not the one that ran"
        assert "has ε of at least" in line


class TestVerdict:
    def test_passes_shipped_client(self):
        """Draw each input 4,000 times on CPython; each of 16 findings has a false alarm of 1e-10."""
        for whole in (False, True):
            for finding in audit(CLIENT, *SHAPES.values(), whole=whole, draws=4_000):
                assert finding.private, finding
                # Two million draws would show 0.99 of ε; these, with error 1e-10, only show that some loss
                # was found.
                assert finding.lower > 0.3 * finding.nominal
                assert finding.fit > 1e-12, finding

    @pytest.mark.parametrize("name", BROKEN_CLIENTS)
    def test_flags_broken_randomizer(self, name, tmp_path):
        """Draw each input 6,000 times; each flaw is over 10 standard errors away and missed with < 1e-9."""
        right, wrong, shapes = BROKEN_CLIENTS[name]
        for finding in audit(broken_client(tmp_path, right, wrong), *(SHAPES[s] for s in shapes)):
            if name == "cell not hashed":
                assert finding.private
            else:
                assert not finding.private, finding
            assert finding.fit < 1e-12, finding

    def test_flags_silence_that_depends_on_value(self, tmp_path):
        """Draw each input 2,000 times; one is silent half of the time, the other never."""
        right = "        if silent or self._remaining(exp) < 1"
        client = broken_client(
            tmp_path, right, right.replace("silent", "silent or index and self.rng.below(2)")
        )
        (finding,) = audit(client, SHAPES["rr"], whole=True, draws=2_000)
        assert not finding.private
        assert finding.lower_learned_event > finding.lower_exact_event
        (finding,) = audit(client, SHAPES["rr"], draws=2_000)
        assert finding.private

    def test_learned_event_shows_flaw_that_exact_event_misses(self):
        experiment = subject(SHAPES["olh"], False)
        even, odd = ({2 * i + j: 10 for i in range(60)} for j in (0, 1))
        finding = judge(experiment, "", ((even, odd), (even, odd)), FALSE_ALARM)
        assert finding.lower_learned_event > 3
        assert finding.lower_exact_event < finding.nominal

    def test_fails_channel_above_nominal_epsilon_whatever_the_counts(
        self,
        own_folder: Callable[[str, str], str],
    ):
        board = (EXAMPLES / "unary_board.py").read_text().replace("unary:Unary", "loud:Unary")
        assert board.count("truth_threshold(exp.epsilon, 2)") == 1
        own_folder("loud_board", board.replace("exp.epsilon, 2)", "exp.epsilon + 500_000, 2)"))
        own_folder("loud", (EXAMPLES / "unary.py").read_text().replace("unary_board", "loud_board"))
        payload = experiment_json(mechanism="loud:Unary", epsilon=2_000_000)
        audited = subject(payload, False)
        empty = ({0: 50, 1: 50}, {0: 50, 1: 50})
        finding = judge(audited, "cpython", (empty, empty), FALSE_ALARM)
        assert finding.lower == 0
        assert finding.exact == pytest.approx(2.5, abs=1e-8)
        assert not finding.private
        assert not finding.to_dict()["private"]

    def test_tolerates_float_rounding_and_fails_unbounded_ratio(self):
        finding = AuditResult(
            "x", "x", "randomize()", "cpython", (0, 1), 10, 2.0, 2.0 * (1 + 5e-13), 0.1, 0.1, 1.0
        )
        assert finding.private
        assert not replace(finding, exact=2.0 * (1 + 2e-12)).private
        for exact in (math.inf, math.nan):
            assert not replace(finding, exact=exact).private
            assert replace(finding, exact=exact).to_dict()["exact"] is None


class TestRefusal:
    def test_rejects_invalid_confidence(self, tmp_path: Path):
        line = hushmote("check-mechanism", "--port", "/dev/none", "--confidence", "1", cwd=tmp_path, expect=1)
        assert "confidence must be at least 0.5 and below 1" in line

    @pytest.mark.parametrize(
        ("right", "wrong", "text"),
        [
            (
                "return [np.array([[p, 1 - p], [1 - p, p]]) @ shares]",
                "return np.eye(2) @ shares",
                "law raises V",
            ),
            (
                "p = self.experiment.truth\n        return",
                "raise SystemExit(0)\n        return",
                "SystemExit: 0",
            ),
            (
                "    def law(",
                "    def __init__(self, e):\n        1 / 0\n\n    def law(",
                "constructor raises Z",
            ),
        ], ids=["law", "exit", "constructor"],
    )  # fmt: skip
    def test_reports_errors_of_custom_code_in_one_line(
        self, own_coin: Callable[..., str], right: str, wrong: str, text: str
    ):
        word = own_coin((right, wrong))
        audited = experiment_json(mechanism=word)
        empty = ({0: 50, 1: 50}, {0: 50, 1: 50})
        with pytest.raises(MechanismError, match=text) as caught:
            judge(subject(audited, False), "cpython", (empty, empty), FALSE_ALARM)
        assert str(caught.value).startswith(f"{word}: its ")
        assert "\n" not in str(caught.value)
