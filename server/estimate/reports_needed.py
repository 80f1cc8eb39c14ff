"""The number of reports that an answer needs: from the mechanism's variance, not from one noisy interval.

For a share or a mean the half-width of an interval is z sqrt(v / N), v the variance of one report's part in
the estimate (docs/mathematics.md). For a quantile the interval inverts the test of the share below each edge
between bins: it extends from the first edge where the share below may reach the level to the last. So its
width depends on the errors at all edges, not only at the quantile: if readings are rare, it is wider than the
density there suggests. It is averaged over fleets whose errors have the mechanism's covariances. Its ends are
interpolated between edges; rounding to whole bins widens the interval by one bin on average.

Everything depends on the population. If nothing is known about it, it is assumed to be even, or for a number
a bell around the middle of its range.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...device.ldp_client import Experiment
from .. import special
from ..arrays import Floats
from ..mechanisms import Mechanism, mechanism_of
from . import postprocess
from .estimate import Estimates
from .statistic import EstimateError, normal_quantile

FEWEST = 2
"""The smallest number of reports of any estimate."""
MOST = 1 << 53
"""The number of reports that stands for "never"."""
_FLEETS = 64  # fleets whose intervals of a quantile are averaged, and as many with the opposite errors
_MOST_PAIRS = 1 << 23  # pairs of a class of codes and an edge; if there are more, only some edges are used,
_FEWEST_EDGES = 17  # but at least this many
_MOST_EDGES = 257
USUAL_SPREAD = 1 / 6
"""The assumed standard deviation of a number, as a fraction of its range."""


@dataclass(frozen=True)
class RangeShare:
    """The share of the indices low..high-1, or of a label if that is one index."""

    low: int
    high: int


@dataclass(frozen=True)
class QuantileLevel:
    """A quantile of a number, 0 < q < 1; its half-width is in bins."""

    q: float


@dataclass(frozen=True)
class MeanIndex:
    """The mean of a number; its half-width is in bins."""


Answer = RangeShare | QuantileLevel | MeanIndex


def rounded_target(scale: float) -> float:
    """Return the half-width worth waiting for: a tenth of all readings or shares, rounded to one digit."""
    return float(f"{scale / 10:.1g}")


def bell(domain: int, spread: float) -> Floats:
    """Return the shares of a normal population around the middle of the range, its tails in the end bins.

    Args:
        domain: The number of bins.
        spread: The standard deviation, as a fraction of the range.
    """
    edges = np.arange(1, domain) / domain
    below = special.ndtr((edges - 0.5) / spread) if spread else (edges > 0.5).astype(float)
    return np.diff(below, prepend=0.0, append=1.0)


def usual_population(experiment: Experiment) -> Floats:
    """Return the shares to assume by default: a bell for a number, otherwise even; shape (domain,)."""
    if experiment.type == "number":
        return bell(experiment.domain, USUAL_SPREAD)
    return np.full(experiment.domain, 1 / experiment.domain)


def likely_population(estimates: Estimates) -> Floats:
    """Return the shares that an estimate suggests, not negative and with sum 1, shape (domain,).

    Those of a number are smoothed, because noise would leave gaps in which no quantile could be found.
    """
    if estimates.experiment.type == "number":
        return postprocess.smooth(estimates).frequencies
    return postprocess.nonnegative(estimates).frequencies


def reports_needed(
    experiment: Experiment,
    answer: Answer,
    target: float,
    population: npt.ArrayLike | None = None,
    confidence: float = 0.95,
    *,
    most_pairs: int = _MOST_PAIRS,
) -> int:
    """Return how many reports make half the interval of an answer at most a target, on average.

    Args:
        experiment: The version whose mechanism randomizes the reports.
        answer: The statistic whose interval it is.
        target: Half of the interval: a share from 0 to 1, or bins of a number.
        population: Shares of the values, shape (domain,), not negative, with sum 1; by default
            usual_population().
        confidence: The confidence of the interval, between 0 and 1.
        most_pairs: The largest number of pairs of a class of codes and an edge; with more, a quantile uses
            only some edges.

    Returns:
        The number of reports, FEWEST to MOST; MOST if no number is enough, since an interval has whole bins.

    Raises:
        EstimateError: If the target is not positive, the level of a quantile is not between 0 and 1, or a
            range does not lie in the domain.
    """
    if not target > 0:
        raise EstimateError(f"half an interval is above 0, not {target:g}")
    mechanism, z = mechanism_of(experiment), normal_quantile(confidence)
    shares = usual_population(experiment) if population is None else np.asarray(population, float)
    index = np.arange(experiment.domain)
    match answer:
        case MeanIndex():
            return _for_variance(_variance(mechanism, index, shares), z, target)
        case RangeShare(low, high):
            if not 0 <= low < high <= experiment.domain:
                raise EstimateError(f"a range lies within 0:{experiment.domain}, unlike {low}:{high}")
            return _for_variance(_variance(mechanism, (index >= low) & (index < high), shares), z, target)
        case QuantileLevel(q):
            if not 0 < q < 1:
                raise EstimateError(f"a quantile is between 0 and 1, 0.5 for the median, not {q:g}")
            return _for_quantile(mechanism, q, z, target, shares, most_pairs)


def _variance(mechanism: Mechanism, weights: npt.ArrayLike, shares: Floats) -> float:
    return float(mechanism.variances(np.asarray(weights, float)[:, None], shares)[0])


def _for_variance(variance: float, z: float, target: float) -> int:
    return int(min(MOST, max(FEWEST, math.ceil(variance * (z / target) ** 2))))


def _for_quantile(
    mechanism: Mechanism, q: float, z: float, target: float, shares: Floats, most_pairs: int
) -> int:
    domain = len(shares)
    most = min(_MOST_EDGES, domain + 1)
    count = min(max(most_pairs // mechanism.class_count, _FEWEST_EDGES), most)
    edges = np.unique(np.linspace(0, domain, count).round().astype(int))  # all of them if they are few
    below = np.append(0.0, np.cumsum(shares))[edges]
    covariance = np.zeros((len(edges), len(edges)))
    covariance[1:-1, 1:-1] = _covariance(mechanism, np.arange(domain)[:, None] < edges[1:-1], shares)
    error = z * np.sqrt(np.diag(covariance))
    # Errors as real fleets have them, the same for each number of reports, so that widths fall smoothly.
    values, vectors = np.linalg.eigh(covariance)
    noise = np.random.default_rng(1).normal(size=(_FLEETS, len(edges)))
    noise = noise * np.sqrt(np.maximum(values, 0)) @ vectors.T

    def half_width(reports: int) -> float:
        scale = 1 / math.sqrt(reports)
        width = 0.0
        for off in np.concatenate([noise, -noise]):
            low = _crossing(edges, below + scale * (off + error), q)
            high = _crossing(domain - edges[::-1], 1 - (below + scale * (off - error))[::-1], 1 - q)
            width += max(domain - high - low, 0.0)
        return width / (2 * len(noise)) / 2 + 0.5

    if half_width(MOST) > target:
        return MOST
    few, many = FEWEST, FEWEST
    while half_width(many) > target:
        few, many = many, min(MOST, 2 * many)
    while many - few > max(1, many // 1000):
        middle = (few + many) // 2
        few, many = (few, middle) if half_width(middle) <= target else (middle, many)
    return many


def _covariance(mechanism: Mechanism, statistics: npt.ArrayLike, shares: Floats) -> Floats:
    """Return the covariances of estimates times the number of reports, shape (n, n).

    Its diagonal is what Mechanism.variances() returns.

    Args:
        mechanism: The mechanism.
        statistics: Weights of the values, shape (domain, n).
        shares: The shares of the values, shape (domain,).
    """
    weights, _ = mechanism.weights(np.asarray(statistics, float), mechanism.stratum_chances)
    result: Floats | float = 0.0
    for w, chance, law in zip(weights, mechanism.stratum_chances, mechanism.law(shares), strict=True):
        if w is not None:
            w = w - law @ w
            result = result + (w.T * law) @ w / chance
    return np.asarray(result)


def _crossing(edges: npt.NDArray[np.integer], line: Floats, level: float) -> float:
    """Return the first place where a line through values at edges reaches a level, or the last edge."""
    at = int(np.argmax(line >= level))
    if not at:
        return 0.0
    part = (level - line[at - 1]) / (line[at] - line[at - 1])
    return float(edges[at - 1] + part * (edges[at] - edges[at - 1]))
