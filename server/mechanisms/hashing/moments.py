"""Exact moments of flat local hashing's frequencies and distribution function, for domains of any size.

A report's weight in a value is 1 if it supports the value, otherwise 0, minus W / D, where W is how many of
the D values it supports. Both W and the number of supported values in a prefix depend on the seed's lowest
nonzero digit. If that is digit i, the hash is the same for g**i consecutive values, a *block*, and differs
between the g blocks of a *group*, which fall into g different cells. In a prefix 0..n-1 that consists of
whole groups, m whole blocks and a fraction f of the next block, the number of supported values is therefore
n/g plus g**i times

    1 - (m + f)/g  if the code supports one of the m blocks,
    f - (m + f)/g  if it supports the next block,
    -(m + f)/g     otherwise.

The probabilities of these outcomes are sums over a group of E_i[1_b], the share of reports with such seeds
that support block b. Since the sum of all shares is known, W n / D is subtracted, so E_i[1_b W] and
E_i[1_b W**2] are also needed (W enters as the *excess* W - D / g). W has three values for each i, because the
D values are themselves a prefix. The seeds whose lowest i digits are 0 are those of a domain that is g**i
times smaller, so all i together cost 1 / (1 - 1/g) times the first. Inside each block, the moments are cubic
in f.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from ....device.ldp_client import Level
from ...arrays import Floats
from . import butterfly, fourier

# Fractions of a block at which third moments, which are cubic in it, are evaluated.
_POINTS = np.arange(4) / 3


@dataclass(frozen=True)
class _Seeds:
    """Means over all reports, to which only reports with one kind of seed contribute.

    Attributes:
        supported: The means of 1, excess and excess² if a block is supported, else 0, shape (3, blocks).
        totals: The means of excess**k, k = 0..3.
    """

    supported: Floats
    totals: Floats

    def without(self, rarer: _Seeds, g: int) -> _Seeds:
        """Return the means without the contribution of the rarer seeds, whose blocks are g times as wide."""
        repeated = np.repeat(rarer.supported, g, axis=1)[:, : self.supported.shape[1]]
        return _Seeds(self.supported - repeated, self.totals - rarer.totals)


@dataclass(frozen=True)
class ValueRun:
    """The run of consecutive values that the classes of a t-digit hash support.

    Attributes:
        g: The number of cells.
        t: The number of digits.
        before: The number of values before the run in the domain.
        count: The number of values in the run, 1 to g**t.
        domain: The number of values in the domain.
    """

    g: int
    t: int
    before: int
    count: int
    domain: int


class Moments:
    """Cumulants of one report's weight in values and in prefixes.

    Args:
        level: The hashed level.
        shares: Each code class's share, shape (classes,).
        supports: The share of reports that support each value, shape (domain,).
    """

    def __init__(self, level: Level, shares: Floats, supports: Floats):
        self._values = ValueRun(level.g, level.t, 0, level.domain, level.domain)
        self._supports = supports
        self._excess = excess_supported(level.g, level.t, level.domain)
        self._weighted = by_excess(shares, self._excess)

    @cached_property
    def _all(self) -> _Seeds:
        return _seeds(self._values, self._weighted, self._supports)

    def frequencies(self) -> tuple[Floats, Floats]:
        """Return the second and third cumulants of the weight in each value, each of shape (domain,)."""
        _, once, twice = self._all.supported
        return of_values(self._supports, once, twice, self._all.totals)

    def prefixes(self) -> tuple[Floats, Floats]:
        """Return the same cumulants for the sum of values 0..v, for each v; the last is 0."""
        result = np.zeros((2, self._values.domain))
        result[:, :-1] = cumulants(before_values(self._values, self._weighted, self._all))[:, 1:]
        return result[0], result[1]


def by_excess(shares: Floats, excess: Floats | None) -> Floats:
    """Return shares times excess**k for k = 0..3, shape (4, classes); only k = 0 without an excess."""
    if excess is None:
        return shares[None]
    result = np.empty((4, len(shares)))
    result[0] = shares
    for k in range(1, 4):
        np.multiply(result[k - 1], excess, out=result[k])
    return result


def of_values(supports: Floats, once: Floats, twice: Floats, totals: Floats) -> tuple[Floats, Floats]:
    """Return the second and third cumulants of the weight in each value of the domain.

    Args:
        supports: The share of reports that support each value, shape (domain,).
        once: The mean of the excess if the value is supported, else 0, shape (domain,).
        twice: The same for excess².
        totals: The means of excess**k, k = 0..3.
    """
    domain = len(supports)
    mean, square, cube = totals[1:] / (domain, domain**2, domain**3)
    once, twice = once / domain, twice / domain**2
    first = supports - mean
    second = supports - 2 * once + square
    third = supports - 3 * once + 3 * twice - cube
    result = cumulants(np.stack([first, second, third]))
    return result[0], result[1]


def cumulants(moments: Floats) -> Floats:
    """Return the second and third cumulants, shape (2, n), from the first three moments, shape (3, n)."""
    first, second, third = moments
    return np.stack([second - first**2, third - 3 * first * second + 2 * first**3])


def before_values(values: ValueRun, weighted: Floats, run_means: _Seeds | None = None) -> Floats:
    """Return the first three moments of one report's weight before each value in a run, shape (3, count).

    The weight is the number of supported values in the run so far, minus 1/g of all values in it so far,
    minus the part of the excess that belongs to all of the domain's values so far.

    Args:
        values: The run.
        weighted: The result of by_excess().
        run_means: The means for the run, if they are already known.
    """
    g, t = values.g, values.t
    nested = [run_means or _seeds(values, weighted)]  # the seeds whose lowest 0, 1, ... digits are 0
    for i in range(1, t):
        weighted = _lowest_digit_zero(g, weighted)
        nested.append(_seeds(replace(values, t=t - i, count=-(-values.count // g**i)), weighted))
    # Go from wide blocks to single values, since the rarer seeds' moments are cubic inside each block.
    moments = _at_points(nested[-1], values, g ** (t - 1))
    for i in range(t - 2, -1, -1):
        finer = _at_points(nested[i].without(nested[i + 1], g), values, g**i)
        inside = (moments @ _inside_blocks(g, finer.shape[2])).reshape(3, -1, finer.shape[2])
        moments = finer + inside[:, : finer.shape[1]]
    return moments[:, :, 0]


def _seeds(values: ValueRun, weighted: Floats, supports: Floats | None = None) -> _Seeds:
    """Return the means for a run of blocks.

    Args:
        values: The run.
        weighted: The result of by_excess().
        supports: The blocks' supports, if they are already known.
    """
    has_supports = supports is not None
    sums = _class_supports(values, *weighted[has_supports:3])
    if supports is not None:
        sums.insert(0, supports)
    supported, totals = np.zeros((3, values.count)), np.zeros(4)
    for k, block_sums in enumerate(sums):
        supported[k] = block_sums[: values.count]
    totals[: len(weighted)] = weighted.sum(axis=1)
    return _Seeds(supported, totals)


def _at_points(seeds: _Seeds, values: ValueRun, size: int) -> Floats:
    """Return the first three moments of prefix weights with these seeds, shape (3, blocks, points).

    The prefixes end at each point within each block of `size` values, or before a single value.
    """
    g = values.g
    partly = _POINTS if size > 1 else _POINTS[:1]
    block: Floats = np.arange(seeds.supported.shape[1], dtype=np.float64)[:, None]
    # The number of the last group's values in the prefix, divided by g.
    expected = (block % g + partly) / g * size
    part = (values.before + (block + partly) * size) / values.domain
    before, last = _before(seeds.supported, g)[:, :, None], seeds.supported[:, :, None]

    def inside(power: int, k: int) -> Floats:
        return (before[k] + last[k] * partly**power) * size**power

    n0, n1, n2, n3 = seeds.totals
    one, two = inside(1, 0), inside(2, 0)
    first = one - expected * n0
    second = two - 2 * expected * one + expected**2 * n0
    third = inside(3, 0) - 3 * expected * (two - expected * one) - expected**3 * n0
    if n2:  # the sum of all estimates has an error
        once, twice = inside(1, 1), expected * n1
        first -= part * n1
        second += part * (2 * (twice - once) + part * n2)
        third += (
            3 * part * (expected * (2 * once - twice) - inside(2, 1) + part * (inside(1, 2) - expected * n2))
        )
        third -= part**3 * n3
    return np.stack([first, second, third])


@lru_cache(maxsize=16)
def _inside_blocks(g: int, points: int) -> Floats:
    """Return the map from a cubic's values at a block's points to those at the points of its g parts."""
    at = (np.arange(g)[:, None] + _POINTS[:points]) / g
    interpolation = np.linalg.solve(np.vander(_POINTS).T, np.vander(at.reshape(-1), len(_POINTS)).T)
    return interpolation.astype(np.float64)


def _before(values: Floats, g: int) -> Floats:
    """Return sums over the preceding blocks in each group, shape (3, blocks)."""
    total = np.cumsum(values, axis=1) - values
    return total - np.repeat(total[:, ::g], g, axis=1)[:, : values.shape[1]]


def _class_supports(values: ValueRun, *numbers: Floats) -> list[Floats]:
    if values.g == 2:  # a Fourier transform is not faster than this butterfly
        return [butterfly.values_supported(2, values.t, number) for number in numbers]
    return fourier.class_supports(values.g, values.t, *numbers, count=values.count)


def _lowest_digit_zero(g: int, classes: Floats) -> Floats:
    """Return the t-digit classes, t > 1, shape (n, classes), whose seeds end in 0: those of t - 1 digits."""
    parts: list[Floats] = []
    start = size = g
    while start < classes.shape[1]:  # the first block's seeds have a single, nonzero digit
        size *= g
        parts.append(classes[:, start : start + size].reshape(len(classes), -1, g)[:, :, 0])
        start += size
    return np.concatenate(parts, axis=1)


@lru_cache(maxsize=4)
def excess_supported(g: int, t: int, domain: int) -> Floats | None:
    """Return by how many values each class exceeds domain / g, shape (classes,), or None if no class does."""
    if g**t == domain:
        return None
    digits = [domain // g**i % g for i in range(t)]
    # The excess depends on the seed's lowest nonzero digit and on the supported block in the domain's last
    # group.
    table = np.zeros((t, g))
    for i, digit in enumerate(digits):
        table[i, :digit] = g**i
        table[i, digit] = domain % g**i
        table[i] -= table[i].mean()
    inverse = np.array([0, *(pow(a, -1, g) for a in range(1, g))])
    cells = np.arange(g)[:, None]
    # For the seed digits below the leading digit.
    hashed, lowest, scale = (np.zeros(1, dtype=np.int64) for _ in range(3))
    result: list[Floats] = []
    for i, digit in enumerate(digits):
        lowest[0], scale[0] = i, 1  # the seed whose only nonzero digit is the leading one
        at = ((cells - hashed - digit) * scale + np.array(digits)[lowest]) % g
        result.append(table[lowest, at].reshape(-1))
        hashed = (cells * digit + hashed).reshape(-1)
        lowest, scale = (np.tile(x, (g, 1)) for x in (lowest, scale))
        lowest[1:, 0], scale[1:, 0] = i, inverse[1:]
        lowest, scale = lowest.reshape(-1), scale.reshape(-1)
    excess = np.concatenate(result)
    excess.flags.writeable = False
    return excess
