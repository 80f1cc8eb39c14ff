"""Supports compared with the board's own hash, and the transpose with the supports."""

import numpy as np
import pytest
from experiments import number_json
from hypothesis import given, settings
from hypothesis import strategies as st

from hushmote.device.ldp_client import Experiment, Level
from hushmote.server.mechanisms.hashing import butterfly

PRIMES = (2, 3, 5, 7, 11, 13)


class Scripted:
    """The board's two random primitives, scripted to answer truthfully with a given seed."""

    def __init__(self, seed: int):
        self.seed = seed

    def bernoulli(self, threshold: int) -> bool:
        return True

    def below(self, n: int) -> int:
        seed, self.seed = self.seed, 0
        return seed


def board_supports(experiment: Experiment) -> np.ndarray:
    """Return which code supports which value, from truthful board answers, shape (code_count, domain)."""
    level = experiment.levels[0]
    matrix = np.zeros((experiment.code_count, experiment.domain), dtype=np.int64)
    for seed in range(level.seeds):
        for value in range(experiment.domain):
            matrix[experiment.randomize(value, Scripted(seed if level.t else 0)), value] = 1
    return matrix


def flat(domain: int, g: int, epsilon: int = 3_000_000) -> Experiment:
    mechanism = {"mechanism": "grr"} if g == domain else {"mechanism": "olh", "g": g}
    return Experiment.parse(number_json(domain, epsilon=epsilon, **mechanism))


@pytest.mark.parametrize(
    ("domain", "g"),
    [(6, 6), (3, 2), (4, 2), (33, 2), (9, 3), (10, 3), (80, 3), (30, 5), (60, 7), (15, 11), (40, 13)],
)
def test_supports_equal_the_boards_hash(domain: int, g: int) -> None:
    experiment = flat(domain, g)
    histogram = np.random.default_rng(domain).integers(0, 1 << 40, experiment.code_count)
    matrix = board_supports(experiment)
    actual = butterfly.supports(experiment.levels[0], histogram)
    assert actual.dtype == np.int64
    assert (actual == histogram @ matrix).all()
    weights = np.random.default_rng(g).normal(size=domain)
    np.testing.assert_allclose(
        butterfly.expand(experiment.levels[0], butterfly.class_weights(experiment.levels[0], weights)),
        matrix @ weights,
        atol=1e-12,
    )


@st.composite
def levels(draw: st.DrawFn) -> Level:
    g = draw(st.sampled_from(PRIMES))
    return Level(3_000_000, draw(st.integers(g + 1, min(g**4, 300))), g, 1, 0, 1)


@settings(max_examples=60)
@given(levels(), st.integers(0, 2**32 - 1))
def test_transpose_gives_the_same_sum(level: Level, seed: int) -> None:
    rng = np.random.default_rng(seed)
    histogram = rng.integers(0, 100, level.code_count)
    weights = rng.integers(-100, 100, (level.domain, 3))
    left = butterfly.supports(level, histogram) @ weights
    right = histogram @ butterfly.expand(level, butterfly.class_weights(level, weights))
    assert (left == right).all()  # integers below 2**53, so neither side is rounded


@pytest.mark.slow
@settings(max_examples=60)
@given(levels(), st.integers(0, 2**32 - 1))
def test_classes_contain_codes_with_equal_supports(level: Level, seed: int) -> None:
    rng = np.random.default_rng(seed)
    histogram = rng.integers(0, 100, level.code_count)
    per_class = butterfly.collapse(level, histogram)
    assert len(per_class) == butterfly.class_count(level) == level.code_count // (level.g - 1)
    assert per_class.sum() == histogram.sum()
    values = rng.normal(size=len(per_class))
    assert per_class @ values == pytest.approx(histogram @ butterfly.expand(level, values))
    weights = rng.normal(size=level.domain)
    by_class = butterfly.class_weights(level, weights)
    seeds = len(per_class) // level.g
    cells, index = butterfly.class_cells(level, 0, seeds), butterfly.class_index(level, 0, seeds)
    for s in rng.integers(0, seeds, 5):
        expected = np.bincount(cells[s], weights, minlength=level.g)
        np.testing.assert_allclose(by_class[index[s]], expected, atol=1e-12)
    np.testing.assert_array_equal(butterfly.class_cells(level, 1, 2)[0], cells[1])
    np.testing.assert_array_equal(butterfly.class_index(level, 1, 2)[0], index[1])


def test_batched_weights_equal_single_ones() -> None:
    for g in (2, 3, 7, 11):
        level = Level(3_000_000, 50, g, 1, 0, 1)
        weights = np.random.default_rng(1).normal(size=(50, 4))
        combined = butterfly.expand(level, butterfly.class_weights(level, weights))
        for k in range(4):
            np.testing.assert_allclose(
                combined[:, k],
                butterfly.expand(level, butterfly.class_weights(level, weights[:, k])),
                atol=1e-12,
            )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("domain", "g", "epsilon"), [(65_536, 3, 1_000_000), (65_536, 53, 4_000_000), (60_000, 251, 6_000_000)]
)
def test_large_domains_decode_exactly(domain: int, g: int, epsilon: int) -> None:
    level = Level(epsilon, domain, g, 1, 0, 1)
    rng = np.random.default_rng(2)
    codes = rng.integers(0, level.code_count, 300)
    histogram = np.zeros(level.code_count, dtype=np.int64)
    np.add.at(histogram, codes, 1)
    digits = g ** np.arange(level.t)
    seeds = (codes // g + 1)[:, None] // digits % g
    values = rng.integers(0, domain, 200)
    cells = seeds @ (values[:, None] // digits % g).T % g
    assert (butterfly.supports(level, histogram)[values] == (cells == (codes % g)[:, None]).sum(axis=0)).all()


def test_wrong_shape_is_rejected_with_both_shapes() -> None:
    level = Level(1_000_000, 10, 3, 1, 0, 1)
    with pytest.raises(ValueError, match="78 codes"):
        butterfly.supports(level, np.zeros(5, dtype=int))
    with pytest.raises(ValueError, match="10 nodes"):
        butterfly.expand(level, butterfly.class_weights(level, np.zeros(11)))
