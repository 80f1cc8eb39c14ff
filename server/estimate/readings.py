"""Estimates among devices with a reading, for experiments in which a missing reading has its own index.

The values are the indices below the last one. If M is the share without a reading, every share, cumulative
share and linear statistic of the values is a ratio X / (1 - M) of two unbiased linear statistics of the same
reports, with the error and interval from conditional.py. Sums over all values are therefore exactly 1, and
everything derived from linear statistics (quantiles, most common values, changes) applies to devices with a
reading.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from ...device.ldp_client import Experiment
from ..arrays import Floats
from ..mechanisms.decoded_histogram import Spread
from ..wire.experiments import value_count
from .conditional import Ratio, ratios
from .estimate import Estimate, Estimates
from .statistic import Statistic, Statistics, TooFewReports, normal_quantile


@dataclass(frozen=True)
class Ratios(Statistics):
    """Several ratios: the fields of each Ratio and of its denominator, shape (n,)."""

    below: Floats
    below_stderr: Floats
    correlation: Floats

    @staticmethod
    def of(items: Sequence[Ratio]) -> Ratios:
        """Return the same ratios as arrays."""
        rows = [
            (r.value, r.stderr, r.skew, r.denominator.value, r.denominator.stderr, r.correlation)
            for r in items
        ]
        return Ratios(*np.array(rows, dtype=float).reshape(-1, len(fields(Ratios))).T)

    def __getitem__(self, number: int) -> Ratio:
        value, stderr, skew, below, below_stderr, correlation = (
            float(x[number]) for x in vars(self).values()
        )
        return Ratio(value, stderr, skew, Statistic(below, below_stderr), correlation)

    def interval(self, confidence: float = 0.95) -> tuple[Floats, Floats]:
        """Return the bounds of the ratios' intervals, as in Ratio.interval()."""
        low, high = super().interval(confidence)
        z = normal_quantile(confidence)
        with np.errstate(divide="ignore", invalid="ignore"):
            relative = self.below_stderr / self.below
            margin = 1 - (z * relative) ** 2
            middle = -(z**2) * self.correlation * relative * self.stderr
            half = np.sqrt(middle**2 + margin * (z * self.stderr) ** 2)
            bounded = (self.below > 0) & (margin > 0)
            low = np.where(bounded, np.minimum(low, self.value + (middle - half) / margin), -np.inf)
            high = np.where(bounded, np.maximum(high, self.value + (middle + half) / margin), np.inf)
        return low, high


class ReadingEstimates(Estimates):
    """Estimates among devices with a reading; returned by among_readings().

    All statistics raise TooFewReports unless the share with a reading is clearly above 0.

    Attributes:
        missing: The share of all devices without a reading.
    """

    def __init__(self, whole: Estimates):
        self._whole = whole
        self.experiment = whole.experiment
        self.reports = whole.reports
        self.stderr_method = whole.stderr_method

    @property
    def whole(self) -> Estimates:
        return self._whole

    @property
    def domain(self) -> int:
        """The number of values, excluding the missing reading."""
        return value_count(self.experiment)

    @property
    def parts(self) -> Sequence[tuple[float, Estimate]]:
        return self._whole.parts

    @property
    def versions(self) -> Sequence[Experiment]:
        return self._whole.versions

    @property
    def answers(self) -> frozenset[str]:
        return self._whole.answers

    @cached_property
    def missing(self) -> Statistic:
        """The share of devices without a reading."""
        return self._whole.frequency(self.domain)

    @cached_property
    def frequencies(self) -> Floats:
        return self._whole.frequencies[: self.domain] / self._with_reading.value

    @cached_property
    def spread(self) -> Spread:
        return Spread(self._shares.stderr**2, self._shares.skew)

    @cached_property
    def cdf_spread(self) -> Spread:
        return Spread(self._cumulative.stderr**2, self._cumulative.skew)

    def halves(self) -> tuple[Estimates, Estimates] | None:
        halves = self._whole.halves()
        if halves is None:
            return None
        first, second = (ReadingEstimates(half) for half in halves)
        is_known = all(half.has_known_denominator for half in (first, second))
        return (first, second) if is_known else None

    def rare_variance(self) -> float:
        return self._whole.rare_variance() / self._with_reading.value**2

    def mean_variance(self) -> float:
        return self._whole.mean_variance() / self._with_reading.value**2

    def frequency_intervals(self, confidence: float = 0.95) -> tuple[Floats, Floats]:
        return self._shares.interval(confidence)

    def cdf_intervals(self, confidence: float = 0.95) -> tuple[Floats, Floats]:
        return self._cumulative.interval(confidence)

    @cached_property
    def _shares(self) -> Statistics:
        index = np.arange(self.domain)
        return self._chunked(lambda c: index[:, None] == index[c], self.domain)

    @cached_property
    def _cumulative(self) -> Statistics:
        index = np.arange(self.domain)
        return self._chunked(lambda c: index[:, None] <= index[c], self.domain)

    @cached_property
    def _denominator(self) -> Ratio:
        ones = np.append(np.ones(self.domain), 0.0)[:, None]
        return ratios(self._whole, ones, ones)[0]

    @property
    def has_known_denominator(self) -> bool:
        """Whether the share of devices with a reading is clearly above 0."""
        return self._denominator.is_known

    @property
    def _with_reading(self) -> Statistic:
        """The share of devices with a reading; raises TooFewReports unless it is clearly above 0."""
        if not self.has_known_denominator:
            low, high = self.missing.interval()
            ends = f"{max(low, 0) * 100:.0f} to {min(high, 1) * 100:.0f}%"
            raise TooFewReports(
                f"too few reports have a reading for {self.experiment.name}; {ends} of devices have none"
            )
        return self._denominator.denominator

    def _linear(self, weights: Floats, at_once: int) -> Statistics:
        assert self._with_reading
        above = np.append(weights, np.zeros((1, weights.shape[1])), axis=0)
        below = np.ones_like(above)
        below[-1] = 0
        return Ratios.of(ratios(self._whole, above, below))


def among_readings(estimates: Estimates) -> Estimates:
    """Return the estimates among devices that have a reading.

    If the experiment does not set `missing`, the estimates are returned unchanged. A pair keeps its joint
    table, in which a missing reading is one of a part's values.
    """
    if value_count(estimates.experiment) == estimates.domain:
        return estimates
    return ReadingEstimates(estimates)


def missing_share(estimates: Estimates) -> Statistic | None:
    """Return the share of devices without a reading, or None if it is not estimated."""
    return estimates.missing if isinstance(estimates, ReadingEstimates) else None
