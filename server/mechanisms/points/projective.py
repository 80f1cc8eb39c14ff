"""Sums and minima over the points in a projective space that are orthogonal to each point.

A point with t digits mod q, q prime, is represented by its multiple whose highest nonzero digit is 1. Points
are numbered in the order of these vectors. The points *at infinity*, whose top digit is 0, come first, and
are numbered like the points with t - 1 digits. The others have a top digit of 1 and any t - 1 digits below.

A point has a top digit of 1 and the digits v below, or is v at infinity. Another point with top digit x and
lower digits a ≠ 0 is orthogonal to it if a·v = -x, or in the second case if a·v = 0. Scaled to make the
highest nonzero digit of a equal to 1, (a, -x) is a class of the linear hash with t - 1 digits (butterfly.py),
which thus covers all points except those at infinity; for those, the hash's cells are summed, which leaves a
problem with one digit less. Since the product is symmetric, so are the sums: the same map takes numbers from
codes to values and from values to codes.
"""

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ...arrays import Array, Counts, Floats
from ..hashing import butterfly, fourier

_MAX_CACHED = 1 << 18  # up to this many points, their order is cached, at 8 bytes per point


def point_count(q: int, t: int) -> int:
    """Return the number of points with t digits; 0 for t <= 0."""
    return (q**t - 1) // (q - 1) if t > 0 else 0


def digits(q: int, domain: int) -> int:
    """Return the smallest number of digits that distinguishes this many points."""
    t = 1
    while point_count(q, t) < domain:
        t += 1
    return t


def sums(q: int, t: int, numbers: Floats) -> Floats:
    """Sum the first points' numbers over the points orthogonal to each point.

    Args:
        q: The prime.
        t: The number of digits, the smallest that distinguishes the n points.
        numbers: Numbers of the first n points, shape (n,) or (n, batch).

    Returns:
        The sums, shape (points,) or (points, batch).
    """
    out = np.zeros((point_count(q, t), *numbers.shape[1:]))
    if t == 1:
        return out
    below = point_count(q, t - 1)
    infinity, finite = numbers[:below], numbers[below:]
    classes = _class_weights(q, t - 1, finite)
    seeds = sums(q, t - 1, infinity)
    for block, start, order in _blocks(q, t):
        block_seeds = seeds[start : start + order.shape[1]]
        out[order] = classes[block].reshape(*order.shape, *numbers.shape[1:]) + block_seeds
    out[below] = infinity.sum(axis=0)
    return out


def supported(q: int, t: int, count: int, *numbers: Floats) -> list[Floats]:
    """Sum each of `numbers` over the points orthogonal to each of the first points.

    Processing two arrays costs as much as processing one.

    Args:
        q: The prime.
        t: The number of digits, which must be the smallest that distinguishes `count` points.
        count: The number of first points.
        numbers: Arrays with one number per point, each of shape (points,).

    Returns:
        For each of `numbers`, the sums, shape (count,).
    """
    below = point_count(q, t - 1)
    classes = [by_class(q, t, array) for array in numbers]
    if q > 2:
        finite = fourier.class_supports(q, t - 1, *classes, count=count - below)
    else:
        finite = [butterfly.values_supported(q, t - 1, array)[: count - below] for array in classes]
    infinity = [sums(q, t - 1, at_infinity(q, t, array)) + array[below] for array in numbers]
    return [np.concatenate(parts) for parts in zip(infinity, finite, strict=True)]


def supports(q: int, t: int, counts: Counts) -> Counts:
    """Sum counts over the points orthogonal to each point, as exact integers; both of shape (points,)."""
    if t == 1:
        return np.zeros_like(counts)
    infinity = supports(q, t - 1, at_infinity(q, t, counts)) + counts[point_count(q, t - 1)]
    return np.concatenate([infinity, butterfly.values_supported(q, t - 1, by_class(q, t, counts))])


def least(q: int, t: int, masses: Floats) -> Floats:
    """Return the smallest number among the points orthogonal to each point, both of shape (points,)."""
    if t == 1:
        return np.full(1, np.inf)
    seeds = np.concatenate([masses[order].min(axis=0) for _, _, order in _blocks(q, t)])
    infinity = np.minimum(least(q, t - 1, seeds), masses[point_count(q, t - 1)])
    return np.concatenate([infinity, butterfly.least_supported(q, t - 1, by_class(q, t, masses))])


def by_class(q: int, t: int, numbers: Array) -> Array:
    """Reorder numbers by point, shape (..., points), by class of the hash with t - 1 digits.

    The point with top digit 1 and zeros below has no class and is omitted.
    """
    return np.concatenate([numbers[..., order.reshape(-1)] for _, _, order in _blocks(q, t)], axis=-1)


def at_infinity(q: int, t: int, numbers: Array) -> Array:
    """Sum numbers over the points that differ only in the top digit, giving points with t - 1 digits.

    The numbers have shape (..., points). The point with top digit 1 and zeros below is omitted.
    """
    return np.concatenate([numbers[..., order].sum(axis=-2) for _, _, order in _blocks(q, t)], axis=-1)


def _class_weights(q: int, t: int, values: Floats) -> Floats:
    if q > 2:
        return fourier.class_weights(q, t, values)
    return butterfly.classes_supporting(q, t, values)


_Blocks = list[tuple[slice, int, npt.NDArray[np.intp]]]


def _compute_blocks(q: int, t: int) -> _Blocks:
    """Return the position, first seed and points of each block of classes with t - 1 digits.

    Points have shape (cells, seeds). For cell 0, seed a is the point a at infinity; for cell y, it is the
    point with top digit 1 and lower digits -a / y.
    """
    below = point_count(q, t - 1)
    multiples = [-pow(y, -1, q) % q - 1 for y in range(1, q)]
    result: _Blocks = []
    start = 0
    for block, times in fourier.blocks(q, t - 1):
        seeds = times.shape[1]
        order = np.empty((q, seeds), dtype=np.intp)
        order[0] = start + np.arange(seeds)
        order[1:] = below + times[multiples]
        result.append((block, start, order))
        start += seeds
    return result


_cached_blocks = lru_cache(maxsize=16)(_compute_blocks)


def _blocks(q: int, t: int) -> _Blocks:
    return _cached_blocks(q, t) if q**t <= _MAX_CACHED * (q - 1) else _compute_blocks(q, t)
