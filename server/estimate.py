"""Estimates from a histogram of codes: frequencies, ranges, distribution function, quantiles, error bars.

Every linear statistic is a constant plus a sum over levels of the mean of a weight w_l(code) over the
level's reports, and its error is stderr² = Σ_l (variance of w_l over the level's histogram) / N_l. That holds
for every mechanism and includes the correlations between values and the sampling of the population:
intervals are for the population that the reports were drawn from. Nothing here clips or normalises.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from ..device.ldp_client import Experiment, Level
from . import decode, hierarchy, oracle
from .statistic import EstimateError, Quantile, Statistic, normal_quantile

Floats = npt.NDArray[np.float64]

# Codes that few reports are expected in are often missing from a thin histogram, and with them their part of
# the variance; the distribution of codes that the estimates imply has all of them, but knows of a report only
# what the estimates kept. Variances are over a mixture: this share of the implied one, the rest as counted.
# Where reports are many the two agree. benchmarks/accuracy.py has the coverage of both and of the mixture.
IMPLIED_SHARE = 0.5

# Errors of all frequencies, or of the whole distribution function, are exact up to this many pairs of a class
# of codes and a value; about 15 ns each.
_MAX_EXACT_PAIRS = 100_000_000
_GRID, _COMMON = 33, 8  # of _gridded_cdf_variances
_CHUNK = 1 << 20  # floats held at once while going through the pairs


class Estimates:
    """What an Estimate and a Pool of them have in common: statistics made from linear ones.

    experiment, domain, reports: of the newest, or only, experiment; number of values; reports in all.
    stderr_method: "exact", or "approximate" where there are too many values for that: then cdf_stderr, and
    with it quantiles, and stderr of a hierarchy come from a model of the covariances (within about 5 % of the
    exact ones) or from a grid of indices. Ranges, single values and all of linear() are always exact.
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
    def stderr(self) -> Floats:
        """Standard errors of the frequencies, shape (domain,)."""
        raise NotImplementedError

    @cached_property
    def cdf_stderr(self) -> Floats:
        """Standard errors of cdf(), shape (domain,)."""
        raise NotImplementedError

    def linear(self, weights: npt.ArrayLike) -> Statistic:
        """Weighted sum of the frequencies; weights of shape (domain,), finite.

        Raises EstimateError for other weights.
        """
        raise NotImplementedError

    def rare_variance(self) -> float:
        """Variance of the frequency of a value that nobody holds; it depends on the design alone."""
        raise NotImplementedError

    def cdf(self) -> Floats:
        """Share of values at or below each index, shape (domain,); unbiased, so not always rising."""
        return np.cumsum(self.frequencies)

    def frequency(self, index: int) -> Statistic:
        """Share of one value. Raises EstimateError for an index outside the domain."""
        return self.range(index, index + 1)

    def range(self, lo: int, hi: int) -> Statistic:
        """Share of the indices lo..hi-1. Raises EstimateError unless 0 <= lo <= hi <= domain."""
        if not 0 <= lo <= hi <= self.domain:
            raise EstimateError(f"a range needs 0 <= lo <= hi <= {self.domain}, not {lo} and {hi}")
        weights = np.zeros(self.domain)
        weights[lo:hi] = 1
        return self.linear(weights)

    def quantile(self, q: float, confidence: float = 0.95) -> Quantile:
        """Smallest index whose cdf reaches q, 0 < q < 1, with its interval.

        The index is read off the running maximum of cdf(). The interval inverts the test at each index: it
        holds those i for which neither cdf(i) is below q nor cdf(i - 1) above it, significantly; each side
        misses with half the probability left. Raises EstimateError for q or confidence out of range.
        """
        if not 0 < q < 1:
            raise EstimateError(f"q must be between 0 and 1, not {q}")
        z = normal_quantile(confidence)
        cdf = self.cdf()
        cdf[-1] = max(cdf[-1], q)  # the whole domain holds everything, whatever its estimate
        error = z * self.cdf_stderr
        error[-1] = 0
        index = int(np.argmax(cdf >= q))
        low = int(np.argmax(cdf + error >= q))
        high = int(self.domain - 1 - np.argmax(np.append(True, cdf[:-1] - error[:-1] <= q)[::-1]))
        return Quantile(q, index, low, high)

    def _weights(self, weights: npt.ArrayLike) -> Floats:
        r = np.asarray(weights, dtype=np.float64)
        if r.shape != (self.domain,):
            raise EstimateError(f"weights must have shape ({self.domain},), not {r.shape}")
        if not np.isfinite(r).all():
            raise EstimateError("weights must be finite")
        return r


def _simplex(values: Floats) -> Floats:
    """Nearest non-negative values that sum to 1."""
    falling = np.sort(values)[::-1]
    over = (np.cumsum(falling) - 1) / np.arange(1, len(values) + 1)
    return np.maximum(values - over[np.flatnonzero(falling > over)[-1]], 0)


@dataclass(frozen=True)
class _LevelCounts:
    """A level that has reports: their counts by class of codes."""

    level: Level
    channel: oracle.Channel
    reports: int
    counts: npt.NDArray[np.int64]

    @cached_property
    def supports(self) -> npt.NDArray[np.int64]:
        """Reports that support each node."""
        return decode.class_supports(self.level, self.counts)

    @property
    def scale(self) -> float:
        """Change of a node's estimate for one unit of mean support."""
        return 1 / (self.channel.p - self.channel.q)

    @property
    def estimates(self) -> Floats:
        """Unbiased estimates of the nodes' frequencies from this level alone."""
        return (self.supports / self.reports - self.channel.q) * self.scale

    def smoothed(self, implied: Floats) -> "_Smoothed":
        """Mixture of the histogram and of what the nodes' frequencies implied, on the simplex, expect."""
        channel, level = self.channel, self.level
        codes = (level.g - 1) / level.seeds if level.t else 1.0
        expected = channel.lie + (channel.p - channel.lie) * decode.class_weights(level, implied)
        shares = (1 - IMPLIED_SHARE) * self.counts / self.reports + IMPLIED_SHARE * codes * expected
        supports = (1 - IMPLIED_SHARE) * self.supports / self.reports
        supports += IMPLIED_SHARE * (channel.q + (channel.p - channel.q) * implied)
        return _Smoothed(self, shares, supports, implied)


@dataclass(frozen=True)
class _Smoothed:
    """What variances are computed from: shares of the classes of codes, and of reports for each node."""

    data: _LevelCounts
    shares: Floats
    supports: Floats
    implied: Floats

    @property
    def factor(self) -> float:
        """Variance of a mean over the level's reports of estimates, for one of a report's weight."""
        return self.data.scale**2 / self.data.reports

    def variance_of_mean(self, weights: Floats) -> float:
        """Variance of the level's part of a statistic with weights on its nodes' estimates."""
        w = decode.class_weights(self.data.level, weights)
        mean = float(self.shares @ w)
        return float(self.shares @ (w - mean) ** 2) * self.factor


class Estimate(Estimates):
    """Estimates from one histogram; made by estimate()."""

    def __init__(self, experiment: Experiment, counts: npt.NDArray[np.int64]):
        self.experiment = experiment
        self.reports = int(counts.sum())
        self._levels: list[_LevelCounts | None] = []
        pairs = 0
        for level in experiment.levels:
            histogram = counts[level.offset : level.offset + level.code_count]
            reports = int(histogram.sum())
            data = None
            if reports:
                channel = oracle.level_channel(level)
                data = _LevelCounts(level, channel, reports, decode.collapse(level, histogram))
                pairs += len(data.counts) * experiment.domain
            self._levels.append(data)
        leaf = self._levels[-1]
        assert leaf is not None  # estimate() checked
        self._leaf = leaf
        self._tree: hierarchy.Tree | None = None
        if experiment.fanout:
            # The least squares must not depend on what was reported, or it would not be linear.
            self._tree = hierarchy.tree(experiment.domain, experiment.fanout, self._node_variances())
        self._direct = not self._tree and not leaf.level.t  # a report supports one value: all is closed
        self._exact = self._direct or pairs <= _MAX_EXACT_PAIRS
        self.stderr_method = "exact" if self._exact else "approximate"

    def _node_variances(self) -> list[float]:
        return [data.channel.variance / data.reports if data else math.inf for data in self._levels]

    @cached_property
    def _values(self) -> list[Floats]:
        if not self._tree:
            return [self._leaf.estimates]
        return hierarchy.solve(self._tree, [data.estimates if data else None for data in self._levels])

    @cached_property
    def frequencies(self) -> Floats:
        return self._values[-1]

    @cached_property
    def _smoothed(self) -> list[_Smoothed | None]:
        implied = _simplex(self.frequencies)
        result: list[_Smoothed | None] = []
        for data in self._levels:
            if data is None:
                result.append(None)
                continue
            nodes = np.add.reduceat(implied, np.arange(0, self.domain, data.level.width))
            result.append(data.smoothed(nodes))
        return result

    @property
    def _leaf_smoothed(self) -> _Smoothed:
        leaf = self._smoothed[-1]
        assert leaf is not None
        return leaf

    @cached_property
    def stderr(self) -> Floats:
        if self._tree:
            return np.sqrt(self._variances[0])
        share = self._leaf_smoothed.supports
        return np.sqrt(share * (1 - share) * self._leaf_smoothed.factor)

    @cached_property
    def cdf_stderr(self) -> Floats:
        if self._direct:
            share = np.minimum(np.cumsum(self._leaf_smoothed.supports), 1)
            return np.sqrt(share * (1 - share) * self._leaf_smoothed.factor)
        return np.sqrt(self._variances[1])

    def linear(self, weights: npt.ArrayLike) -> Statistic:
        r = self._weights(weights)
        parts = hierarchy.transpose(self._tree, r)[0] if self._tree else [r]
        variance = sum(s.variance_of_mean(w) for s, w in zip(self._smoothed, parts, strict=True) if s)
        return Statistic(float(r @ self.frequencies), math.sqrt(variance))

    def rare_variance(self) -> float:
        if not self._tree:
            return self._leaf.channel.variance / self._leaf.reports
        variances = self._node_variances()
        d = [
            np.full(n, v if np.isfinite(v) else 0.0) for n, v in zip(self._tree.nodes, variances, strict=True)
        ]
        return float(hierarchy.influences(self._tree, d)[0].squares.mean())

    @cached_property
    def _variances(self) -> tuple[Floats, Floats]:
        """Variances of all frequencies and of the distribution function."""
        if self._exact:
            return self._exact_variances()
        if self._tree:
            return self._model_variances(self._tree)
        return np.square(self.stderr), self._gridded_cdf_variances()

    def _exact_variances(self) -> tuple[Floats, Floats]:
        """By the effect of every class of codes on all values at once."""
        leaf = np.zeros(self.domain)
        prefix = np.zeros(self.domain)
        for number, smoothed in enumerate(self._smoothed):
            if smoothed is None:
                continue
            moments = np.zeros((4, self.domain))
            for supported, shares in _class_chunks(smoothed, max(1, _CHUNK // self.domain)):
                effect = supported
                if self._tree:
                    parts: list[Floats | None] = [None] * len(self._levels)
                    parts[number] = supported
                    effect = hierarchy.solve(self._tree, parts, root=0.0)[-1]
                moments[0] += effect @ shares
                moments[1] += np.square(effect) @ shares
                effect = np.cumsum(effect, axis=0)
                moments[2] += effect @ shares
                moments[3] += np.square(effect) @ shares
            leaf += np.maximum(moments[1] - moments[0] ** 2, 0) * smoothed.factor
            prefix += np.maximum(moments[3] - moments[2] ** 2, 0) * smoothed.factor
        return leaf, prefix

    def _model_variances(self, tree: hierarchy.Tree) -> tuple[Floats, Floats]:
        """Those of a hierarchy by the covariances that the channel gives to the supports of two values.

        Two values are supported at once as often as the exact channel says for a report of one of them. For a
        report of a third value that depends on whether the three stand on one line in the space of digits:
        the model takes the mean over third values.
        """
        d, e, cs = [], [], []
        for smoothed, values in zip(self._smoothed, self._values, strict=True):
            x = values
            if smoothed is None:
                d.append(np.zeros(len(x)))
                e.append(np.zeros((len(x), 2)))
                cs.append((0.0, 0.0, 0.0, 0.0, 0.0))
                continue
            x = (1 - IMPLIED_SHARE) * values + IMPLIED_SHARE * smoothed.implied
            level, channel = smoothed.data.level, smoothed.data.channel
            p, q, c, g = channel.p, channel.q, channel.collision, channel.g
            again = 0.0  # a third value collides as well, given that two do
            if level.t:
                size = level.seeds + 1
                line = (g - 2) / (size - 2)
                again = line + (1 - line) * (size // g**2 - 1) / (size // g - 1)
            other = c * (again * p + (1 - again) * channel.lie)
            own = c * p - other
            d.append((smoothed.supports - other - 2 * x * own) * smoothed.factor)
            e.append(np.stack([np.ones(len(x)), x], axis=1))
            cs.append((other, 2 * own, q, p - q, smoothed.factor))
        both = hierarchy.influences(tree, d, e)
        result = []
        for influence in both:
            variance = influence.squares.copy()
            for number, (other, own, q, pq, factor) in enumerate(cs):
                s, sx = influence.sums[:, number, 0], influence.sums[:, number, 1]
                variance += factor * (other * s * s + own * s * sx - (q * s + pq * sx) ** 2)
            result.append(np.maximum(variance, 0))
        return result[0], result[1]

    def _gridded_cdf_variances(self) -> Floats:
        """Variances of a hashed flat mechanism's distribution function: exact on a grid, linear in between.

        The grid is even, denser towards both ends, and has both sides of the most common values.
        """
        smoothed, size = self._leaf_smoothed, self.domain
        common = np.argsort(smoothed.implied)[-_COMMON:]
        ends = 2 ** np.arange(size.bit_length() - 1)
        parts = (np.linspace(0, size - 1, _GRID).astype(np.int64), common, common - 1, ends, size - 1 - ends)
        grid = np.unique(np.clip(np.concatenate(parts), 0, size - 1))
        indices = np.arange(size)
        exact = [smoothed.variance_of_mean((indices <= i).astype(np.float64)) for i in grid]
        return np.interp(indices, grid, exact)


def _class_chunks(smoothed: _Smoothed, size: int) -> Iterator[tuple[Floats, Floats]]:
    """Yield (which nodes a class supports, shape (nodes, classes), the classes' shares), few at a time."""
    level, all_shares = smoothed.data.level, smoothed.shares
    if not level.t:
        for first in range(0, level.domain, size):
            last = min(first + size, level.domain)
            supported = np.zeros((level.domain, last - first))
            supported[np.arange(first, last), np.arange(last - first)] = 1
            yield supported, all_shares[first:last]
        return
    seeds = len(all_shares) // level.g
    step = max(1, size // level.g)
    for first in range(0, seeds, step):
        last = min(first + step, seeds)
        cells = np.ascontiguousarray(decode.class_cells(level, first, last).T)
        index = decode.class_index(level, first, last)
        for y in range(level.g):
            yield (cells == y).astype(np.float64), all_shares[index[:, y]]


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
