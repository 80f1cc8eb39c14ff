"""Estimates from a histogram of codes: frequencies, ranges, distribution function, quantiles, error bars.

Every linear statistic is a constant plus a sum over levels of the mean of a weight w_l(code) over the
level's reports, and its error is stderr² = Σ_l (variance of w_l over the level's histogram) / N_l. That holds
for every mechanism and includes the correlations between values and the sampling of the population:
intervals are for the population that the reports were drawn from. Nothing here clips or normalises.
"""

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ...device.ldp_client import Experiment
from ..mechanisms import choose as oracle
from ..mechanisms import local_hashing as decode
from ..mechanisms import tree as hierarchy
from . import variance
from .statistic import EstimateError, Floats, Quantile, Statistic, Statistics, intervals

# Errors of all frequencies, or of the whole distribution function, are exact up to this many pairs of a class
# of codes and a value, about 20 ns each; beyond it they come from a model of the covariances.
_MAX_EXACT_PAIRS = 25_000_000
# The same where many statistics of a hierarchy are asked for at once, in numbers that the butterflies add.
_MAX_EXACT_WORK = 500_000_000
_ALWAYS_EXACT = 16
_CHUNK = 1 << 22  # floats held at once


class Estimates:
    """What an Estimate and a Pool of them have in common: statistics made from linear ones.

    experiment, domain, reports: of the newest, or only, experiment; number of values; reports in all.
    stderr_method: "exact", or "approximate" where there are too many values for that: then cdf_stderr, and
    with it quantiles, and stderr of a hierarchy come from a model of the covariances (mostly within 2 % of
    the exact ones, at worst some 10 %); flat mechanisms lack only the skew. Ranges, single values and
    linear() are exact but where hundreds of a large hierarchy are asked for at once.
    """

    experiment: Experiment
    reports: int
    stderr_method: Literal["exact", "approximate"]

    @property
    def domain(self) -> int:
        """Number of values."""
        return self.experiment.domain

    @cached_property
    def frequencies(self) -> Floats:
        """Share of each value, shape (domain,); unbiased, so that some may be negative."""
        raise NotImplementedError

    @cached_property
    def spread(self) -> variance.Spread:
        """Variances and skews of the frequencies."""
        raise NotImplementedError

    @cached_property
    def cdf_spread(self) -> variance.Spread:
        """Variances and skews of cdf()."""
        raise NotImplementedError

    def rare_variance(self) -> float:
        """Variance of the frequency of a value that nobody holds; it depends on the design alone."""
        raise NotImplementedError

    @property
    def stderr(self) -> Floats:
        """Standard errors of the frequencies, shape (domain,)."""
        return np.sqrt(self.spread.variance)

    @property
    def cdf_stderr(self) -> Floats:
        """Standard errors of cdf(), shape (domain,)."""
        return np.sqrt(self.cdf_spread.variance)

    def cdf(self) -> Floats:
        """Share of values at or below each index, shape (domain,); unbiased, so not always rising."""
        return np.cumsum(self.frequencies)

    def frequency_intervals(self, confidence: float = 0.95) -> tuple[Floats, Floats]:
        """Ends of the intervals of the frequencies, two arrays of shape (domain,)."""
        return intervals(self.frequencies, self.stderr, self.spread.skew, confidence)

    def cdf_intervals(self, confidence: float = 0.95) -> tuple[Floats, Floats]:
        """Ends of the intervals of cdf(), each for itself, two arrays of shape (domain,)."""
        return intervals(self.cdf(), self.cdf_stderr, self.cdf_spread.skew, confidence)

    def linear_many(self, weights: npt.ArrayLike) -> Statistics:
        """Weighted sums of the frequencies; weights of shape (domain, n), n >= 1, finite, a column for each.

        Raises EstimateError for other weights.
        """
        r = np.asarray(weights, dtype=np.float64)
        if r.ndim != 2 or len(r) != self.domain or not r.shape[1]:
            raise EstimateError(f"weights must have shape ({self.domain}, n), not {r.shape}")
        if not np.isfinite(r).all():
            raise EstimateError("weights must be finite")
        return self._chunked(lambda c: r[:, c], r.shape[1])

    def linear(self, weights: npt.ArrayLike) -> Statistic:
        """Weighted sum of the frequencies; weights of shape (domain,), finite.

        Raises EstimateError for other weights.
        """
        r = np.asarray(weights, dtype=np.float64)
        if r.shape != (self.domain,):
            raise EstimateError(f"weights must have shape ({self.domain},), not {r.shape}")
        return self.linear_many(r[:, None])[0]

    def frequency(self, index: int) -> Statistic:
        """Share of one value. Raises EstimateError for an index outside the domain."""
        return self.range(index, index + 1)

    def range(self, lo: int, hi: int) -> Statistic:
        """Share of the indices lo..hi-1. Raises EstimateError unless 0 <= lo <= hi <= domain."""
        return self.ranges([lo], [hi])[0]

    def ranges(self, lows: npt.ArrayLike, highs: npt.ArrayLike) -> Statistics:
        """Shares of many ranges at once, lows[i]..highs[i]-1: integers of shape (n,).

        Raises EstimateError unless 0 <= lo <= hi <= domain for each.
        """
        lo, hi = np.atleast_1d(np.asarray(lows)), np.atleast_1d(np.asarray(highs))
        if lo.shape != hi.shape or lo.ndim != 1:
            raise EstimateError(f"as many lower as upper ends are needed, not {lo.shape} and {hi.shape}")
        wrong = (lo < 0) | (lo > hi) | (hi > self.domain)
        if wrong.any():
            at = int(np.argmax(wrong))
            raise EstimateError(f"a range needs 0 <= lo <= hi <= {self.domain}, not {lo[at]} and {hi[at]}")
        return self._ranges(lo, hi)

    def quantile(self, q: float, confidence: float = 0.95) -> Quantile:
        """Smallest index whose cdf reaches q, 0 < q < 1, with its interval.

        The index is read off the running maximum of cdf(). The interval inverts the test at each index: it
        holds those i for which neither cdf(i) is below q nor cdf(i - 1) above it, significantly; each side
        misses with half the probability left. Raises EstimateError for q or confidence out of range.
        """
        if not 0 < q < 1:
            raise EstimateError(f"q must be between 0 and 1, not {q}")
        cdf = self.cdf()
        below, above = self.cdf_intervals(confidence)
        cdf[-1] = above[-1] = 1  # the whole domain holds everything, whatever its estimate
        index = int(np.argmax(cdf >= q))
        low = int(np.argmax(above >= q))
        high = int(self.domain - 1 - np.argmax(np.append(True, below[:-1] <= q)[::-1]))
        return Quantile(q, index, min(low, index), max(high, index))

    def _ranges(self, lo: npt.NDArray[np.integer], hi: npt.NDArray[np.integer]) -> Statistics:
        index = np.arange(self.domain)[:, None]
        return self._chunked(lambda c: (index >= lo[c]) & (index < hi[c]), len(lo))

    def _linear(self, weights: Floats, at_once: int) -> Statistics:
        """Statistics of some of at_once columns that are asked for together."""
        raise NotImplementedError

    def _chunked(self, columns: Callable[[slice], npt.NDArray[Any]], count: int) -> Statistics:
        """Statistics of count columns of weights, few at a time."""
        step = max(1, _CHUNK // self.domain)
        parts = [
            self._linear(columns(slice(i, i + step)).astype(np.float64), count) for i in range(0, count, step)
        ]
        if len(parts) == 1:
            return parts[0]
        fields = zip(*((s.value, s.stderr, s.skew) for s in parts), strict=True)
        return Statistics(*(np.concatenate(field) for field in fields))


def simplex(values: Floats) -> Floats:
    """Nearest non-negative values that sum to 1."""
    falling = np.sort(values)[::-1]
    over = (np.cumsum(falling) - 1) / np.arange(1, len(values) + 1)
    return np.maximum(values - over[np.flatnonzero(falling > over)[-1]], 0)


class Estimate(Estimates):
    """Estimates from one histogram; made by estimate().

    levels: for each of the experiment's levels its counts, or None where it has no reports.
    """

    def __init__(self, experiment: Experiment, counts: npt.NDArray[np.int64]):
        self.experiment = experiment
        self.reports = int(counts.sum())
        self.levels: list[variance.LevelCounts | None] = []
        pairs = self._work = 0
        for level in experiment.levels:
            histogram = counts[level.offset : level.offset + level.code_count]
            reports = int(histogram.sum())
            data = None
            if reports:
                channel = oracle.level_channel(level)
                data = variance.LevelCounts(level, channel, reports, decode.collapse(level, histogram))
                pairs += len(data.counts) * experiment.domain
                self._work += level.t * level.g ** (level.t + 1) if level.t else level.domain
            self.levels.append(data)
        leaf = self.levels[-1]
        assert leaf is not None  # estimate() checked
        self._leaf = leaf
        self._tree: hierarchy.Tree | None = None
        if experiment.fanout:
            # The least squares must not depend on what was reported, or it would not be linear.
            assumed = [d.channel.assumed / d.reports if d else math.inf for d in self.levels]
            self._tree = hierarchy.tree(experiment.domain, experiment.fanout, assumed)
        self._direct = not self._tree and not leaf.level.t  # a report supports one value: all is closed
        self._exact = self._direct or pairs <= _MAX_EXACT_PAIRS
        self.stderr_method = "exact" if self._exact else "approximate"

    @cached_property
    def _values(self) -> list[Floats]:
        if not self._tree:
            return [self._leaf.estimates]
        return hierarchy.solve(self._tree, [data.estimates if data else None for data in self.levels])

    @cached_property
    def frequencies(self) -> Floats:
        return self._values[-1]

    @cached_property
    def _smoothed(self) -> list[variance.Smoothed | None]:
        implied = simplex(self.frequencies)
        result: list[variance.Smoothed | None] = []
        for data in self.levels:
            if data is None:
                result.append(None)
                continue
            nodes = np.add.reduceat(implied, np.arange(0, self.domain, data.level.width))
            result.append(data.smoothed(nodes))
        return result

    @property
    def _leaf_smoothed(self) -> variance.Smoothed:
        leaf = self._smoothed[-1]
        assert leaf is not None
        return leaf

    @cached_property
    def spread(self) -> variance.Spread:
        if not self._tree:
            return variance.binomial(self._leaf_smoothed, self._leaf_smoothed.supports)
        return self._spreads[0]

    @cached_property
    def cdf_spread(self) -> variance.Spread:
        if self._direct:
            return variance.binomial(self._leaf_smoothed, np.cumsum(self._leaf_smoothed.supports))
        return self._spreads[1]

    @cached_property
    def _spreads(self) -> tuple[variance.Spread, variance.Spread]:
        if self._exact:
            return variance.exact(self._tree, self._smoothed, self.domain)
        return variance.model(self._tree, self._smoothed, self._values)

    def _linear(self, weights: Floats, at_once: int) -> Statistics:
        parts = hierarchy.transpose(self._tree, weights)[0] if self._tree else [weights]
        value = self.frequencies @ weights
        if self._tree and at_once > _ALWAYS_EXACT and at_once * self._work > _MAX_EXACT_WORK:
            spread = variance.model_of(parts, self._smoothed, self._values)
        else:
            cumulants = np.zeros((2, weights.shape[1]))
            for smoothed, w in zip(self._smoothed, parts, strict=True):
                if smoothed:
                    cumulants += smoothed.cumulants_of_mean(w)
            spread = variance.Spread.of(*cumulants)
        return Statistics(value, np.sqrt(spread.variance), spread.skew)

    def _ranges(self, lo: npt.NDArray[np.integer], hi: npt.NDArray[np.integer]) -> Statistics:
        if not self._direct:
            return super()._ranges(lo, hi)
        values, supports = (
            np.append(0.0, np.cumsum(x)) for x in (self.frequencies, self._leaf_smoothed.supports)
        )
        spread = variance.binomial(self._leaf_smoothed, supports[hi] - supports[lo])
        return Statistics(values[hi] - values[lo], np.sqrt(spread.variance), spread.skew)

    def rare_variance(self) -> float:
        if not self._tree:
            return self._leaf.channel.variance / self._leaf.reports
        d = [
            np.full(n, level.channel.variance / level.reports if level else 0.0)
            for n, level in zip(self._tree.nodes, self.levels, strict=True)
        ]
        return float(hierarchy.influences(self._tree, d)[0].squares.mean())


def estimate(experiment: Experiment, counts: npt.ArrayLike) -> Estimate:
    """Estimates from a histogram of codes, integers of shape (code_count,).

    Raises EstimateError for counts of another shape, that are not integers or negative, with fewer than two
    reports, or with none on the level of single values.
    """
    histogram = np.asarray(counts)
    if histogram.shape != (experiment.code_count,):
        text = f"counts must have shape ({experiment.code_count},), one for each code of {experiment.name}"
        raise EstimateError(f"{text}, not {histogram.shape}")
    if histogram.dtype.kind not in "iu":
        raise EstimateError(f"counts must be integers, not {histogram.dtype}")
    if histogram.size and histogram.min() < 0:
        code = int(np.argmax(histogram < 0))
        raise EstimateError(f"counts must not be negative: code {code} has {histogram[code]}")
    total = histogram.sum(dtype=np.float64)
    if total >= 1 << 53:
        raise EstimateError("more than 2**53 reports: counts must be what was received")
    if total < 2:
        raise EstimateError(f"at least 2 reports are needed for an estimate, not {int(total)}")
    leaf = experiment.levels[-1]
    if not histogram[leaf.offset :].any():
        raise EstimateError("no report is about single values yet: wait for reports of the last level")
    return Estimate(experiment, histogram.astype(np.int64))
