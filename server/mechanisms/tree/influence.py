"""The influence of a tree's estimates on leaves and prefixes, as sums of squares in O(nodes levels).

The weights behind a single leaf are never computed, because inside a subtree that does not contain the leaf
they are a multiple of the weights in the subtree's upward pass, so sums over subtrees suffice. Let z_n be a
node's own estimate, o_n its weight, γ_c the part of the difference that a child receives, and

    u_n = o_n z_n + (1 - o_n) Σ_children u_c        x_c = u_c + γ_c (x_n - Σ_siblings u_s)

the upward and downward passes. The prefix P_c that ends with child c is P_n - x_n plus the values of the
siblings up to c. With τ the sum of γ up to c,

    P_c = P_n - (1 - τ) x_n + Σ_{s <= c} u_s - τ Σ_s u_s

Write P_n = b u_n + ... and x_n = a u_n + ..., where the dots contain only estimates outside n's subtree. With
b' = b - (1 - τ) a, P_c has the coefficient b' (1 - o_n) + 1 - τ on u_s for s <= c, b' (1 - o_n) - τ for s >
c, and b' o_n on z_n; x_c has γ_c (a (1 - o_n) - 1), 1 more for s = c, and γ_c a o_n on z_n. So everything
in a sibling's subtree enters as a multiple of that sibling's upward pass. It is therefore enough to sum d r²
over subtrees once on the way up, and to carry three sums over the outside (of P², P x and x²) down.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...arrays import Floats
from .least_squares import Tree, transpose


@dataclass(frozen=True)
class Influence:
    """Sums of the weights r behind each leaf's value, or each prefix's, for a covariance model.

    Attributes:
        squares: The sum of d r² over levels and nodes, shape (domain,).
        sums: The sum of e r over a level's nodes, for each level and each e, shape (domain, levels, len(e)).
    """

    squares: Floats
    sums: Floats


@dataclass(frozen=True)
class _Gathered:
    """The weights behind each node's value, or behind the prefix that ends with the node, on one level.

    Attributes:
        inside: The factor on the node's upward pass.
        outside: The influence of all estimates except the node's own and those below it.
    """

    inside: Floats
    outside: Influence


@dataclass(frozen=True)
class Carried:
    """The values that a pass carries down a tree, from a level's nodes to their children.

    Attributes:
        prefix: The weights behind the prefix that ends with each node.
        node: The weights behind each node's value.
        cross: The sum of d r r' outside the node, for the prefix's weights r and the node's weights r'.
    """

    prefix: _Gathered
    node: _Gathered
    cross: Floats


def influences(
    tree: Tree, d: Sequence[Floats], e: Sequence[Floats] | None = None
) -> tuple[Influence, Influence]:
    """Return the influence on every leaf's value, and on every prefix (the sum of leaves 0..i).

    Args:
        tree: The tree.
        d: For each level, an array of shape (nodes,).
        e: For each level, an array of shape (nodes, k), or None for k = 0.
    """
    if e is None:
        e = [np.zeros((n, 0)) for n in tree.nodes]
    passes = _upward(tree, d, e)
    # The root is known, so no estimate influences it.
    no_influence = Influence(np.zeros(1), np.zeros((1, len(tree.nodes), e[0].shape[1])))
    root = _Gathered(np.zeros(1), no_influence)
    carried = Carried(root, root, np.zeros(1))
    for level in range(len(tree.nodes)):
        carried = _down(tree, level, carried, passes[level], d, e)
    return _total(carried.node, passes[-1]), _total(carried.prefix, passes[-1])


def _upward(tree: Tree, d: Sequence[Floats], e: Sequence[Floats]) -> list[Influence]:
    """Return the influence of each node's subtree, including the node, on its upward pass, by level."""
    height, k = len(tree.nodes), e[0].shape[1]
    passes: list[Influence] = []
    for level in range(height - 1, -1, -1):
        own_weight = tree.own[level]
        squares = own_weight**2 * d[level]
        sums = np.zeros((tree.nodes[level], height, k))
        sums[:, level] = own_weight[:, None] * e[level]
        if passes:
            squares = squares + (1 - own_weight) ** 2 * tree.children_sum(passes[0].squares)
            sums += (1 - own_weight)[:, None, None] * tree.children_sum(passes[0].sums)
        passes.insert(0, Influence(squares, sums))
    return passes


def _down(
    tree: Tree,
    level: int,
    above: Carried,
    here: Influence,
    d: Sequence[Floats],
    e: Sequence[Floats],
) -> Carried:
    """Return the values carried to a level's nodes from their parents.

    `here` is the influence on the level's upward pass.
    """
    gamma = tree.share[level]
    up_to = _before(tree, gamma) + gamma
    keep = 1 - up_to
    in_prefix, in_node, cross = (
        tree.to_children(x, level) for x in (above.prefix.inside, above.node.inside, above.cross)
    )
    outside_prefix, outside_node = (_repeated(tree, level, g.outside) for g in (above.prefix, above.node))
    if level:
        own, d_own, e_own = (tree.to_children(x[level - 1], level) for x in (tree.own, d, e))
    else:
        own, d_own, e_own = np.zeros(1), np.zeros(1), np.zeros((1, e[0].shape[1]))

    # The parent's upward pass is own times its estimate, plus 1 - own times its children's passes.
    parent_prefix, parent_node = in_prefix - keep * in_node, gamma * in_node
    before_factor, after_factor = parent_prefix * (1 - own) + keep, parent_prefix * (1 - own) - up_to
    other = parent_node * (1 - own) - gamma
    before = Influence(_before(tree, here.squares), _before(tree, here.sums))
    after = Influence(
        tree.to_children(tree.children_sum(here.squares), level) - before.squares - here.squares,
        tree.to_children(tree.children_sum(here.sums), level) - before.sums - here.sums,
    )

    own_d = own**2 * d_own
    prefix_squares = outside_prefix.squares - 2 * keep * cross + keep**2 * outside_node.squares
    prefix_squares = prefix_squares + own_d * parent_prefix**2
    prefix_squares = prefix_squares + before_factor**2 * before.squares + after_factor**2 * after.squares
    node_squares = gamma**2 * outside_node.squares + own_d * parent_node**2
    node_squares += other**2 * (before.squares + after.squares)
    cross = gamma * (cross - keep * outside_node.squares) + own_d * parent_prefix * parent_node
    cross += other * (before_factor * before.squares + after_factor * after.squares)

    prefix_sums = outside_prefix.sums - keep[:, None, None] * outside_node.sums
    prefix_sums += before_factor[:, None, None] * before.sums + after_factor[:, None, None] * after.sums
    node_sums = gamma[:, None, None] * outside_node.sums + other[:, None, None] * (before.sums + after.sums)
    if level:
        prefix_sums[:, level - 1] += (parent_prefix * own)[:, None] * e_own
        node_sums[:, level - 1] += (parent_node * own)[:, None] * e_own
    return Carried(
        _Gathered(before_factor, Influence(prefix_squares, prefix_sums)),
        _Gathered(other + 1, Influence(node_squares, node_sums)),
        cross,
    )


def _total(leaves: _Gathered, passes: Influence) -> Influence:
    """Return the total influence on leaves, or on the prefixes that end with them, including their own."""
    inside, outside = leaves.inside, leaves.outside
    sums = inside[:, None, None] * passes.sums + outside.sums
    return Influence(inside**2 * passes.squares + outside.squares, sums)


def _before(tree: Tree, values: Floats) -> Floats:
    """Return sums over earlier siblings."""
    total = np.cumsum(values, axis=0) - values
    return total - np.repeat(total[:: tree.fanout], tree.fanout, axis=0)[: len(total)]


def _repeated(tree: Tree, level: int, above: Influence) -> Influence:
    return Influence(tree.to_children(above.squares, level), tree.to_children(above.sums, level))


def node_variances(tree: Tree, variances: Sequence[float | Floats]) -> list[Floats]:
    """Return the variances of all nodes, by level, shape (nodes,), with 0 in place of infinity.

    Args:
        tree: The tree.
        variances: For each level, one variance or one per node.
    """
    full = (np.broadcast_to(np.float64(v), n) for n, v in zip(tree.nodes, variances, strict=True))
    return [np.where(np.isfinite(v), v, 0.0) for v in full]


def mean_range_variance(tree: Tree, variances: Sequence[float | Floats]) -> float:
    """Return the mean variance over all ranges lo < hi, including single values and the whole domain.

    Args:
        tree: The tree.
        variances: For each level, the variance of the nodes' estimates, which are assumed to be independent:
            one number, or one per node, shape (nodes,). Infinity means that the estimate is missing.
    """
    d = node_variances(tree, variances)
    _, prefix = influences(tree, d)
    # A range is the difference between two of the domain + 1 prefixes, the first of which is empty.
    weights, _ = transpose(tree, np.arange(tree.domain, 0, -1, dtype=np.float64))
    sum_variance = sum(float(d[i] @ weights[i] ** 2) for i in range(len(d)))
    points = tree.domain + 1
    return float((points * prefix.squares.sum() - sum_variance) / (points * (points - 1) / 2))
