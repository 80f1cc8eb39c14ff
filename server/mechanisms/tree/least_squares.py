"""Least squares over a tree of histograms whose root is known, and its transpose.

Minimise the sum over levels of ||x_l - z_l||² / V_l, with every node the sum of its children and the root
1. Two passes are exact for variances that are equal within a level: up, each node is averaged with the sum
of its children by inverse variance; down, the remaining difference is distributed to the children in
proportion to their variances, so that trees whose last nodes have fewer children are exact as well.
Hay, Rastogi, Miklau, Suciu, "Boosting the accuracy of differentially private histograms through
consistency", VLDB 2010, section 4, generalised.

Levels are numbered as in an Experiment, the top one below the root first, leaves last. Arrays over nodes
have shape (nodes,) or (nodes, batch).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...arrays import Floats


@dataclass(frozen=True)
class Tree:
    """A tree over range(domain) and the weights that least squares gives to its nodes.

    Attributes:
        own: For each level, the weight of a node's own estimate; the rest is that of its children's sum.
        share: For each level, the part of a parent's difference that a node takes.
        variance: For each level, the variance of a node after the upward pass, in the units of the input.
    """

    domain: int
    fanout: int
    nodes: tuple[int, ...]
    own: tuple[Floats, ...]
    share: tuple[Floats, ...]
    variance: tuple[Floats, ...]

    def children_sum(self, values: Floats) -> Floats:
        """Return sums over the children of each parent: shape (children, ...) to (parents, ...)."""
        count = len(values)
        if count % self.fanout == 0:
            return values.reshape(count // self.fanout, self.fanout, *values.shape[1:]).sum(axis=1)
        return np.add.reduceat(values, np.arange(0, count, self.fanout), axis=0)

    def to_children(self, values: Floats, level: int) -> Floats:
        """Return the parents' values, repeated for the nodes of a level below them."""
        return np.repeat(values, self.fanout, axis=0)[: self.nodes[level]]


def heights(domain: int, fanout: int) -> tuple[int, ...]:
    """Return the number of nodes of every level below the root, top first, down to `domain` leaves."""
    nodes = [domain]
    while nodes[0] > fanout:
        nodes.insert(0, -(-nodes[0] // fanout))
    return tuple(nodes)


def tree(domain: int, fanout: int, variances: Sequence[float]) -> Tree:
    """Return the tree over range(domain).

    Args:
        domain: The number of leaves.
        fanout: The number of children of a node.
        variances: The variance of a node's estimate on each level, or infinity.

    Raises:
        ValueError: Unless there is a positive variance for each level, and a finite one for leaves.
    """
    nodes = heights(domain, fanout)
    if len(variances) != len(nodes) or not all(v > 0 for v in variances) or not np.isfinite(variances[-1]):
        raise ValueError(f"{len(nodes)} positive variances are needed, that of the leaves finite")
    plain = Tree(domain, fanout, nodes, (), (), ())
    own = [np.ones(domain)]
    variance = [np.full(domain, float(variances[-1]))]
    share: list[Floats] = []
    for level in range(len(nodes) - 1, -1, -1):
        below = plain.children_sum(variance[0])
        share.insert(0, variance[0] / plain.to_children(below, level))
        if level:
            own.insert(0, below / (variances[level - 1] + below))
            variance.insert(0, below * (1 - own[0]))
    return Tree(domain, fanout, nodes, tuple(own), tuple(share), tuple(variance))


def _times(factors: Floats, values: Floats) -> Floats:
    return factors * values if values.ndim == 1 else factors[:, None] * values


def solve(tree: Tree, estimates: Sequence[Floats | None], root: float = 1.0) -> list[Floats]:
    """Return consistent values of all nodes, by level, from each level's own estimates.

    Args:
        tree: The tree.
        estimates: For each level an array of shape (nodes,) or (nodes, batch), or None for zeros.
        root: The sum of the leaves.
    """
    up: list[Floats | None] = [None] * len(tree.nodes)
    below: list[Floats | None] = [None] * len(tree.nodes)
    for level in range(len(tree.nodes) - 1, -1, -1):
        z, lower = estimates[level], below[level]
        value = None if z is None else _times(tree.own[level], z)
        if lower is not None:
            rest = _times(1 - tree.own[level], lower)
            value = rest if value is None else value + rest
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
        here = up[level]
        if here is not None:
            x = x + here
        values.append(x)
        lower = below[level]
        missing = x if lower is None else x - lower
    return values


def transpose(tree: Tree, weights: Floats) -> tuple[list[Floats], Floats]:
    """Return weights on each level's estimates, and the constant, that give the leaves' weighted sum.

    With (r, k) the result and root 1, the weighted sum of the leaves of solve(tree, z) is k plus the sum over
    levels of r[l] · z[l].

    Args:
        tree: The tree.
        weights: The weights of the leaves, shape (domain,) or (domain, batch).
    """
    height = len(tree.nodes)
    on_up: list[Floats] = [weights] * height
    on_below: list[Floats] = [weights] * height
    x = np.asarray(weights, dtype=np.float64)
    for level in range(height - 1, -1, -1):
        on_up[level] = x
        passed = tree.children_sum(_times(tree.share[level], x))
        on_below[level] = -passed  # weights on the sums of this level's nodes, one for each parent
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
    """Return non-negative shares that sum to 1, from consistent estimates of the leaves, shape (domain,).

    From the root down, the children of each node become the nearest non-negative values that sum to their
    parent's. Distances are weighted by their variances after the upward pass, so that the last nodes move as
    in least squares. If no share is negative, all are unchanged. In a tree of one level this is the
    projection onto the simplex.
    """
    sums = [leaves]
    for _ in tree.nodes[1:]:
        sums.insert(0, tree.children_sum(sums[0]))
    parents = np.ones(1)
    for level, estimates in enumerate(sums):
        parents = _families(tree, estimates, tree.variance[level], parents)
    return parents


def _families(tree: Tree, values: Floats, variance: Floats, parents: Floats) -> Floats:
    """Return the nearest non-negative values, weighted by variance, whose sums are those of their parents."""
    missing = len(parents) * tree.fanout - len(values)
    wide = (len(parents), tree.fanout)
    x = np.append(values, np.full(missing, -np.inf)).reshape(wide)
    v = np.append(variance, np.ones(missing)).reshape(wide)
    falling = np.argsort(-x / v, axis=1)
    x_falling, v_falling = (np.take_along_axis(a, falling, axis=1) for a in (x, v))
    # The reduction of each child per unit of its variance, if all children up to it stay above zero.
    over = (x_falling.cumsum(axis=1) - parents[:, None]) / v_falling.cumsum(axis=1)
    above = np.maximum((x_falling > over * v_falling).sum(axis=1), 1)
    reduction = np.take_along_axis(over, above[:, None] - 1, axis=1)
    return np.maximum(x - reduction * v, 0).ravel()[: len(values)]
