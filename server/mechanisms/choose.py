"""Choose the mechanism with the least variance, using the mechanisms' variance formulas."""

import json
from dataclasses import replace
from functools import cache

from ..epsilon import check_epsilon
from ..wire.experiments import parse_experiment
from . import MECHANISMS, class_of
from .choice import JOINT, Choice
from .workload import FREQUENCIES, Workload

# A mechanism that some devices do not support is chosen only if its variance is at most this fraction of the
# older mechanism's, or if it avoids a third code byte at most _MAX_INCREASE times the variance.
_MIN_GAIN = 0.9
_MAX_INCREASE = 1.015
_SHORT_CODE_BYTES = 2


@cache
def choose(domain: int, epsilon: int, workload: Workload, missing: bool = False) -> Choice:
    """Return the mechanism with the least mean variance over a workload.

    A newer mechanism must have 10% less variance or a shorter code, since devices without its file reject it.

    Args:
        domain: The number of indices.
        epsilon: ε of a report, in micro-nats.
        workload: The statistics to estimate.
        missing: Whether the last index represents a missing reading, which not all mechanisms support.

    Raises:
        ValueError: If the domain is below 2, epsilon is outside an Experiment's limits, or no mechanism fits.
        WorkloadError: If the workload exceeds the domain.
    """
    choices = sorted(designs(domain, epsilon, workload), key=lambda choice: choice.variance)
    if missing:
        choices = [choice for choice in choices if MECHANISMS[choice.mechanism].takes_missing]
    generations = {choice: MECHANISMS[choice.mechanism].generation for choice in choices}
    best = min(choices, key=generations.__getitem__)  # the best choice of the oldest generation
    for choice in choices:
        if generations[choice] > generations[best] and _is_worth(choice, best, domain, epsilon):
            best = choice
    return best


def _is_worth(newer: Choice, older: Choice, domain: int, epsilon: int) -> bool:
    if newer.variance > _MAX_INCREASE * older.variance:
        return False
    if newer.variance < _MIN_GAIN * older.variance:
        return True
    return _code_bytes(domain, epsilon, newer) <= _SHORT_CODE_BYTES < _code_bytes(domain, epsilon, older)


def _code_bytes(domain: int, epsilon: int, choice: Choice) -> int:
    fields = {"v": 1, "name": "e", "type": "number", "low": 0, "high": 1, "bins": domain, **choice.fields()}
    fields |= {"epsilon": epsilon, "budget": {"rule": "unlimited"}, "window": "all"}
    return parse_experiment(json.dumps(fields).encode()).code_bytes


@cache
def designs(domain: int, epsilon: int, workload: Workload, name: str | None = None) -> tuple[Choice, ...]:
    """Return the choices that each mechanism, or only the named one, offers for a workload.

    Args:
        domain: The number of indices.
        epsilon: ε of a report, in micro-nats.
        workload: The statistics to estimate.
        name: A mechanism's name, or None for all mechanisms.

    Raises:
        ValueError: In the same cases as choose().
        WorkloadError: In the same cases as choose().
    """
    if domain < 2:
        raise ValueError(f"domain must be at least 2, not {domain}")
    check_epsilon(epsilon, ValueError, original=f"{epsilon} micro-nats")
    workload.check(domain)
    classes = dict.fromkeys(MECHANISMS.values()) if name is None else [class_of(name)]
    choices = [choice for mechanism in classes for choice in mechanism.designs(domain, epsilon, workload)]
    if any(choice.mechanism == JOINT for choice in choices):
        flat = choose(domain, epsilon, FREQUENCIES)
        choices = [replace(flat, variance=c.variance) if c.mechanism == JOINT else c for c in choices]
    result = tuple(choice for choice in choices if name in (None, choice.mechanism))
    if not result:
        subject = f"{name} does not fit" if name else "no mechanism fits"
        raise ValueError(f"{subject} {domain} values in 16777216 codes at epsilon {epsilon}")
    return result
