"""Ratios of linear statistics, such as the share of b among those with a, or a label's mean.

To first order (the delta method), the error of a ratio θ = X / Y of two unbiased linear statistics is L / Y,
where L = X - θ Y is also linear, so its error follows from the histogram like any other. If Y is uncertain,
this interval is too narrow. Fieller's interval contains every θ for which X - θ Y is within z standard errors
of 0; it assumes only normality, and agrees with the first if Y is precise. Intervals here are the union of
both, the first with its skew. If Y is so small that it may be 0, the ratio is unknown (`Ratio.is_known`) and
its interval is unbounded. Fieller, "Some problems in interval estimation", JRSS B 1954;
for a difference, Zou and Donner, "Construction of confidence limits about effect measures", Statistics in
Medicine 2008, with the correlation between the two.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..arrays import Floats
from .estimate import Estimates
from .statistic import Difference, EstimateError, HasInterval, Statistic, difference, normal_quantile

ONE = Statistic(1.0, 0.0)
MIN_ERRORS = 3.0
"""The standard errors by which a shown ratio's denominator must exceed 0; see benchmarks/pairs.py."""


@dataclass(frozen=True)
class Ratio(Statistic):
    """A ratio of two linear statistics; stderr and skew are from the delta method.

    Attributes:
        denominator: The denominator.
        correlation: The correlation between the ratio's error and the denominator.
    """

    denominator: Statistic = ONE
    correlation: float = 0.0

    @property
    def is_known(self) -> bool:
        """Whether the denominator is clearly above 0."""
        return self.denominator.value > MIN_ERRORS * self.denominator.stderr

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return an interval that contains the ratio with probability `confidence`; infinite if unknown."""
        low, high = super().interval(confidence)
        z = normal_quantile(confidence)
        # If δ is the ratio minus its estimate: (δ Y)² <= z² (V_L - 2 δ C + δ² V_Y), where V_L = (Y s)².
        relative = (
            self.denominator.stderr / self.denominator.value if self.denominator.value > 0 else math.inf
        )
        margin = 1 - (z * relative) ** 2
        if margin <= 0:
            return -math.inf, math.inf
        middle = -(z**2) * self.correlation * relative * self.stderr
        half = math.sqrt(middle**2 + margin * (z * self.stderr) ** 2)
        low = min(low, self.value + (middle - half) / margin)
        return low, max(high, self.value + (middle + half) / margin)

    def p_value(self, value: float = 0.0) -> float:
        """Return the two-sided p-value for `value`: 1 minus the confidence whose interval just reaches it."""
        return p_value_of(self, value)


ZERO_RATIO = Ratio(0.0, 0.0)


@dataclass(frozen=True)
class DerivedDifference:
    """A difference whose interval is derived from those of its two terms.

    Attributes:
        first: The term to subtract from.
        second: The term to subtract.
        correlation: The correlation between their errors.
    """

    first: HasInterval
    second: HasInterval
    correlation: float = 0.0

    @property
    def value(self) -> float:
        """The difference."""
        return self.first.value - self.second.value

    @property
    def p(self) -> float:
        """The two-sided p-value for no difference."""
        return p_value_of(self, 0.0)

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return an interval that contains the population's difference with probability `confidence`."""
        (l1, u1), (l2, u2) = self.first.interval(confidence), self.second.interval(confidence)
        a, b = self.first.value, self.second.value
        if not all(map(math.isfinite, (l1, u1, l2, u2))):
            return -math.inf, math.inf
        return self.value - self._length(a - l1, u2 - b), self.value + self._length(u1 - a, b - l2)

    def _length(self, first: float, second: float) -> float:
        return math.sqrt(max(first**2 + second**2 - 2 * self.correlation * first * second, 0.0))


@dataclass(frozen=True)
class RatioDifference(Difference):
    """One ratio minus another, with an interval derived from both.

    Attributes:
        first: The ratio to subtract from.
        second: The ratio to subtract.
        correlation: The correlation between the two ratios' errors.
    """

    first: Ratio = ZERO_RATIO
    second: Ratio = ZERO_RATIO
    correlation: float = 0.0

    @property
    def is_known(self) -> bool:
        """Whether both denominators are clearly above 0."""
        return self.first.is_known and self.second.is_known

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return an interval that contains the population's difference with probability `confidence`."""
        return DerivedDifference(self.first, self.second, self.correlation).interval(confidence)

    def p_value(self, value: float = 0.0) -> float:
        """Return the two-sided p-value for `value`: 1 minus the confidence whose interval just reaches it."""
        return p_value_of(self, value)


def p_value_of(statistic: HasInterval, value: float) -> float:
    """Return 1 minus the confidence at which a statistic's interval first reaches a value, rounded up."""
    low, high = 0.0, 1.0 - 1e-12
    for _ in range(50):
        middle = (low + high) / 2
        lower, upper = statistic.interval(middle) if middle > 0 else (statistic.value, statistic.value)
        if lower <= value <= upper:
            high = middle
        else:
            low = middle
    return 1 - low


def ratios(estimates: Estimates, above: Floats, below: Floats) -> list[Ratio]:
    """Return ratios of weighted sums of the frequencies.

    If a denominator's estimate is 0 or less, the ratio is unknown and its value is 0.

    Args:
        estimates: The estimates.
        above: Finite weights of the numerators, shape (domain, n).
        below: Finite weights of the denominators, shape (domain, n).

    Raises:
        EstimateError: If the weights have a different shape or are not finite.
    """
    if above.shape != below.shape:
        raise EstimateError(
            f"numerators and denominators must have the same shape, not {above.shape} and {below.shape}"
        )
    x, y = estimates.linear_many(above).value, estimates.linear_many(below)
    positive = y.value > 0
    value = np.divide(x, y.value, out=np.zeros_like(x), where=positive)
    off = above - value * below
    line = estimates.linear_many(off)
    # The variance of L + k Y determines their correlation; k scales both to the same standard error.
    k = np.divide(line.stderr, y.stderr, out=np.zeros_like(x), where=y.stderr > 0)
    both = estimates.linear_many(off + k * below).stderr ** 2
    spread = 2 * k * line.stderr * y.stderr
    covariance_terms = both - line.stderr**2 - (k * y.stderr) ** 2
    correlation = np.divide(covariance_terms, spread, out=np.zeros_like(x), where=spread > 0)
    result = list[Ratio]()
    for i in range(len(x)):
        divisor = float(y.value[i]) if positive[i] else 1.0
        numbers = (float(value[i]), float(line.stderr[i]) / divisor, float(line.skew[i]) / divisor)
        result.append(Ratio(*numbers, y[i], float(np.clip(correlation[i], -1, 1))))
    return result


def paired_difference(estimates: Estimates, above: Floats, below: Floats) -> RatioDifference:
    """Return the difference between two ratios, first minus second, that are based on the same reports.

    Args:
        estimates: The estimates.
        above: Finite weights of the numerators, shape (domain, 2).
        below: Finite weights of the denominators, shape (domain, 2).
    """
    first, second = ratios(estimates, above, below)
    scales = [1 / r.denominator.value if r.denominator.value > 0 else 1.0 for r in (first, second)]
    lines = (above - np.array([first.value, second.value]) * below) * scales
    joined = estimates.linear(lines[:, 0] - lines[:, 1])
    product = first.stderr * second.stderr
    covariance = (first.stderr**2 + second.stderr**2 - joined.stderr**2) / 2
    correlation = min(max(covariance / product, -1.0), 1.0) if product else 0.0
    value = first.value - second.value
    return RatioDifference(value, joined.stderr, joined.skew, first, second, correlation)


def independent_difference(first: Ratio, second: Ratio) -> RatioDifference:
    """Return the difference between two ratios, first minus second, from estimates that share no reports."""
    change = difference(first, second)
    return RatioDifference(change.value, change.stderr, change.skew, first, second)


def reports_needed(reports: int, denominators: Sequence[Ratio]) -> int:
    """Return roughly how many reports would make all denominators clearly positive, if the estimates hold."""
    worst = 1.0
    for ratio in denominators:
        floor = max(ratio.denominator.value, ratio.denominator.stderr / 2)
        worst = max(worst, (MIN_ERRORS * ratio.denominator.stderr / floor) ** 2)
    return math.ceil(reports * worst)
