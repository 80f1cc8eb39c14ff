"""Compute the number of reports that an answer needs from the mechanism's variance.

For a share or a mean, an interval's half-width is z sqrt(v / N), where v is the variance of one report's part
in the estimate (docs/mathematics.md). For a quantile, the interval inverts the test on the share below each
edge between bins, so it extends from the first to the last edge where the share below may reach the level.
Its width depends on the errors at all edges, not only at the quantile: if readings are rare, it is wider than
the local density suggests. The width is averaged over fleets whose errors have the mechanism's covariances.
The ends are interpolated between edges; rounding to whole bins widens the interval by one bin on average.

Everything depends on the population. By default, it is assumed to be uniform, or, for a number, bell-shaped
around the middle of its range.
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
"""The smallest number of reports for any estimate."""
MOST = 1 << 53
"""The number of reports that represents "never"."""
_FLEETS = 64  # fleets whose quantile intervals are averaged, each also with the opposite errors
_MAX_PAIRS = 1 << 23  # pairs of a code class and an edge; with more pairs, only some edges are used,
_MIN_EDGES = 17  # but at least this many
_MAX_EDGES = 257
USUAL_SPREAD = 1 / 6
"""The assumed standard deviation of a number, as a fraction of its range."""


@dataclass(frozen=True)
class RangeShare:
    """The share of the indices low..high-1, or of a label if the range has one index."""

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


def round_target(scale: float) -> float:
    """Return the target half-width: a tenth of the entire range, rounded to one digit."""
    return float(f"{scale / 10:.1g}")


def bell_population(domain: int, spread: float) -> Floats:
    """Return the shares of a normal population centred on the range, with the tails in the end bins.

    Args:
        domain: The number of bins.
        spread: The standard deviation, as a fraction of the range.
    """
    edges = np.arange(1, domain) / domain
    below = special.ndtr((edges - 0.5) / spread) if spread else (edges > 0.5).astype(float)
    return np.diff(below, prepend=0.0, append=1.0)


def default_population(experiment: Experiment) -> Floats:
    """Return the default shares, bell-shaped for a number, otherwise uniform; shape (domain,)."""
    if experiment.type == "number":
        return bell_population(experiment.domain, USUAL_SPREAD)
    return np.full(experiment.domain, 1 / experiment.domain)


def likely_population(estimates: Estimates) -> Floats:
    """Return nonnegative shares with sum 1 that an estimate suggests, shape (domain,).

    For a number, they are smoothed, because noise would leave gaps in which quantiles cannot be found.
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
    max_pairs: int = _MAX_PAIRS,
) -> int:
    """Return how many reports reduce an answer's half-width to a target, on average.

    Args:
        experiment: The version whose mechanism randomizes the reports.
        answer: The statistic whose interval is computed.
        target: The half-width: a share from 0 to 1, or a number of bins.
        population: The values' shares, nonnegative with sum 1, shape (domain,); by default
            default_population().
        confidence: The confidence of the interval, between 0 and 1.
        max_pairs: The largest number of pairs of a code class and an edge; with more pairs, a quantile uses
            only some edges.

    Returns:
        The number of reports, FEWEST to MOST; MOST if no number is enough, because an interval consists of
        whole bins.

    Raises:
        EstimateError: If the target is not positive, a quantile is not between 0 and 1, or a range does not
            lie in the domain.
    """
    if not target > 0:
        raise EstimateError(f"an interval's half-width must be above 0, not {target:g}")
    mechanism, z = mechanism_of(experiment), normal_quantile(confidence)
    shares = default_population(experiment) if population is None else np.asarray(population, float)
    index = np.arange(experiment.domain)
    match answer:
        case MeanIndex():
            return _for_variance(_variance(mechanism, index, shares), z, target)
        case RangeShare(low, high):
            if not 0 <= low < high <= experiment.domain:
                raise EstimateError(f"a range must lie within 0:{experiment.domain}, unlike {low}:{high}")
            return _for_variance(_variance(mechanism, (index >= low) & (index < high), shares), z, target)
        case QuantileLevel(q):
            if not 0 < q < 1:
                raise EstimateError(f"a quantile must be between 0 and 1 (0.5 is the median), not {q:g}")
            return _for_quantile(mechanism, q, z, target, shares, max_pairs)


def _variance(mechanism: Mechanism, weights: npt.ArrayLike, shares: Floats) -> float:
    return float(mechanism.variances(np.asarray(weights, float)[:, None], shares)[0])


def _for_variance(variance: float, z: float, target: float) -> int:
    return int(min(MOST, max(FEWEST, math.ceil(variance * (z / target) ** 2))))


def _for_quantile(
    mechanism: Mechanism, q: float, z: float, target: float, shares: Floats, max_pairs: int
) -> int:
    domain = len(shares)
    max_edges = min(_MAX_EDGES, domain + 1)
    count = min(max(max_pairs // mechanism.class_count, _MIN_EDGES), max_edges)
    edges = np.unique(np.linspace(0, domain, count).round().astype(int))  # all edges, if they are few
    below = np.append(0.0, np.cumsum(shares))[edges]
    covariance = np.zeros((len(edges), len(edges)))
    covariance[1:-1, 1:-1] = _covariance(mechanism, np.arange(domain)[:, None] < edges[1:-1], shares)
    error = z * np.sqrt(np.diag(covariance))
    # Realistic errors, the same for every number of reports to let widths fall smoothly.
    values, vectors = np.linalg.eigh(covariance)
    noise = np.random.default_rng(1).normal(size=(_FLEETS, len(edges)))
    noise = noise * np.sqrt(np.maximum(values, 0)) @ vectors.T

    def half_width(reports: int) -> float:
        scale = 1 / math.sqrt(reports)
        width = 0.0
        for off in np.concatenate([noise, -noise]):
            low = _first_crossing(edges, below + scale * (off + error), q)
            high = _first_crossing(domain - edges[::-1], 1 - (below + scale * (off - error))[::-1], 1 - q)
            width += max(domain - high - low, 0.0)
        return width / (2 * len(noise)) / 2 + 0.5

    if half_width(MOST) > target:
        return MOST
    low, high = FEWEST, FEWEST
    while half_width(high) > target:
        low, high = high, min(MOST, 2 * high)
    while high - low > max(1, high // 1000):
        middle = (low + high) // 2
        low, high = (low, middle) if half_width(middle) <= target else (middle, high)
    return high


def _covariance(mechanism: Mechanism, statistics: npt.ArrayLike, shares: Floats) -> Floats:
    """Return the estimates' covariances times the number of reports, shape (n, n).

    The diagonal equals Mechanism.variances().

    Args:
        mechanism: The mechanism.
        statistics: Weights of the values, shape (domain, n).
        shares: The values' shares, shape (domain,).
    """
    weights, _ = mechanism.weights(np.asarray(statistics, float), mechanism.stratum_chances)
    result: Floats | float = 0.0
    for w, chance, law in zip(weights, mechanism.stratum_chances, mechanism.law(shares), strict=True):
        if w is not None:
            w = w - law @ w
            result = result + (w.T * law) @ w / chance
    return np.asarray(result)


def _first_crossing(edges: npt.NDArray[np.integer], line: Floats, level: float) -> float:
    """Return the first position at which the interpolated values reach a level, or the last edge."""
    at = int(np.argmax(line >= level))
    if not at:
        return 0.0
    part = (level - line[at - 1]) / (line[at] - line[at - 1])
    return float(edges[at - 1] + part * (edges[at] - edges[at - 1]))
