"""The public contract test: correct mechanisms pass, and faults are reported in one line with numbers."""

import math
import re
import tracemalloc
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path

import pytest
from custom_mechanisms import COIN, EXAMPLES
from experiments import experiment_json
from micropython import find_runtime
from refusals import fails

from hushmote.device.ldp_client import DRBG, ONE, Experiment, truth_threshold
from hushmote.fleet.provisioning.board_runtimes import CLIENT, CPYTHON, run_script
from hushmote.server.estimate.shuffled import histogram_epsilon
from hushmote.server.mechanisms.custom import MechanismError
from hushmote.server.wire import experiments as wire
from hushmote.simulator.contract import check, runtimes
from hushmote.simulator.contract.cases import EPSILONS, ContractError, cases, further_cases
from hushmote.simulator.contract.exact import EnumerationError, distribution, log

Write = Callable[[str, str], str]
Coin = Callable[..., str]


FAULTS = {
    "one_too_many": ("truth_threshold(exp.epsilon, 2)", "truth_threshold(exp.epsilon, 2) + 1", "private"),
    "a_branch": (
        "return index if rng.bernoulli(exp.threshold) else 1 - index",
        "return (index if rng.bernoulli(exp.threshold) else 1 - index) if index else int(not rng.bernoulli("
        "exp.threshold) or not rng.below(1))",
        "draws",
    ),
    "silent": ("return index if", "return 0 if index == 0 else index if", "private"),
    "out_of_range": ("else 1 - index", "else 2", "codes"),
    "no_integer": ("return index if", "return float(index) if", "codes"),
    "never_drawn": ("exp.code_count = 2", "exp.code_count = 3", "codes"),
    "another_law": ("p = self.experiment.truth\n        return", "p = 0.7\n        return", "law"),
    "biased": ("shift = 0.0", "shift = 1e-6", "unbiased"),
    "another_draw": (">= self.experiment.truth", ">= 0.6", "simulated"),
    "no_bernoulli": ("rng.bernoulli(exp.threshold)", "rng.bernoulli(exp.truth)", "private"),
    "of_the_past": ("def randomize(exp, index, rng):", "PAST = [0]\ndef randomize(exp, index, rng):\n"
    "    PAST[0] += 1\n    rng.below(2 + (PAST[0] > 9))", "private"),
    "leaves_law": ("p = self.experiment.truth\n        return", "raise SystemExit(0)\n        return", "law"),
    "raises": ("inverse = np.linalg.inv", "inverse = np.linalg.nothing", "unbiased"),
    "narrow": (
        "    def draw(",
        "    def decode(self, counts):\n"
        "        decoded = super().decode(counts)\n"
        "        decoded.ranges = lambda low, high: type(decoded.frequency_spread)(\n"
        "            decoded.frequency_spread.variance[:1] / 9, np.zeros(1))\n"
        "        return decoded\n\n"
        "    def draw(",
        "covered",
    ),
}  # fmt: skip


class TestPrivacy:
    @pytest.mark.parametrize(("excess", "holds"), [(0, True), (1, False), (100_000, False)])
    def test_tiny_excess_over_epsilon_is_found(self, own_coin: Coin, excess: int, holds: bool):
        """Draw the truth with one Bernoulli trial or else with two small ones, in steps of 2**-58."""
        epsilon = EPSILONS[0]
        first = truth_threshold(epsilon, 2)
        with localcontext() as context:
            context.prec = 60
            odds = (Decimal(epsilon) / 1_000_000).exp()
            missing = odds / (1 + odds) * ONE - first
            last = math.floor(missing * ONE * ONE / (ONE - first) / 4) + excess
        coins = f"rng.bernoulli(exp.threshold) | rng.bernoulli(4) & rng.bernoulli({last})"
        (case, *_) = cases(own_coin(("rng.bernoulli(exp.threshold)", coins)))
        private = check.check_property("private", (case,))
        assert private.holds is holds
        chance = case.exact[1][1]
        over = float(log(chance / (1 - chance)) * 1_000_000 - epsilon) / 1e6
        assert abs(over) < 1e-12
        assert (over > 0) is not holds
        if not holds:
            assert f"e^(ε + {over:.2g})" in private.words

    @pytest.mark.parametrize(
        ("wrong", "words"),
        [
            ("exp.epsilon", "at most e^(ε - 7e-10); at ε 0.001, 0.5, 2, 4, 8 and 16, 1 example, 2 values"),
            ("exp.epsilon + 100 * (exp.epsilon == 8_000_000)", "2 values, ε = 8: code 0 is e^(ε + "),
            ("exp.epsilon + (exp.epsilon == 1_000)", "2 values, ε = 0.001: code 0 is e^(ε + "),
            ("exp.epsilon if exp.epsilon < 4_000_000 else 0", "; at ε 0.001, 0.5 and 2, 1 example, 2 values"),
        ],
    )
    def test_is_proved_at_small_and_large_epsilons(self, own_coin: Coin, wrong: str, words: str):
        word = own_coin(("(exp.epsilon, 2)", f"({wrong}, 2)"))
        assert check.check_property("private", cases(word)).holds
        result = check.check_privacy(cases(word), further_cases(word))
        assert result.holds is ("code" not in words)
        assert words in result.words
        assert result.to_dict()["words"] == result.words


class TestBlanket:
    @pytest.mark.parametrize(
        ("blanket", "holds"),
        [
            ("self.odds, lie, 2 * lie", True),
            ("1.1 * self.odds, lie / 1.1, 1.9 * lie", True),
            ("self.odds, 1.001 * lie, 2 * 1.001 * lie", False),
            ("self.odds, 0.9 * lie, 2 * lie", False),
            ("self.odds, 0.5, 1.0", False),
            ("self.odds - 0.1, 0.1, 0.2", False),
        ],
    )
    def test_may_be_understated_but_not_overstated(self, own_coin: Coin, blanket: str, holds: bool):
        """Randomized response's lies are the part that two readings share."""
        lines = ("    def blanket(self):", "    lie = 1 - self.experiment.truth", f"    return {blanket}")
        method = "\n    ".join(lines) + "\n\n    def draw("
        result = check.check_property("blanket", cases(own_coin(("    def draw(", method))))
        assert result.holds is holds, result.words

    def test_mechanisms_own_blanket_is_ignored(self, own_coin: Coin):
        """The histogram's ε follows from clones at the report's ε: 0.0685 for 26,000 reports at ε = 2."""
        method = "    odds = 1.5\n\n    def blanket(self):\n        return 7.4, 0.5, 1.0\n\n    def draw("
        case = cases(own_coin(("    def draw(", method)))[-1]
        assert histogram_epsilon(case.experiment, 26_000) == pytest.approx(0.0685, abs=2e-4)


class TestProperties:
    @pytest.mark.slow
    def test_hold_for_a_correct_mechanism(self, own_coin: Coin):
        result = cases(own_coin())
        assert [name for name in check.PROPERTIES if check.check_property(name, result).holds is False] == []

    @pytest.mark.micropython
    def test_hold_for_the_documented_example(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(wire, "FOLDERS", [str(EXAMPLES)])
        result = list(check.check("unary:Unary"))
        assert [finding.name for finding in result] == [*check.PROPERTIES, check.SAME_CODES]
        assert [finding.words for finding in result if finding.holds is not True] == []

    @pytest.mark.slow
    @pytest.mark.parametrize("name", FAULTS)
    def test_faults_are_found_and_named(self, own_coin: Coin, name: str):
        text, broken, property_ = FAULTS[name]
        result = check.check_property(property_, cases(own_coin((text, broken))))
        assert result.holds is False, result
        assert "\n" not in result.words
        assert "values, ε = " in result.words

    def test_too_many_codes_skip_checks_by_name(self, own_coin: Coin):
        """No array of that size is allocated, and two of 2**24 codes are drawn."""
        result = cases(own_coin(("exp.code_count = 2", "exp.code_count = 1 << 24")))
        tracemalloc.start()
        looked = {property_: check.check_property(property_, result) for property_ in check.PROPERTIES}
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 1 << 26
        assert looked["private"].holds
        assert looked["draws"].holds
        assert looked["codes"].words.endswith(
            "16,777,214 of 16,777,216 codes are never drawn, for example code 2"
        )
        left = [finding for key, finding in looked.items() if key not in ("private", "draws", "codes")]
        assert {finding.holds for finding in left} == {None}
        assert all(
            "not at 2 values, ε = 2: 16,777,216 codes are too many" in finding.words for finding in left
        )


class TestTake:
    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ("exp.epsilon *= 2", "example 1: mechanism .* its take changes epsilon from 500000 to 1000000"),
            ('fields["every"] = 7', "its take changes every from 1 to 7"),
            ('fields["budget"] = {"rule": "sum", "cap": 9}', "its take changes rule from unlimited to 'sum'"),
        ],
    )
    def test_is_rejected_if_it_changes_the_experiment(self, own_coin: Coin, change: str, words: str):
        word = own_coin(("    exp.code_count = 2", f"    {change}\n    exp.code_count = 2"))
        with pytest.raises(ContractError, match=words):
            cases(word)

    def test_exception_at_further_epsilon_is_not_a_refusal(self, own_coin: Coin):
        word = own_coin(("exp.code_count = 2", "exp.code_count = 2 // (exp.epsilon < 16_000_000)"))
        with pytest.raises(ContractError, match=r"example 1: mechanism .* its take raises ZeroDivisionError"):
            further_cases(word)


BOARD = """
import sys
try:
    from hushmote.device import ldp_client
except ImportError:
    import ldp_client

def take(exp, fields):
    exp.code_count = 2
    exp.threshold = ldp_client.truth_threshold(exp.epsilon, 2)
    exp.truth = exp.threshold / ldp_client.ONE

def randomize(exp, index, rng):
    swapped = sys.implementation.name == "micropython"
    return index ^ swapped ^ 1 ^ rng.bernoulli(exp.threshold)
"""


class TestRuntimes:
    @pytest.mark.micropython
    def test_different_codes_on_micropython_are_found(self, own_folder: Write, tmp_path: Path):
        runtime = runtimes.Runtime("MicroPython", find_runtime())
        for number, (board, text) in enumerate([
            (BOARD, "index 0: code 1 on CPython, 0 on MicroPython"),
            (BOARD.replace("swapped =", "swapped = False and"), ""),
            (BOARD.replace("    swapped =", "    import decimal\n    swapped ="), "finish: ImportError: no"),
        ]):  # fmt: skip
            name = f"two_files_{number}"
            own_folder(
                name + "_board", board + f'\nldp_client.MECHANISMS["{name}:Coin"] = (take, randomize)\n'
            )
            path = f"Path({str(tmp_path / (name + '_board.py'))!r})"
            word = own_folder(name, COIN.replace("Path(__file__)", path) + f"\nimport {name}_board\n")
            result = check.compare_runtimes(word, cases(word), runtime)
            assert result.holds is (not text), result.words
            assert text in result.words

    def test_draw_every_index_and_no_reading(self):
        payload = experiment_json(epsilon=1_000_000)
        call, script = f"codes({[payload]!r}, 30)", Path(runtimes.__file__).with_name("codes_board.py")
        rng, experiment = DRBG(bytes(32)), Experiment.parse(payload)
        expected = [experiment.randomize(index, rng) for index in (0, 1, None) * 10]
        assert [int(code) for _, code in run_script(CPYTHON, script, (CLIENT,), call)] == expected

    def test_are_not_compared_without_micropython(self, own_coin: Coin):
        word = own_coin()
        result = check.compare_runtimes(word, cases(word), None)
        assert (result.holds, result.name) == (None, check.SAME_CODES)
        assert "MicroPython is not installed" in result.words
        with pytest.raises(ContractError, match="/bin/true is not MicroPython"):
            list(check.check(word, "/bin/true"))


class TestErrors:
    def test_bad_input_is_one_line(self, own_folder: Write):
        for word, text in [
            ("foo", "unknown mechanism 'foo'; choose from rr"),
            (
                "no_such.module:Coin",
                "cannot find module no_such; run hushmote in the folder that contains it",
            ),
            (own_folder("no_class", "x = 1"), "no_class has no Coin"),
            (own_folder("no_type", "Coin = 3"), "no_type:Coin is not a mechanism: make it a subclass of"),
            (
                own_folder("raises_at_once", "1 / 0"),
                "cannot be imported: ZeroDivisionError: division by zero",
            ),
            (own_folder("leaves", "raise SystemExit(3)"), "leaves cannot be imported: SystemExit: 3"),
            (own_folder("no_syntax", "def"), "no_syntax cannot be imported: SyntaxError"),
            (own_folder("needs_more", "import nothing_of_it"), "imported: No module named 'nothing_of_it'"),
            (
                own_folder("half", COIN.replace("def law", "def raw")),
                "half:Coin is not a complete mechanism: it lacks law",
            ),
            (
                own_folder("unknown", COIN),
                'its board file must register it: ldp_client.MECHANISMS["unknown:Coin"] =',
            ),
        ]:
            with fails(re.escape(text), MechanismError):
                cases(word)

    def test_boards_must_accept_the_examples_fields(self, own_coin: Coin):
        original = 'examples = ({"type": "bool"},)'
        for examples, text in [
            ("", ":Coin has no examples: add the fields of small"),
            (
                'examples = ({"type": "bool"}, {"type": "number"})',
                "boards reject its example 2: low is missing",
            ),
            ("examples = (5,)", ":Coin has examples that are not a sequence of dictionaries: add"),
            ('examples = {"type": "bool"}', ":Coin has examples that are not a sequence of dict"),
            ('examples = ({"type": "bool", "g": {1}},)', "its example 1: Object of type set is not"),
        ]:
            word = own_coin((original, examples))
            with pytest.raises(ContractError, match=text):
                cases(word)

    def test_too_many_branches_are_rejected(self):
        with pytest.raises(EnumerationError, match="more than 100 branches"):
            distribution(lambda rng: rng.below(101), 100)
        assert distribution(lambda rng: rng.below(100), 100)[3] == Fraction(1, 100)
