"""Boundaries for any number of looks, before and after the planned information is reached.

Most of a level is spent by the time that the planned information is reached (spending.py). The rest, a
share REST of it, is for the looks after that, however many there are. It pays for a normal-mixture
confidence sequence that starts there: if there is no difference, the probability that

    Z >= sqrt(a² + ln t)    at any look with t >= 1 times the planned information

is at most 1 - Φ(a) + φ(a) (a + φ(a) / Φ(a)). This mixes the likelihood ratios of all positive differences
evenly. Robbins, "Statistical methods related to the law of the iterated logarithm", Annals of Mathematical
Statistics 1970; Howard, Ramdas, McAuliffe and Sekhon, Annals of Statistics 2021.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

from .. import special
from . import spending

REST = 0.02
"""The share of a level that is kept for looks after the planned information."""


def bounds(fractions: Sequence[float], level: float) -> tuple[float, ...]:
    """Return the boundary of each look, in standard errors of the difference.

    If there is no difference, any of these boundaries is crossed with a probability of at most `level`. A
    look that adds less than spending.MIN_STEP to the information has no boundary (infinity).

    Args:
        fractions: The information at each look, as a fraction of the planned information; they may be
            unequal, and exceed 1. They must not depend on what the reports contain.
        level: The one-sided level.
    """
    looks = planned_looks(fractions)
    planned = spending.boundaries(tuple(fractions[k] for k in looks), level * (1 - REST)) if looks else ()
    by_look = dict(zip(looks, planned, strict=True))
    is_used_up = bool(looks) and fractions[looks[-1]] >= 1
    result: list[float] = []
    for k, fraction in enumerate(fractions):
        if is_used_up and k > looks[-1]:
            result.append(later_bound(fraction, level))
        else:
            result.append(by_look.get(k, math.inf))
    return tuple(result)


def planned_looks(fractions: Sequence[float]) -> tuple[int, ...]:
    """Return the looks that spend the level: up to the first that reaches the planned information."""
    result: list[int] = []
    before = 0.0
    for k, fraction in enumerate(fractions):
        if fraction - before >= spending.MIN_STEP:
            result.append(k)
            before = fraction
            if fraction >= 1:
                break
    return tuple(result)


def later_bound(fraction: float, level: float) -> float:
    """Return the boundary of a look after the planned information is used up.

    Args:
        fraction: The information, as a fraction of the planned information, at least 1.
        level: The one-sided level of all looks, of which REST remains.
    """
    return math.sqrt(_first_bound(level * REST) ** 2 + math.log(max(fraction, 1.0)))


@lru_cache(maxsize=256)
def _first_bound(level: float) -> float:
    low, high = 0.0, 40.0
    while high - low > 1e-12:
        middle = (low + high) / 2
        low, high = (middle, high) if _mixture_chance(middle) > level else (low, middle)
    return high


def _mixture_chance(a: float) -> float:
    """Return the probability that the sequence which starts at `a` is ever crossed without a difference."""
    density, below = math.exp(-a * a / 2) / math.sqrt(2 * math.pi), float(special.ndtr(a))
    return float(special.ndtr(-a)) + density * (a + density / below)
