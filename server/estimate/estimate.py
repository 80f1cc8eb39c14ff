"""Estimates from a code histogram: frequencies, ranges, distribution function, quantiles and error bars.

Every linear statistic is a constant plus, for each stratum of the mechanism, the mean of a weight w(code)
over its reports, and its error is stderr² = Σ (variance of w over the stratum's histogram) / N. This holds
for every mechanism and includes both the correlations between values and population sampling: intervals are
for the population from which the reports are sampled. Nothing is clipped or normalized.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from ...device.ldp_client import Experiment
from ..arrays import Array, Floats
from ..mechanisms import mechanism_of
from ..mechanisms.decoded_histogram import Decoded, Spread
from .statistic import EstimateError, Quantile, Statistic, Statistics, TooFewReports, intervals

_CHUNK = 1 << 22  # floats in memory at once


class Estimates:
    """The base class of Estimate and Pool: statistics derived from linear ones.

    A hierarchy's covariances come from a model if computing exact ones would be too slow; the model's errors
    are mostly within 2% of the exact ones, and at worst about 10% off. A pair is a code class and a value:

    ====================================  ============================  =====================================
    errors                                exact up to                   beyond that
    ====================================  ============================  =====================================
    all mechanisms except hh              any size
    hh: single values, ranges, linear()   16 at once, or more if the    from the model, without skew
                                          butterflies need at most
                                          500 million additions
    hh: stderr, cdf_stderr, quantiles     25 million pairs              from the model, without skew
    ====================================  ============================  =====================================

    Attributes:
        experiment: The experiment, or its newest version.
        reports: The total number of reports.
        stderr_method: "exact" or "approximate", according to the table above.
    """

    experiment: Experiment
    reports: int
    stderr_method: Literal["exact", "approximate"]

    @property
    def parts(self) -> Sequence[tuple[float, Estimate]]:
        """The single-histogram estimates that were pooled, with their weights, or only this estimate."""
        raise NotImplementedError

    @property
    def versions(self) -> Sequence[Experiment]:
        """The experiments that the reports belong to, newest last."""
        return [part.experiment for _, part in self.parts]

    @property
    def approximate(self) -> bool:
        """Whether the mechanism has a bias that more reports do not reduce; intervals include the bias."""
        return any(part.decoded.mechanism.approximate for _, part in self.parts)

    @property
    def domain(self) -> int:
        """The number of values."""
        return self.experiment.domain

    @property
    def whole(self) -> Estimates:
        """The same estimates over all indices, including the one for a missing reading; see readings.py."""
        return self

    @cached_property
    def frequencies(self) -> Floats:
        """The share of each value, shape (domain,); unbiased, so some may be negative."""
        raise NotImplementedError

    @cached_property
    def spread(self) -> Spread:
        """The variances and skews of the frequencies."""
        raise NotImplementedError

    @cached_property
    def cdf_spread(self) -> Spread:
        """The variances and skews of cdf()."""
        raise NotImplementedError

    @property
    def answers(self) -> frozenset[str]:
        """The statistics that can be estimated, named as in Mechanism.answers."""
        raise NotImplementedError

    def halves(self) -> tuple[Estimates, Estimates] | None:
        """Return estimates from two random halves of the reports, or None if the reports are too few.

        The same reports are always split in the same way.
        """
        raise NotImplementedError

    def rare_variance(self) -> float:
        """Return the frequency variance for a value that no device has, which depends only on the design."""
        raise NotImplementedError

    def mean_variance(self) -> float:
        """Return the variance of the mean index in a uniform population, which depends only on the design."""
        raise NotImplementedError

    @property
    def stderr(self) -> Floats:
        """The standard errors of the frequencies, shape (domain,)."""
        return np.sqrt(self.spread.variance)

    @property
    def cdf_stderr(self) -> Floats:
        """The standard errors of cdf(), shape (domain,)."""
        return np.sqrt(self.cdf_spread.variance)

    def cdf(self) -> Floats:
        """Return the share of values up to each index, shape (domain,); unbiased, so it may decrease."""
        return np.cumsum(self.frequencies)

    def frequency_intervals(self, confidence: float = 0.95) -> tuple[Floats, Floats]:
        """Return the bounds of the frequencies' intervals, each of shape (domain,)."""
        return intervals(self.frequencies, self.stderr, self.spread.skew, confidence)

    def cdf_intervals(self, confidence: float = 0.95) -> tuple[Floats, Floats]:
        """Return the bounds of the pointwise intervals for cdf(), each of shape (domain,)."""
        return intervals(self.cdf(), self.cdf_stderr, self.cdf_spread.skew, confidence)

    def linear_many(self, weights: npt.ArrayLike) -> Statistics:
        """Return weighted sums of the frequencies.

        Args:
            weights: Finite weights, shape (domain, n) with n >= 1.

        Raises:
            EstimateError: If the weights have a different shape or are not finite.
        """
        r = np.asarray(weights, dtype=np.float64)
        if r.ndim != 2 or len(r) != self.domain or not r.shape[1]:
            raise EstimateError(f"weights must have shape ({self.domain}, n), not {r.shape}")
        if not np.isfinite(r).all():
            raise EstimateError("weights must be finite")
        return self._chunked(lambda c: r[:, c], r.shape[1])

    def linear(self, weights: npt.ArrayLike) -> Statistic:
        """Return the weighted sum of the frequencies.

        Args:
            weights: Finite weights, shape (domain,).

        Raises:
            EstimateError: If the weights have a different shape or are not finite.
        """
        r = np.asarray(weights, dtype=np.float64)
        if r.shape != (self.domain,):
            raise EstimateError(f"weights must have shape ({self.domain},), not {r.shape}")
        return self.linear_many(r[:, None])[0]

    def frequency(self, index: int) -> Statistic:
        """Return the share of one value.

        Raises:
            EstimateError: If the index is outside the domain.
        """
        return self.range(index, index + 1)

    def range(self, lo: int, hi: int) -> Statistic:
        """Return the combined share of the indices lo..hi-1.

        Raises:
            EstimateError: Unless 0 <= lo <= hi <= domain.
        """
        return self.ranges([lo], [hi])[0]

    def ranges(self, lows: npt.ArrayLike, highs: npt.ArrayLike) -> Statistics:
        """Return the shares of several ranges.

        Args:
            lows: The first index of each range, integers of shape (n,).
            highs: One more than the last index of each range, integers of shape (n,).

        Raises:
            EstimateError: Unless 0 <= low <= high <= domain for each range.
        """
        lo, hi = np.atleast_1d(np.asarray(lows)), np.atleast_1d(np.asarray(highs))
        if lo.shape != hi.shape or lo.ndim != 1:
            raise EstimateError(
                f"lower and upper ends must have the same shape (n,), not {lo.shape} and {hi.shape}"
            )
        invalid = (lo < 0) | (lo > hi) | (hi > self.domain)
        if invalid.any():
            at = int(np.argmax(invalid))
            raise EstimateError(
                f"a range must have 0 <= lo <= hi <= {self.domain}, not {lo[at]} and {hi[at]}"
            )
        return self._ranges(lo, hi)

    def quantile(self, q: float, confidence: float = 0.95) -> Quantile:
        """Return the smallest index whose cdf reaches q, with its interval.

        The index comes from the running maximum of cdf(). The interval inverts the test at each index, so it
        contains each i for which cdf(i) is not significantly below q and cdf(i - 1) not significantly above
        it; each side misses with half of the remaining probability.

        Args:
            q: The quantile, above 0 and below 1.
            confidence: The confidence of the interval, between 0 and 1.

        Raises:
            EstimateError: If q or confidence is out of range.
        """
        index, (below, above) = self.quantile_index(q), self.cdf_intervals(confidence)
        above[-1] = 1
        low = int(np.argmax(above >= q))
        high = int(self.domain - 1 - np.argmax(np.append(True, below[:-1] <= q)[::-1]))
        return Quantile(q, index, min(low, index), max(high, index))

    def quantile_index(self, q: float) -> int:
        """Return a quantile's index without its interval, which is slow to compute.

        Raises:
            EstimateError: If q is out of range.
        """
        if not 0 < q < 1:
            raise EstimateError(f"a quantile must be between 0 and 1 (0.5 is the median), not {q:g}")
        cdf = self.cdf()
        cdf[-1] = 1  # the entire domain's share is 1, regardless of its estimate
        return int(np.argmax(cdf >= q))

    def _ranges(self, lo: npt.NDArray[np.integer], hi: npt.NDArray[np.integer]) -> Statistics:
        index = np.arange(self.domain)[:, None]
        return self._chunked(lambda c: (index >= lo[c]) & (index < hi[c]), len(lo))

    def _linear(self, weights: Floats, at_once: int) -> Statistics:
        """Return statistics for some of the `at_once` columns that were requested together."""
        raise NotImplementedError

    def _chunked(self, columns: Callable[[slice], Array], count: int) -> Statistics:
        """Return statistics for `count` columns of weights, a few at a time."""
        step = max(1, _CHUNK // self.domain)
        parts = [
            self._linear(columns(slice(i, i + step)).astype(np.float64), count) for i in range(0, count, step)
        ]
        if len(parts) == 1:
            return parts[0]
        fields = zip(*(vars(part).values() for part in parts), strict=True)
        return type(parts[0])(*(np.concatenate(field) for field in fields))


class Estimate(Estimates):
    """Estimates from a single histogram; returned by estimate().

    Attributes:
        decoded: The histogram, decoded by its mechanism.
    """

    def __init__(self, experiment: Experiment, decoded: Decoded):
        self.experiment = experiment
        self.decoded = decoded
        self.reports = sum(decoded.reports)
        self.stderr_method = "exact" if decoded.exact else "approximate"

    @cached_property
    def frequencies(self) -> Floats:
        self._check_known(np.eye(self.domain, 1))
        return self.decoded.frequencies

    @cached_property
    def spread(self) -> Spread:
        self._check_known(np.eye(self.domain, 1))
        return self.decoded.frequency_spread

    @cached_property
    def cdf_spread(self) -> Spread:
        self._check_known(np.eye(self.domain, 1))
        return self.decoded.cdf_spread

    @property
    def parts(self) -> Sequence[tuple[float, Estimate]]:
        return [(1.0, self)]

    def halves(self) -> tuple[Estimates, Estimates] | None:
        counts = b"".join(part.tobytes() for part in self.decoded.counts)
        seed = hashlib.sha256(b"halves" + self.experiment.digest + counts).digest()
        first, second = self.decoded.halves(np.random.default_rng(int.from_bytes(seed)))
        mechanism, single = self.decoded.mechanism, np.eye(self.domain, 1)
        for half in (first, second):
            n = half.reports
            if sum(n) < 2 or mechanism.lacks(n) or mechanism.unknown(single, n):
                return None
        return Estimate(self.experiment, first), Estimate(self.experiment, second)

    def _check_known(self, weights: Floats) -> None:
        unknown = self.decoded.mechanism.unknown(weights, self.decoded.reports)
        if unknown:
            raise TooFewReports(unknown)

    def _linear(self, weights: Floats, at_once: int) -> Statistics:
        self._check_known(weights)
        return _statistics(self.decoded.value(weights), self.decoded.spread(weights, at_once))

    def _ranges(self, lo: npt.NDArray[np.integer], hi: npt.NDArray[np.integer]) -> Statistics:
        spread = self.decoded.ranges(lo, hi)
        if spread is None:
            return super()._ranges(lo, hi)
        values = np.append(0.0, np.cumsum(self.frequencies))
        return _statistics(values[hi] - values[lo], spread)

    @property
    def answers(self) -> frozenset[str]:
        return self.decoded.mechanism.answers

    def rare_variance(self) -> float:
        return self.decoded.rare_variance()

    def mean_variance(self) -> float:
        even = np.full(self.domain, 1 / self.domain)
        indices = np.arange(self.domain, dtype=float)[:, None]
        return float(self.decoded.mechanism.variances(indices, even)[0]) / self.reports


def _statistics(value: Floats, spread: Spread) -> Statistics:
    return Statistics(value, np.sqrt(spread.variance), spread.skew)


def estimate(experiment: Experiment, counts: npt.ArrayLike) -> Estimate:
    """Return the estimates from a code histogram.

    Args:
        experiment: The experiment.
        counts: The histogram, integers of shape (code_count,).

    Raises:
        TooFewReports: If there are fewer than two reports, or too few for the mechanism.
        EstimateError: If the counts have a different shape, are negative or not integers.
    """
    histogram = np.asarray(counts)
    if histogram.shape != (experiment.code_count,):
        text = f"counts must have shape ({experiment.code_count},), one per code of {experiment.name}"
        raise EstimateError(f"{text}, not {histogram.shape}")
    if histogram.dtype.kind not in "iu":
        raise EstimateError(f"counts must be integers, not {histogram.dtype}")
    if histogram.size and histogram.min() < 0:
        code = int(np.argmax(histogram < 0))
        raise EstimateError(f"counts must not be negative: code {code} has {histogram[code]}")
    total = histogram.sum(dtype=np.float64)
    if total >= 1 << 53:
        raise EstimateError("counts must not exceed 2**53 reports")
    if total < 2:
        raise TooFewReports(f"at least 2 reports are needed for an estimate, not {int(total)}")
    mechanism = mechanism_of(experiment)
    decoded = mechanism.decode(histogram.astype(np.int64))
    message = mechanism.lacks(decoded.reports)
    if message:
        raise TooFewReports(message)
    return Estimate(experiment, decoded)
