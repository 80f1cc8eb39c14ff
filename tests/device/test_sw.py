"""The square wave: every branch of the shipped code, exact probabilities, no reading included."""

from fractions import Fraction
from types import SimpleNamespace
from typing import Any, cast

import pytest
from enumeration import assert_private, distribution, exp_below, worst_ratio
from experiments import number_json

from hushmote.device.ldp_client import ONE, Experiment, ExperimentRefused, truth_threshold

EPSILONS = (1_000, 100_000, 500_000, 1_000_000, 2_000_000, 4_000_000, 8_000_000)
SHAPES = ((2, 0), (2, 5), (3, 1), (5, 0), (5, 2), (9, 9), (16, 4), (33, 7))


def square_wave(bins: int, reach: int, epsilon: int, **more: Any) -> Experiment:
    return Experiment.parse(number_json(bins, mechanism="sw", reach=reach, epsilon=epsilon, **more))


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize(("bins", "reach"), SHAPES)
def test_no_code_tells_more_than_epsilon_of_a_reading_or_of_none(bins: int, reach: int, epsilon: int):
    experiment = square_wave(bins, reach, epsilon)
    chances: dict[int | None, Any] = {
        i: distribution(lambda rng, i=i: experiment.randomize(i, rng)) for i in range(bins)
    }
    if bins <= 9:
        chances[None] = distribution(lambda rng: experiment.randomize(None, rng))
    worst = assert_private(chances, epsilon)
    # All of epsilon is used but for what rounding the threshold down by less than 1 takes from the odds.
    inside = truth_threshold(epsilon, bins, 2 * reach + 1)
    assert worst > exp_below(epsilon) * (1 - Fraction(1, inside) - Fraction(1, ONE - inside))


@pytest.mark.parametrize("epsilon", [500_000, 2_000_000])
@pytest.mark.parametrize(("bins", "reach"), [(64, 15), (64, 31)])
def test_the_designs_of_64_values_are_private(bins: int, reach: int, epsilon: int):
    experiment = square_wave(bins, reach, epsilon)
    ends = (0, 1, bins // 2, bins - 1)
    chances = {i: distribution(lambda rng, i=i: experiment.randomize(i, rng)) for i in ends}
    assert_private(chances, epsilon)


def test_codes_of_a_value_are_likelier_around_it():
    experiment = square_wave(5, 1, 1_000_000)
    threshold = truth_threshold(1_000_000, 5, 3)
    assert experiment.code_count == 7
    for index in range(5):
        chances = distribution(lambda rng, i=index: experiment.randomize(i, rng))
        inside = Fraction(threshold, 3 * ONE)
        outside = Fraction(ONE - threshold, 4 * ONE)
        assert chances == {c: inside if index <= c <= index + 2 else outside for c in range(7)}


def test_one_threshold_is_all_that_privacy_rests_on():
    """One more in 2^30 and e^epsilon would not hold: the bound is met as closely as integers allow."""
    experiment = cast(Any, square_wave(5, 1, 1_000_000))
    experiment.threshold += 1
    chances = {i: distribution(lambda rng, i=i: experiment.randomize(i, rng)) for i in range(5)}
    worst = worst_ratio(chances)
    assert worst is not None
    assert worst > exp_below(1_000_000)


@pytest.mark.parametrize("index", [0, 3, 6])
@pytest.mark.parametrize("truthful", [True, False])
def test_the_same_is_drawn_whatever_the_reading_and_the_outcome(index: int, truthful: bool):
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
        ({"type": "choice", "labels": ["a"], "low": None, "high": None, "bins": None}, "sw is for a number"),
        ({"bins": 12_000_000, "epsilon": 1_000}, "epsilon is too small for so many codes"),
    ],
)
def test_what_does_not_fit_is_refused(fields: dict[str, Any], why: str):
    given = {"mechanism": "sw", "reach": 1, "epsilon": 1_000_000} | fields
    with pytest.raises(ExperimentRefused, match=why):
        Experiment.parse(number_json(**{"bins": 4} | given))
