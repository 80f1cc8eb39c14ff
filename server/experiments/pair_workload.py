"""What a pair's experiment is to answer well, by the words that its file has for it."""

from collections.abc import Sequence

from ..mechanisms.workload import FREQUENCIES, Workload

PAIR_STATISTICS = ("joint", "marginals", "tables", "conditional", "differences")
"""All parts together; each by itself; both; one part given another; a difference of two such."""


def pair_workload(
    statistics: str | None, names: Sequence[str], shape: tuple[int, ...], given: str | None
) -> Workload:
    """The workload of a word of PAIR_STATISTICS, None for "conditional".

    given: the part among whose values the last other part is asked for; None for the first.
    """
    if statistics == "joint":
        return FREQUENCIES
    if statistics == "marginals":
        return Workload("marginals", shape=shape)
    if statistics == "tables":
        return Workload("tables", shape=shape)
    told = 0 if given is None else names.index(given)
    of = max(part for part in range(len(names)) if part != told)
    kind = "differences" if statistics == "differences" else "conditional"
    return Workload(kind, shape=shape, of_parts=(of,), given=(told,))
