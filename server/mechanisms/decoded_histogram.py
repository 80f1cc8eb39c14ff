"""A decoded histogram: estimates, and the second and third moments of the weights that produce them.

A statistic is a constant plus, for every stratum, the mean of a weight w(class) over the stratum's reports.
Its variance is Σ (variance of w) / N and its third cumulant Σ (third central moment of w) / N².

A sparse histogram often lacks the codes that few reports are expected to have, and with them their
contribution to the variance. The code distribution that the estimates imply includes those codes, but
contains only as much information as the estimates. Moments are therefore taken over a mixture:
IMPLIED_SHARE from the implied distribution, the rest from the counts. With many reports the two agree.
benchmarks/interval_coverage.py measures the coverage of each.

An approximate mechanism's estimate has a bias of b(v) if all devices have v, and of Σ g(v) b(v) in the
population g that the histogram implies. Since g is itself an estimate with such biases, the square of that
sum is too small, so Σ g(v)² (b(v)² + the mean of b² over all values) is added: the mean square of a bias
with unknown signs plus that of a bias with unknown values.
benchmarks/approximate_coverage.py measures the coverage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..arrays import Counts, Floats

if TYPE_CHECKING:
    from .mechanism import Mechanism, Weights

IMPLIED_SHARE = 0.5


@dataclass(frozen=True)
class Spread:
    """The variances of several statistics, and how fast they grow with the values; arrays of shape (n,)."""

    variance: Floats
    skew: Floats

    @staticmethod
    def of(variance: Floats, third: Floats) -> Spread:
        """Return a spread with these second and third cumulants."""
        # Noiseless statistics have only rounding errors, whose ratio would be meaningless.
        safe = variance > 1e-12 * variance.max(initial=0)
        skew = np.divide(third, variance, out=np.zeros_like(variance), where=safe)
        return Spread(np.maximum(variance, 0), skew)


def simplex(values: Floats) -> Floats:
    """Return the nearest nonnegative values that sum to 1."""
    falling = np.sort(values)[::-1]
    over = (np.cumsum(falling) - 1) / np.arange(1, len(values) + 1)
    return np.maximum(values - over[np.flatnonzero(falling > over)[-1]], 0)


class Decoded:
    """A histogram by stratum, and the estimates that follow from the mechanism's law and weights.

    Attributes:
        counts: For each stratum, the number of reports in each class.
        reports: The number of reports in each stratum.
        exact: Whether all moments are exact; otherwise some come from a model.
    """

    exact = True

    def __init__(self, mechanism: Mechanism, counts: Sequence[Counts]):
        self.mechanism = mechanism
        self.counts = counts
        self.reports = [int(part.sum()) for part in counts]

    def halves(self, rng: np.random.Generator) -> tuple[Decoded, Decoded]:
        """Split the reports at random into two halves."""
        first = [rng.binomial(part, 0.5) for part in self.counts]
        second = [part - half for part, half in zip(self.counts, first, strict=True)]
        return type(self)(self.mechanism, first), type(self)(self.mechanism, second)

    @cached_property
    def frequencies(self) -> Floats:
        """Each value's estimated share, shape (domain,)."""
        return np.concatenate([self.value(alone) for _, alone in self.mechanism.columns()])

    @cached_property
    def implied(self) -> Floats:
        """The population that the estimates imply, shape (domain,)."""
        return simplex(self.frequencies)

    @cached_property
    def shares(self) -> list[Floats | None]:
        """The mixture over which moments are taken, for each stratum, or None if it has no reports."""
        implied: list[Floats] | None = None
        if "frequencies" in self.mechanism.answers:
            implied = self.mechanism.law(self.implied)
        result: list[Floats | None] = []
        for stratum, (part, n) in enumerate(zip(self.counts, self.reports, strict=True)):
            if not n:
                result.append(None)
            elif implied is None:
                result.append(part / n)
            else:
                mixture = implied[stratum]
                mixture *= IMPLIED_SHARE
                mixture += part * ((1 - IMPLIED_SHARE) / n)
                result.append(mixture)
        return result

    def weights(self, statistic: Floats) -> Weights:
        """Return the estimator of statistics, whose weights have shape (domain, n)."""
        return self.mechanism.weights(statistic, self.reports)

    def value(self, statistic: Floats) -> Floats:
        """Return the estimates of statistics, whose weights have shape (domain, n)."""
        weights, total = self.weights(statistic)
        for w, part, n in zip(weights, self.counts, self.reports, strict=True):
            if w is not None:
                total = total + part @ w / n
        return total

    def spread(self, statistic: Floats, at_once: int = 1) -> Spread:
        """Return the moments of statistics.

        Args:
            statistic: Weights of the values, shape (domain, n).
            at_once: The total number of columns that the caller requests together, including these.
        """
        cumulants = np.zeros((2, statistic.shape[1]))
        weights, _ = self.weights(statistic)
        for w, shares, n in zip(weights, self.shares, self.reports, strict=True):
            if w is not None and shares is not None:
                w -= shares @ w
                square = w * w
                cumulants[0] += (shares @ square) / n
                w *= square
                cumulants[1] += (shares @ w) / n**2
        if self.mechanism.approximate:
            cumulants[0] += self.mean_square_bias(statistic)
        return Spread.of(*cumulants)

    def mean_square_bias(self, statistic: Floats) -> Floats:
        """Return each statistic's mean square bias, shape (n,), or the largest if shares are unknown."""
        bias = self.mechanism.bias(statistic, self.reports)
        if "frequencies" not in self.mechanism.answers:
            return (bias**2).max(axis=0)
        mean_bias, weights = self.implied @ bias, self.implied**2
        bias *= bias
        return mean_bias**2 + weights @ bias + weights.sum() * bias.mean(axis=0)

    @cached_property
    def frequency_spread(self) -> Spread:
        """The moments of all frequencies."""
        return self._spread_of(lambda alone: alone)

    @cached_property
    def cdf_spread(self) -> Spread:
        """The moments of the shares of values at or below each index."""
        return self._spread_of(lambda alone: alone[::-1].cumsum(axis=0)[::-1])

    def _spread_of(self, statistic: Callable[[Floats], Floats]) -> Spread:
        parts = [self.spread(statistic(alone)) for _, alone in self.mechanism.columns()]
        return Spread(np.concatenate([p.variance for p in parts]), np.concatenate([p.skew for p in parts]))

    def ranges(self, low: npt.NDArray[np.integer], high: npt.NDArray[np.integer]) -> Spread | None:
        """Return the moments of the shares of low[i]..high[i]-1, or None if no fast method exists."""
        return None

    def nonnegative(self, frequencies: Floats) -> Floats:
        """Return nonnegative shares near the estimates that sum to 1, shape (domain,)."""
        return simplex(frequencies)

    def rare_variance(self) -> float:
        """Return the mean frequency variance for a value that no device has."""
        mechanism = self.mechanism
        total = 0.0
        for _, alone in mechanism.columns():
            others = (1 - alone) / (mechanism.domain - 1)
            weights, _ = mechanism.weights(alone, self.reports)
            for w, law, n in zip(weights, mechanism.law(others), self.reports, strict=True):
                if w is not None:
                    total += float(((law * w * w).sum(axis=0) - (law * w).sum(axis=0) ** 2).sum()) / n
        return total / mechanism.domain
