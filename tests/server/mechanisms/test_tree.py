"""Least squares over complete and incomplete trees compared with dense linear algebra."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from hushmote.server.mechanisms.decoded_histogram import simplex
from hushmote.server.mechanisms.tree import least_squares as hierarchy
from hushmote.server.mechanisms.tree.influence import influences

TREES = st.integers(2, 60).flatmap(lambda domain: st.tuples(st.just(domain), st.integers(2, domain)))


def membership(domain: int, fanout: int) -> list[np.ndarray]:
    """Return a mask of the leaves below each node, per level, shape (nodes, domain)."""
    nodes = hierarchy.heights(domain, fanout)
    widths = [fanout ** (len(nodes) - 1 - level) for level in range(len(nodes))]
    leaves = np.arange(domain)
    return [(leaves // w == np.arange(n)[:, None]).astype(float) for n, w in zip(nodes, widths, strict=True)]


def draw_case(domain: int, fanout: int, seed: int):
    rng = np.random.default_rng(seed)
    matrices = membership(domain, fanout)
    variances = list(rng.uniform(0.1, 10, len(matrices)))
    for level in range(len(matrices) - 1):
        if rng.random() < 0.25:
            variances[level] = np.inf
    return rng, matrices, variances, hierarchy.tree(domain, fanout, variances)


def dense_solution(matrices, variances, estimates, root: float) -> np.ndarray:
    """Solve the generalized least-squares problem by its normal equations with a multiplier."""
    domain = matrices[-1].shape[1]
    system = np.zeros((domain + 1, domain + 1))
    right = np.zeros((domain + 1, estimates[0].shape[1]))
    for matrix, variance, z in zip(matrices, variances, estimates, strict=True):
        system[:domain, :domain] += matrix.T @ matrix / variance
        right[:domain] += matrix.T @ z / variance
    system[domain, :domain] = system[:domain, domain] = 1
    right[domain] = root
    return np.linalg.solve(system, right)[:domain]


class TestHeights:
    def test_are_exact_where_logarithms_fail(self) -> None:
        assert hierarchy.heights(125, 5) == (5, 25, 125)
        assert hierarchy.heights(8**7, 8)[0] == 8
        assert len(hierarchy.heights(8**7, 8)) == 7
        assert hierarchy.heights(126, 5) == (2, 6, 26, 126)
        assert hierarchy.heights(3, 3) == (3,)


class TestNonnegative:
    @pytest.mark.slow
    @settings(max_examples=80)
    @given(TREES, st.integers(0, 2**32 - 1), st.sampled_from([0.01, 0.3, 30.0]))
    def test_children_are_the_nearest_shares(self, case: tuple[int, int], seed: int, noise: float) -> None:
        """Compare each family with another solver, which minimizes distance over variance for a given sum."""
        rng, matrices, _, tree = draw_case(*case, seed)
        leaves = rng.dirichlet(np.full(case[0], 0.5)) + rng.normal(0, noise, case[0])
        actual = hierarchy.nonnegative(tree, leaves)
        assert actual.min() >= 0
        assert actual.sum() == pytest.approx(1)
        parents = np.ones(1)
        for matrix, variance in zip(matrices, tree.variance, strict=True):
            target, result = matrix @ leaves, matrix @ actual
            for parent, total in enumerate(parents):
                family = slice(parent * tree.fanout, (parent + 1) * tree.fanout)
                far = np.diag(1 / np.sqrt(variance[family] / variance[family].max()))
                design = np.vstack([far, np.full((1, len(far)), 1e5)])  # a large weight enforces the sum
                best, _ = nnls(design, np.append(far @ target[family], 1e5 * total))
                np.testing.assert_allclose(result[family], best, atol=1e-7 * max(1, np.abs(target).max()))
            parents = result

    @settings(max_examples=60)
    @given(TREES, st.integers(0, 2**32 - 1))
    def test_keeps_shares_that_are_not_negative(self, case: tuple[int, int], seed: int) -> None:
        rng, _, _, tree = draw_case(*case, seed)
        shares = rng.dirichlet(np.full(case[0], 0.3)) * (rng.random(case[0]) < 0.7)
        shares[0] += 1 - shares.sum()
        np.testing.assert_allclose(hierarchy.nonnegative(tree, shares), shares, atol=1e-14)
        once = hierarchy.nonnegative(tree, shares + rng.normal(size=case[0]))
        np.testing.assert_allclose(hierarchy.nonnegative(tree, once), once, atol=1e-14)

    @given(st.integers(2, 60), st.integers(0, 2**32 - 1))
    def test_projects_one_level_on_the_simplex(self, domain: int, seed: int) -> None:
        leaves = np.random.default_rng(seed).normal(size=domain)
        actual = hierarchy.nonnegative(hierarchy.tree(domain, domain, [3.0]), leaves)
        np.testing.assert_allclose(actual, simplex(leaves), atol=1e-12)


class TestLeastSquares:
    @settings(max_examples=80)
    @given(TREES, st.integers(0, 2**32 - 1))
    def test_two_passes_equal_the_dense_solution(self, case: tuple[int, int], seed: int) -> None:
        rng, matrices, variances, tree = draw_case(*case, seed)
        estimates = [rng.normal(size=(len(m), 2)) for m in matrices]
        values = hierarchy.solve(tree, estimates, root=1.0)
        expected = dense_solution(matrices, variances, estimates, 1.0)
        np.testing.assert_allclose(values[-1], expected, atol=1e-9)
        for matrix, x in zip(matrices, values, strict=True):
            np.testing.assert_allclose(matrix @ expected, x, atol=1e-9)
        one = hierarchy.solve(tree, [z[:, 0] for z in estimates])
        np.testing.assert_allclose(one[-1], values[-1][:, 0], atol=1e-12)

    @settings(max_examples=80)
    @given(TREES, st.integers(0, 2**32 - 1))
    def test_transpose_gives_the_same_sum(self, case: tuple[int, int], seed: int) -> None:
        rng, matrices, variances, tree = draw_case(*case, seed)
        estimates = [rng.normal(size=len(m)) for m in matrices]
        weights = rng.normal(size=(case[0], 3))
        parts, constant = hierarchy.transpose(tree, weights)
        right = constant + sum(part.T @ z for part, z in zip(parts, estimates, strict=True))
        np.testing.assert_allclose(weights.T @ hierarchy.solve(tree, estimates)[-1], right, atol=1e-9)
        for part, variance in zip(parts, variances, strict=True):
            assert np.isfinite(variance) or not part.any()
        single, k = hierarchy.transpose(tree, weights[:, 1])
        assert k == pytest.approx(constant[1])
        np.testing.assert_allclose(single[-1], parts[-1][:, 1], atol=1e-12)

    def test_missing_levels_count_as_zeros(self) -> None:
        tree = hierarchy.tree(10, 2, [1.0, 2.0, 3.0, 4.0])
        z = np.arange(3.0)
        some = hierarchy.solve(tree, [None, z, None, None], root=0.0)
        full = hierarchy.solve(tree, [np.zeros(2), z, np.zeros(5), np.zeros(10)], root=0.0)
        for a, b in zip(some, full, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-14)

    @settings(max_examples=60)
    @given(TREES, st.integers(0, 2**32 - 1))
    def test_influences_match_their_weights(self, case: tuple[int, int], seed: int) -> None:
        rng, matrices, _, tree = draw_case(*case, seed)
        d = [rng.uniform(size=len(m)) for m in matrices]
        e = [rng.normal(size=(len(m), 2)) for m in matrices]
        domain = case[0]
        both = influences(tree, d, e)
        for columns, influence in zip(
            (np.eye(domain), np.triu(np.ones((domain, domain)))), both, strict=True
        ):
            parts, _ = hierarchy.transpose(tree, columns)
            squares = sum((part**2).T @ dl for part, dl in zip(parts, d, strict=True))
            np.testing.assert_allclose(influence.squares, squares, atol=1e-9)
            for level, part in enumerate(parts):
                np.testing.assert_allclose(influence.sums[:, level], part.T @ e[level], atol=1e-9)

    def test_rejects_variances_without_finite_leaves(self) -> None:
        for variances in ([1.0, np.inf], [1.0], [1.0, 0.0], [1.0, np.nan], [1.0, 1.0, 1.0]):
            with pytest.raises(ValueError, match="positive variances"):
                hierarchy.tree(9, 3, variances)
        with pytest.raises(ValueError, match="at least one level"):
            hierarchy.solve(hierarchy.tree(9, 3, [1.0, 1.0]), [None, None])
