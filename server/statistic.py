"""What an estimate gives: a value with its standard error, a quantile with its interval, a difference."""

import math
from dataclasses import dataclass
from statistics import NormalDist


class EstimateError(ValueError):
    """Counts that nothing can be estimated from, or estimates that do not go together."""


def normal_quantile(confidence: float) -> float:
    """Half-width of an interval that holds its value with probability confidence, in standard errors."""
    if not 0 < confidence < 1:
        raise EstimateError(f"confidence must be between 0 and 1, not {confidence}")
    return NormalDist().inv_cdf((1 + confidence) / 2)


@dataclass(frozen=True)
class Statistic:
    """An unbiased estimate and its standard error."""

    value: float
    stderr: float

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Interval that holds the population's value with probability confidence."""
        half = normal_quantile(confidence) * self.stderr
        return self.value - half, self.value + half


@dataclass(frozen=True)
class Quantile:
    """The smallest index with at least the share q at or below it, and the interval low..high, inclusive."""

    q: float
    index: int
    low: int
    high: int


@dataclass(frozen=True)
class Difference(Statistic):
    """A statistic's change between two estimates; p is the two-sided p value of no change."""

    p: float


def difference(a: Statistic, b: Statistic) -> Difference:
    """Compare the same statistic of two estimates that share no reports: a - b."""
    value = a.value - b.value
    stderr = math.hypot(a.stderr, b.stderr)
    if stderr:
        return Difference(value, stderr, math.erfc(abs(value) / stderr / math.sqrt(2)))
    return Difference(value, stderr, 0.0 if value else 1.0)
