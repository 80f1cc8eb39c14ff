"""Plans for a mean: the worst population, a given population, and the best design."""

import math

import numpy as np
import pytest
from scipy import optimize

from hushmote.planning.devices import Z, best_design, half_width
from hushmote.planning.expected_error import Design, Question, bell_population, question_places, variance
from hushmote.planning.worst_population import climb, moments, worst_population
from hushmote.server.experiments.payload import experiment_over
from hushmote.server.mechanisms import Mechanism, mechanism_of
from hushmote.server.mechanisms.workload import positions

SHAPES = (
    {"mechanism": "grr"},
    {"mechanism": "olh", "g": 3},
    {"mechanism": "hh", "fanout": 4, "cells": [4, 3], "weights": [2, 1]},
)


def mechanism(fields: dict[str, object], epsilon: int = 1_000_000) -> Mechanism:
    return mechanism_of(experiment_over(16, epsilon, dict(fields)))


@pytest.mark.slow
@pytest.mark.parametrize("fields", SHAPES, ids=lambda f: f["mechanism"])
@pytest.mark.parametrize("epsilon", [500_000, 4_000_000])
def test_no_population_errs_more_than_the_worst(fields: dict[str, object], epsilon: int):
    randomizer = mechanism(fields, epsilon)
    statistic = positions(16)
    shares, worst = worst_population(randomizer, statistic)
    assert shares.min() >= 0
    assert shares.sum() == pytest.approx(1)
    assert float(randomizer.variances(statistic[:, None], shares)[0]) == pytest.approx(worst, rel=1e-6)
    best = optimize.minimize(
        lambda f: -randomizer.variances(statistic[:, None], f)[0],
        np.full(16, 1 / 16),
        bounds=[(0, 1)] * 16,
        constraints={"type": "eq", "fun": lambda f: f.sum() - 1},
        options={"maxiter": 500, "ftol": 1e-12},
        method="SLSQP",
    )
    assert worst == pytest.approx(-best.fun, rel=1e-5)


def test_worst_population_is_at_both_ends_for_direct_codes():
    shares, worst = worst_population(mechanism({"mechanism": "grr"}, 16_000_000), positions(16))
    assert shares[[0, -1]] == pytest.approx(0.5, abs=1e-3)
    assert worst == pytest.approx((15 / 32) ** 2, rel=1e-3)


def test_bound_on_the_worst_is_as_tight_at_any_scale():
    squares, means = moments(mechanism({"mechanism": "grr"}), positions(16))
    bound = climb(squares, means)[1]
    assert climb(1e-6 * squares, 1e-3 * means)[1] == pytest.approx(1e-6 * bound, rel=1e-6)


@pytest.mark.parametrize("spread", [0.0, 0.05, 0.2])
def test_bell_has_the_stated_deviation(spread: float):
    shares = bell_population(256, spread)
    x = positions(256)
    mean = shares @ x
    assert shares.sum() == pytest.approx(1)
    assert mean == pytest.approx(0.5, abs=1 / 256)
    assert math.sqrt(shares @ (x - mean) ** 2) == pytest.approx(spread, abs=0.01)


@pytest.mark.parametrize(
    "question", [Question("mean"), Question("mean", spread=0.1)], ids=["worst", "stated"]
)
def test_question_and_error_agree(question: Question):
    design = best_design(32, 1_000_000, question)
    about = question_places(design, question)
    statistic = about.statistic(32, 0)
    exact = design.mechanism.variances(statistic[:, None], about.population(32, 0))[0]
    assert variance(design, question) == pytest.approx(float(exact), rel=1e-6)
    assert half_width(400, design, question) == pytest.approx(Z * math.sqrt(exact / 400), rel=1e-6)
    if question.spread is None:
        assert variance(design, question) > variance(design, Question("mean", spread=0.1))


@pytest.mark.slow
def test_best_design_has_the_least_variance_of_the_mean():
    design = best_design(64, 1_000_000, Question("mean"))
    assert design.answers(Question("mean"))
    for other in (Question("range"), Question("quantile", 0.5), Question("frequency")):
        choice = best_design(64, 1_000_000, other).choice
        assert variance(design, Question("mean")) <= variance(Design(64, 1_000_000, choice), Question("mean"))
