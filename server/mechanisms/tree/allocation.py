"""The shares of the reports for each level of a tree, for the least mean variance over a workload.

In a complete tree whose nodes have equal errors within a level, least squares separates into the contrasts
between siblings. Level k and every finer one measure a contrast at level k: with a share w_l of the reports,
variance V_l of a node and width_l values to a node, level l has the information w_l width_l / V_l about it.
With T_k the workload's mean squared length along the contrasts of level k,

    mean variance = Σ_k T_k / μ_k,    μ_k = Σ_{l >= k} w_l width_l / V_l.

It is convex in the shares. With c_k = V_k / width_k the condition Σ w = 1 reads Σ_k (c_k - c_{k-1}) μ_k = 1,
so μ_k is proportional to sqrt(T_k / (c_k - c_{k-1})), except that it must not rise with k: where it would,
neighbouring levels are pooled, and only the finest of them gets reports. That is isotonic regression, and its
result is the optimum over all shares and over all trees that leave out levels. In an incomplete tree it is an
approximation, since the last nodes are smaller.

Pukelsheim, Optimal Design of Experiments, 1993 (the criterion); Barlow, Bartholomew, Bremner, Brunk,
Statistical Inference under Order Restrictions, 1972 (pooling).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...arrays import Floats

_MOST = 64  # the largest sum of weights: one report in 64 for a level is fine enough
_SLACK = 1.001  # factor of the variance that is accepted for smaller weights


@dataclass(frozen=True)
class Levels:
    """The value of a tree's levels for a workload; arrays of shape (levels,), top first.

    Attributes:
        energy: The workload's mean squared length along each level's contrasts.
        cost: The variance of a node's estimate times reports on its level, over the values per node.
        assumed: The cost that least squares assumes.
    """

    energy: Floats
    cost: Floats
    assumed: Floats

    def variance(self, shares: Floats) -> float:
        """Return the mean variance over the workload times reports, for shares of the reports with sum 1."""
        information = np.cumsum((shares / self.assumed)[::-1])[::-1]
        noise = np.cumsum((shares * self.cost / self.assumed**2)[::-1])[::-1]
        return float((self.energy * noise / information**2).sum())


def shares(levels: Levels) -> Floats:
    """Return the shares with the least variance if least squares assumes the true costs; some are 0."""
    if not levels.energy.any():  # the workload depends on the root only
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
    """Return small, nearly optimal integers in proportion to target shares, the last one positive."""
    return small_integers(target, lambda w: levels.variance(np.array(w) / sum(w)), least_of_last=1)


def small_integers(
    target: Floats, variance: Callable[[tuple[int, ...]], float], least_of_last: int = 0
) -> tuple[int, ...]:
    """Return small integers in proportion to target shares, with nearly the least variance.

    Args:
        target: The shares, with sum 1.
        variance: A function that returns the variance for such integers.
        least_of_last: The smallest value of the last integer.
    """
    tried: list[tuple[float, tuple[int, ...]]] = []
    for total in range(1, _MOST + 1):
        exact = target * total
        weights = np.floor(exact).astype(int)
        most_missed = np.argsort(weights - exact, kind="stable")[: total - int(weights.sum())]
        weights[most_missed] += 1
        weights[-1] = max(weights[-1], least_of_last)
        whole = tuple(weights.tolist())
        tried.append((variance(whole), whole))
    least = min(variance for variance, _ in tried)
    return next(weights for variance, weights in tried if variance <= least * _SLACK)
