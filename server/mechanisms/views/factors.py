"""A table over two or three parts, decomposed into its mean, main effects and interactions.

A table x over range(D_0) x range(D_1) x ... is the sum of its *components* x_F, one for each set F of parts:
x_F depends only on the parts in F, and sums to 0 over any of them. Let n_M be the product of the domains of
the parts in M. The marginal of x over a set S of parts has the component n_R x_F for each F within S, where R
are the parts outside S, and no others. So if each number in a *view* S has an independent error with variance
V_S, the view's precision for x_F is n_R / V_S per unit of r_F's squared length, where r is a statistic:

    variance of r's estimate = Σ_F |r_F|² / Σ_{S ⊇ F} n_R / V_S

by generalized least squares, which separates into components because every view's errors do. The mean is
known, because shares sum to 1.

Source: Fisher, Statistical Methods for Research Workers, 1925, chapter VII; Yang, Wang, Li, Cheng, Su,
"Answering Multi-Dimensional Range Queries under Local Differential Privacy", VLDB 2021, for tables over
several attributes in addition to one for each attribute.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from ....device.ldp_pairs import Part
from ...arrays import Floats

Parts = tuple[int, ...]
"""The indices of parts, ascending."""


def parts_of(experiment: Any) -> tuple[Part, ...]:
    """Return the parts of a pair's reading, or an empty tuple for other types."""
    return experiment.parts if experiment.type == "pair" else ()


def size(shape: Sequence[int], parts: Parts) -> int:
    """Return the number of cells in the marginal over some parts."""
    return math.prod(shape[part] for part in parts)


def within(parts: Sequence[int]) -> Iterator[Parts]:
    """Yield all nonempty subsets of these parts, smaller ones first."""
    for count in range(1, len(parts) + 1):
        yield from combinations(parts, count)


def outside(shape: Sequence[int], parts: Parts) -> Parts:
    """Return all parts except these."""
    return tuple(part for part in range(len(shape)) if part not in parts)


def marginal(table: Floats, shape: Sequence[int], parts: Parts) -> Floats:
    """Sum a table over all parts except these: (domain,) or (domain, n) to (nodes,) or (nodes, n)."""
    batch_shape = table.shape[1:]
    summed = table.reshape(*shape, *batch_shape).sum(axis=outside(shape, parts))
    return summed.reshape(-1, *batch_shape)


def spread_out(marginals: Floats, shape: Sequence[int], parts: Parts) -> Floats:
    """Repeat a marginal's numbers for each cell, (nodes,) or (nodes, n) to (domain,) or (domain, n)."""
    batch_shape = marginals.shape[1:]
    broadcast_shape = [length if part in parts else 1 for part, length in enumerate(shape)]
    repeated = np.broadcast_to(marginals.reshape(*broadcast_shape, *batch_shape), (*shape, *batch_shape))
    return repeated.reshape(-1, *batch_shape)


def components(table: Floats, shape: Sequence[int]) -> dict[Parts, Floats]:
    """Return a table's components, (domain, n) to (cells of F, n) for each F; () is the mean."""
    result: dict[Parts, Floats] = {(): table.mean(axis=0, keepdims=True)}
    for parts in within(range(len(shape))):
        own_shape = [shape[part] for part in parts]
        means = marginal(table, shape, parts) / size(shape, outside(shape, parts))
        for below, part in result.items():
            if set(below) < set(parts):
                means = means - spread_out(part, own_shape, tuple(parts.index(p) for p in below))
        result[parts] = means
    return result


def precision(
    shape: Sequence[int], views: Sequence[Parts], variances: Sequence[float]
) -> dict[Parts, dict[int, float]]:
    """Return each component's precision n_R / V in each view that contains it.

    Args:
        shape: Each part's number of values.
        views: Each view's parts.
        variances: The variance of each view's numbers, or infinity if the view has no reports.

    Returns:
        For each component F, the precisions by view index; empty if no view contains the component.
    """
    view_precisions = {
        number: size(shape, outside(shape, view)) / variance
        for number, (view, variance) in enumerate(zip(views, variances, strict=True))
        if math.isfinite(variance)
    }
    return {
        parts: {number: p for number, p in view_precisions.items() if set(parts) <= set(views[number])}
        for parts in within(range(len(shape)))
    }


Energy = Mapping[Parts, float]
"""The mean squared length of a workload's statistics, component by component."""


def cell_energy(shape: Sequence[int], table: Parts) -> dict[Parts, float]:
    """Return the energy of a single cell's share in the marginal over the parts in `table`."""
    cells_outside = size(shape, outside(shape, table))
    return {
        parts: cells_outside
        * math.prod(1 - 1 / shape[p] for p in parts)
        / size(shape, tuple(p for p in table if p not in parts))
        for parts in within(table)
    }


def conditional_energy(
    shape: Sequence[int], table: Parts, condition: Parts, differ: bool
) -> dict[Parts, float]:
    """Return the energy of the share of a cell in `table` among readings in a cell of `condition`.

    By the delta method at a uniform population, this is n_G (1{g} 1{b} - 1{g} / n_B).

    Args:
        shape: Each part's number of values.
        table: The parts of the cell.
        condition: The parts of the condition.
        differ: Whether to return the energy of the difference between two cells of `condition` instead,
            averaged over pairs of different cells.
    """
    rest, cells = size(shape, outside(shape, tuple(sorted(table + condition)))), size(shape, condition)
    result: dict[Parts, float] = {}
    for main in within(table):
        rest_cells = size(shape, tuple(p for p in table if p not in main))
        length = rest * cells**2 * math.prod(1 - 1 / shape[p] for p in main) / rest_cells
        for condition_parts in ((), *within(condition)):
            if differ and not condition_parts:
                continue
            others = size(shape, tuple(p for p in condition if p not in condition_parts))
            square = length * math.prod(1 - 1 / shape[p] for p in condition_parts) / others
            result[tuple(sorted(main + condition_parts))] = square * (
                2 * cells / (cells - 1) if differ else 1.0
            )
    return result


def least_variance(shape: Sequence[int], costs: Mapping[Parts, float], energy: Energy) -> dict[Parts, float]:
    """Return each view's share of the reports that minimizes the mean variance; some shares are 0.

    The variance is convex in the shares; each step multiplies a share by the square root of its marginal
    gain, which never increases the variance.

    Args:
        shape: Each part's number of values.
        costs: For each view, the variance of its numbers times its reports.
        energy: Each component's energy.

    Source: Yu, "Monotonic convergence of a general algorithm for computing optimal designs", Annals of
    Statistics 2010.
    """
    views = list(costs)
    energies = {parts: square for parts, square in energy.items() if square > 0}
    precisions = np.array(
        [
            [size(shape, outside(shape, v)) / costs[v] if set(f) <= set(v) else 0.0 for v in views]
            for f in energies
        ]
    )
    squares = np.array(list(energies.values()))
    shares = np.full(len(views), 1 / len(views))
    for _ in range(5_000):
        gains = (squares / (precisions @ shares) ** 2) @ precisions
        shares *= np.sqrt(gains)
        shares /= shares.sum()
        if gains.max() <= (1 + 1e-9) * float(shares @ gains):  # Kiefer's condition: no share can gain
            break
    return dict(zip(views, shares.tolist(), strict=True))
