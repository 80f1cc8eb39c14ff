"""The butterfly's map between classes of codes and values in floating point, by Fourier transforms.

A class (a, y) supports v where a·v = y mod g, and the indicator of that is the mean over k of ω^(k (a·v - y))
with ω = exp(2πi/g). As a runs over the seeds with leading digit 1 and k over 1..g-1, k a runs over all
seeds, each once: one Fourier transform over the digits of k a does for the whole butterfly, for about
g / (2 log g) of its cost. Counts stay with the butterfly, which is exact. Layouts are butterfly.py's.
"""

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.fft  # pyright: ignore[reportMissingTypeStubs]

from ..arrays import Floats

fft: Any = scipy.fft  # whose types say less than it does
_MAX_KEPT = 1 << 18  # values up to which the order of seeds, 8 bytes for each, is kept for the next time


def class_supports(g: int, t: int, *numbers: Floats) -> list[Floats]:
    """Sums of numbers over the classes that support each value: (class_count,) to (g**t,) for each.

    Two at a time cost as much as one.
    """
    if not numbers:
        return []
    pairs = np.zeros((g * (g**t - 1) // (g - 1), (len(numbers) + 1) // 2), dtype=np.complex128)
    for k, number in enumerate(numbers):
        (pairs.imag if k % 2 else pairs.real)[:, k // 2] = number
    waves = np.empty((g**t, pairs.shape[1]), dtype=np.complex128)
    waves[0] = pairs.sum(axis=0)
    for block, at in blocks(g, t):
        waves[at] = fft.fft(pairs[block].reshape(g, -1, pairs.shape[1]), axis=0)[1:]
    cube = waves.reshape(*(g,) * t, pairs.shape[1])
    sums: npt.NDArray[np.complex128] = fft.ifftn(cube, axes=range(t), norm="forward", overwrite_x=True)
    sums = sums.reshape(waves.shape) / g
    return [(sums.imag if k % 2 else sums.real)[:, k // 2] for k in range(len(numbers))]


def class_weights(g: int, t: int, values: Floats) -> Floats:
    """Sum numbers over the values that each class supports, n <= g**t values; the transpose.

    Shape (n,) or, several at once, (n, batch) to (class_count,) or (class_count, batch).
    """
    rest = values.shape[1:]
    padded = np.zeros((g**t, *rest))
    padded[: len(values)] = values
    waves = fft.fftn(padded.reshape(*(g,) * t, *rest), axes=range(t)).reshape(-1, *rest)
    out = np.empty((g * (g**t - 1) // (g - 1), *rest))
    for block, at in blocks(g, t):
        half = np.empty((g // 2 + 1, at.shape[1], *rest), dtype=np.complex128)
        half[0] = waves[0]
        half[1:] = waves[at[: g // 2]]
        out[block] = fft.irfft(half, g, axis=0).reshape(-1, *rest)
    return out


_Blocks = list[tuple[slice, npt.NDArray[np.intp]]]


def blocks(g: int, t: int) -> _Blocks:
    """Where each block's classes stand, and where k a stands for k = 1..g-1 and its seeds a."""
    return _kept_blocks(g, t) if g**t <= _MAX_KEPT else _made_blocks(g, t)


def _made_blocks(g: int, t: int) -> _Blocks:
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


_kept_blocks = lru_cache(maxsize=8)(_made_blocks)
