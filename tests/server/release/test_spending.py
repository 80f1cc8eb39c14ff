"""Boundaries by alpha spending: published values, unequal looks, drift, and order in the level."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from hushmote.server.release.difference import ReleaseError
from hushmote.server.release.spending import MIN_STEP, boundaries, crossing_probability, spent_level

# One-sided boundaries of O'Brien and Fleming's type at equally spaced looks: Lan and DeMets, Biometrika 1983;
# Reboussin, DeMets, Kim and Lan, Controlled Clinical Trials 2000.
PUBLISHED = {
    0.025: {
        2: (2.963, 1.969),
        3: (3.710, 2.511, 1.993),
        4: (4.333, 2.963, 2.359, 2.014),
        5: (4.877, 3.357, 2.680, 2.290, 2.031),
    },
    0.05: {2: (2.538, 1.662), 5: (4.229, 2.888, 2.298, 1.962, 1.740)},
}
# Jennison and Turnbull 2000, tables 2.1 and 2.3: constants of two-sided tests at 5%.
POCOCK = {2: 2.178, 3: 2.289, 4: 2.361, 5: 2.413, 10: 2.555}
OBRIEN_FLEMING = {2: 1.977, 3: 2.004, 4: 2.024, 5: 2.040, 10: 2.087, 20: 2.126}


def equal_looks(count: int) -> tuple[float, ...]:
    return tuple((k + 1) / count for k in range(count))


class TestBoundaries:
    @pytest.mark.parametrize(("level", "count"), [(a, k) for a in PUBLISHED for k in PUBLISHED[a]])
    def test_agree_with_published_values(self, level: float, count: int):
        assert boundaries(equal_looks(count), level) == pytest.approx(PUBLISHED[level][count], abs=6e-4)

    @pytest.mark.slow
    @pytest.mark.parametrize("level", [0.001, 0.0125, 0.05, 0.2])
    @pytest.mark.parametrize(
        "fractions",
        [
            equal_looks(14),
            (0.02, 0.03, 0.5, 0.51, 0.52, 0.97, 1.3),
            (0.3, 0.31, 0.9),
            tuple(k * MIN_STEP for k in range(1, 101)),
            (3.0,),
        ],
    )
    def test_spend_the_level_at_unequal_looks(self, fractions: tuple[float, ...], level: float):
        crossed = crossing_probability(fractions, boundaries(fractions, level))
        expected = [spent_level(t, level) for t in fractions]
        assert crossed == pytest.approx(expected, rel=1e-7, abs=1e-9)

    def test_one_look_is_one_test(self):
        assert boundaries((1.0,), 0.05) == pytest.approx((stats.norm.isf(0.05),))

    @pytest.mark.parametrize("count", [3, 14, 60])
    def test_fall_as_the_level_rises(self, count: int):
        """Holm's method needs this: a test that rejects at one level also rejects at higher ones."""
        rng = np.random.default_rng(count)
        parts = rng.exponential(size=count)
        steps = MIN_STEP + (1 - count * MIN_STEP) * parts / parts.sum()
        fractions = tuple(float(t) for t in np.cumsum(steps))
        table = [boundaries(fractions, level) for level in np.geomspace(0.0005, 0.05, 12)]
        assert np.all(np.diff(table, axis=0) < 0)

    def test_early_looks_that_may_spend_nothing_are_not_crossed(self):
        first, _, last = boundaries((0.01, 0.5, 1.0), 1e-8)
        assert first > 50
        assert last == pytest.approx(stats.norm.isf(1e-8), rel=0.01)

    def test_rejects_impossible_looks(self):
        for fractions in ((), (0.0,), (0.5, 0.5), (0.5, 0.4), (1.0, 1.5), (0.5, 0.5 + MIN_STEP / 2)):
            with pytest.raises(ReleaseError, match=r"must rise by 0\.01 or more"):
                boundaries(fractions, 0.05)
        with pytest.raises(ReleaseError, match="level must be between 0 and 1, not 1"):
            boundaries((1.0,), 1.0)
        with pytest.raises(ReleaseError, match="2 looks need as many boundaries, not 1"):
            crossing_probability((0.5, 1.0), (2.0,))


class TestSpentLevel:
    def test_rises_from_nothing_to_the_level(self):
        values = [spent_level(t, 0.05) for t in (0.01, 0.2, 0.5, 0.9, 1.0, 2.0)]
        assert values[0] < 1e-50
        assert values == sorted(values)
        assert values[-2:] == pytest.approx([0.05, 0.05])


class TestCrossingProbability:
    @pytest.mark.parametrize(
        ("constants", "power"), [(POCOCK, 0.0), (OBRIEN_FLEMING, 0.5)], ids=["pocock", "obrien_fleming"]
    )
    def test_agrees_with_published_constants(self, constants: dict[int, float], power: float):
        for count, constant in constants.items():
            fractions = equal_looks(count)
            crossed = [
                2 * crossing_probability(fractions, [value / t**power for t in fractions])[-1]
                for value in (constant - 0.001, constant + 0.001)
            ]
            assert crossed[0] > 0.05 > crossed[1]

    @pytest.mark.parametrize("drift", [-1.0, 0.0, 2.5])
    def test_agrees_with_the_multivariate_normal(self, drift: float):
        times, limits = np.array([0.2, 0.35, 0.8]), np.array([2.2, 2.0, 1.8])
        covariance: Any = np.sqrt(np.minimum.outer(times, times) / np.maximum.outer(times, times))
        below = stats.multivariate_normal.cdf(limits, drift * np.sqrt(times), covariance)
        assert crossing_probability(list(times), list(limits), drift)[-1] == pytest.approx(
            1 - below, abs=1e-4
        )

    def test_drift_crosses_sooner(self):
        fractions = equal_looks(10)
        limits = boundaries(fractions, 0.05)
        none, some, much = (crossing_probability(fractions, limits, drift) for drift in (0.0, 2.5, 8.0))
        assert np.all(none < some)
        assert np.all(some < much)
        assert much[-1] == pytest.approx(1.0)
        one_test = stats.norm.sf(stats.norm.isf(0.05) - 2.5)
        assert one_test - 0.03 < some[-1] < one_test
        assert math.isclose(none[-1], 0.05, rel_tol=1e-6)
