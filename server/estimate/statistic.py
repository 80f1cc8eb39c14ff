"""The results of an estimate: a value with its standard error, a quantile with its interval, a difference.

If a statistic is based on few reports of a rare code, its variance grows with its value, and an interval of
z standard errors around the estimate misses too often on one side. A score interval contains the values
within z standard errors of the estimate, where the standard error is the one for that value.
Intervals here are the union of both, to be on the safe side; with many reports the two are the same.
Wilson, "Probable inference", JASA 1927; Hall, "On the removal of skewness by transformation", JRSS B 1992.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Protocol

import numpy as np

from ..arrays import Floats
from ..errors import HushmoteError


class EstimateError(HushmoteError):
    """Raised when counts allow no estimate, or two estimates cannot be combined."""


def normal_quantile(confidence: float) -> float:
    """Return the half-width, in standard errors, of an interval with probability `confidence`."""
    if not 0 < confidence < 1:
        raise EstimateError(f"confidence must be between 0 and 1, not {confidence}")
    return NormalDist().inv_cdf((1 + confidence) / 2)


def intervals(value: Floats, stderr: Floats, skew: Floats, confidence: float = 0.95) -> tuple[Floats, Floats]:
    """Return the ends of several intervals; value, stderr and skew are as in Statistic, shape (n,)."""
    z = normal_quantile(confidence)
    normal, shift = z * stderr, z * z * skew / 2
    score = np.hypot(shift, normal)
    return value + np.minimum(shift - score, -normal), value + np.maximum(shift + score, normal)


class HasInterval(Protocol):
    """Anything with a value and an interval: a Statistic, or a number's standard deviation or quantile."""

    @property
    def value(self) -> float:
        """The estimate."""
        ...

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return the ends of the interval with this confidence."""
        ...


@dataclass(frozen=True)
class Statistic:
    """An unbiased estimate with its standard error.

    Attributes:
        value: The estimate.
        stderr: Its standard error.
        skew: How much the variance grows as the value grows by one, in units of the value; 0 if the error is
            normal.
    """

    value: float
    stderr: float
    skew: float = 0.0

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return an interval that contains the population's value with probability `confidence`."""
        value, stderr, skew = (np.array(x) for x in (self.value, self.stderr, self.skew))
        low, high = intervals(value, stderr, skew, confidence)
        return float(low), float(high)

    def p_value(self, value: float = 0.0) -> float:
        """Return the two-sided p-value of a population's value; at most 1 - c outside interval(c)."""
        off = abs(self.value - value)
        variance = self.stderr**2 + max(self.skew * (value - self.value), 0.0)
        if not off or not variance:
            return 0.0 if off else 1.0
        return math.erfc(off / math.sqrt(2 * variance))


@dataclass(frozen=True)
class Statistics:
    """Several statistics at once: a Statistic's fields as arrays of shape (n,)."""

    value: Floats
    stderr: Floats
    skew: Floats

    def __len__(self) -> int:
        return len(self.value)

    def __getitem__(self, number: int) -> Statistic:
        return Statistic(float(self.value[number]), float(self.stderr[number]), float(self.skew[number]))

    def interval(self, confidence: float = 0.95) -> tuple[Floats, Floats]:
        """Return the ends of intervals that contain the population's values with probability `confidence`."""
        return intervals(self.value, self.stderr, self.skew, confidence)


@dataclass(frozen=True)
class Quantile:
    """The smallest index with at least the share q at or below it, with the interval low..high, inclusive."""

    q: float
    index: int
    low: int
    high: int


@dataclass(frozen=True)
class Difference(Statistic):
    """A statistic's change between two estimates."""

    @property
    def p(self) -> float:
        """The two-sided p-value of no change."""
        return self.p_value()


def mean(a: Statistic, b: Statistic) -> Statistic:
    """Return the mean of two statistics that share no reports."""
    variance = a.stderr**2 + b.stderr**2
    third = a.skew * a.stderr**2 + b.skew * b.stderr**2
    return Statistic(
        (a.value + b.value) / 2, math.sqrt(variance) / 2, third / variance / 2 if variance else 0.0
    )


def difference(a: Statistic, b: Statistic) -> Difference:
    """Return a statistic minus the same statistic of another estimate that shares no reports."""
    stderr = math.hypot(a.stderr, b.stderr)
    third = a.skew * a.stderr**2 - b.skew * b.stderr**2
    return Difference(a.value - b.value, stderr, third / stderr**2 if stderr else 0.0)
