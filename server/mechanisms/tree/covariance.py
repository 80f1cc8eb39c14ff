"""Moments of all frequencies, or of the whole distribution function, of the levels of a tree.

Here are two ways: the effect of every class of codes on all values at once, and where there are too many
pairs of the two, a model of the covariances of supports with few numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...arrays import Counts, Floats
from .. import decoded
from ..channel import SupportCode
from ..decoded import Spread
from ..hashing import butterfly
from . import least_squares as hierarchy
from .influence import influences

_CHUNK = 1 << 17  # floats at once while going through pairs of a class and a value: they fit a core's cache


@dataclass(frozen=True)
class LevelCounts:
    """A level that has reports: their counts by class of codes."""

    code: SupportCode
    reports: int
    counts: Counts

    @cached_property
    def supports(self) -> Counts:
        """Reports that support each node."""
        return self.code.class_supports(self.counts)

    @property
    def estimates(self) -> Floats:
        """Unbiased estimates of the nodes' frequencies from this level alone."""
        return (self.supports / self.reports - self.code.channel.q) * self.code.scale

    @property
    def factor(self) -> float:
        """Variance of a mean over the level's reports of estimates, for one of a report's weight."""
        return self.code.scale**2 / self.reports


@dataclass(frozen=True)
class Smoothed:
    """The inputs of the moments: shares of the classes of codes, of reports for each node, of values."""

    data: LevelCounts
    shares: Floats
    supports: Floats
    implied: Floats

    @staticmethod
    def of(data: LevelCounts, shares: Floats, implied: Floats) -> Smoothed:
        """From the mixture of counted and implied shares of classes, and the nodes' implied frequencies."""
        channel = data.code.channel
        supports = (1 - decoded.IMPLIED_SHARE) * data.supports / data.reports
        supports += decoded.IMPLIED_SHARE * (channel.q + (channel.p - channel.q) * implied)
        return Smoothed(data, shares, supports, implied)


def exact(tree: hierarchy.Tree, levels: Sequence[Smoothed | None], domain: int) -> tuple[Spread, Spread]:
    """Of all frequencies and of the distribution function, by the effect of every class of codes on them."""
    cumulants = np.zeros((2, 2, domain))  # of frequencies or prefixes; second or third
    for number, smoothed in enumerate(levels):
        if smoothed is None:
            continue
        moments = np.zeros((2, 3, domain))
        for supported, shares in _class_chunks(smoothed, max(1, _CHUNK // domain)):
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
        cumulants[:, 0] += (second - first**2) * smoothed.data.factor
        factor = smoothed.data.code.scale**3 / smoothed.data.reports**2
        cumulants[:, 1] += (third - 3 * first * second + 2 * first**3) * factor
    return Spread.of(*cumulants[0]), Spread.of(*cumulants[1])


def _shares(smoothed: Smoothed, values: Floats) -> Floats:
    """Shares of the nodes: of their consistent values and of the implied ones."""
    return (1 - decoded.IMPLIED_SHARE) * values + decoded.IMPLIED_SHARE * smoothed.implied


def _diagonal(smoothed: Smoothed, shares: Floats) -> Floats:
    """Variance of each node's estimate, less what _quadratic holds of it."""
    channel, both = smoothed.data.code.channel, smoothed.data.code.channel.both_supported
    if_own = channel.collision * channel.p - both
    return (smoothed.supports - both - 2 * shares * if_own) * smoothed.data.factor


def _quadratic(smoothed: Smoothed, total: Floats, weighted: Floats) -> Floats:
    """Variance of weights whose sum is total, and weighted by the nodes' shares is weighted.

    Two values are supported at once as often as the exact channel says for a report of one of them. For a
    report of a third value that depends on whether the three stand on one line in the space of digits: the
    model takes the mean over third values. For g = 2, and for direct answers, it is exact.
    """
    channel, neither_own = smoothed.data.code.channel, smoothed.data.code.channel.both_supported
    if_own = channel.collision * channel.p - neither_own
    mean = channel.q * total + (channel.p - channel.q) * weighted
    both = neither_own * total**2 + 2 * if_own * total * weighted
    return smoothed.data.factor * (both - mean**2)


def model(
    tree: hierarchy.Tree, levels: Sequence[Smoothed | None], values: Sequence[Floats]
) -> tuple[Spread, Spread]:
    """Of all frequencies and of the distribution function, by a model of the covariances; skew left at 0.

    In O(nodes levels). values: the nodes' estimates, by level.
    """
    d = [np.zeros(n) for n in tree.nodes]
    e = [np.zeros((n, 2)) for n in tree.nodes]
    for number, (smoothed, x) in enumerate(zip(levels, values, strict=True)):
        if smoothed:
            shares = _shares(smoothed, x)
            d[number] = _diagonal(smoothed, shares)
            e[number] = np.stack([np.ones(len(shares)), shares], axis=1)
    result: list[Spread] = []
    for influence in influences(tree, d, e):
        variance = influence.squares.copy()
        for number, smoothed in enumerate(levels):
            if smoothed:
                sums = influence.sums[:, number]
                variance += _quadratic(smoothed, sums[:, 0], sums[:, 1])
        result.append(Spread(np.maximum(variance, 0), np.zeros_like(variance)))
    return result[0], result[1]


def model_of(parts: Sequence[Floats], levels: Sequence[Smoothed | None], values: Sequence[Floats]) -> Spread:
    """Of statistics with weights parts[l], shape (nodes, n), on each level's estimates, by the same model."""
    variance = np.zeros(parts[0].shape[1])
    for r, smoothed, x in zip(parts, levels, values, strict=True):
        if smoothed:
            shares = _shares(smoothed, x)
            own = _diagonal(smoothed, shares) @ (r * r)
            variance += own + _quadratic(smoothed, r.sum(axis=0), shares @ r)
    return Spread(np.maximum(variance, 0), np.zeros_like(variance))


def _class_chunks(smoothed: Smoothed, size: int) -> Iterator[tuple[Floats, Floats]]:
    """Yield (which nodes a class supports, shape (nodes, classes), the classes' shares), few at a time."""
    level, all_shares = smoothed.data.code.level, smoothed.shares
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
        cells = np.ascontiguousarray(butterfly.class_cells(level, first, last).T)
        index = butterfly.class_index(level, first, last)
        for y in range(level.g):
            yield (cells == y).astype(np.float64), all_shares[index[:, y]]
