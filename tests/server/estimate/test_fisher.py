"""Weights by Fisher scoring over two halves of the reports: the same each time, unbiased, errors that hold.

Statistical tests: seeds are fixed, so that they pass or fail for good; each says how many independent draws
it uses and with what chance it would fail for a fresh seed though all is right.
"""

import numpy as np
import pytest
from designs import designed, drawn_counts
from scipy import stats

from hushmote.device.ldp_client import Experiment
from hushmote.server.errors import UsageError
from hushmote.server.estimate import Estimate, estimate
from hushmote.server.estimate.fisher import FEWEST_REPORTS, fisher, pilot
from hushmote.server.estimate.pooling import Pool
from hushmote.server.estimate.statistic import EstimateError
from hushmote.server.mechanisms import mechanism_of
from hushmote.server.mechanisms.scored import Scored

HH = designed("hh", 16, 3, fanout=4, cells=[4, 7])
OLH = designed("olh", 20, 2, g=7)
GRR = designed("grr", 10, 1)


def peaked(domain: int) -> np.ndarray:
    shares = np.full(domain, 0.3 / domain)
    shares[domain // 3] += 0.7
    return shares


def histogram(experiment: Experiment, reports: int, seed: int) -> np.ndarray:
    return drawn_counts(experiment, peaked(experiment.domain), reports, np.random.default_rng(seed))


def test_the_same_reports_give_the_same_numbers():
    counts = histogram(HH, 5000, 1)
    one, again = fisher(HH, counts), fisher(HH, counts.astype(np.int32))
    assert (one.frequencies == again.frequencies).all()
    assert (one.stderr == again.stderr).all()
    assert one.reports == 5000
    assert one.stderr_method == "exact"


def test_every_report_is_in_one_half_and_halves_weigh_each_other():
    counts = histogram(HH, 5000, 2)
    whole, both = estimate(HH, counts), fisher(HH, counts)
    assert isinstance(both, Pool)
    parts = [part.decoded.counts for part in both.estimates]  # pyright: ignore
    for one, other, together in zip(*parts, whole.decoded.counts, strict=True):
        assert (one + other == together).all()
        assert abs(one.sum() - other.sum()) < 7 * np.sqrt(together.sum())
    halves = [half.reports for half in both.estimates]
    np.testing.assert_allclose(both.weights, np.array(halves) / 5000)
    law = mechanism_of(HH).law(np.eye(16))
    one, other = (Estimate(HH, part.decoded._ordinary) for part in both.estimates)  # pyright: ignore
    for part, own, pilot_of in zip(both.estimates, (one, other), (other, one), strict=True):
        weighed = Estimate(HH, Scored(own.decoded, pilot(pilot_of), law))
        np.testing.assert_array_equal(part.frequencies, weighed.frequencies)


@pytest.mark.parametrize(
    ("experiment", "reports"), [(GRR, 5000), (HH, FEWEST_REPORTS - 1)], ids=["direct", "few reports"]
)
def test_otherwise_it_is_the_ordinary_estimate(experiment: Experiment, reports: int):
    counts = histogram(experiment, reports, 3)
    assert (fisher(experiment, counts).frequencies == estimate(experiment, counts).frequencies).all()


def test_so_many_reports_are_enough():
    assert isinstance(fisher(HH, histogram(HH, FEWEST_REPORTS, 3)), Pool)


def test_what_it_cannot_do_is_one_line():
    large = designed("olh", 2000, 1, g=3)
    with pytest.raises(UsageError, match=r"2,000 values and .* too many to weigh by Fisher scoring"):
        fisher(large, np.ones(large.code_count, dtype=np.int64))
    with pytest.raises(EstimateError, match="counts must have shape"):
        fisher(HH, np.ones(3, dtype=np.int64))


def test_a_pilot_of_noise_alone_is_even_and_one_of_many_reports_is_the_population():
    counts = np.full(OLH.code_count, 50)
    np.testing.assert_allclose(pilot(estimate(OLH, counts)), 1 / 20)
    found = pilot(estimate(OLH, histogram(OLH, 1_000_000, 4)))
    assert found.min() > 0
    assert found.sum() == pytest.approx(1)
    np.testing.assert_allclose(found, 0.95 * peaked(20) + 0.05 / 20, atol=0.02)


@pytest.mark.parametrize(
    "experiment", [HH, pytest.param(OLH, marks=pytest.mark.long)], ids=lambda e: e.mechanism
)
def test_over_many_fleets_it_is_unbiased_closer_and_as_close_as_it_says(experiment: Experiment):
    """400 fleets of 2,000 reports.

    Means of errors: 16 or 20 of them beyond 7 standard errors, 5e-11. Mean of squared errors over the stated
    variance: of 400 sums of squares that are correlated, at worst as one is, chi-squared with 400 degrees of
    freedom, 1e-9. Hits of the intervals of the mean of all values: binomial, 1e-10. Squared errors against
    the ordinary ones: the gain is over 15 %, its standard error below 2 %.
    """
    domain, fleets = experiment.domain, 400
    truth, index = peaked(domain), np.arange(domain)
    errors, stated, ordinary, hits = [], [], [], 0
    for seed in range(fleets):
        counts = histogram(experiment, 2000, 100 + seed)
        found = fisher(experiment, counts)
        errors.append(found.frequencies - truth)
        stated.append(found.stderr**2)
        ordinary.append(estimate(experiment, counts).frequencies - truth)
        low, high = found.linear(index).interval()
        hits += low <= truth @ index <= high
    off = np.array(errors)
    assert (abs(off.mean(axis=0)) < 7 * off.std(axis=0) / np.sqrt(fleets)).all()
    ratio = (off**2).sum() / np.sum(stated)
    low, high = stats.chi2.ppf([5e-10, 1 - 5e-10], fleets) / fleets
    assert low < ratio < high
    assert hits >= stats.binom.ppf(1e-10, fleets, 0.95)
    assert (off**2).sum() < 0.95 * np.square(ordinary).sum()
