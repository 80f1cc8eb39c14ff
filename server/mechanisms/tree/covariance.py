"""Moments of all frequencies, or of the entire distribution function, from a tree's levels.

The exact method computes the effect of every code class on all values. If that would be too many pairs of
classes and values, the supports' covariances are modelled with few parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...arrays import Counts, Floats
from .. import decoded_histogram
from ..channel import SupportCode
from ..decoded_histogram import Spread
from ..hashing import butterfly
from . import least_squares as hierarchy
from .influence import influences

_CHUNK = 1 << 17  # floats at once, one per pair of a class and a value, to fit a core's cache


@dataclass(frozen=True)
class LevelCounts:
    """A level with reports, and their counts by code class."""

    code: SupportCode
    reports: int
    counts: Counts

    @cached_property
    def supports(self) -> Counts:
        """The number of reports that support each node."""
        return self.code.class_supports(self.counts)

    @property
    def estimates(self) -> Floats:
        """The unbiased estimates of the nodes' frequencies from only this level."""
        return (self.supports / self.reports - self.code.channel.q) * self.code.scale

    @property
    def factor(self) -> float:
        """The variance of a mean over the level's reports, per unit of variance of a report's weight."""
        return self.code.scale**2 / self.reports


@dataclass(frozen=True)
class Smoothed:
    """The inputs for the moments.

    Attributes:
        data: The level's counts.
        shares: Each code class's share of the reports.
        supports: The share of reports that support each node.
        implied: The implied frequency of each node.
    """

    data: LevelCounts
    shares: Floats
    supports: Floats
    implied: Floats

    @staticmethod
    def of(data: LevelCounts, shares: Floats, implied: Floats) -> Smoothed:
        """Return the inputs for mixed counted and implied class shares, and implied frequencies."""
        channel = data.code.channel
        supports = (1 - decoded_histogram.IMPLIED_SHARE) * data.supports / data.reports
        supports += decoded_histogram.IMPLIED_SHARE * (channel.q + (channel.p - channel.q) * implied)
        return Smoothed(data, shares, supports, implied)


def exact(tree: hierarchy.Tree, levels: Sequence[Smoothed | None], domain: int) -> tuple[Spread, Spread]:
    """Return the exact moments of all frequencies and of the distribution function."""
    cumulants = np.zeros((2, 2, domain))  # (frequencies or prefixes, second or third cumulant, value)
    for number, smoothed in enumerate(levels):
        if smoothed is None:
            continue
        moments = np.zeros((2, 3, domain))
        for supported, shares in _class_chunks(smoothed, max(1, _CHUNK // domain)):
            parts: list[Floats | None] = [None] * len(levels)
            parts[number] = supported
            effect = hierarchy.solve(tree, parts, root=0.0)[-1]
            for kind, e in enumerate((effect, np.cumsum(effect, axis=0))):
                moments[kind, 0] += e @ shares
                square = e * e
                moments[kind, 1] += square @ shares
                square *= e
                moments[kind, 2] += square @ shares
        first, second, third = moments[:, 0], moments[:, 1], moments[:, 2]
        cumulants[:, 0] += (second - first**2) * smoothed.data.factor
        factor = smoothed.data.code.scale**3 / smoothed.data.reports**2
        cumulants[:, 1] += (third - 3 * first * second + 2 * first**3) * factor
    return Spread.of(*cumulants[0]), Spread.of(*cumulants[1])


def _shares(smoothed: Smoothed, values: Floats) -> Floats:
    """Return the nodes' shares, mixed from their consistent values and the implied ones."""
    return (1 - decoded_histogram.IMPLIED_SHARE) * values + decoded_histogram.IMPLIED_SHARE * smoothed.implied


def _diagonal(smoothed: Smoothed, shares: Floats) -> Floats:
    """Return the variance of each node's estimate without the part that _quadratic() computes."""
    channel, both = smoothed.data.code.channel, smoothed.data.code.channel.both_supported
    if_own = channel.collision * channel.p - both
    return (smoothed.supports - both - 2 * shares * if_own) * smoothed.data.factor


def _quadratic(smoothed: Smoothed, total: Floats, weighted: Floats) -> Floats:
    """Return the variance of node weights whose sum is `total` and whose share-weighted sum is `weighted`.

    For a report of either of two values, the probability that both are supported is exact. For a report of a
    third value, it depends on whether the three are collinear in digit space, and the model uses the mean
    over third values. The model is exact for g = 2 and for direct answers.
    """
    channel, neither_own = smoothed.data.code.channel, smoothed.data.code.channel.both_supported
    if_own = channel.collision * channel.p - neither_own
    mean = channel.q * total + (channel.p - channel.q) * weighted
    both = neither_own * total**2 + 2 * if_own * total * weighted
    return smoothed.data.factor * (both - mean**2)


def model(
    tree: hierarchy.Tree, levels: Sequence[Smoothed | None], values: Sequence[Floats]
) -> tuple[Spread, Spread]:
    """Return the moments of all frequencies and of the distribution function, using a model without skew.

    The running time is O(nodes levels).

    Args:
        tree: The tree.
        levels: The inputs for each level, or None for a level without reports.
        values: The nodes' estimates, by level.
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
    """Return the moments of statistics, using the model.

    Args:
        parts: For each level, the weights of its estimates, shape (nodes, n).
        levels: The inputs for each level, or None for a level without reports.
        values: The nodes' estimates, by level.
    """
    variance = np.zeros(parts[0].shape[1])
    for r, smoothed, x in zip(parts, levels, values, strict=True):
        if smoothed:
            shares = _shares(smoothed, x)
            diagonal = _diagonal(smoothed, shares) @ (r * r)
            variance += diagonal + _quadratic(smoothed, r.sum(axis=0), shares @ r)
    return Spread(np.maximum(variance, 0), np.zeros_like(variance))


def _class_chunks(smoothed: Smoothed, size: int) -> Iterator[tuple[Floats, Floats]]:
    """Yield the nodes that a few classes support, shape (nodes, classes), and the classes' shares."""
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
