"""Boundaries for repeated looks at one accumulating difference, by alpha spending.

At look k, a fraction t_k of the planned information is available. The score S_k = Z_k sqrt(t_k) is a
Brownian motion seen at the times t_k, so scores of successive looks differ by independent normal steps
of variance t_k - t_(k-1). A spending function says which part of the level may be used up by time t; the
boundary of a look is the score that uses up exactly what may be spent since the look before. Looks may
come at any times, if these do not depend on what the reports contain.

The spending function is O'Brien and Fleming's type: 2 - 2 Φ(z / sqrt(t)), with z the upper level / 2
quantile. It spends little at first, so the boundary at the end is close to that of one test.

The density of the score on the continuation region is carried from look to look by Gauss-Legendre
integration. Armitage, McPherson and Rowe, JRSS A 1969; Lan and DeMets, Biometrika 1983; Jennison and
Turnbull, "Group Sequential Methods", 2000, chapter 19.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from .. import special
from ..arrays import Floats
from .difference import ReleaseError

MIN_STEP = 1 / 100
"""The smallest step between looks, as a fraction of the planned information."""
_TAIL = 8.0  # standard deviations of a score that the density covers
_NODES_PER_STEP = 2.5  # nodes per standard deviation of the smaller of the steps before and after a look
_SIZES = (48, 64, 96, 128, 192, 256, 384, 512)  # numbers of nodes; few, to have each computed once
_DIRECT = 1e-10  # below this, a boundary ignores earlier looks, which only makes it wider
_ITERATIONS, _PRECISION = 100, 1e-11


def spent_level(fraction: float, level: float) -> float:
    """Return the part of the level that may be used up, O'Brien and Fleming's type.

    Args:
        fraction: The fraction of the planned information, above 0; more than 1 counts as 1.
        level: The one-sided level, above 0 and below 1.
    """
    return float(2 * special.ndtr(special.ndtri(level / 2) / math.sqrt(min(fraction, 1.0))))


@lru_cache(maxsize=4096)
def boundaries(fractions: tuple[float, ...], level: float) -> tuple[float, ...]:
    """Return the boundary of each look, in standard errors of the difference.

    With boundaries b_k, the probability that Z_k >= b_k at any of the looks is
    spent_level(fractions[-1], level) if there is no difference.

    Args:
        fractions: The fraction of the planned information at each look, increasing by at least MIN_STEP.
            Only the last one may be more than 1.
        level: The one-sided level.

    Raises:
        ReleaseError: If the level is not between 0 and 1, or the fractions do not increase like this.
    """
    if not 0 < level < 1:
        raise ReleaseError(f"a level must be between 0 and 1, not {level:g}")
    _check(fractions)
    result: list[float] = []
    density, before = _Density.start(), 0.0
    for k, fraction in enumerate(fractions):
        total = spent_level(fraction, level)
        score = density.boundary(fraction, total - before)
        result.append(score / math.sqrt(fraction))
        if k + 1 < len(fractions):
            density = density.follow(fraction, score, fractions[k + 1] - fraction)
        before = total
    return tuple(result)


def crossing_probability(fractions: Sequence[float], bounds: Sequence[float], drift: float = 0.0) -> Floats:
    """Return the probability that a boundary has been crossed by each look, shape (looks,).

    Args:
        fractions: The fraction of the planned information at each look, increasing by at least MIN_STEP.
        bounds: The boundary of each look, in standard errors of the difference.
        drift: The true difference divided by its standard error at the planned information.

    Raises:
        ReleaseError: If the fractions do not increase, or there is not one boundary for each.
    """
    _check(fractions)
    if len(bounds) != len(fractions):
        raise ReleaseError(f"{len(fractions)} looks need as many boundaries, not {len(bounds)}")
    result: list[float] = []
    density = _Density.start(drift)
    for k, (fraction, bound) in enumerate(zip(fractions, bounds, strict=True)):
        score = bound * math.sqrt(fraction)
        result.append(density.exceedance(fraction, score))
        if k + 1 < len(fractions):
            density = density.follow(fraction, score, fractions[k + 1] - fraction)
    return np.cumsum(result)


def _check(fractions: Sequence[float]) -> None:
    steps = np.diff(fractions, prepend=0.0)
    if not fractions or not np.all(steps >= MIN_STEP * (1 - 1e-9)) or any(t >= 1 for t in fractions[:-1]):
        raise ReleaseError(
            f"fractions of information must rise by {MIN_STEP:g} or more, and only the last may reach 1"
        )


@lru_cache(maxsize=len(_SIZES))
def _rule(size: int) -> tuple[Floats, Floats]:
    return np.polynomial.legendre.leggauss(size)


@dataclass(frozen=True)
class _Density:
    """The density of a score that has not crossed a boundary yet.

    Attributes:
        fraction: The fraction of the planned information.
        nodes: The scores at which the density is known, shape (n,).
        mass: The density times the weights of the nodes, shape (n,).
        drift: The mean of the score at the planned information.
    """

    fraction: float
    nodes: Floats
    mass: Floats
    drift: float

    @staticmethod
    def start(drift: float = 0.0) -> _Density:
        return _Density(0.0, np.zeros(1), np.ones(1), drift)

    def exceedance(self, fraction: float, score: float) -> float:
        """Return the probability that the score crosses a boundary at the next look and not before."""
        step = fraction - self.fraction
        above = (self.nodes + self.drift * step - score) / math.sqrt(step)
        return float(self.mass @ special.ndtr(above))

    def boundary(self, fraction: float, chance: float) -> float:
        """Return the boundary of the next look that is crossed with this probability."""
        if chance <= 0:
            return math.inf
        deviate = -float(special.ndtri(chance))
        score = math.sqrt(fraction) * deviate
        if chance < _DIRECT:
            return score
        deviation = math.sqrt(fraction - self.fraction)
        score = min(score, float(self.nodes.max()) + deviation * deviate)
        # Newton's method on the logarithm, which is concave: it approaches the boundary from above only.
        for _ in range(_ITERATIONS):
            above = (self.nodes - score) / deviation
            value = float(self.mass @ special.ndtr(above))
            slope = float(self.mass @ np.exp(-(above**2) / 2)) / (deviation * math.sqrt(2 * math.pi))
            change = math.log(value / chance) * value / slope
            score += change
            if abs(change) < _PRECISION:
                break
        return score

    def follow(self, fraction: float, score: float, next_step: float) -> _Density:
        """Return the density after a look whose boundary was not crossed.

        Args:
            fraction: The fraction of the planned information at the look.
            score: The boundary.
            next_step: The step to the look after it, which the nodes must resolve as well.
        """
        step = fraction - self.fraction
        mean, tail = self.drift * fraction, _TAIL * math.sqrt(fraction)
        low, high = mean - tail, min(score, mean + tail)
        low = min(low, high - tail)
        node_count = _NODES_PER_STEP * (high - low) / math.sqrt(min(step, next_step))
        points, weights = _rule(next((size for size in _SIZES if size >= node_count), _SIZES[-1]))
        nodes = low + (high - low) * (points + 1) / 2
        off = (nodes[:, None] - self.nodes - self.drift * step) / math.sqrt(step)
        density = np.exp(-(off**2) / 2) @ self.mass / math.sqrt(2 * math.pi * step)
        return _Density(fraction, nodes, density * weights * (high - low) / 2, self.drift)
