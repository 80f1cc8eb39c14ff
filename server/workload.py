"""What an experiment is to answer well: the sums of neighbouring frequencies whose mean variance counts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal


class WorkloadError(ValueError):
    """A list of ranges that is none, or lies outside the domain."""


@dataclass(frozen=True)
class Workload:
    """Linear statistics, all of them equally important.

    kind    "frequencies": every single value; "ranges": every range lo < hi; "prefixes": every cumulative
            share, which quantiles are read off; "list": those in ranges
    ranges  half-open pairs of indices (lo, hi), for "list" alone
    """

    kind: Literal["frequencies", "ranges", "prefixes", "list"]
    ranges: tuple[tuple[int, int], ...] = ()

    @staticmethod
    def of(ranges: Iterable[tuple[int, int]]) -> Workload:
        """The ranges lo..hi-1. Raises WorkloadError unless there is one and 0 <= lo < hi for each."""
        pairs = tuple((int(lo), int(hi)) for lo, hi in ranges)
        if not pairs:
            raise WorkloadError("at least one range is needed")
        for lo, hi in pairs:
            if not 0 <= lo < hi:
                raise WorkloadError(f"a range needs 0 <= lo < hi, not {lo} and {hi}")
        return Workload("list", pairs)

    def check(self, domain: int) -> None:
        """Raise WorkloadError where a range lies outside range(domain)."""
        for lo, hi in self.ranges:
            if hi > domain:
                raise WorkloadError(f"a range needs hi <= {domain}, not {lo} and {hi}")


FREQUENCIES = Workload("frequencies")
ALL_RANGES = Workload("ranges")
PREFIXES = Workload("prefixes")
