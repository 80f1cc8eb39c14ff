"""The choice of a mechanism by variance formulas: the least of what each says of itself."""

from functools import cache

from ..epsilon import check_epsilon
from . import MECHANISMS, class_of
from .choice import Choice
from .workload import Workload


@cache
def choose(domain: int, epsilon: int, workload: Workload) -> Choice:
    """Mechanism of least mean variance over the workload for range(domain) at epsilon micro-nats.

    Raises ValueError for a domain below 2, an epsilon outside what an Experiment allows, or where none fits,
    and WorkloadError for a workload outside the domain.
    """
    return min(designs(domain, epsilon, workload), key=lambda choice: choice.variance)


@cache
def designs(domain: int, epsilon: int, workload: Workload, name: str | None = None) -> tuple[Choice, ...]:
    """What each mechanism, or the one of this name, offers for a workload; raises as choose()."""
    if domain < 2:
        raise ValueError(f"domain must be at least 2, not {domain}")
    check_epsilon(epsilon, ValueError, shown=f"{epsilon} micro-nats")
    workload.check(domain)
    classes = dict.fromkeys(MECHANISMS.values()) if name is None else [class_of(name)]
    offered = (choice for each in classes for choice in each.designs(domain, epsilon, workload))
    result = tuple(choice for choice in offered if name in (None, choice.mechanism))
    if not result:
        what = name or "mechanism"
        raise ValueError(f"no {what} over {domain} values fits in 16777216 codes at epsilon {epsilon}")
    return result
