"""Mean and standard deviation of a number, with errors, from the same linear statistics as all else.

A reading counts as the middle of its bin, and one outside the range as the middle of an end bin: both are of
readings as the board bucketed them. How wide a bin is bounds what that changes: the mean by half a bin.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..estimate.estimate import Estimates
from ..estimate.statistic import Floats, Statistic
from ..experiments.units import bin_edges


@dataclass(frozen=True)
class Deviation:
    """A standard deviation, from the estimate of the variance; 0 where that came out negative.

    mean: what the variance is around.
    """

    variance: Statistic
    mean: Statistic

    @property
    def value(self) -> float:
        """The standard deviation."""
        return math.sqrt(max(self.variance.value, 0.0))

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Interval that holds the population's standard deviation with probability confidence."""
        low, high = self.variance.interval(confidence)
        return math.sqrt(max(low, 0.0)), math.sqrt(max(high, 0.0))


def bin_middles(estimate: Estimates) -> Floats:
    """Middles of a number's bins in whole units, shape (domain,). Raises UnitsError for another type."""
    edges = bin_edges(estimate.experiment)
    return (edges[:-1] + edges[1:]) / 2


def mean(estimate: Estimates) -> Statistic:
    """Mean of a number in whole units. Raises UnitsError for another type."""
    return estimate.linear(bin_middles(estimate))


def deviation(estimate: Estimates) -> Deviation:
    """Standard deviation of a number in whole units. Raises UnitsError for another type.

    The square of the mean's error is taken off the mean square's bias, and its own scatter is in the error:
    with few reports it is most of it.
    """
    centre = mean(estimate)
    square = estimate.linear(np.square(bin_middles(estimate) - centre.value))
    error = centre.stderr**2
    stderr = math.hypot(square.stderr, math.sqrt(2) * error)
    skew = square.skew * (square.stderr / stderr) ** 2 if stderr else 0.0
    return Deviation(Statistic(square.value + error, stderr, skew), centre)
