"""Boundaries before and after the planned information: prefixes, skipped looks, and false crossings."""

import math

import numpy as np
import pytest
from scipy import stats

from hushmote.server.release.boundary import REST, bounds, later_bound, planned_looks
from hushmote.server.release.spending import boundaries

SEED = 20261129


def false_crossings(fractions: np.ndarray, limits: np.ndarray, paths: int, first: int = 0) -> int:
    """Return how many of several Brownian motions cross a boundary at look `first` or later."""
    rng = np.random.default_rng(SEED)
    steps = np.sqrt(np.diff(fractions, prepend=0.0))
    score = np.cumsum(rng.normal(size=(paths, len(fractions))) * steps, axis=1)
    return int((score / np.sqrt(fractions) >= limits)[:, first:].any(axis=1).sum())


class TestBounds:
    def test_spend_all_but_the_rest_up_to_the_plan(self):
        fractions = (0.3, 0.7, 1.1, 1.2, 4.0)
        limits = bounds(fractions, 0.05)
        assert limits[:3] == boundaries(fractions[:3], 0.05 * (1 - REST))
        assert limits[3:] == tuple(later_bound(t, 0.05) for t in fractions[3:])

    def test_do_not_depend_on_later_looks(self):
        fractions = (0.1, 0.104, 0.4, 0.95, 1.05, 1.051, 3.0)
        limits = bounds(fractions, 0.02)
        for count in range(len(fractions) + 1):
            assert bounds(fractions[:count], 0.02) == pytest.approx(limits[:count], abs=1e-6)

    def test_a_look_that_adds_little_has_none(self):
        fractions = (0.005, 0.1, 0.105, 0.2, 0.995, 1.0, 1.2)
        limits = bounds(fractions, 0.05)
        assert [math.isinf(limit) for limit in limits] == [True, False, True, False, False, True, False]
        assert planned_looks(fractions) == (1, 3, 4, 6)

    @pytest.mark.slow
    def test_hold_over_a_plan_and_ten_times_more(self):
        """40,000 series of 140 looks; at a rate of 5%, more than 2,267 cross by chance in fewer than 1e-9."""
        fractions, paths = np.arange(1, 141) / 14, 40_000
        crossed = false_crossings(fractions, np.array(bounds(tuple(fractions), 0.05)), paths)
        assert 0.04 * paths < crossed <= stats.binom.isf(1e-9, paths, 0.05)


class TestLaterBound:
    def test_grows_slowly_without_end(self):
        values = [later_bound(t, 0.05) for t in (1.0, 2.0, 100.0, 1e6)]
        assert values == sorted(values)
        assert 3.5 < values[0] < values[-1] < 6

    @pytest.mark.slow
    def test_holds_at_later_looks(self):
        """20,000 series of 300 looks at a level of 1%; more than 290 cross by chance in fewer than 1e-9."""
        fractions, level, paths = np.geomspace(1, 100, 300), 0.01, 20_000
        limits = np.array([later_bound(t, level / REST) for t in fractions])
        crossed = false_crossings(fractions, limits, paths)
        assert 0.2 * level * paths < crossed <= stats.binom.isf(1e-9, paths, level)
