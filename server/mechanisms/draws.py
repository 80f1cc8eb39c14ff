"""Draw codes as boards do, an array at a time: the level, the seed, and the true cell or a random other one.

The draws are the same as those of `Experiment.randomize`. Probabilities are compared as integers, the
threshold against 30 uniform bits, so the distribution is exactly that on boards rather than a floating-point
approximation.
"""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ...device.ldp_client import ONE, Experiment, Level

Uint32s = npt.NDArray[np.uint32]

_TABLE_CELLS = 1 << 16


Nodes = Callable[[Level, Uint32s], Uint32s]


def neighbours(level: Level, indices: Uint32s) -> Uint32s:
    """Return the tree nodes of indices in a level."""
    return indices // np.uint32(level.width) if level.width > 1 else indices


def codes(
    experiment: Experiment, indices: Uint32s, rng: np.random.Generator, nodes: Nodes = neighbours
) -> Uint32s:
    """Return one code for each index.

    Args:
        experiment: The experiment.
        indices: The indices.
        rng: The source of randomness.
        nodes: A function that returns the nodes of indices in a level.
    """
    levels = experiment.levels
    if len(levels) == 1:
        return _draw_level(levels[0], nodes(levels[0], indices), rng)
    draw = rng.integers(0, experiment.weight_sum, len(indices), dtype=np.uint32)
    level_of = np.zeros(len(indices), np.uint8)
    for end in np.cumsum([level.weight for level in levels[:-1]]):
        level_of += draw >= end
    out = np.empty(len(indices), np.uint32)
    for i, level in enumerate(levels):
        at = np.flatnonzero(level_of == i)
        out[at] = _draw_level(level, nodes(level, indices[at]), rng)
    return out


def _draw_level(level: Level, node: Uint32s, rng: np.random.Generator) -> Uint32s:
    n = len(node)
    g = np.uint32(level.g)
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
    code = other - other // g * g  # NumPy vectorizes division by a scalar, but not the remainder
    if base is not None:
        code += base
    code += np.uint32(level.offset)
    return code


def _hash(level: Level, node: Uint32s, seed: Uint32s) -> Uint32s:
    """Return the dot product of the base-g digits of node and seed, not yet reduced mod g."""
    block, blocks, table = _digit_products(level.g, level.t)
    size = np.uint32(block)
    total: Uint32s | None = None
    for i in range(blocks):
        last = i == blocks - 1
        node, node_digits = (node, node) if last else _divide(node, size)
        seed, seed_digits = (seed, seed) if last else _divide(seed, size)
        products = table[node_digits * size + seed_digits]
        total = products if total is None else total + products
    assert total is not None
    return total


def _divide(x: Uint32s, n: np.uint32) -> tuple[Uint32s, Uint32s]:
    quotient = x // n
    return quotient, x - quotient * n


@lru_cache(maxsize=64)
def _digit_products(g: int, t: int) -> tuple[int, int, Uint32s]:
    """Return a table of the dot products mod g of all pairs of digit vectors.

    With it, a few look-ups replace t products.

    Returns:
        The number of digit vectors in a block, the number of blocks in t digits, and the uint32 table,
        indexed by vector * vectors + vector.
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
