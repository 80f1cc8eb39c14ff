"""Least squares over a tree of histograms whose root is known, and its transpose.

Minimize the sum over levels of ||x_l - z_l||² / V_l, where every node is the sum of its children and the root
is 1. If variances are equal within a level, two passes are exact. The upward pass averages each node with the
sum of its children, weighted by inverse variance; the downward pass distributes the remaining difference to
the children in proportion to their variances, which is exact even if the last nodes have fewer children.
Source: Hay, Rastogi, Miklau, Suciu, "Boosting the accuracy of differentially private histograms through
consistency", VLDB 2010, section 4, generalized.

Levels are numbered as in an Experiment, from the level below the root to the leaves. Arrays over nodes have
shape (nodes,) or (nodes, batch).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...arrays import Floats


@dataclass(frozen=True)
class Tree:
    """A tree over range(domain) and its nodes' least-squares weights.

    Attributes:
        domain: The number of leaves.
        fanout: The number of children per node.
        nodes: The number of nodes on each level.
        own: For each level, the weight of a node's own estimate; the children's sum has the remaining weight.
        share: For each level, the part of the parent's difference that a node receives.
        variance: For each level, a node's variance after the upward pass, in the input's units.
    """

    domain: int
    fanout: int
    nodes: tuple[int, ...]
    own: tuple[Floats, ...]
    share: tuple[Floats, ...]
    variance: tuple[Floats, ...]

    def children_sum(self, values: Floats) -> Floats:
        """Sum over each parent's children: shape (children, ...) to (parents, ...)."""
        count = len(values)
        if count % self.fanout == 0:
            return values.reshape(count // self.fanout, self.fanout, *values.shape[1:]).sum(axis=1)
        return np.add.reduceat(values, np.arange(0, count, self.fanout), axis=0)

    def to_children(self, values: Floats, level: int) -> Floats:
        """Repeat the parents' values for the nodes on the level below."""
        return np.repeat(values, self.fanout, axis=0)[: self.nodes[level]]


def heights(domain: int, fanout: int) -> tuple[int, ...]:
    """Return the number of nodes on each level below the root, from the top down to `domain` leaves."""
    nodes = [domain]
    while nodes[0] > fanout:
        nodes.insert(0, -(-nodes[0] // fanout))
    return tuple(nodes)


def tree(domain: int, fanout: int, variances: Sequence[float]) -> Tree:
    """Return the tree over range(domain).

    Args:
        domain: The number of leaves.
        fanout: The number of children per node.
        variances: The variance of a node's estimate on each level, or infinity without an estimate.

    Raises:
        ValueError: Unless each level has a positive variance, and the leaves a finite one.
    """
    nodes = heights(domain, fanout)
    if len(variances) != len(nodes) or not all(v > 0 for v in variances) or not np.isfinite(variances[-1]):
        raise ValueError(f"{len(nodes)} positive variances are needed, and the leaves' must be finite")
    unweighted = Tree(domain, fanout, nodes, (), (), ())
    own_weights = [np.ones(domain)]
    variance = [np.full(domain, float(variances[-1]))]
    share: list[Floats] = []
    for level in range(len(nodes) - 1, -1, -1):
        below = unweighted.children_sum(variance[0])
        share.insert(0, variance[0] / unweighted.to_children(below, level))
        if level:
            own_weights.insert(0, below / (variances[level - 1] + below))
            variance.insert(0, below * (1 - own_weights[0]))
    return Tree(domain, fanout, nodes, tuple(own_weights), tuple(share), tuple(variance))


def _times(factors: Floats, values: Floats) -> Floats:
    return factors * values if values.ndim == 1 else factors[:, None] * values


def solve(tree: Tree, estimates: Sequence[Floats | None], root: float = 1.0) -> list[Floats]:
    """Return consistent values for all nodes, by level, from each level's own estimates.

    Args:
        tree: The tree.
        estimates: For each level, an array of shape (nodes,) or (nodes, batch), or None for zeros.
        root: The sum of the leaves.
    """
    up: list[Floats | None] = [None] * len(tree.nodes)
    below: list[Floats | None] = [None] * len(tree.nodes)
    for level in range(len(tree.nodes) - 1, -1, -1):
        z, lower = estimates[level], below[level]
        value = None if z is None else _times(tree.own[level], z)
        if lower is not None:
            from_below = _times(1 - tree.own[level], lower)
            value = from_below if value is None else value + from_below
        up[level] = value
        if level and value is not None:
            below[level - 1] = tree.children_sum(value)
    top = up[0]
    if top is None:
        raise ValueError("at least one level must have estimates")
    missing = root - tree.children_sum(top)
    values: list[Floats] = []
    for level in range(len(tree.nodes)):
        x = _times(tree.share[level], tree.to_children(missing, level))
        estimate = up[level]
        if estimate is not None:
            x = x + estimate
        values.append(x)
        lower = below[level]
        missing = x if lower is None else x - lower
    return values


def transpose(tree: Tree, weights: Floats) -> tuple[list[Floats], Floats]:
    """Return the weights on each level's estimates, and the constant, that give the leaves' weighted sum.

    If the result is (r, k) and the root 1, the weighted sum of solve(tree, z)'s leaves is k plus the sum of
    r[l] · z[l] over levels.

    Args:
        tree: The tree.
        weights: The leaves' weights, shape (domain,) or (domain, batch).
    """
    height = len(tree.nodes)
    on_up: list[Floats] = [weights] * height
    on_below: list[Floats] = [weights] * height
    x = np.asarray(weights, dtype=np.float64)
    for level in range(height - 1, -1, -1):
        on_up[level] = x
        passed = tree.children_sum(_times(tree.share[level], x))
        on_below[level] = -passed  # weights on the sums of this level's nodes, one per parent
        x = passed
    constant = x[0]
    result: list[Floats] = []
    extra = on_below[0]
    for level in range(height):
        total = on_up[level] + tree.to_children(extra, level)
        result.append(_times(tree.own[level], total))
        if level + 1 < height:
            extra = on_below[level + 1] + _times(1 - tree.own[level], total)
    return result, constant


def nonnegative(tree: Tree, leaves: Floats) -> Floats:
    """Return nonnegative shares that sum to 1, from consistent leaf estimates, shape (domain,).

    From the root down, each node's children become the nearest nonnegative values that sum to the node's
    value. Distances are weighted by the variances after the upward pass, so the last nodes move as in least
    squares. If no share is negative, all remain unchanged. In a single-level tree, this is the projection
    onto the simplex.
    """
    sums = [leaves]
    for _ in tree.nodes[1:]:
        sums.insert(0, tree.children_sum(sums[0]))
    parents = np.ones(1)
    for level, estimates in enumerate(sums):
        parents = _families(tree, estimates, tree.variance[level], parents)
    return parents


def _families(tree: Tree, values: Floats, variance: Floats, parents: Floats) -> Floats:
    """Return the nearest nonnegative values, weighted by variance, that sum to their parents' values."""
    missing = len(parents) * tree.fanout - len(values)
    wide = (len(parents), tree.fanout)
    x = np.append(values, np.full(missing, -np.inf)).reshape(wide)
    v = np.append(variance, np.ones(missing)).reshape(wide)
    falling = np.argsort(-x / v, axis=1)
    x_falling, v_falling = (np.take_along_axis(a, falling, axis=1) for a in (x, v))
    # Each child's reduction per unit of its variance, if it and all children before it stay above zero.
    over = (x_falling.cumsum(axis=1) - parents[:, None]) / v_falling.cumsum(axis=1)
    above = np.maximum((x_falling > over * v_falling).sum(axis=1), 1)
    reduction = np.take_along_axis(over, above[:, None] - 1, axis=1)
    return np.maximum(x - reduction * v, 0).ravel()[: len(values)]
