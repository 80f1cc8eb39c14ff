"""Report shares per level: optimality, and the closed form compared with least squares."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushmote.server.mechanisms.tree import allocation
from hushmote.server.mechanisms.tree import least_squares as hierarchy
from hushmote.server.mechanisms.workload import ALL_RANGES, FREQUENCIES, PREFIXES, Workload

LEVELS = st.lists(
    st.tuples(st.just(0.0) | st.floats(0.01, 100), st.floats(0.01, 10), st.floats(0.2, 5)),
    min_size=1,
    max_size=9,
).filter(lambda rows: any(energy for energy, _, _ in rows))


def levels_of(rows: list[tuple[float, float, float]], *, known: bool) -> allocation.Levels:
    energy, cost, off = np.array(rows).T
    return allocation.Levels(energy, cost, cost if known else cost * off)


@pytest.mark.slow
@settings(max_examples=200)
@given(LEVELS)
def test_shares_are_optimal(rows: list[tuple[float, float, float]]) -> None:
    """At the optimum of a convex problem on the simplex, -dF/dw_l is F where w_l > 0, and never above F."""
    levels = levels_of(rows, known=True)
    shares = allocation.shares(levels)
    assert shares.sum() == pytest.approx(1)
    assert (shares >= 0).all()
    information = np.cumsum((shares / levels.cost)[::-1])[::-1]
    has_energy = levels.energy > 0
    gain = np.where(has_energy, levels.energy, 0) / np.where(has_energy, information, 1) ** 2
    slopes = np.cumsum(gain) / levels.cost
    total = float((np.where(has_energy, levels.energy, 0) / np.where(has_energy, information, 1)).sum())
    assert slopes.max() <= total * (1 + 1e-6)
    np.testing.assert_allclose(slopes[shares > 1e-9], total, rtol=1e-6)


@pytest.mark.slow
@settings(max_examples=100)
@given(LEVELS)
def test_rounded_weights_are_near_shares_and_keep_leaves(rows: list[tuple[float, float, float]]) -> None:
    levels = levels_of(rows, known=False)
    target = allocation.shares(levels)
    weights = np.array(allocation.rounded(levels, target))
    assert weights[-1] > 0
    assert weights.min() >= 0
    assert weights.sum() <= 65
    floored = (target * 64 + np.eye(len(target))[-1]) / 65
    assert levels.variance(weights / weights.sum()) <= 1.5 * levels.variance(floored)


@pytest.mark.parametrize("fanout", [2, 3, 5])
@pytest.mark.parametrize(
    "workload",
    [ALL_RANGES, PREFIXES, FREQUENCIES, Workload.of([(0, 7), (3, 8)])],
    ids=["ranges", "prefixes", "frequencies", "list"],
)
def test_closed_form_equals_least_squares_on_complete_trees(fanout: int, workload: Workload) -> None:
    height = {2: 5, 3: 3, 5: 2}[fanout]
    domain = fanout**height
    rng = np.random.default_rng(fanout)
    errors, assumed = rng.uniform(1, 5, (2, height))
    shares = rng.dirichlet(np.ones(height))
    widths = fanout ** np.arange(height - 1, -1, -1)
    energy = np.diff([workload.energy(domain, int(w)) for w in (domain, *widths)])
    closed = allocation.Levels(energy, errors / widths, assumed / widths).variance(shares)
    tree = hierarchy.tree(domain, fanout, list(assumed / shares))
    assert closed == pytest.approx(workload.mean_variance(tree, list(errors / shares)), rel=1e-9)


def test_levels_known_from_root_get_no_reports() -> None:
    levels = allocation.Levels(np.zeros(3), np.ones(3), np.ones(3))
    assert allocation.shares(levels).tolist() == [0, 0, 1]
