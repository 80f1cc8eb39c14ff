"""What every mechanism of the registry must keep, on the small experiments that it names itself.

A new mechanism is tested by its line in the registry, one of one's own by `hushmote check-mechanism`; both
run simulator/contract. Each statistical check has a chance of a false alarm of 1e-11 for each experiment, or
a few times that where it says so.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from micropython import find_runtime

from hushmote.device.ldp_client import Experiment
from hushmote.server.mechanisms import MECHANISMS
from hushmote.simulator.contract import check, runtimes
from hushmote.simulator.contract.cases import EPSILONS, FURTHER_EPSILONS, Case, cases, further
from hushmote.simulator.contract.channel import Unasked

VECTORS: dict[str, list[Any]] = {"experiments": [], "codes": []}
for _name in ("vectors.json", "vectors_further.json"):
    for _section, _cases in json.loads(
        (Path(__file__).parents[1] / _name).read_text(encoding="ascii")
    ).items():
        VECTORS.setdefault(_section, []).extend(_cases)
CASES = {word: cases(word) for word in MECHANISMS}
each_mechanism = pytest.mark.parametrize("word", MECHANISMS)


def names(slow: bool) -> list[str]:
    return [name for name in check.PROPERTIES if (name == "covered") is slow]


def looked_at(name: str, case: Case) -> None:
    try:
        check.PROPERTIES[name](case)
    except Unasked as e:
        pytest.skip(str(e))


@pytest.mark.parametrize("name", names(slow=False))
@pytest.mark.parametrize("case", [case for cases in CASES.values() for case in cases], ids=str)
def test_each_property_holds(name: str, case: Case):
    looked_at(name, case)


@pytest.mark.parametrize("name", names(slow=True))
@pytest.mark.parametrize(
    "case", [case for cases in CASES.values() for case in cases[len(EPSILONS) - 1 :: len(EPSILONS)]], ids=str
)
def test_each_slow_property_holds(name: str, case: Case):
    looked_at(name, case)


@each_mechanism
def test_every_entry_names_its_experiments_and_answers_something(word: str):
    assert len(CASES[word]) >= 2
    for case in CASES[word]:
        assert case.mechanism.answers
        assert case.mechanism.words().startswith(word)


@pytest.mark.long
@each_mechanism
def test_private_at_every_further_epsilon(word: str):
    more = further(word)
    assert {case.experiment.epsilon for case in more} == set(FURTHER_EPSILONS)
    found = check.proven(CASES[word], more)
    assert found.holds, found.words
    assert "; at ε 0.001, 0.5, 2, 4, 8 and 16, " in found.words


@pytest.mark.micropython
@each_mechanism
def test_micropython_draws_the_same_codes(word: str):
    runtime = runtimes.Runtime("MicroPython", find_runtime())
    found = check.compare(word, CASES[word], runtime)
    assert found.holds, found.words


@each_mechanism
def test_vectors_hold_codes_of_it_that_the_board_draws(word: str):
    by_key = {
        case["sha256"][:8]: Experiment.parse(case["payload"].encode()) for case in VECTORS["experiments"]
    }
    cases = [case for case in VECTORS["codes"] if by_key[case["experiment"]].mechanism == word]
    assert len(cases) >= 4
    for case in cases:
        experiment = by_key[case["experiment"]]
        script = iter(case["draws"])
        scripted = SimpleNamespace(
            below=lambda n, script=script: _next(script, "below", n),
            bernoulli=lambda threshold, script=script: bool(_next(script, "bernoulli", threshold)),
        )
        assert experiment.randomize(case["index"], scripted) == case["code"]
        assert not list(script)


def _next(script: Iterator[list[Any]], primitive: str, argument: int) -> int:
    name, number, outcome = next(script)
    assert (name, number) == (primitive, argument)
    return outcome
