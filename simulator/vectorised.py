"""Draw codes for millions of devices in NumPy, from the same channel that boards use.

The mechanism (server/mechanisms) draws; this module adds missing readings, and keeps memory use independent
of the fleet's size.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from ..device.ldp_client import Experiment
from ..server.mechanisms import mechanism_of

NO_READING = -1  # stands for the index of "no reading", or for a uniformly drawn one if there is none

_CHUNK = 1 << 15  # number of reports at once, to fit a core's cache


def codes(experiment: Experiment, indices: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return one code for each index, uint32, in the same order.

    Needs 4 bytes per report, plus a few megabytes of working memory.

    Args:
        experiment: The experiment.
        indices: Integers in range(domain), or NO_READING, shape (n,).
        rng: Source of the draws.

    Raises:
        ValueError: If an index is outside the domain.
    """
    mechanism = mechanism_of(experiment)
    out = np.empty(len(indices), np.uint32)
    for start in range(0, len(indices), _CHUNK):
        chunk = np.asarray(indices[start : start + _CHUNK], np.int64)
        if chunk.min() < NO_READING or chunk.max() >= experiment.domain:
            raise ValueError(f"indices must be in range({experiment.domain}), or -1 for no reading")
        missing = chunk == NO_READING
        if missing.any() and experiment.missing is not None:
            chunk = np.where(missing, experiment.missing, chunk)
        elif missing.any():
            chunk = np.where(missing, rng.integers(0, experiment.domain, len(chunk)), chunk)
        out[start : start + _CHUNK] = mechanism.draw(chunk.astype(np.uint32), rng)
    return out


def histogram(
    experiment: Experiment,
    index_counts: np.ndarray,
    rng: np.random.Generator,
    *,
    no_reading: int = 0,
    of: Sequence[int] | None = None,
) -> np.ndarray:
    """Return the histogram of a whole fleet's codes, int64, shape (code_count,).

    Memory does not depend on the number of reports.

    Args:
        experiment: The experiment.
        index_counts: Number of reports with each index, shape (domain,).
        rng: Source of the draws.
        no_reading: Number of reports without a reading.
        of: Indices of the counts, if the domain is too large for an array; no_reading must then be 0.

    Raises:
        ValueError: If the counts do not fit the experiment.
    """
    index_counts = np.asarray(index_counts)
    size = experiment.domain if of is None else len(of)
    if index_counts.shape != (size,) or index_counts.dtype.kind not in "iu":
        raise ValueError(f"index_counts must be integers of shape ({size},)")
    if of is not None and no_reading:
        raise ValueError("with `of`, no_reading must be 0")
    if no_reading < 0 or index_counts.min() < 0:
        raise ValueError("counts must not be negative")
    if no_reading and experiment.missing is not None:
        index_counts = index_counts.astype(np.int64)
        index_counts[experiment.missing] += no_reading
        no_reading = 0
    mechanism = mechanism_of(experiment)
    out = np.zeros(experiment.code_count, np.int64)
    drawn_from = None if of is None else mechanism.drawable(of)
    for chunk in _index_chunks(experiment, index_counts.astype(np.int64), no_reading, rng):
        codes_drawn = mechanism.draw(chunk if drawn_from is None else drawn_from[chunk], rng)
        if experiment.code_count <= 4 * _CHUNK:
            out += np.bincount(codes_drawn, minlength=experiment.code_count)
        else:  # a pass over all codes for each chunk would cost more than the chunk itself
            np.add.at(out, codes_drawn.astype(np.intp), 1)
    return out


def _index_chunks(
    experiment: Experiment, index_counts: np.ndarray, no_reading: int, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """Yield every device's index, sorted, because a histogram does not depend on the order of its reports."""
    ends = np.cumsum(index_counts)
    for start in range(0, int(ends[-1]), _CHUNK):
        stop = min(start + _CHUNK, int(ends[-1]))
        first, last = np.searchsorted(ends, [start, stop - 1], side="right")
        in_chunk = np.clip(ends[first : last + 1], start, stop) - np.clip(
            ends[first : last + 1] - index_counts[first : last + 1], start, stop
        )
        yield np.repeat(np.arange(first, last + 1, dtype=np.uint32), in_chunk)
    for start in range(0, no_reading, _CHUNK):
        yield rng.integers(0, experiment.domain, min(_CHUNK, no_reading - start), dtype=np.uint32)
