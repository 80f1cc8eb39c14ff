"""Least squares over a tree of histograms whose root is known, its transpose, and a model of its errors.

Minimise the sum over levels of ||x_l - z_l||² / V_l, with every node the sum of its children and the root
1. Two passes are exact for variances that are equal within a level: up, each node weighs itself against
the sum of its children by inverse variance; down, what is left of the difference goes to the children in
proportion to their variances, so that trees whose last nodes have fewer children come out exact too.
Hay, Rastogi, Miklau, Suciu, "Boosting the accuracy of differentially private histograms through
consistency", VLDB 2010, section 4, generalised.

Levels are numbered as in an Experiment, the top one below the root first, leaves last. Arrays over nodes
have shape (nodes,) or (nodes, batch).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Tree:
    """A tree over range(domain) and the weights that least squares gives to its nodes.

    own[l]    share that a node of level l gives to its own estimate; the rest goes to its children's sum
    share[l]  part of what a parent's sum is off that a node of level l takes
    variance[l]  of a node after the upward pass, in the units of the variances given
    """

    domain: int
    fanout: int
    nodes: tuple[int, ...]
    own: tuple[Floats, ...]
    share: tuple[Floats, ...]
    variance: tuple[Floats, ...]

    def children_sum(self, values: Floats) -> Floats:
        """Sums over the nodes of one parent: shape (children, ...) to (parents, ...)."""
        count = len(values)
        if count % self.fanout == 0:
            return values.reshape(count // self.fanout, self.fanout, *values.shape[1:]).sum(axis=1)
        return np.add.reduceat(values, np.arange(0, count, self.fanout), axis=0)

    def to_children(self, values: Floats, level: int) -> Floats:
        """Parents' values, repeated for the nodes of a level below them."""
        return np.repeat(values, self.fanout, axis=0)[: self.nodes[level]]


def heights(domain: int, fanout: int) -> tuple[int, ...]:
    """Number of nodes of every level below the root, top first; as many as it takes to reach domain."""
    nodes = [domain]
    while nodes[0] > fanout:
        nodes.insert(0, -(-nodes[0] // fanout))
    return tuple(nodes)


def tree(domain: int, fanout: int, variances: Sequence[float]) -> Tree:
    """Tree over range(domain) with the variance of a node's estimate on each level, infinity for none.

    Raises ValueError unless there is a positive variance for each level, and a finite one for leaves.
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
    """Consistent values of all nodes, by level, from each level's own estimates.

    estimates: per level shape (nodes,) or (nodes, batch), or None for zeros. root: what the leaves sum to.
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
    """Weights on each level's estimates, and the constant, that give the leaves' weighted sum.

    weights: shape (domain,) or (domain, batch). With (r, k) the result and root 1, the weighted sum of the
    leaves of solve(tree, z) is k plus the sum over levels of r[l] · z[l].
    """
    height = len(tree.nodes)
    on_up: list[Floats] = [weights] * height
    on_below: list[Floats] = [weights] * height
    x = np.asarray(weights, dtype=np.float64)
    for level in range(height - 1, -1, -1):
        on_up[level] = x
        passed = tree.children_sum(_times(tree.share[level], x))
        on_below[level] = -passed  # on the sum of this level's nodes, one for each parent
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


@dataclass(frozen=True)
class Influence:
    """What a covariance model needs of the weights r_l behind every leaf's value, or every prefix's.

    squares  sum over levels and nodes of d r², shape (domain,)
    sums     sum over a level's nodes of e r for each level and each e, shape (domain, levels, len(e))
    """

    squares: Floats
    sums: Floats


def influences(
    tree: Tree, d: Sequence[Floats], e: Sequence[Floats] | None = None
) -> tuple[Influence, Influence]:
    """Influence on every leaf's value, and on every prefix (the sum of leaves 0..i), in O(nodes levels).

    d: per level, shape (nodes,). e: per level, shape (nodes, k), or None for k = 0. The weights behind one
    leaf are never formed: inside any subtree that does not hold the leaf they are a multiple of those of
    the subtree's upward pass, so that sums over subtrees are enough.
    """
    height = len(tree.nodes)
    if e is None:
        e = [np.zeros((n, 0)) for n in tree.nodes]
    k = e[0].shape[1]
    # Sums of the upward pass of every node over its subtree.
    squares: list[Floats] = [np.zeros(0)] * height
    sums: list[Floats] = [np.zeros(0)] * height
    for level in range(height - 1, -1, -1):
        own = tree.own[level]
        s = own**2 * d[level]
        linear = np.zeros((tree.nodes[level], height, k))
        linear[:, level] = own[:, None] * e[level]
        if level + 1 < height:
            s = s + (1 - own) ** 2 * tree.children_sum(squares[level + 1])
            linear += (1 - own)[:, None, None] * tree.children_sum(sums[level + 1])
        squares[level], sums[level] = s, linear

    # For the parent: in_* multiplies its subtree's upward pass; pp, px, xx and lin_* gather the rest.
    # p stands for the prefix that ends with the node, x for the node itself.
    in_p = in_x = pp = px = xx = np.zeros(1)
    lin_p = lin_x = np.zeros((1, height, k))
    own, d_own, e_own = np.zeros(1), np.zeros(1), np.zeros((1, k))
    for level in range(height):
        first = np.arange(tree.nodes[level]) % tree.fanout == 0
        group = np.cumsum(first) - 1
        gamma = tree.share[level]

        def before(
            values: Floats, first: npt.NDArray[np.bool_] = first, group: npt.NDArray[np.int64] = group
        ) -> Floats:
            """Sums over earlier nodes of the same parent."""
            total = np.cumsum(values, axis=0) - values
            return total - total[first][group]

        def up(values: Floats, level: int = level) -> Floats:
            return tree.to_children(values, level)

        taken = before(gamma) + gamma
        in_p, in_x, pp, px, xx, lin_p, lin_x = map(up, (in_p, in_x, pp, px, xx, lin_p, lin_x))
        own, d_own, e_own = up(own), up(d_own), up(e_own)
        keep = 1 - taken
        base_p, base_x = in_p - keep * in_x, gamma * in_x
        left_p, right_p = base_p * (1 - own) + keep, base_p * (1 - own) - taken
        other_x = base_x * (1 - own) - gamma
        s, linear = squares[level], sums[level]
        s_left = before(s)
        s_right = tree.to_children(tree.children_sum(s), level) - s_left - s
        l_left = before(linear)
        l_right = tree.to_children(tree.children_sum(linear), level) - l_left - linear

        own_d = own**2 * d_own
        pp = pp - 2 * keep * px + keep**2 * xx + own_d * base_p**2 + left_p**2 * s_left + right_p**2 * s_right
        px = gamma * (px - keep * xx) + own_d * base_p * base_x
        px += other_x * (left_p * s_left + right_p * s_right)
        xx = gamma**2 * xx + own_d * base_x**2 + other_x**2 * (s_left + s_right)
        lin_p = lin_p - keep[:, None, None] * lin_x
        lin_p += left_p[:, None, None] * l_left + right_p[:, None, None] * l_right
        lin_x = gamma[:, None, None] * lin_x + other_x[:, None, None] * (l_left + l_right)
        if level:
            lin_p[:, level - 1] += (base_p * own)[:, None] * e_own
            lin_x[:, level - 1] += (base_x * own)[:, None] * e_own
        in_p, in_x = left_p, other_x + 1
        own, d_own, e_own = tree.own[level], d[level], e[level]

    s, linear = squares[-1], sums[-1]
    leaf = Influence(in_x**2 * s + xx, in_x[:, None, None] * linear + lin_x)
    prefix = Influence(in_p**2 * s + pp, in_p[:, None, None] * linear + lin_p)
    return leaf, prefix


def node_variances(tree: Tree, variances: Sequence[float | Floats]) -> list[Floats]:
    """Variances of all nodes, by level, shape (nodes,), 0 for infinity, from one for each level or node."""
    full = (np.broadcast_to(np.float64(v), n) for n, v in zip(tree.nodes, variances, strict=True))
    return [np.where(np.isfinite(v), v, 0.0) for v in full]


def mean_range_variance(tree: Tree, variances: Sequence[float | Floats]) -> float:
    """Mean variance over all ranges lo < hi, one-value ranges and the whole domain included.

    variances: of a node's estimate, for each level or, shape (nodes,), each of its nodes; taken as
    independent; infinity where there is none.
    """
    d = node_variances(tree, variances)
    _, prefix = influences(tree, d)
    # A range is a difference of two of the domain + 1 prefixes, the empty one first.
    weights, _ = transpose(tree, np.arange(tree.domain, 0, -1, dtype=np.float64))
    of_sum = sum(float(d[i] @ weights[i] ** 2) for i in range(len(d)))
    points = tree.domain + 1
    return float((points * prefix.squares.sum() - of_sum) / (points * (points - 1) / 2))
