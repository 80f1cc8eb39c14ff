"""Codes weighed by a pilot: unbiased whatever the pilot, the best there is where it is right."""

import numpy as np
import pytest
from designs import designed

from hushmote.device.ldp_client import Experiment
from hushmote.server.arrays import Floats
from hushmote.server.estimate.estimate import estimate
from hushmote.server.mechanisms import mechanism_of
from hushmote.server.mechanisms.decoded import Decoded
from hushmote.server.mechanisms.scored import Scored

GRR = designed("grr", 10, 1)
OLH = designed("olh", 20, 2, g=5)
SQUARE = designed("olh", 25, 1.5, g=5)
HH = designed("hh", 16, 4, fanout=4, cells=[4, 3])
UNEVEN = designed("hh", 50, 2, fanout=3, cells=[2, 5, 7, 7], weights=[1, 0, 2, 3])
each_experiment = pytest.mark.parametrize(
    "experiment", [GRR, OLH, SQUARE, HH, UNEVEN], ids=lambda e: f"{e.mechanism}{e.domain}"
)


def population(domain: int) -> Floats:
    shares = 1 / (1.0 + np.arange(domain)) ** 1.5
    shares[domain // 2] += 1
    return shares / shares.sum()


def histogram(experiment: Experiment, reports: int = 5000) -> np.ndarray:
    """Any fleet's."""
    rng = np.random.default_rng(1)
    chances = mechanism_of(experiment).code_law(population(experiment.domain))
    return rng.multinomial(reports, chances / chances.sum())


def scored(experiment: Experiment, pilot: Floats) -> Scored:
    mechanism = mechanism_of(experiment)
    return Scored(mechanism.decode(histogram(experiment)), pilot, mechanism.law(np.eye(experiment.domain)))


def expected(decoded: Decoded, statistic: Floats, shares: Floats) -> tuple[Floats, Floats]:
    """Mean and variance of statistics over every code that there is, each as likely as the law has it."""
    weights, mean = decoded.weights(statistic)
    variance = np.zeros_like(mean)
    for w, law, n in zip(weights, decoded.mechanism.law(shares), decoded.reports, strict=True):
        if w is not None:
            mean = mean + law @ w
            variance += (law @ w**2 - (law @ w) ** 2) / n
    return mean, variance


def least_variance(decoded: Decoded, statistic: Floats, shares: Floats) -> Floats:
    """Cramér's and Rao's bound where the sum of all shares is known."""
    domain = len(shares)
    information = np.zeros((domain, domain))
    laws = decoded.mechanism.law(np.eye(domain))
    for law, n in zip(laws, decoded.reports, strict=True):
        information += n * law.T @ np.diag(1 / (law @ shares)) @ law
    free = np.eye(domain)[:, 1:] - 1 / domain  # a basis of what sums to 0
    covariance = free @ np.linalg.solve(free.T @ information @ free, free.T)
    return np.einsum("in,ij,jn->n", statistic, covariance, statistic)


@each_experiment
def test_no_pilot_biases_it(experiment: Experiment):
    rng, domain = np.random.default_rng(2), experiment.domain
    statistic = np.column_stack([np.eye(domain), np.tri(domain), rng.normal(size=domain)])
    for pilot in (
        np.full(domain, 1 / domain),
        population(domain),
        rng.dirichlet(np.full(domain, 0.1) + 1e-3),
    ):
        shares = rng.dirichlet(np.ones(domain))
        found, _ = expected(scored(experiment, np.maximum(pilot, 1e-6)), statistic, shares)
        np.testing.assert_allclose(found, shares @ statistic, atol=1e-9)


@each_experiment
def test_the_right_pilot_reaches_the_bound_and_the_ordinary_weights_do_not_pass_it(experiment: Experiment):
    domain = experiment.domain
    shares, statistic = population(domain), np.column_stack([np.eye(domain), np.tri(domain)[:, 1:]])
    best = scored(experiment, shares)
    bound = least_variance(best, statistic, shares)
    np.testing.assert_allclose(expected(best, statistic, shares)[1], bound, rtol=1e-8)
    ordinary = Decoded(best.mechanism, best.counts)
    assert (expected(ordinary, statistic, shares)[1] >= bound * (1 - 1e-9)).all()
    even = scored(experiment, np.full(domain, 1 / domain))
    assert (expected(even, statistic, shares)[1] >= bound * (1 - 1e-9)).all()


@pytest.mark.parametrize("experiment", [OLH, HH, UNEVEN], ids=lambda e: f"{e.mechanism}{e.domain}")
def test_it_is_worth_it_where_a_value_is_common(experiment: Experiment):
    shares, every = population(experiment.domain), np.eye(experiment.domain)
    best = scored(experiment, shares)
    _, ordinary = expected(Decoded(best.mechanism, best.counts), every, shares)
    assert expected(best, every, shares)[1].sum() < 0.95 * ordinary.sum()


@pytest.mark.parametrize("experiment", [GRR, SQUARE], ids=lambda e: e.mechanism)
def test_even_shares_of_a_symmetric_design_give_the_ordinary_weights(experiment: Experiment):
    """In a domain of g**t values any two values are to a code as any other two."""
    ordinary = estimate(experiment, histogram(experiment))
    found = scored(experiment, np.full(experiment.domain, 1 / experiment.domain))
    np.testing.assert_allclose(found.frequencies, ordinary.frequencies, atol=1e-9)


def test_direct_answers_leave_no_choice_of_weights():
    ordinary = estimate(GRR, histogram(GRR))
    np.testing.assert_allclose(scored(GRR, population(10)).frequencies, ordinary.frequencies, atol=1e-9)


@each_experiment
def test_shares_sum_to_1_and_errors_are_the_weights_variance(experiment: Experiment):
    decoded = scored(experiment, population(experiment.domain))
    assert decoded.frequencies.sum() == pytest.approx(1, abs=1e-9)
    variance = np.zeros(experiment.domain)
    weights, _ = decoded.weights(np.eye(experiment.domain))
    for w, shares, n in zip(weights, decoded.shares, decoded.reports, strict=True):
        if w is not None and shares is not None:
            variance += (shares @ w**2 - (shares @ w) ** 2) / n
    np.testing.assert_allclose(decoded.frequency_spread.variance, variance, rtol=1e-9)
