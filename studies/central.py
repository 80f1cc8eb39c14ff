"""Central structures: a curator sees the records and publishes noisy counts.

Noise is discrete Laplace, drawn once for each node and kept: drawn anew for each question, it would average
out and protect nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from ..server.arrays import Counts
from ..server.mechanisms import tree as hierarchy
from ..server.mechanisms.tree_influence import mean_range_variance
from .structures import (
    Fitted,
    NeighbourRelation,
    NoiseSource,
    Structure,
    check_fanout,
    checked,
    fitted,
    noise_variance,
)

_FANOUTS = range(2, 33)


@dataclass(frozen=True)
class CentralFlat(Structure):
    """One noisy count for each index.

    Privacy: ε-DP for the neighbours named: every count gets discrete Laplace noise of scale
    sensitivity / ε, and the counts of disjoint indices change by at most the sensitivity in all.
    Utility: a range of r indices has r times noise_variance(sensitivity, ε), 2 r / ε² for small ε.
    Cost: one draw for each index. Citation: Dwork, McSherry, Nissim, Smith, "Calibrating Noise to
    Sensitivity in Private Data Analysis", TCC 2006; discrete noise of Ghosh, Roughgarden, Sundararajan,
    STOC 2009.
    """

    neighbours: NeighbourRelation = NeighbourRelation.added

    def node_variance(self, epsilon: float) -> float:
        """Variance of one count."""
        return noise_variance(self.neighbours.sensitivity, epsilon)

    def fit(self, counts: Counts, epsilon: float, source: NoiseSource) -> Fitted:
        counts = checked(counts, epsilon)
        return fitted(counts + source.noise.draw(len(counts), self.neighbours.sensitivity, epsilon))


@dataclass(frozen=True)
class CentralHierarchy(Structure):
    """Noisy counts of every node of a tree, made consistent: continual observation's binary mechanism.

    fanout is 2 or more, or 0 for the one of least mean variance over all ranges. The root is counted
    with noise where records may be added, and is public where they are replaced.

    Privacy: ε-DP for the neighbours named: a record is in one node of each level, so all counts change
    by at most levels times the sensitivity of one level; levels are h below a public root, h + 1 with a
    private one. Utility: ranges_theory.law(), exact; grows like log(r)^1.5 before consistency.
    Cost: one draw for each node, below fanout / (fanout - 1) for each index; O(nodes) for consistency.
    Citation: Dwork, Naor, Pitassi, Rothblum, "Differential Privacy under Continual Observation", STOC
    2010; Chan, Shi, Song, "Private and Continual Release of Statistics", 2011; Hay, Rastogi, Miklau,
    Suciu, "Boosting the accuracy of differentially private histograms through consistency", VLDB 2010.
    """

    fanout: int = 0
    neighbours: NeighbourRelation = NeighbourRelation.added

    def __post_init__(self) -> None:
        check_fanout(self.fanout)

    @property
    def public_root(self) -> bool:
        """Whether the number of records is known to all."""
        return self.neighbours is NeighbourRelation.replaced

    def tree(self, domain: int) -> hierarchy.Tree:
        """The tree over range(domain), its root as a level of its own where it is private."""
        return _tree(domain, self.fanout or best_fanout(domain, self.public_root), self.public_root)

    def sensitivity(self, tree: hierarchy.Tree) -> int:
        """Of all nodes' counts together, in the L1 norm."""
        return len(tree.nodes) * self.neighbours.sensitivity

    def node_variance(self, tree: hierarchy.Tree, epsilon: float) -> float:
        """Variance of one node's count."""
        return noise_variance(self.sensitivity(tree), epsilon)

    def fit(self, counts: Counts, epsilon: float, source: NoiseSource) -> Fitted:
        counts = checked(counts, epsilon)
        tree = self.tree(len(counts))
        noise = source.noise.draw(sum(tree.nodes), self.sensitivity(tree), epsilon)
        parts = np.split(noise, np.cumsum(tree.nodes)[:-1])
        noisy = [(c + z).astype(float) for c, z in zip(node_counts(tree, counts), parts, strict=True)]
        # Where the root is private its level takes no part of what is missing: solve() ignores the 0.
        root = float(counts.sum()) if self.public_root else 0.0
        return fitted(hierarchy.solve(tree, noisy, root)[-1])


def node_counts(tree: hierarchy.Tree, counts: Counts) -> list[Counts]:
    """Records in each node, by level, from those of each index."""
    levels: list[Counts] = [counts]
    while len(levels) < len(tree.nodes):
        levels.insert(0, tree.children_sum(levels[0]))  # type: ignore[arg-type]
    return levels


@cache
def _tree(domain: int, fanout: int, public_root: bool) -> hierarchy.Tree:
    below = hierarchy.tree(domain, fanout, [1.0] * len(hierarchy.heights(domain, fanout)))
    return below if public_root else with_private_root(below, 1.0)


def with_private_root(tree: hierarchy.Tree, variance: float) -> hierarchy.Tree:
    """The same least squares where the root has only an estimate, with that variance.

    The root becomes a level of one node, which weighs its own estimate against its children's sum and
    takes no share (0) of what the known root of hierarchy.solve() is off.
    """
    children = float(tree.variance[0].sum())
    own = np.array([children / (children + variance)])
    return replace(
        tree,
        nodes=(1, *tree.nodes),
        own=(own, *tree.own),
        share=(np.zeros(1), *tree.share),
        variance=(children * (1 - own), *tree.variance),
    )


@cache
def best_fanout(domain: int, public_root: bool, fanouts: Sequence[int] = _FANOUTS) -> int:
    """Fanout of least mean variance over all ranges, for noise of a scale proportional to the levels."""

    def mean(fanout: int) -> float:
        tree = _tree(domain, fanout, public_root)
        return len(tree.nodes) ** 2 * mean_range_variance(tree, [1.0] * len(tree.nodes))

    return min((f for f in fanouts if f <= max(2, domain)), key=mean)
