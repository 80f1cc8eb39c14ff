"""What an experiment's estimates will be off by, before there is a report: exact variances, times reports.

A statistic r·x is a constant plus a sum over levels of the mean of a weight w_l(code) over the level's
reports (docs/mathematics.md). Once the population is stated the distribution of codes is known, and with it
the variance of w_l: correlations between values, common values and the sampling of the population included.

The population is stated by one number, the share f that what is asked for holds: f spread evenly over its
values, the rest evenly over all others. Along f a variance is a concave parabola, so that its worst case is
exact too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ...device.ldp_client import Level
from ..mechanisms import choose as oracle
from ..mechanisms import local_hashing as decode
from ..mechanisms import tree as hierarchy

Floats = npt.NDArray[np.float64]
Kind = Literal["frequency", "range", "quantile"]

_MAX_PAIRS = 2_000_000  # of a class of codes and a statistic; beyond, a sample of the statistics
_CHUNK = 1 << 21  # of them held at once
_FEWEST = 32  # statistics in a sample, at least
_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True)
class Question:
    """What an error is wanted for.

    kind    "frequency": of one value; "range": of a run of values; "quantile": the share below it
    share   what the value or range holds of the population, or the quantile; None: the share for which the
            error, the mean's where a mean is asked for, is largest
    width   ranges of so many values, wherever they lie; None, without ranges: all ranges
    ranges  these, indices (low, high), half-open

    The error is the root of the mean square over all values, ranges or places that the quantile may have; of
    a list of ranges it is the largest.
    """

    kind: Kind = "range"
    share: float | None = None
    width: int | None = None
    ranges: tuple[tuple[int, int], ...] = ()

    @property
    def all_ranges(self) -> bool:
        """Whether every range there is is asked for."""
        return self.kind == "range" and self.width is None and not self.ranges


@dataclass(frozen=True)
class Design:
    """A mechanism over range(domain) at epsilon micro-nats per report."""

    domain: int
    epsilon: int
    choice: oracle.Choice

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """What boards run, level by level; one level but in hh."""
        cells = self.choice.cells or (self.choice.g or self.domain,)
        weights = self.choice.weights or (1,) * len(cells)
        fanout = self.choice.fanout or self.domain
        nodes = hierarchy.heights(self.domain, fanout) if self.choice.fanout else (self.domain,)
        levels: list[Level] = []
        offset = 0
        for i, (n, g, weight) in enumerate(zip(nodes, cells, weights, strict=True)):
            width = fanout ** (len(nodes) - 1 - i)
            levels.append(Level(self.epsilon, n, g, width, offset, weight))
            offset += levels[-1].code_count
        return tuple(levels)

    @cached_property
    def drawn(self) -> Floats:
        """Share of the reports that each level gets, shape (levels,)."""
        weights = np.array([level.weight for level in self.levels], float)
        return weights / weights.sum()

    @cached_property
    def channels(self) -> tuple[oracle.Channel, ...]:
        """Of the levels."""
        return tuple(oracle.level_channel(level) for level in self.levels)

    @cached_property
    def tree(self) -> hierarchy.Tree | None:
        """Least squares over the levels; None where there is one level and nothing known of its sum."""
        if not self.choice.fanout:
            return None
        variances = [
            c.variance / share if share else math.inf
            for c, share in zip(self.channels, self.drawn, strict=True)
        ]
        return hierarchy.tree(self.domain, self.choice.fanout, variances)

    @cached_property
    def classes(self) -> int:
        """Codes that support different values, over all levels."""
        return sum(decode.class_count(level) for level in self.levels)


@dataclass(frozen=True)
class Parabola:
    """Variances of statistics as a + b f + c f² of the share f that they hold; arrays of shape (n,)."""

    a: Floats
    b: Floats
    c: Floats

    def at(self, share: float | None) -> Floats:
        """Variances at a share, or at each statistic's own worst one."""
        f = self.worst_share if share is None else share
        return self.a + f * (self.b + f * self.c)

    @property
    def worst_share(self) -> Floats:
        """Share in 0..1 of the largest variance."""
        safe = np.where(self.c < 0, self.c, -1.0)
        return np.where(self.c < 0, np.clip(-self.b / (2 * safe), 0, 1), (self.b > 0).astype(float))

    def mean(self) -> Parabola:
        """Of the mean over the statistics."""
        return Parabola(*(np.atleast_1d(x.mean()) for x in (self.a, self.b, self.c)))


def well_sampled(design: Design, question: Question) -> bool:
    """Whether variance() goes through all statistics that are asked for, or as many as there are values."""
    if question.kind == "frequency" and not design.choice.fanout:
        return True
    return design.classes * (len(question.ranges) or design.domain) <= _MAX_PAIRS


@lru_cache(maxsize=4096)
def variance(design: Design, question: Question) -> float:
    """Variance, times reports, of what is asked; population sampling included.

    Exact while there are few enough pairs of a class of codes and a statistic; beyond, the mean over
    statistics is taken over a sample of them that is spread evenly.
    """
    if question.kind == "frequency" and not design.choice.fanout:
        return flat_frequency(design.channels[0], question.share)
    parts = [parabola(design, weights) for weights in _statistics(design, question)]
    joined = Parabola(*(np.concatenate([getattr(p, name) for p in parts]) for name in "abc"))
    found = joined.at(question.share).max() if question.ranges else joined.mean().at(question.share)[0]
    return float(found)


def flat_frequency(channel: oracle.Channel, share: float | None) -> float:
    """Variance, times reports, of one value asked for directly, holding share, or its own worst one.

    A report supports the value or does not: which value it is and what the others hold changes nothing.
    """
    spread = channel.p - channel.q
    f = min(max((0.5 - channel.q) / spread, 0.0), 1.0) if share is None else share
    support = channel.q + spread * f
    return support * (1 - support) / spread**2


def _statistics(design: Design, question: Question) -> Iterator[npt.NDArray[np.bool_]]:
    """Yield indicators of what is asked, shape (domain, n), few at a time."""
    domain = design.domain
    if question.ranges:
        low, high = np.array(question.ranges).T
    else:
        low, high = _places(domain, question, max(_FEWEST, _MAX_PAIRS // design.classes))
    index = np.arange(domain)[:, None]
    step = max(1, _CHUNK // max(design.classes, domain))
    for i in range(0, len(low), step):
        yield (index >= low[i : i + step]) & (index < high[i : i + step])


def _places(domain: int, question: Question, most: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Ends of the ranges that a question is about, all of them or an even sample of most, half-open."""
    prefixes = question.kind == "quantile" or domain == 2
    all_ranges = question.all_ranges and not prefixes
    width = question.width if question.kind == "range" and question.width else 1
    up_to = np.cumsum(domain + 1 - np.arange(1, domain))  # number of ranges of at most 1, 2, ... values
    count = int(up_to[-1]) if all_ranges else domain - 1 if prefixes else domain - width + 1
    number = np.arange(min(count, most))
    if count > most:
        # Multiples of the golden ratio fall evenly, and into no step with the tree's nodes.
        number = np.unique((number * _GOLDEN % 1 * count).astype(np.int64))
    if prefixes:
        return np.zeros_like(number), number + 1
    if all_ranges:
        length = np.searchsorted(up_to, number, side="right")
        low = number - np.append(0, up_to)[length]
        return low, low + length + 1
    return number, number + width


def parabola(design: Design, weights: npt.ArrayLike) -> Parabola:
    """Variances, times reports, of sums over values: indicators of shape (domain, n), none empty or whole."""
    asked = np.asarray(weights, float)
    inside = asked.sum(axis=0)
    outside = design.domain - inside
    a, b, c = np.zeros((3, asked.shape[1]))
    for level, channel, drawn, part in _levels(design, asked):
        w = decode.class_weights(level, part) / (channel.p - channel.q)
        of_asked = decode.class_weights(level, _nodes(level, asked))
        of_all = decode.class_weights(level, _nodes(level, np.ones((design.domain, 1))))
        first, second = [], []
        for support in (of_asked / inside, (of_all - of_asked) / outside):
            chance = _chances(level, channel, support)
            weighted = chance * w
            first.append(weighted.sum(axis=0))
            weighted *= w
            second.append(weighted.sum(axis=0))
        step = first[0] - first[1]
        a += (second[1] - first[1] ** 2) / drawn
        b += (second[0] - second[1] - 2 * first[1] * step) / drawn
        c -= step**2 / drawn
    return Parabola(a, b, c)


def _levels(design: Design, weights: Floats) -> Iterator[tuple[Level, oracle.Channel, float, Floats]]:
    """Yield each level that is drawn, its share of reports, and its weights on its estimates."""
    parts = hierarchy.transpose(design.tree, weights)[0] if design.tree else [weights]
    for level, channel, drawn, part in zip(design.levels, design.channels, design.drawn, parts, strict=True):
        if drawn:
            yield level, channel, float(drawn), part


def _nodes(level: Level, shares: Floats) -> Floats:
    """Sums over the indices of each of a level's nodes."""
    return np.add.reduceat(shares, np.arange(0, len(shares), level.width), axis=0)


def _chances(level: Level, channel: oracle.Channel, support: Floats) -> Floats:
    """Probability of each class of codes; support: share of the population that the class supports."""
    codes = (level.g - 1) / level.seeds if level.t else 1.0
    return codes * (channel.lie + (channel.p - channel.lie) * support)


def even_ranges(design: Design) -> float:
    """Mean over all ranges of the variance, times reports, in an even population; of the whole domain too.

    Exact: a range is a difference of two of the domain + 1 prefixes.
    """
    domain = design.domain
    index = np.arange(domain)[:, None]
    step = max(1, _CHUNK // max(design.classes, domain))
    prefixes = sum(
        _even(design, (index <= np.arange(first, min(first + step, domain))).astype(float))
        for first in range(0, domain, step)
    )
    of_sum = _even(design, np.arange(domain, 0, -1, dtype=float)[:, None])
    return ((domain + 1) * prefixes - of_sum) / (domain * (domain + 1) / 2)


def _even(design: Design, weights: Floats) -> float:
    """Sum over statistics of their variances in an even population; weights (domain, n)."""
    total = 0.0
    even = np.full((design.domain, 1), 1 / design.domain)
    for level, channel, drawn, part in _levels(design, weights):
        w = decode.class_weights(level, part) / (channel.p - channel.q)
        chance = _chances(level, channel, decode.class_weights(level, _nodes(level, even)))[:, 0]
        total += float((chance @ w**2 - (chance @ w) ** 2).sum()) / drawn
    return total
