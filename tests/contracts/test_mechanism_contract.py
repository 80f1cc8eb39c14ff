"""The contract of every registered mechanism, on the small experiments that it provides as examples.

A registered mechanism is tested here, a custom one by `hushmote check-mechanism`; both run
simulator/contract. Each statistical check has a false-alarm probability of 1e-11 per experiment, or a few
times that where stated. Fleet simulations use each mechanism's first experiment, and all of them in `make
long`; the comparison of runtimes draws codes for three cases of each mechanism.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from micropython import find_runtime

from hushmote.device.ldp_client import Experiment
from hushmote.server.mechanisms import MECHANISMS
from hushmote.simulator.contract import check, runtimes
from hushmote.simulator.contract.cases import EPSILONS, FURTHER_EPSILONS, Case, cases, further_cases
from hushmote.simulator.contract.channel import NotApplicable

VECTORS: dict[str, list[Any]] = {"experiments": [], "codes": []}
for _name in ("vectors.json", "vectors_further.json"):
    for _section, _cases in json.loads(
        (Path(__file__).parents[1] / _name).read_text(encoding="utf-8")
    ).items():
        VECTORS.setdefault(_section, []).extend(_cases)
CASES = {word: cases(word) for word in MECHANISMS}
each_mechanism = pytest.mark.parametrize("word", MECHANISMS)
SLOW_CASES = [
    pytest.param(case, marks=[pytest.mark.long] * (number > 0), id=str(case))
    for found in CASES.values()
    for number, case in enumerate(found[len(EPSILONS) - 1 :: len(EPSILONS)])
]


def names(slow: bool) -> list[str]:
    return [name for name in check.PROPERTIES if (name == "covered") is slow]


def looked_at(name: str, case: Case) -> None:
    try:
        check.PROPERTIES[name](case)
    except NotApplicable as e:
        pytest.skip(str(e))


@pytest.mark.slow
@pytest.mark.parametrize("name", names(slow=False))
@pytest.mark.parametrize("case", [case for cases in CASES.values() for case in cases], ids=str)
def test_each_property_holds(name: str, case: Case):
    looked_at(name, case)


@pytest.mark.slow
@pytest.mark.parametrize("name", names(slow=True))
@pytest.mark.parametrize("case", SLOW_CASES)
def test_each_slow_property_holds(name: str, case: Case):
    looked_at(name, case)


@each_mechanism
def test_entry_names_experiments_and_answers(word: str):
    assert len(CASES[word]) >= 2
    for case in CASES[word]:
        assert case.mechanism.answers
        assert case.mechanism.words().startswith(word)


@pytest.mark.long
@each_mechanism
def test_is_private_at_every_further_epsilon(word: str):
    more = further_cases(word)
    assert {case.experiment.epsilon for case in more} == set(FURTHER_EPSILONS)
    result = check.check_privacy(CASES[word], more)
    assert result.holds, result.words
    assert "; at ε 0.001, 0.5, 2, 4, 8 and 16, " in result.words


@pytest.mark.micropython
@each_mechanism
def test_micropython_draws_same_codes(word: str):
    runtime = runtimes.Runtime("MicroPython", find_runtime())
    result = check.compare_runtimes(word, CASES[word][:3], runtime)
    assert result.holds, result.words


@each_mechanism
def test_vectors_include_its_codes(word: str):
    """tests/device/test_vectors.py tests that boards draw these codes."""
    mechanisms = {
        case["sha256"][:8]: Experiment.parse(case["payload"].encode()).mechanism
        for case in VECTORS["experiments"]
    }
    assert [mechanisms[case["experiment"]] for case in VECTORS["codes"]].count(word) >= 4
