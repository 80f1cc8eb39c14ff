"""Mean and standard deviation of a number, with errors, from the same linear statistics as all else.

A reading counts as the middle of its bin, and one outside the range as the middle of an end bin: both are of
readings as the board bucketed them. How wide a bin is bounds what that changes: the mean by half a bin.
"""

import math
from dataclasses import dataclass

import numpy as np

from ...device.ldp_client import Experiment
from ..estimate.estimate import Estimates
from ..estimate.statistic import Floats, Statistic, Statistics
from ..experiments.units import bin_edges, bin_middles
from ..mechanisms import mechanism_of
from ..mechanisms.workload import positions

_BIASED = 1e-6  # a larger bias is not rounding
_SMALL = 0.1  # part of a half-width below which the error of bins is not mentioned


@dataclass(frozen=True)
class Deviation:
    """A standard deviation, from the estimate of the variance; 0 where that came out negative.

    mean: what the variance is around. around: mean squares around the mean, and one of its standard errors
    below and above it.
    """

    variance: Statistic
    mean: Statistic
    around: Statistics

    @property
    def value(self) -> float:
        """The standard deviation."""
        return math.sqrt(max(self.variance.value, 0.0))

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Interval that holds the population's standard deviation with probability confidence.

        The mean square around the population's mean is a weighted sum of shares, whose interval is right;
        around the estimated mean its error is not, where that mean is far off. So this is the union of the
        intervals around three centres that the mean may well have: wide where reports are few.
        """
        low, high = self.around.interval(confidence)
        return math.sqrt(max(float(low.min()), 0.0)), math.sqrt(max(float(high.max()), 0.0))


@dataclass(frozen=True)
class BinQuantile:
    """A quantile of a number, q from 0 to 1: the middle of its bin; its interval runs over whole bins."""

    estimate: Estimates
    q: float

    @property
    def value(self) -> float:
        """The middle of the quantile's bin, in whole units."""
        return float(bin_middles(self.estimate.experiment)[self.estimate.quantile_index(self.q)])

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Outer edges of the bins of Estimates.quantile()'s interval, in whole units."""
        edges, quantile = bin_edges(self.estimate.experiment), self.estimate.quantile(self.q, confidence)
        return float(edges[quantile.low]), float(edges[quantile.high + 1])


def mean(estimate: Estimates) -> Statistic:
    """Mean of a number in whole units. Raises UnitsError for another type."""
    return estimate.linear(bin_middles(estimate.experiment))


def has_deviation(estimate: Estimates) -> bool:
    """Return whether mean squares can be estimated too; a custom mechanism may estimate only the mean."""
    return tells(estimate, positions(estimate.domain)[:, None] ** 2)


def tells(estimate: Estimates, statistics: Floats) -> bool:
    """Return whether statistics between 0 and 1, shape (domain, n), can be estimated without bias."""
    return all(_unbiased(experiment, statistics) for experiment in estimate.versions)


def _unbiased(experiment: Experiment, statistics: Floats) -> bool:
    mechanism = mechanism_of(experiment)
    if "frequencies" in mechanism.answers:
        return True
    rest = np.zeros((mechanism.domain - len(statistics), statistics.shape[1]))  # of no reading
    statistics = np.append(statistics, rest, axis=0)
    weights, constant = mechanism.weights(statistics, mechanism.stratum_chances)
    both = zip(weights, mechanism.class_sizes, strict=True)
    classes = [np.zeros((len(size), len(constant))) if w is None else w for w, size in both]
    for i, constant_part in enumerate(constant):
        expected = mechanism.law_transposed([w[:, i] for w in classes]) + constant_part
        if np.abs(expected - statistics[:, i]).max() > _BIASED:
            return False
    return True


def bins_note(estimate: Estimates, unit: str, half_width: float) -> str:
    """Return a note on the error that binning adds to a mean, or "" if that error is comparatively small."""
    width = float(np.diff(bin_edges(estimate.experiment)).max())
    if width / 2 <= _SMALL * half_width:
        return ""
    bin_width, off = (f"{x:.3g} {unit}".strip() for x in (width, width / 2))
    counted = f"Readings count as the middle of their bin of {bin_width}"
    return f"{counted}: the mean may be off by up to {off} besides."


def deviation(estimate: Estimates) -> Deviation:
    """Return the standard deviation of a number in whole units. Raises UnitsError for another type.

    The square of the mean's error is taken off the mean square's bias, and its own scatter is in the error:
    with few reports it is most of it.
    """
    centre = mean(estimate)
    off = centre.stderr * np.array([-1.0, 0.0, 1.0])
    around = estimate.linear_many(np.square(bin_middles(estimate.experiment)[:, None] - centre.value - off))
    square, error = around[1], centre.stderr**2
    stderr = math.hypot(square.stderr, math.sqrt(2) * error)
    skew = square.skew * (square.stderr / stderr) ** 2 if stderr else 0.0
    return Deviation(Statistic(square.value + error, stderr, skew), centre, around)
