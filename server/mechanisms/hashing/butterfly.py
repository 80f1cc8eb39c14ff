"""Compute every value's support from a histogram of codes, in exact integers, and the transposed map.

A code (a, y) of a hashed level supports the value v if the hash a·v mod g is y. The codes (k a, k y) for
k = 1..g-1 support the same values and form a *class*. A histogram is first collapsed to its classes, of which
there are g - 1 times fewer and whose seeds have the leading digit 1; the butterfly then processes one seed
digit at a time. It takes about t g**(t+1) additions, regardless of the number of reports.

Classes are laid out by the position j of the seed's leading digit. Block j is an array of shape (g, g**j):
the cell y, then the seed's lower digits. Block j's butterfly maps it to the values' lowest j + 1 digits in
the same layout, so blocks can be added without a permutation.
"""

import numpy as np
import numpy.typing as npt

from ....device.ldp_client import Level
from ...arrays import Array, Counts, Floats

# Above this g, gathering whole rows per digit value is faster than g * g slices. Measured, but not critical.
_SLICED_G = 7
_GATHERED = 1 << 18  # numbers gathered at once


def class_count(level: Level) -> int:
    """Return the number of classes, each a set of codes that support the same nodes."""
    return level.code_count // (level.g - 1) if level.t else level.code_count


def collapse(level: Level, histogram: npt.ArrayLike) -> Counts:
    """Sum a level's histogram over its classes.

    Args:
        level: The level.
        histogram: The number of reports with each code, integers of shape (code_count,).

    Returns:
        Integers of shape (class_count,).

    Raises:
        ValueError: If the histogram has a different shape.
    """
    counts = np.ascontiguousarray(histogram, dtype=np.int64)
    if counts.shape != (level.code_count,):
        raise ValueError(
            f"the histogram has shape {counts.shape}, but the level has {level.code_count} codes"
        )
    if not level.t or level.g == 2:
        return _blocks_of_two(level, counts) if level.t else counts
    g = level.g
    out = np.empty(class_count(level), dtype=np.int64)
    for j, start in enumerate(_starts(level.g, level.t)):
        size = g**j
        codes = counts[(size - 1) * g : (size * g - 1) * g].reshape(g - 1, size * g)
        block = np.zeros((size, g), dtype=np.int64)
        for k in range(1, g):
            block += codes[k - 1][_scaled(g, j, k)]
        out[start : start + size * g] = block.T.reshape(-1)
    return out


def expand(level: Level, values: Array) -> Array:
    """Assign every code its class's value: shape (class_count, ...) to (code_count, ...)."""
    if not level.t:
        return values.copy()
    g = level.g
    batch_shape = values.shape[1:]
    out = np.empty((level.code_count, *batch_shape), dtype=values.dtype)
    for j, start in enumerate(_starts(level.g, level.t)):
        size = g**j
        block = values[start : start + size * g].reshape(g, size, *batch_shape).swapaxes(0, 1)
        codes = out[(size - 1) * g : (size * g - 1) * g].reshape(g - 1, size * g, *batch_shape)
        for k in range(1, g):
            codes[k - 1][_scaled(g, j, k).reshape(-1)] = block.reshape(size * g, *batch_shape)
    return out


def class_supports(level: Level, classes: Array) -> Array:
    """Return the supports C[v] of the nodes, shape (domain,), from counts per class, shape (class_count,).

    The result is exact for integers; the sum of the counts must stay below 2**63.
    """
    return values_supported(level.g, level.t, classes)[: level.domain] if level.t else classes.copy()


def values_supported(g: int, t: int, classes: Array) -> Array:
    """Return class_supports() for all g**t values that t digits can distinguish."""
    total = np.zeros(1, dtype=classes.dtype)
    for j, start in enumerate(_starts(g, t)):
        block = classes[start : start + g ** (j + 1)]
        for i in range(j):
            block = _butterfly(block, g, g ** (j - 1 - i), g**i, 1)
        total = (block.reshape(g, -1) + total).reshape(-1)
    return total


def least_supports(level: Level, masses: Floats) -> Floats:
    """Return the smallest number of the classes that support each node, shape (class_count,) to (domain,).

    This is class_supports() with the minimum in place of the sum, because the butterfly works with any
    commutative operation.
    """
    return least_supported(level.g, level.t, masses)[: level.domain] if level.t else masses


def least_supported(g: int, t: int, masses: Floats) -> Floats:
    """Return least_supports() for all g**t values that t digits can distinguish."""
    smallest = np.array([np.inf])
    for j, start in enumerate(_starts(g, t)):
        block = masses[start : start + g ** (j + 1)]
        for i in range(j):
            block = _least_butterfly(block, g, g ** (j - 1 - i), g**i)
        smallest = np.minimum(block.reshape(g, -1), smallest).reshape(-1)
    return smallest


def class_weights(level: Level, weights: npt.ArrayLike) -> Floats:
    """Sum weights over the nodes that each class supports; the transpose of class_supports().

    Args:
        level: The level.
        weights: The weights, shape (domain,) or (domain, batch).

    Returns:
        Floats of shape (class_count,) or (class_count, batch).

    Raises:
        ValueError: If the weights have a different shape.
    """
    r = np.asarray(weights, dtype=np.float64)
    if r.ndim not in (1, 2) or len(r) != level.domain:
        raise ValueError(f"the weights have shape {r.shape}, but the level has {level.domain} nodes")
    return classes_supporting(level.g, level.t, r) if level.t else r.copy()


def classes_supporting(g: int, t: int, values: Floats) -> Floats:
    """Return class_weights() for n <= g**t values, shape (n,) or (n, batch)."""
    batch = values.shape[1] if values.ndim == 2 else 1
    block = np.zeros((g**t, batch))
    block[: len(values)] = values.reshape(len(values), batch)
    out = np.empty((g * (g**t - 1) // (g - 1), batch))
    starts = _starts(g, t)
    for j in range(t - 1, -1, -1):
        classes = block
        for i in range(j):
            classes = _butterfly(classes, g, g ** (j - 1 - i), g**i * batch, -1)
        out[starts[j] : starts[j] + g ** (j + 1)] = classes.reshape(-1, batch)
        block = block.reshape(g, -1, batch).sum(axis=0)
    return out.reshape(-1, *values.shape[1:])


def supports(level: Level, histogram: npt.ArrayLike) -> Counts:
    """Return the number of reports that support each node, exact integers of shape (domain,).

    Args:
        level: The level.
        histogram: The number of reports with each code, integers of shape (code_count,).

    Raises:
        ValueError: If the histogram has a different shape.
    """
    return class_supports(level, collapse(level, histogram)).astype(np.int64, copy=False)


def class_cells(level: Level, first: int, last: int) -> npt.NDArray[np.int32]:
    """Return all nodes' cells under the class seeds first..last-1, shape (last - first, domain).

    The class_count / g class seeds are numbered in block order. Row s and class_index() determine which of
    seed s's classes supports which node. The level must be hashed.
    """
    g, t = level.g, level.t
    number = np.arange(first, last, dtype=np.int64)
    seeds = np.empty_like(number)
    position = np.zeros_like(number)
    for j in range(t):
        begin = (g**j - 1) // (g - 1)
        in_block = number >= begin
        seeds[in_block] = number[in_block] - begin + g**j
        position[in_block] = j
    digits = seeds[:, None] // g ** np.arange(t) % g
    nodes = np.arange(level.domain)[:, None] // g ** np.arange(t) % g
    # Sums stay below t g**2 < 2**24, so they are exact in float64, whose matrix product is fast.
    return (digits.astype(np.float64) @ nodes.T.astype(np.float64)).astype(np.int32) % g


def class_index(level: Level, first: int, last: int) -> npt.NDArray[np.int64]:
    """Return the class index for each cell under the class seeds first..last-1, shape (last - first, g)."""
    g = level.g
    number = np.arange(first, last, dtype=np.int64)
    index = np.empty((len(number), g), dtype=np.int64)
    for j, start in enumerate(_starts(level.g, level.t)):
        begin = (g**j - 1) // (g - 1)
        in_block = (number >= begin) & (number < begin + g**j)
        index[in_block] = start + (number[in_block] - begin)[:, None] + g**j * np.arange(g)
    return index


def _starts(g: int, t: int) -> list[int]:
    return [g * (g**j - 1) // (g - 1) for j in range(t)]


def _blocks_of_two(level: Level, counts: Counts) -> Counts:
    """Return counts by class for g = 2, where each code is its own class and only the layout changes."""
    pairs = counts.reshape(-1, 2)
    return np.concatenate([pairs[2**j - 1 : 2 ** (j + 1) - 1].T.reshape(-1) for j in range(level.t)])


def _scaled(g: int, j: int, k: int) -> npt.NDArray[np.int64]:
    """Return the positions of (k a, k y) in a (g**j, g) array of the seeds' lower digits and cells."""
    times = np.arange(g) * k % g
    low = np.zeros(1, dtype=np.int64)
    for i in range(j):
        low = (times[:, None] * g**i + low).reshape(-1)
    return low[:, None] * g + times


def _butterfly(block: Array, g: int, high: int, low: int, sign: int) -> Array:
    """Return [y, :, v, :] = sum over a of block[(y + sign a v) mod g, :, a, :], shape (g, high, g, low)."""
    s = block.reshape(g, high, g, low)
    out = np.empty_like(s)
    if g <= _SLICED_G:
        for v in range(g):
            sums = out[:, :, v]
            added = s[:, :, 0]  # for a = 0, no shift is needed; later, these are the sums so far
            for a in range(1, g):
                shift = sign * a * v % g
                np.add(added[: g - shift], s[shift:, :, a], out=sums[: g - shift])
                if shift:
                    np.add(added[g - shift :], s[:shift, :, a], out=sums[g - shift :])
                added = sums
        return out
    rows = np.ascontiguousarray(s.swapaxes(1, 2)).reshape(g * g, high * low)
    y, a = np.arange(g)[:, None], np.arange(g)
    step = max(1, _GATHERED // (g * g * high * low))
    for first in range(0, g, step):
        v = np.arange(first, min(first + step, g))[:, None, None]
        picked = rows[(y + sign * a * v) % g * g + a].sum(axis=2)
        out[:, :, v[:, 0, 0]] = picked.reshape(-1, g, high, low).transpose(1, 2, 0, 3)
    return out


def _least_butterfly(block: Floats, g: int, high: int, low: int) -> Floats:
    """Return [y, :, v, :] = min over a of block[(y + a v) mod g, :, a, :], shape (g, high, g, low)."""
    s = block.reshape(g, high, g, low)
    out = np.empty_like(s)
    cells, digits = np.arange(g)[:, None], np.arange(g)
    for v in range(g):
        rows = (cells + digits * v) % g  # (y, a)
        out[:, :, v] = s[rows, :, digits].min(axis=1)
    return out
