"""Choose the mechanism with the least variance by the mechanisms' variance formulas."""

import json
from dataclasses import replace
from functools import cache

from ..epsilon import check_epsilon
from ..wire.experiments import parse_experiment
from . import MECHANISMS, class_of
from .choice import JOINT, Choice
from .workload import FREQUENCIES, Workload

# A mechanism that some devices do not know must have this much less variance, or save a third code byte with
# hardly more variance.
_LESS = 0.9
_HARDLY_MORE = 1.015
_SHORT = 2


@cache
def choose(domain: int, epsilon: int, workload: Workload, missing: bool = False) -> Choice:
    """Return the mechanism with the least mean variance over a workload.

    A newer mechanism must have 10% less variance or a shorter code, since devices without its file refuse it.

    Args:
        domain: The number of indices.
        epsilon: ε of a report, in micro-nats.
        workload: The statistics to estimate.
        missing: Whether the last index stands for a missing reading, which not all mechanisms support.

    Raises:
        ValueError: If the domain is below 2, an Experiment does not allow the epsilon, or no mechanism fits.
        WorkloadError: If the workload is outside the domain.
    """
    offered = sorted(designs(domain, epsilon, workload), key=lambda choice: choice.variance)
    if missing:
        offered = [choice for choice in offered if MECHANISMS[choice.mechanism].takes_missing]
    generations = {choice: MECHANISMS[choice.mechanism].generation for choice in offered}
    best = min(offered, key=generations.__getitem__)  # the first of the oldest
    for choice in offered:
        if generations[choice] > generations[best] and _is_worth(choice, best, domain, epsilon):
            best = choice
    return best


def _is_worth(newer: Choice, older: Choice, domain: int, epsilon: int) -> bool:
    if newer.variance > _HARDLY_MORE * older.variance:
        return False
    if newer.variance < _LESS * older.variance:
        return True
    return _code_bytes(domain, epsilon, newer) <= _SHORT < _code_bytes(domain, epsilon, older)


def _code_bytes(domain: int, epsilon: int, choice: Choice) -> int:
    fields = {"v": 1, "name": "e", "type": "number", "low": 0, "high": 1, "bins": domain, **choice.fields()}
    fields |= {"epsilon": epsilon, "budget": {"rule": "unlimited"}, "window": "all"}
    return parse_experiment(json.dumps(fields).encode()).code_bytes


@cache
def designs(domain: int, epsilon: int, workload: Workload, name: str | None = None) -> tuple[Choice, ...]:
    """Return what each mechanism, or the one of this name, offers for a workload.

    Args:
        domain: The number of indices.
        epsilon: ε of a report, in micro-nats.
        workload: The statistics to estimate.
        name: The name of a mechanism, or None for all.

    Raises:
        ValueError: As choose().
        WorkloadError: As choose().
    """
    if domain < 2:
        raise ValueError(f"domain must be at least 2, not {domain}")
    check_epsilon(epsilon, ValueError, original=f"{epsilon} micro-nats")
    workload.check(domain)
    classes = dict.fromkeys(MECHANISMS.values()) if name is None else [class_of(name)]
    offered = [choice for each in classes for choice in each.designs(domain, epsilon, workload)]
    if any(choice.mechanism == JOINT for choice in offered):
        flat = choose(domain, epsilon, FREQUENCIES)
        offered = [replace(flat, variance=c.variance) if c.mechanism == JOINT else c for c in offered]
    result = tuple(choice for choice in offered if name in (None, choice.mechanism))
    if not result:
        what = name or "mechanism"
        raise ValueError(f"no {what} over {domain} values fits in 16777216 codes at epsilon {epsilon}")
    return result
