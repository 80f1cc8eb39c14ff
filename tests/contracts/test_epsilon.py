"""Prove every mechanism's privacy on a grid of ε, with exact probabilities from every branch of its code.

The contract (test_mechanism_contract.py) proves the mechanisms' own examples. This module adds more shapes,
including missing readings: `make test` proves them at both ends and in the middle of the grid, `make long` on
the whole grid. tests/device/test_privacy.py tests calls of report().
"""

from fractions import Fraction
from typing import Any

import pytest
from enumeration import assert_private, distribution, exp_below
from epsilon_shapes import EPSILONS, SHAPES, SLOW_SHAPES
from experiments import experiment_json

from hushmote.device.ldp_client import ONE, Experiment

# Slow shapes that only `make long` proves.
LARGEST = ("olh-64-7", "olh-64-11", "sw-64-31", "prefix-two-alike")


def grid(*sooner: int) -> list[Any]:
    """Return every ε to prove; `make test` uses only those in `sooner`."""
    return [pytest.param(e, marks=[pytest.mark.long] * (e not in sooner)) for e in EPSILONS]


def thresholds(experiment: Any) -> list[int]:
    levels = experiment.levels or [getattr(experiment, "points", experiment)]
    return [level.threshold for level in levels]


def parse(shape: dict[str, Any], epsilon: int) -> Any:
    return Experiment.parse(experiment_json(epsilon=epsilon, **shape, budget={"rule": "unlimited"}))


def check(shape: dict[str, Any], epsilon: int) -> None:
    experiment = parse(shape, epsilon)
    indices = range(experiment.domain)
    exact = {i: distribution(lambda rng, i=i: experiment.randomize(i, rng)) for i in (None, *indices)}
    ratio = assert_private(exact, epsilon)
    # The ratio is below e^ε but close to it, since it loses only the rounding of a threshold by less than 1.
    lost = max(Fraction(1, t) + Fraction(1, ONE - t) for t in thresholds(experiment))
    assert ratio > exp_below(epsilon) * (1 - lost)
    # A missing reading is a uniformly drawn index.
    for code, chance in exact[None].items():
        assert type(code) is int
        assert 0 <= code < experiment.code_count
        assert chance * experiment.domain == sum(exact[i][code] for i in indices)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", grid(1_000, 1_000_000, 8_000_000))
@pytest.mark.parametrize("name", SHAPES)
def test_likelihood_ratio_of_codes_is_at_most_e_to_epsilon(name, epsilon):
    check(SHAPES[name], epsilon)


@pytest.mark.parametrize("name", ["rr", "grr-3", "grr-64"])
def test_false_value_drawn_from_all_cells_fails_check(name):
    experiment = parse(SHAPES[name], 1_000_000)
    (level,) = experiment.levels

    def broken(index, rng):
        return index if rng.bernoulli(level.threshold) else rng.below(level.g)

    exact = {i: distribution(lambda rng, i=i: broken(i, rng)) for i in range(experiment.domain)}
    with pytest.raises(AssertionError, match=r"^ratio .* is above e\^"):
        assert_private(exact, 1_000_000)


@pytest.mark.parametrize("name", ["grr-3", "sw-5-2"])
def test_threshold_one_unit_too_high_fails_check(name):
    """With 1 more in 2^30 it fails, so the bound is as tight as integers allow."""
    experiment = parse(SHAPES[name], 1_000_000)
    level = experiment.levels[0] if experiment.levels else experiment
    level.threshold += 1
    exact = {i: distribution(lambda rng, i=i: experiment.randomize(i, rng)) for i in range(experiment.domain)}
    with pytest.raises(AssertionError, match=r"^ratio .* is above e\^"):
        assert_private(exact, 1_000_000)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", grid(2_000_000))
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name in LARGEST)) for name in SLOW_SHAPES]
)
def test_ratio_for_many_seeds_or_many_values(name, epsilon):
    check(SLOW_SHAPES[name], epsilon)
