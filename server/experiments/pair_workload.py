"""The workload of a pair's experiment, from the `statistics` of its file."""

from collections.abc import Sequence

from ..mechanisms.workload import FREQUENCIES, Workload

PAIR_STATISTICS = ("joint", "marginals", "tables", "conditional", "differences")
"""All parts together, each by itself, both, one part given another, and a difference of two of the latter."""


def pair_workload(
    statistics: str | None, names: Sequence[str], shape: tuple[int, ...], given: str | None
) -> Workload:
    """Return the workload for one of PAIR_STATISTICS, by default "conditional".

    Args:
        statistics: The kind, or None.
        names: The names of the parts.
        shape: The number of values of each part.
        given: The name of the conditioning part, or None for the first; the target is the last other part.
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
