"""Estimates that weigh codes by what other reports showed: one step of Fisher scoring, cross-fitted.

A coin for each report puts it into one of two halves. Each half gives a rough estimate of the population, and
that weighs the codes of the *other* half (mechanisms/scored.py). So each half's estimate is unbiased and
linear given its weights, and its error follows by the usual rule. The estimate is the two halves' mean,
weighted by their reports. The halves' errors are uncorrelated but for terms that shrink faster than they
do; benchmarks/fisher.py measures that, the coverage of the intervals and the gain.

The coins are tossed by a generator whose seed is a hash of the experiment and the histogram: the same reports
give the same numbers.
"""

import hashlib
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ...device.ldp_client import Experiment
from ..arrays import Floats
from ..errors import UsageError
from ..mechanisms import mechanism_of
from ..mechanisms.decoded import simplex
from ..mechanisms.scored import Scored
from .estimate import Estimate, Estimates, estimate
from .pooling import pool

FEWEST_REPORTS = 1000
"""The fewest reports that it needs; with fewer the usual weights apply."""
MOST_VALUES = 1024
"""The largest domain, in values."""
MOST_PAIRS = 16_000_000
"""Pairs of a class of codes and a value, at most: 128 MB, three times."""
_EVEN = 0.05  # part of a pilot that is spread evenly: no value is taken as certainly absent


def fisher(experiment: Experiment, counts: npt.ArrayLike) -> Estimates:
    """Estimate from a histogram of codes, integers of shape (code_count,), weighing its codes by a pilot.

    Returns the ordinary estimate if there is nothing to gain (rr and grr, whose codes leave no choice of
    weights), of an approximate mechanism, with fewer than FEWEST_REPORTS reports, and if one half has no
    report about single values.
    Raises EstimateError as estimate() does, UsageError for more than MOST_VALUES values or too many codes.
    """
    whole = estimate(experiment, counts)
    mechanism = whole.decoded.mechanism
    if mechanism.direct or mechanism.approximate or whole.reports < FEWEST_REPORTS:
        return whole
    domain, classes = experiment.domain, mechanism.class_count
    if domain > MOST_VALUES or classes * domain > MOST_PAIRS:
        text = f"{experiment.name} has {domain:,} values and {classes:,} kinds of codes: too many to weigh"
        raise UsageError(f"{text} by Fisher scoring")
    histogram = np.asarray(counts, dtype="<i8")
    seed = hashlib.sha256(experiment.digest + histogram.tobytes()).digest()
    one = np.random.default_rng(int.from_bytes(seed)).binomial(histogram, 0.5)
    halves = [Estimate(experiment, mechanism.decode(half)) for half in (one, histogram - one)]
    single = np.eye(domain, 1)
    reports = [half.decoded.reports for half in halves]
    if any(mechanism.lacks(n) or mechanism.unknown(single, n) for n in reports):
        return whole
    pilots = [pilot(half) for half in reversed(halves)]
    law = _law(experiment)
    scored = [Scored(half.decoded, other, law) for half, other in zip(halves, pilots, strict=True)]
    return pool([Estimate(experiment, decoded) for decoded in scored])


@lru_cache(maxsize=1)
def _law(experiment: Experiment) -> list[Floats]:
    return mechanism_of(experiment).law(np.eye(experiment.domain))


def pilot(estimate: Estimate) -> Floats:
    """Return a population for weights: estimates shrunk to even shares by their noise, none below zero.

    James, Stein, "Estimation with quadratic loss", 4th Berkeley Symposium 1961. If there is only noise,
    all shares are even, and weights based on them lose nothing.
    """
    domain = estimate.domain
    off = estimate.frequencies - 1 / domain
    noise = float(estimate.spread.variance.sum())
    kept = max(0.0, 1 - noise / max(float(off @ off), noise))
    return (1 - _EVEN) * simplex(1 / domain + kept * off) + _EVEN / domain
