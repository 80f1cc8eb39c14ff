"""How much linear statistics scatter: second and third moments of a level's weights over its codes.

A statistic is a constant plus, for every level, the mean of a weight w_l(code) over the level's reports. Its
variance is Σ_l (variance of w_l) / N_l and its third cumulant Σ_l (third central moment of w_l) / N_l².

Codes that few reports are expected in are often missing from a thin histogram, and with them their part of
the variance; the distribution of codes that the estimates imply has all of them, but knows of a report only
what the estimates kept. Moments are over a mixture: IMPLIED_SHARE of the implied one, the rest as counted.
Where reports are many the two agree; benchmarks/interval_coverage.py has the coverage of each.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ...device.ldp_client import Level
from ..mechanisms import choose as oracle
from ..mechanisms import local_hashing as decode
from ..mechanisms import tree as hierarchy
from .statistic import Floats

IMPLIED_SHARE = 0.5

_CHUNK = 1 << 20  # floats held at once while going through pairs of a class and a value


@dataclass(frozen=True)
class Spread:
    """Variances of several statistics, and how much they grow with the values; arrays of shape (n,)."""

    variance: Floats
    skew: Floats

    @staticmethod
    def of(variance: Floats, third: Floats) -> "Spread":
        """From second and third cumulants."""
        # What is known exactly leaves rounding errors, of which no ratio is to be made.
        safe = variance > 1e-12 * variance.max(initial=0)
        skew = np.divide(third, variance, out=np.zeros_like(variance), where=safe)
        return Spread(np.maximum(variance, 0), skew)


@dataclass(frozen=True)
class LevelCounts:
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

    def smoothed(self, implied: Floats) -> "Smoothed":
        """Mixture of the histogram and of what the nodes' frequencies implied, on the simplex, expect."""
        channel, level = self.channel, self.level
        codes = (level.g - 1) / level.seeds if level.t else 1.0
        expected = channel.lie + (channel.p - channel.lie) * decode.class_weights(level, implied)
        shares = (1 - IMPLIED_SHARE) * self.counts / self.reports + IMPLIED_SHARE * codes * expected
        supports = (1 - IMPLIED_SHARE) * self.supports / self.reports
        supports += IMPLIED_SHARE * (channel.q + (channel.p - channel.q) * implied)
        return Smoothed(self, shares, supports, implied)


@dataclass(frozen=True)
class Smoothed:
    """What moments are computed from: shares of the classes of codes, and of reports for each node."""

    data: LevelCounts
    shares: Floats
    supports: Floats
    implied: Floats

    @property
    def factor(self) -> float:
        """Variance of a mean over the level's reports of estimates, for one of a report's weight."""
        return self.data.scale**2 / self.data.reports

    @property
    def third_factor(self) -> float:
        """The same for third cumulants."""
        return self.data.scale**3 / self.data.reports**2

    def cumulants_of_mean(self, weights: Floats) -> tuple[Floats, Floats]:
        """Cumulants 2 and 3 of the level's part of n statistics; weights (nodes, n) on its estimates."""
        w = decode.class_weights(self.data.level, weights)
        w -= self.shares @ w
        square = w * w
        return (self.shares @ square) * self.factor, (self.shares @ (square * w)) * self.third_factor


def binomial(smoothed: Smoothed, supports: Floats) -> Spread:
    """Of statistics that a report either supports or not: a share of supports each, shape (n,)."""
    share = np.clip(supports, 0, 1)
    variance = share * (1 - share)
    skew = (1 - 2 * share) * smoothed.data.scale / smoothed.data.reports
    return Spread(variance * smoothed.factor, np.where(variance > 0, skew, 0))


def exact(
    tree: hierarchy.Tree | None, levels: Sequence[Smoothed | None], domain: int
) -> tuple[Spread, Spread]:
    """Of all frequencies and of the distribution function, by the effect of every class of codes on them."""
    cumulants = np.zeros((2, 2, domain))  # of frequencies or prefixes; second or third
    for number, smoothed in enumerate(levels):
        if smoothed is None:
            continue
        moments = np.zeros((2, 3, domain))
        for supported, shares in _class_chunks(smoothed, max(1, _CHUNK // domain)):
            effect = supported
            if tree:
                parts: list[Floats | None] = [None] * len(levels)
                parts[number] = supported
                effect = hierarchy.solve(tree, parts, root=0.0)[-1]
            for which, e in enumerate((effect, np.cumsum(effect, axis=0))):
                moments[which, 0] += e @ shares
                square = e * e
                moments[which, 1] += square @ shares
                square *= e
                moments[which, 2] += square @ shares
        first, second, third = moments[:, 0], moments[:, 1], moments[:, 2]
        cumulants[:, 0] += (second - first**2) * smoothed.factor
        cumulants[:, 1] += (third - 3 * first * second + 2 * first**3) * smoothed.third_factor
    return Spread.of(*cumulants[0]), Spread.of(*cumulants[1])


@dataclass(frozen=True)
class _Pairs:
    """Covariances of the supports of a level's nodes by a model with few numbers; see model()."""

    diagonal: Floats
    shares: Floats
    other: float
    own: float
    q: float
    pq: float
    factor: float

    def quadratic(self, total: Floats, weighted: Floats) -> Floats:
        """Variance of weights whose sum is total, and weighted by the nodes' shares is weighted."""
        mean = self.q * total + self.pq * weighted
        return self.factor * (self.other * total**2 + 2 * self.own * total * weighted - mean**2)


def _pairs(smoothed: Smoothed, values: Floats) -> _Pairs:
    """Two values are supported at once as often as the exact channel says for a report of one of them.

    For a report of a third value that depends on whether the three stand on one line in the space of digits:
    the model takes the mean over third values. For g = 2, and for direct answers, it is exact.
    """
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
    diagonal = (smoothed.supports - other - 2 * x * own) * smoothed.factor
    return _Pairs(diagonal, x, other, own, q, p - q, smoothed.factor)


def _hashed_prefixes(smoothed: Smoothed, values: Floats) -> Floats:
    """Variances of a flat hashed mechanism's distribution function, O(domain).

    Exact for the code distribution that the estimates imply. Three values share a cell more often where they
    are on a line of the space of digits, so lines through points of a prefix are counted, digit by digit
    from the top: a prefix is `full` whole blocks of b = g**j values and r of the next one. A line meets each
    of the g blocks around it once, unless it stays in one; what stays in the last is counted a digit lower.
    """
    channel, g = smoothed.data.channel, smoothed.data.channel.g
    x = (1 - IMPLIED_SHARE) * values + IMPLIED_SHARE * smoothed.implied
    p, lie, c = channel.p, channel.lie, channel.collision
    size = smoothed.data.level.seeds + 1
    c3 = (size // g**2 - 1) / (size - 1)  # three values that are not on a line share a cell
    apart = p * c3 + lie * (c - c3)
    line = (c - c3) * (p - lie)

    below = np.append(0.0, np.cumsum(x))
    n = np.arange(1, len(x) + 1)
    start, rest, lines = np.zeros_like(n), n, np.zeros(len(n))
    for j in range(smoothed.data.level.t - 1, -1, -1):
        b = g**j
        full, r = np.divmod(rest, b)
        ends = (start + full * b, start + (full + 1) * b, start + g * b)
        at_start, at_full, at_next, at_end = (below[np.minimum(i, len(x))] for i in (start, *ends))
        lines += (at_full - at_start) * ((b - 1) * (g - 2) + (full - 1) * (b * (full - 2) + 2 * r))
        lines += (at_next - at_full) * full * b * (full - 1)
        lines += (at_end - at_next) * full * (b * (full - 1) + 2 * r)
        start, rest = ends[0], r

    inside = below[n]
    second = np.cumsum(smoothed.supports) + n * (n - 1) * apart + lines * line
    second += inside * 2 * (n - 1) * (c * p - apart)
    mean = channel.q * n + (p - channel.q) * inside
    return np.maximum(second - mean**2, 0) * smoothed.factor


def model(
    tree: hierarchy.Tree | None, levels: Sequence[Smoothed | None], values: Sequence[Floats]
) -> tuple[Spread, Spread]:
    """Of all frequencies and of the distribution function, by a model of the covariances; skew left at 0.

    In O(nodes levels). values: the nodes' estimates, by level.
    """
    if tree is None:
        (smoothed,) = levels
        assert smoothed is not None
        prefix = _hashed_prefixes(smoothed, values[0])
        return binomial(smoothed, smoothed.supports), Spread(prefix, np.zeros_like(prefix))
    all_pairs = [s and _pairs(s, v) for s, v in zip(levels, values, strict=True)]
    d = [p.diagonal if p else np.zeros(n) for p, n in zip(all_pairs, tree.nodes, strict=True)]
    e = [
        np.stack([np.ones(n), p.shares], axis=1) if p else np.zeros((n, 2))
        for p, n in zip(all_pairs, tree.nodes, strict=True)
    ]
    result = []
    for influence in hierarchy.influences(tree, d, e):
        variance = influence.squares.copy()
        for number, pairs in enumerate(all_pairs):
            if pairs:
                sums = influence.sums[:, number]
                variance += pairs.quadratic(sums[:, 0], sums[:, 1])
        result.append(Spread(np.maximum(variance, 0), np.zeros_like(variance)))
    return result[0], result[1]


def model_of(parts: Sequence[Floats], levels: Sequence[Smoothed | None], values: Sequence[Floats]) -> Spread:
    """Of statistics with weights parts[l], shape (nodes, n), on each level's estimates, by the same model."""
    variance = np.zeros(parts[0].shape[1])
    for r, smoothed, x in zip(parts, levels, values, strict=True):
        if smoothed:
            pairs = _pairs(smoothed, x)
            variance += pairs.diagonal @ (r * r) + pairs.quadratic(r.sum(axis=0), pairs.shares @ r)
    return Spread(np.maximum(variance, 0), np.zeros_like(variance))


def _class_chunks(smoothed: Smoothed, size: int) -> Iterator[tuple[Floats, Floats]]:
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
