"""truth_threshold compared with 60-digit decimals over its whole range: it is exactly floor(p * ONE)."""

from fractions import Fraction

import pytest
from enumeration import exp_below
from hypothesis import example, given, settings
from hypothesis import strategies as st
from reference_board import threshold as decimal_threshold

from hushmote.device.ldp_client import EPSILON_MAX, EPSILON_MIN, ONE, ExperimentRefused, truth_threshold

EPSILONS = st.integers(1_000, 16_000_000)
CELLS = st.one_of(st.integers(2, 2**16), st.integers(2, 64), st.integers(2, 2**24))


def test_constants_match_the_design():
    assert (ONE, EPSILON_MIN, EPSILON_MAX) == (2**30, 1_000, 16_000_000)


@pytest.mark.slow
@settings(max_examples=400)
@given(EPSILONS, CELLS)
@example(1_000, 2**24)
@example(16_000_000, 2)
@example(16_000_000, 2**16)
def test_every_point_matches_60_digit_decimals(epsilon, g):
    assert truth_threshold(epsilon, g) == decimal_threshold(epsilon, g)


@pytest.mark.slow
@settings(max_examples=200)
@given(EPSILONS, CELLS)
def test_is_largest_within_epsilon(epsilon, g):
    def ratio(threshold):
        return Fraction(threshold, ONE) / Fraction(ONE - threshold, ONE * (g - 1))

    threshold = truth_threshold(epsilon, g)
    bound = exp_below(epsilon)
    assert 0 < threshold < ONE
    assert ratio(threshold) <= bound
    if threshold + 1 < ONE:
        assert ratio(threshold + 1) > bound


@pytest.mark.parametrize(
    ("epsilon", "g"),
    [(999, 2), (0, 2), (-1_000_000, 2), (16_000_001, 2), (10**30, 2)]
    + [(1_000_000, g) for g in (1, 0, -3, 2**24 + 1, 10**30)],
)
def test_rejects_values_out_of_range(epsilon, g):
    with pytest.raises(ExperimentRefused, match="epsilon or g out of range"):
        truth_threshold(epsilon, g)
