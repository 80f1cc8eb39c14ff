"""The workload for a pair experiment, from `statistics` in the experiment's file."""

from collections.abc import Sequence

from ..mechanisms.workload import FREQUENCIES, Workload

PAIR_STATISTICS = ("joint", "marginals", "tables", "conditional", "differences")
"""All parts jointly, each part separately, both, one part given another, and differences of these."""


def pair_workload(
    statistics: str | None, names: Sequence[str], shape: tuple[int, ...], given: str | None
) -> Workload:
    """Return the workload for one of PAIR_STATISTICS, by default "conditional".

    Args:
        statistics: The kind of statistics, or None for the default.
        names: The parts' names.
        shape: Each part's number of values.
        given: The conditioning part's name, or None for the first part; the target is the last of the other
            parts.
    """
    if statistics == "joint":
        return FREQUENCIES
    if statistics == "marginals":
        return Workload("marginals", shape=shape)
    if statistics == "tables":
        return Workload("tables", shape=shape)
    condition = 0 if given is None else names.index(given)
    target = max(part for part in range(len(names)) if part != condition)
    kind = "differences" if statistics == "differences" else "conditional"
    return Workload(kind, shape=shape, of_parts=(target,), given=(condition,))
