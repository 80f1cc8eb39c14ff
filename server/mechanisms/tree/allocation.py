"""Allocate reports to a tree's levels to minimize the mean variance over a workload.

In a complete tree whose nodes have equal errors within a level, least squares separates into the contrasts
between siblings. Level k and every finer level measure a contrast at level k. With a share w_l of the
reports, a node variance of V_l and width_l values per node, level l has information w_l width_l / V_l about
it. With T_k the workload's mean squared length along the contrasts of level k,

    mean variance = Σ_k T_k / μ_k,    μ_k = Σ_{l >= k} w_l width_l / V_l.

The mean variance is convex in the shares. With c_k = V_k / width_k the condition Σ w = 1 reads Σ_k (c_k -
c_{k-1}) μ_k = 1, so μ_k is proportional to sqrt(T_k / (c_k - c_{k-1})), except that it must not rise with k:
where it would, adjacent levels are pooled, and only the finest of them gets reports. This is isotonic
regression. Its result is optimal over all shares and over all trees that omit levels, but only approximately
in an incomplete tree, whose last nodes are smaller.

Pukelsheim, Optimal Design of Experiments, 1993 (the criterion); Barlow, Bartholomew, Bremner, Brunk,
Statistical Inference under Order Restrictions, 1972 (pooling).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...arrays import Floats

_MAX_TOTAL = 64  # the largest sum of weights; steps of one report in 64 are fine enough
_SLACK = 1.001  # the increase in variance that is accepted for smaller weights


@dataclass(frozen=True)
class Levels:
    """The usefulness of a tree's levels for a workload; arrays of shape (levels,), top first.

    Attributes:
        energy: The workload's mean squared length along each level's contrasts.
        cost: The variance of a node's estimate, times the level's reports, divided by the values per node.
        assumed: The cost that least squares assumes.
    """

    energy: Floats
    cost: Floats
    assumed: Floats

    def variance(self, shares: Floats) -> float:
        """Return the workload's mean variance, times the number of reports, for shares that sum to 1."""
        information = np.cumsum((shares / self.assumed)[::-1])[::-1]
        noise = np.cumsum((shares * self.cost / self.assumed**2)[::-1])[::-1]
        return float((self.energy * noise / information**2).sum())


def shares(levels: Levels) -> Floats:
    """Return the shares with the least variance if least squares assumes the true costs; some may be 0."""
    if not levels.energy.any():  # the workload depends only on the root
        return np.append(np.zeros(len(levels.cost) - 1), 1.0)
    groups: list[tuple[float, float, int]] = []  # energy, increase of cost, finest level
    before = 0.0
    for level, (energy, cost) in enumerate(zip(levels.energy, levels.cost, strict=True)):
        group = (float(energy), float(cost) - before, level)
        before = float(cost)
        while groups and group[0] * groups[-1][1] >= groups[-1][0] * group[1]:
            above = groups.pop()
            group = (above[0] + group[0], above[1] + group[1], level)
        groups.append(group)
    information = [float(np.sqrt(energy / increase)) for energy, increase, _ in groups] + [0.0]
    result = np.zeros(len(levels.cost))
    for i, (_, _, level) in enumerate(groups):
        result[level] = (information[i] - information[i + 1]) * levels.cost[level]
    return result / result.sum()


def rounded(levels: Levels, target: Floats) -> tuple[int, ...]:
    """Return small, nearly optimal integers proportional to target shares, with a positive last integer."""
    return small_integers(target, lambda w: levels.variance(np.array(w) / sum(w)), min_last=1)


def small_integers(
    target: Floats, variance: Callable[[tuple[int, ...]], float], min_last: int = 0
) -> tuple[int, ...]:
    """Return small integers proportional to target shares, with nearly the least variance.

    Args:
        target: The shares, which sum to 1.
        variance: A function that returns the variance for a tuple of integers.
        min_last: The smallest allowed value of the last integer.
    """
    tried: list[tuple[float, tuple[int, ...]]] = []
    for total in range(1, _MAX_TOTAL + 1):
        exact = target * total
        weights = np.floor(exact).astype(int)
        most_missed = np.argsort(weights - exact, kind="stable")[: total - int(weights.sum())]
        weights[most_missed] += 1
        weights[-1] = max(weights[-1], min_last)
        candidate = tuple(weights.tolist())
        tried.append((variance(candidate), candidate))
    lowest = min(variance for variance, _ in tried)
    return next(weights for variance, weights in tried if variance <= lowest * _SLACK)
