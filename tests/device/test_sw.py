"""The square wave on the board: its codes' exact probabilities, its draws, and invalid parameters.

tests/contracts/test_epsilon.py proves its privacy at every ε.
"""

from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest
from enumeration import distribution
from experiments import number_json

from hushmote.device.ldp_client import ONE, Experiment, ExperimentRefused, truth_threshold


def square_wave(bins: int, reach: int, epsilon: int, **more: Any) -> Experiment:
    return Experiment.parse(number_json(bins, mechanism="sw", reach=reach, epsilon=epsilon, **more))


def test_codes_near_value_are_likelier():
    experiment = square_wave(5, 1, 1_000_000)
    threshold = truth_threshold(1_000_000, 5, 3)
    assert experiment.code_count == 7
    for index in range(5):
        chances = distribution(lambda rng, i=index: experiment.randomize(i, rng))
        inside = Fraction(threshold, 3 * ONE)
        outside = Fraction(ONE - threshold, 4 * ONE)
        assert chances == {c: inside if index <= c <= index + 2 else outside for c in range(7)}


@pytest.mark.parametrize("index", [0, 3, 6])
@pytest.mark.parametrize("truthful", [True, False])
def test_draws_do_not_depend_on_reading_or_outcome(index: int, truthful: bool):
    asked: list[tuple[str, int]] = []
    experiment = square_wave(7, 2, 1_000_000)
    rng = SimpleNamespace(
        bernoulli=lambda threshold: asked.append(("bernoulli", threshold)) or truthful,
        below=lambda n: asked.append(("below", n)) or n - 1,
    )
    code = experiment.randomize(index, rng)
    assert asked == [("bernoulli", truth_threshold(1_000_000, 7, 5)), ("below", 5), ("below", 6)]
    assert code == (index + 4 if truthful else 10 if index < 6 else 5)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"reach": None}, "reach is missing"),
        ({"reach": -1}, "reach must be an integer from 0 to 8388608"),
        ({"reach": 1.0}, "reach must be an integer"),
        ({"reach": 1 << 23}, "16777216 codes"),
        ({"g": 2}, "unknown field g"),
        ({"missing": 1}, "sw does not support missing readings"),
        (
            {"type": "choice", "labels": ["a"], "low": None, "high": None, "bins": None},
            "sw supports only numbers",
        ),
        ({"bins": 12_000_000, "epsilon": 1_000}, "epsilon is too small for so many codes"),
    ],
    ids=[
        "no reach",
        "negative reach",
        "float reach",
        "too many codes",
        "unknown field",
        "missing readings",
        "choice",
        "epsilon too small",
    ],
)
def test_rejects_invalid_parameters(fields: dict[str, Any], why: str):
    given = {"mechanism": "sw", "reach": 1, "epsilon": 1_000_000} | fields
    with pytest.raises(ExperimentRefused, match=why):
        Experiment.parse(number_json(**{"bins": 4} | given))
