"""The butterfly's map between classes of codes and values in floating point, using Fourier transforms.

A class (a, y) supports v if a·v = y mod g; the indicator of this is the mean over k of ω^(k (a·v - y)) with
ω = exp(2πi/g). As a runs over the seeds with leading digit 1 and k over 1..g-1, k a runs over all seeds
exactly once, so one Fourier transform over the digits of k a replaces the entire butterfly at about
2 log g / g of its cost. Counts use the butterfly, which is exact. The layouts are the same as in
butterfly.py.
"""

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ...arrays import Floats

_MAX_PRODUCT_ROWS = 8  # up to this many rows (one per top digit), a matrix product is faster
_MIN_SCIPY_VALUES = 1 << 14  # for at least this many values, SciPy saves more time than it takes to load
_MAX_CACHED = 1 << 18  # up to this many values, the seed order is cached, at 8 bytes per seed


def class_supports(g: int, t: int, *numbers: Floats, count: int | None = None) -> list[Floats]:
    """Sum each of `numbers` over the classes that support each value.

    Processing two arrays costs as much as processing one.

    Args:
        g: The number of cells.
        t: The number of digits.
        numbers: Arrays with one number per class, each of shape (class_count,).
        count: The number of values to return; by default all g**t.
    """
    if not numbers:
        return []
    fft, value_count = _fft(g**t), count or int(g**t)
    pairs = np.zeros((g * (g**t - 1) // (g - 1), (len(numbers) + 1) // 2), dtype=np.complex128)
    for k, number in enumerate(numbers):
        (pairs.imag if k % 2 else pairs.real)[:, k // 2] = number
    waves = np.empty((g**t, pairs.shape[1]), dtype=np.complex128)
    waves[0] = pairs.sum(axis=0)
    for block, at in blocks(g, t):
        waves[at] = fft.fft(pairs[block].reshape(g, -1, pairs.shape[1]), axis=0)[1:]
    rows = -(-value_count // g ** (t - 1))
    few = t > 1 and rows <= _MAX_PRODUCT_ROWS
    if few:
        waves = _phases(g, 1)[:rows] @ waves.reshape(g, -1)
    cube = waves.reshape(-1, *(g,) * (t - 1), pairs.shape[1])
    axes = range(1 if few else 0, t)
    sums: npt.NDArray[np.complex128] = fft.ifftn(cube, axes=axes, norm="forward")
    sums = sums.reshape(-1, pairs.shape[1])[:value_count] / g
    return [(sums.imag if k % 2 else sums.real)[:, k // 2] for k in range(len(numbers))]


def class_weights(g: int, t: int, values: Floats) -> Floats:
    """Sum numbers over the values that each class supports; the transpose of class_supports().

    Args:
        g: The number of cells.
        t: The number of digits.
        values: Numbers for n <= g**t values, shape (n,) or (n, batch).

    Returns:
        The sums, shape (class_count,) or (class_count, batch).
    """
    fft, batch_shape = _fft(g**t), values.shape[1:]
    rows = -(-len(values) // g ** (t - 1))
    few = t > 1 and rows <= _MAX_PRODUCT_ROWS
    padded = np.zeros(((rows if few else g) * g ** (t - 1), *batch_shape))
    padded[: len(values)] = values
    cube = padded.reshape(-1, *(g,) * (t - 1), *batch_shape)
    # Half of the top digit's waves suffice, because the others are their conjugates.
    if few:
        waves = fft.fftn(cube, axes=range(1, t)).reshape(rows, -1)
        waves = (_phases(g, -1)[: g // 2 + 1, :rows] @ waves).reshape(-1, *batch_shape)
    else:
        waves = fft.rfftn(cube, axes=(*range(1, t), 0)).reshape(-1, *batch_shape)
    out = np.empty((g * (g**t - 1) // (g - 1), *batch_shape))
    for block, at in blocks(g, t):
        half = np.empty((g // 2 + 1, at.shape[1], *batch_shape), dtype=np.complex128)
        half[0] = waves[0]
        half[1:] = waves[at[: g // 2]]
        out[block] = fft.irfft(half, g, axis=0).reshape(-1, *batch_shape)
    return out


def _fft(values: int) -> Any:
    """Return NumPy's FFT, or for many values SciPy's, which is twice as fast but takes 0.1 s to load."""
    if values < _MIN_SCIPY_VALUES:
        return np.fft
    from scipy import fft  # pyright: ignore[reportMissingTypeStubs]

    return fft


@lru_cache(maxsize=8)
def _phases(g: int, sign: int) -> npt.NDArray[np.complex128]:
    """Return ω to the power of `sign` times the product of two digits, ω = exp(2πi/g)."""
    return np.exp(2j * np.pi * sign / g * (np.outer(np.arange(g), np.arange(g)) % g))


_Blocks = list[tuple[slice, npt.NDArray[np.intp]]]


def blocks(g: int, t: int) -> _Blocks:
    """Return the positions of each block's classes, and of k a for k = 1..g-1 and the block's seeds a."""
    return _cached_blocks(g, t) if g**t <= _MAX_CACHED else _compute_blocks(g, t)


def _compute_blocks(g: int, t: int) -> _Blocks:
    k = np.arange(1, g)[:, None]
    times = k * np.arange(g) % g
    lower = np.zeros((g - 1, 1), dtype=np.intp)
    result: _Blocks = []
    start, size = 0, 1
    for _ in range(t):
        result.append((slice(start, start + g * size), k * size + lower))
        start += g * size
        if len(result) < t:
            lower = (times[:, :, None] * size + lower[:, None, :]).reshape(g - 1, -1)
        size *= g
    return result


_cached_blocks = lru_cache(maxsize=8)(_compute_blocks)
