"""Mean and standard deviation of a number, with errors, as linear statistics of the shares.

A reading counts as the middle of its bin, and a reading outside the range as the middle of an end bin, so
both describe the readings as the board bucketed them. For readings inside the range, this changes the mean by
at most half a bin.
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
_SMALL = 0.1  # fraction of a half-width below which the error of binning is not mentioned


@dataclass(frozen=True)
class Deviation:
    """A standard deviation, from the estimate of the variance; 0 if that estimate is negative.

    Attributes:
        mean: The mean that the variance is around.
        around: The mean squares around the mean, and around one of its standard errors below and above it.
    """

    variance: Statistic
    mean: Statistic
    around: Statistics

    @property
    def value(self) -> float:
        """The standard deviation."""
        return math.sqrt(max(self.variance.value, 0.0))

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return an interval that holds the population's standard deviation with probability `confidence`.

        The mean square around the population's mean is a weighted sum of shares, whose interval is valid; the
        interval around the estimated mean is not valid if that mean is far off. So the result is the union of
        the intervals around three centres that the mean may well have. It is wide if there are few reports.
        """
        low, high = self.around.interval(confidence)
        return math.sqrt(max(float(low.min()), 0.0)), math.sqrt(max(float(high.max()), 0.0))


@dataclass(frozen=True)
class BinQuantile:
    """A quantile of a number, for q from 0 to 1: the middle of its bin, with an interval over whole bins."""

    estimate: Estimates
    q: float

    @property
    def value(self) -> float:
        """The middle of the quantile's bin, in whole units."""
        return float(bin_middles(self.estimate.experiment)[self.estimate.quantile_index(self.q)])

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return the outer edges of the bins of Estimates.quantile()'s interval, in whole units."""
        edges, quantile = bin_edges(self.estimate.experiment), self.estimate.quantile(self.q, confidence)
        return float(edges[quantile.low]), float(edges[quantile.high + 1])


def mean(estimate: Estimates) -> Statistic:
    """Return the mean of a number in whole units.

    Raises:
        UnitsError: If the experiment's type is not a number.
    """
    return estimate.linear(bin_middles(estimate.experiment))


def has_deviation(estimate: Estimates) -> bool:
    """Return whether mean squares can be estimated too; a custom mechanism may estimate only the mean."""
    return tells(estimate, positions(estimate.domain)[:, None] ** 2)


def tells(estimate: Estimates, statistics: Floats) -> bool:
    """Return whether statistics can be estimated without bias.

    Args:
        estimate: The estimate.
        statistics: Weights of the values, between 0 and 1, shape (domain, n).
    """
    return all(_unbiased(experiment, statistics) for experiment in estimate.versions)


def _unbiased(experiment: Experiment, statistics: Floats) -> bool:
    mechanism = mechanism_of(experiment)
    if "frequencies" in mechanism.answers:
        return True
    rest = np.zeros((mechanism.domain - len(statistics), statistics.shape[1]))  # for no reading
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
    """Return a note on the error that binning adds to a mean, or "" if it is small beside `half_width`."""
    width = float(np.diff(bin_edges(estimate.experiment)).max())
    if width / 2 <= _SMALL * half_width:
        return ""
    bin_width, off = (f"{x:.3g} {unit}".strip() for x in (width, width / 2))
    counted = f"Readings count as the middle of their bin of {bin_width}"
    return f"{counted}: the mean may be off by up to {off} besides."


def deviation(estimate: Estimates) -> Deviation:
    """Return the standard deviation of a number in whole units.

    On average the mean square around the estimated mean is too small by the variance of that mean, which is
    therefore added. Its scatter is part of the error, and most of it if there are few reports.

    Raises:
        UnitsError: If the experiment's type is not a number.
    """
    centre = mean(estimate)
    off = centre.stderr * np.array([-1.0, 0.0, 1.0])
    around = estimate.linear_many(np.square(bin_middles(estimate.experiment)[:, None] - centre.value - off))
    square, error = around[1], centre.stderr**2
    stderr = math.hypot(square.stderr, math.sqrt(2) * error)
    skew = square.skew * (square.stderr / stderr) ** 2 if stderr else 0.0
    return Deviation(Statistic(square.value + error, stderr, skew), centre, around)
