"""Codes of millions of devices in NumPy, from the channel that the boards run.

Same draws as `Experiment.randomize`, an array at a time: the level, the seed, whether the truth is told, and
which of the other cells is told instead. Probabilities are compared as integers, threshold against 30 uniform
bits, so the distribution is the boards' own to the last bit, not a floating-point neighbour of it.
"""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from ..device.ldp_client import ONE, Experiment, Level

NO_READING = -1  # an index that stands for None: a uniformly drawn one is reported

_CHUNK = 1 << 15  # reports in work at once: what a core's cache holds
_TABLE_CELLS = 1 << 16


def codes(experiment: Experiment, indices: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return one code for each index, uint32, in the same order.

    indices: integers in range(domain), or NO_READING, shape (n,). Needs 4 bytes for each report besides
    its working memory of a few megabytes. Raises ValueError for an index outside the domain.
    """
    out = np.empty(len(indices), np.uint32)
    for start in range(0, len(indices), _CHUNK):
        chunk = np.asarray(indices[start : start + _CHUNK], np.int64)
        if chunk.min() < NO_READING or chunk.max() >= experiment.domain:
            raise ValueError(f"indices must be in range({experiment.domain}), or -1 for no reading")
        missing = chunk == NO_READING
        if missing.any():
            chunk = np.where(missing, rng.integers(0, experiment.domain, len(chunk)), chunk)
        out[start : start + _CHUNK] = _draw(experiment, chunk.astype(np.uint32), rng)
    return out


def histogram(
    experiment: Experiment,
    index_counts: np.ndarray,
    rng: np.random.Generator,
    *,
    no_reading: int = 0,
    thin: bool = False,
) -> np.ndarray:
    """Return the histogram of the codes of a whole fleet, int64, shape (code_count,).

    index_counts: how many calls to report() had each index, shape (domain,); no_reading: how many had none.
    thin: whether the coin of `every` is tossed for each call; otherwise each call makes a report.
    Memory does not depend on the number of reports. Raises ValueError for counts that do not fit.
    """
    index_counts = np.asarray(index_counts)
    if index_counts.shape != (experiment.domain,) or index_counts.dtype.kind not in "iu":
        raise ValueError(f"index_counts must be integers of shape ({experiment.domain},)")
    if no_reading < 0 or index_counts.min() < 0:
        raise ValueError("counts must not be negative")
    out = np.zeros(experiment.code_count, np.int64)
    for chunk in _index_chunks(experiment, index_counts.astype(np.int64), no_reading, rng):
        spoken = chunk[speaks(experiment, len(chunk), rng)] if thin else chunk
        drawn = _draw(experiment, spoken, rng)
        if experiment.code_count <= 4 * _CHUNK:
            out += np.bincount(drawn, minlength=experiment.code_count)
        else:  # a pass over all codes for each chunk would cost more than the chunk
            np.add.at(out, drawn.astype(np.intp), 1)
    return out


def speaks(experiment: Experiment, n: int, rng: np.random.Generator) -> np.ndarray:
    """Return the coins of `every` for n calls to report(): True where a report is made, shape (n,)."""
    if experiment.every == 1:
        return np.ones(n, bool)
    return rng.integers(0, experiment.every, n, dtype=np.uint32) == 0


def _index_chunks(
    experiment: Experiment, index_counts: np.ndarray, no_reading: int, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """Every device's index, by index: a histogram does not know the order in which it was filled."""
    ends = np.cumsum(index_counts)
    for start in range(0, int(ends[-1]), _CHUNK):
        stop = min(start + _CHUNK, int(ends[-1]))
        first, last = np.searchsorted(ends, [start, stop - 1], side="right")
        held = np.clip(ends[first : last + 1], start, stop) - np.clip(
            ends[first : last + 1] - index_counts[first : last + 1], start, stop
        )
        yield np.repeat(np.arange(first, last + 1, dtype=np.uint32), held)
    for start in range(0, no_reading, _CHUNK):
        yield rng.integers(0, experiment.domain, min(_CHUNK, no_reading - start), dtype=np.uint32)


def _draw(experiment: Experiment, indices: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One code for each index, uint32."""
    levels = experiment.levels
    if len(levels) == 1:
        return _draw_level(levels[0], indices, rng)
    draw = rng.integers(0, experiment.weight_sum, len(indices), dtype=np.uint32)
    level_of = np.zeros(len(indices), np.uint8)
    for end in np.cumsum([level.weight for level in levels[:-1]]):
        level_of += draw >= end
    out = np.empty(len(indices), np.uint32)
    for i, level in enumerate(levels):
        at = np.flatnonzero(level_of == i)
        out[at] = _draw_level(level, indices[at], rng)
    return out


def _draw_level(level: Level, indices: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    n = len(indices)
    g = np.uint32(level.g)
    node = indices // np.uint32(level.width) if level.width > 1 else indices
    base = None
    cell = node
    if level.t:
        seed = rng.integers(1, level.seeds + 1, n, dtype=np.uint32)
        cell = _hash(level, node, seed)
        base = seed
        base -= np.uint32(1)
        base *= g
    other = rng.integers(1, level.g, n, dtype=np.uint32)
    lies = rng.integers(0, ONE, n, dtype=np.uint32) >= level.threshold
    other *= lies
    other += cell
    code = _modulo(other, g)
    if base is not None:
        code += base
    code += np.uint32(level.offset)
    return code


def _modulo(x: np.ndarray, n: np.uint32) -> np.ndarray:
    """x % n. Division by one number is vectorised in NumPy, the remainder is not."""
    return x - x // n * n


def _hash(level: Level, node: np.ndarray, seed: np.ndarray) -> np.ndarray:
    """Dot product of the base-g digits of node and seed, not yet reduced mod g."""
    block, blocks, table = _digit_products(level.g, level.t)
    size = np.uint32(block)
    total = None
    for i in range(blocks):
        last = i == blocks - 1
        node, node_digits = (node, node) if last else _divide(node, size)
        seed, seed_digits = (seed, seed) if last else _divide(seed, size)
        products = table[node_digits * size + seed_digits]
        total = products if total is None else total + products
    assert total is not None
    return total


def _divide(x: np.ndarray, n: np.uint32) -> tuple[np.ndarray, np.ndarray]:
    quotient = x // n
    return quotient, x - quotient * n


@lru_cache(maxsize=64)
def _digit_products(g: int, t: int) -> tuple[int, int, np.ndarray]:
    """Dot products mod g of all pairs of several digits at once: a few look-ups instead of t products.

    Returns the number of digit vectors in a block, the number of blocks in t digits, and the table, uint32,
    at vector * vectors + vector.
    """
    digits = 1
    while digits < t and g ** (2 * digits + 2) <= _TABLE_CELLS:
        digits += 1
    blocks = -(-t // digits)
    digits = -(-t // blocks)
    vectors = np.arange(g**digits, dtype=np.uint32)
    table = np.zeros((len(vectors), len(vectors)), np.uint32)
    for i in range(digits):
        digit = vectors // g**i % g
        table += np.outer(digit, digit)
    table %= g
    table.flags.writeable = False
    return len(vectors), blocks, table.ravel()
