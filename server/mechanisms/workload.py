"""Workloads: the statistics that an experiment must estimate with a low mean variance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from ..arrays import Floats
from ..errors import HushmoteError
from .tree import influence as tree_influence
from .tree import least_squares as hierarchy

_CHUNK = 1 << 22  # floats in memory at once


class WorkloadError(HushmoteError):
    """Raised if the list of ranges is empty or a range lies outside the domain."""


@dataclass(frozen=True)
class Workload:
    """Linear statistics that are all equally important.

    For readings with several parts, `kind` can also be "marginals" (the values of `of_parts`, or of each part
    separately), "tables" (the marginals and the joint table, equally weighted), "conditional" (the values of
    `of_parts` among the readings with each value of `given`) or "differences" (those between two values of
    `given`).

    Attributes:
        kind: "frequencies" for every single value; "ranges" for every range lo < hi; "prefixes" for every
            cumulative share (used for quantiles); "mean" for the mean of the values' positions, 0 to 1;
            "list" for the statistics in `ranges`; "texts" for finding the common texts by their prefixes.
        ranges: Half-open pairs of indices (lo, hi), only for "list".
        share: A single value's share, or None for the share with the largest variance; only for
            "frequencies".
        levels: The number of prefixes, only for "texts", where the domain is each prefix's number of slots.
        shape: Each part's number of values.
        of_parts: The indices of the parts to estimate, ascending.
        given: The indices of the parts to condition on, ascending.
    """

    kind: Literal[
        "frequencies",
        "ranges",
        "prefixes",
        "mean",
        "list",
        "texts",
        "marginals",
        "tables",
        "conditional",
        "differences",
    ]
    ranges: tuple[tuple[int, int], ...] = ()
    share: float | None = 0.0
    levels: int = 0
    shape: tuple[int, ...] = ()
    of_parts: tuple[int, ...] = ()
    given: tuple[int, ...] = ()

    @staticmethod
    def of(ranges: Iterable[tuple[int, int]]) -> Workload:
        """Return the workload for the ranges lo..hi-1.

        Raises:
            WorkloadError: If a range is invalid or no range is given.
        """
        pairs = tuple((int(lo), int(hi)) for lo, hi in ranges)
        if not pairs:
            raise WorkloadError("at least one range is needed")
        for lo, hi in pairs:
            if not 0 <= lo < hi:
                raise WorkloadError(f"a range must have 0 <= lo < hi, not {lo} and {hi}")
        return Workload("list", pairs)

    def check(self, domain: int) -> None:
        """Raise WorkloadError if a range lies outside range(domain)."""
        for lo, hi in self.ranges:
            if hi > domain:
                raise WorkloadError(f"a range must have hi <= {domain}, not {lo} and {hi}")

    def energy(self, domain: int, width: int) -> float:
        """Return the mean squared length of the statistics after averaging within blocks of `width` values.

        This is the mean over the workload of the sum over blocks of (number of the block's values in the
        statistic)² / size; the last block may be smaller. For a width of 1 it is the mean squared length, and
        for a width of `domain` the root's part.
        """
        return _energy(self, domain, width)

    def mean_variance(self, tree: hierarchy.Tree, variances: Sequence[float | Floats]) -> float:
        """Return the mean variance over the workload; variances as in influence.mean_range_variance()."""
        if self.kind == "ranges":
            return tree_influence.mean_range_variance(tree, variances)
        d = tree_influence.node_variances(tree, variances)
        if self.kind == "mean":
            parts, _ = hierarchy.transpose(tree, positions(tree.domain)[:, None])
            return sum(float((v * part[:, 0] ** 2).sum()) for v, part in zip(d, parts, strict=True))
        if self.kind != "list":
            both = tree_influence.influences(tree, d)
            return float(both[self.kind == "prefixes"].squares.mean())
        total = 0.0
        index = np.arange(tree.domain)[:, None]
        step = max(1, _CHUNK // tree.domain)
        for i in range(0, len(self.ranges), step):
            lo, hi = np.array(self.ranges[i : i + step]).T
            parts, _ = hierarchy.transpose(tree, ((index >= lo) & (index < hi)).astype(np.float64))
            total += sum(float((v @ part**2).sum()) for v, part in zip(d, parts, strict=True))
        return total / len(self.ranges)


FREQUENCIES = Workload("frequencies")
ALL_RANGES = Workload("ranges")
PREFIXES = Workload("prefixes")
MEAN = Workload("mean")


def positions(domain: int) -> Floats:
    """Return each value's midpoint as a position in the range, 0 to 1, shape (domain,)."""
    return (np.arange(domain) + 0.5) / domain


@lru_cache(maxsize=1024)
def _energy(workload: Workload, domain: int, width: int) -> float:
    full, remainder = divmod(domain, width)
    if workload.kind == "frequencies":
        return (full + (remainder > 0)) / domain
    if workload.kind == "mean":
        starts = np.arange(0, domain, width)
        sums = np.add.reduceat(positions(domain), starts)
        return float((sums**2 / np.diff(starts, append=domain)).sum())
    if workload.kind == "list":
        return _energy_of_list(workload.ranges, domain, width)
    # A prefix of n values, n = 0..domain, contains clip(n - start, 0, size) values of a block, and the whole
    # block for `after` values of n. Full blocks form an arithmetic progression, so the sums are exact
    # integers.
    after = full * (domain + 1) - width * full * (full + 1) // 2
    after_squared = full * (domain + 1) ** 2 - (domain + 1) * width * full * (full + 1)
    after_squared += width**2 * full * (full + 1) * (2 * full + 1) // 6
    total = 0.0
    for size, blocks, once, squared in ((width, full, after, after_squared), (remainder, 1, 1, 1)):
        if not size or not blocks:
            continue
        partly = size * (size - 1) // 2
        square = size**2 * once + blocks * ((size - 1) * size * (2 * size - 1) // 6)
        linear_squared = size**2 * squared + 2 * size * partly * once + blocks * partly**2
        # A range is the difference of two of the domain + 1 prefixes.
        all_ranges = (domain + 1) * square - linear_squared
        total += (square if workload.kind == "prefixes" else all_ranges) / size
    return total / (domain if workload.kind == "prefixes" else domain * (domain + 1) // 2)


def _energy_of_list(ranges: tuple[tuple[int, int], ...], domain: int, width: int) -> float:
    lo, hi = np.array(ranges, dtype=np.int64).T
    first, last = lo // width, (hi - 1) // width
    end = np.minimum((first + 1) * width, domain)
    first_part = np.minimum(end, hi) - lo
    last_part = hi - last * width
    whole = np.maximum(last * width - end, 0)
    beyond = np.where(last > first, whole + last_part**2 / np.minimum(width, domain - last * width), 0.0)
    return float((first_part**2 / (end - first * width) + beyond).mean())
