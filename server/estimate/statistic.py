"""An estimate's results: values with standard errors, quantiles with intervals, and differences.

If a statistic is based on few reports with a rare code, its variance grows with its value, and an interval of
z standard errors around the estimate misses too often on one side. A score interval contains the values
within z standard errors of the estimate, where each value has its own standard error. To be safe, intervals
here are the union of both; with many reports, the two agree. Wilson, "Probable inference", JASA 1927;
Hall, "On the removal of skewness by transformation", JRSS B 1992.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Protocol

import numpy as np

from ..arrays import Floats
from ..errors import HushmoteError


class EstimateError(HushmoteError):
    """Raised if counts do not allow an estimate."""


class TooFewReports(EstimateError):
    """Raised if there are too few reports; with more of them, the same question would have an answer."""


class DoesNotFit(EstimateError):
    """Raised if estimates do not count the same values, so that more reports would not help."""


def normal_quantile(confidence: float) -> float:
    """Return the half-width, in standard errors, of a normal interval with probability `confidence`."""
    if not 0 < confidence < 1:
        raise EstimateError(f"confidence must be between 0 and 1, not {confidence}")
    return NormalDist().inv_cdf((1 + confidence) / 2)


def intervals(value: Floats, stderr: Floats, skew: Floats, confidence: float = 0.95) -> tuple[Floats, Floats]:
    """Return the bounds of several intervals from a Statistic's fields as arrays, shape (n,)."""
    z = normal_quantile(confidence)
    normal, shift = z * stderr, z * z * skew / 2
    score = np.hypot(shift, normal)
    return value + np.minimum(shift - score, -normal), value + np.maximum(shift + score, normal)


class HasInterval(Protocol):
    """A value with an interval: a Statistic, or a number's standard deviation or quantile."""

    @property
    def value(self) -> float:
        """The estimate."""
        ...

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return the bounds of the interval with this confidence."""
        ...


@dataclass(frozen=True)
class Statistic:
    """An unbiased estimate with its standard error.

    Attributes:
        value: The estimate.
        stderr: The standard error.
        skew: The growth in variance per unit growth in the value, in units of the value; 0 if the error is
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
        """Return the two-sided p-value for a hypothetical true value; at most 1 - c outside interval(c)."""
        off = abs(self.value - value)
        variance = self.stderr**2 + max(self.skew * (value - self.value), 0.0)
        if not off or not variance:
            return 0.0 if off else 1.0
        return math.erfc(off / math.sqrt(2 * variance))


@dataclass(frozen=True)
class Statistics:
    """Several statistics: a Statistic's fields as arrays of shape (n,)."""

    value: Floats
    stderr: Floats
    skew: Floats

    def __len__(self) -> int:
        return len(self.value)

    def __getitem__(self, number: int) -> Statistic:
        return Statistic(float(self.value[number]), float(self.stderr[number]), float(self.skew[number]))

    def interval(self, confidence: float = 0.95) -> tuple[Floats, Floats]:
        """Return the bounds of the intervals with this confidence, each of shape (n,)."""
        return intervals(self.value, self.stderr, self.skew, confidence)


@dataclass(frozen=True)
class Quantile:
    """The smallest index whose cumulative share is at least q, and its inclusive interval low..high."""

    q: float
    index: int
    low: int
    high: int


@dataclass(frozen=True)
class Difference(Statistic):
    """A statistic's change between two estimates."""

    @property
    def p(self) -> float:
        """The two-sided p-value for no change."""
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
