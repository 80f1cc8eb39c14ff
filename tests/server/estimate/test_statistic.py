"""Intervals, p-values and differences for statistics with value-dependent errors, calculated by hand."""

import math

import numpy as np
import pytest
from scipy import stats

from hushmote.server.estimate.statistic import (
    EstimateError,
    Statistic,
    Statistics,
    difference,
    normal_quantile,
)

Z = float(stats.norm.isf(0.025))


def test_unskewed_interval_is_normal():
    assert Statistic(0.5, 0.1).interval() == pytest.approx((0.5 - Z * 0.1, 0.5 + Z * 0.1))
    assert normal_quantile(0.5) == pytest.approx(stats.norm.isf(0.25))
    for confidence in (0, 1, 95, math.nan):
        with pytest.raises(EstimateError, match="confidence must be between 0 and 1"):
            normal_quantile(confidence)


@pytest.mark.parametrize("skew", [0.3, -0.3, 5.0])
def test_skewed_bound_uses_its_own_error(skew: float):
    value, stderr = 0.5, 0.1
    ends = sorted(Statistic(value, stderr, skew).interval(), reverse=skew < 0)
    assert ends[0] == pytest.approx(value - math.copysign(Z * stderr, skew))
    off = ends[1] - value
    assert off**2 == pytest.approx(Z**2 * (stderr**2 + skew * off))
    assert abs(off) > Z * stderr


@pytest.mark.parametrize("skew", [0.0, 0.3, -0.3])
def test_p_value_at_interval_bounds_matches_confidence(skew: float):
    statistic = Statistic(0.5, 0.1, skew)
    for confidence in (0.5, 0.95, 0.999):
        for end in statistic.interval(confidence):
            assert statistic.p_value(end) == pytest.approx(1 - confidence)


def test_exact_values_have_no_uncertainty():
    assert Statistic(0.5, 0.0).interval() == (0.5, 0.5)
    assert (Statistic(0.5, 0.0).p_value(0.5), Statistic(0.5, 0.0).p_value(0.4)) == (1.0, 0.0)
    assert difference(Statistic(1.0, 0.0), Statistic(1.0, 0.0)).p == 1


def test_difference_combines_variances_and_skews():
    """The variances 9 and 16 weight their growth: (0.5 * 9 - 0.25 * 16) / 25."""
    result = difference(Statistic(2.0, 3.0, 0.5), Statistic(0.5, 4.0, 0.25))
    assert (result.value, result.stderr, result.skew) == pytest.approx((1.5, 5.0, 0.02))
    assert result.p == Statistic(1.5, 5.0, 0.02).p_value(0.0)
    turned = difference(Statistic(0.5, 4.0, 0.25), Statistic(2.0, 3.0, 0.5))
    assert (turned.value, turned.skew) == pytest.approx((-1.5, -0.02))
    assert difference(Statistic(1.0, 0.0, 1.0), Statistic(1.0, 0.0, 1.0)).skew == 0


def test_batch_equals_single_statistics():
    statistics = Statistics(np.array([0.5, 0.2]), np.array([0.1, 0.3]), np.array([0.3, 0.0]))
    low, high = statistics.interval(0.9)
    assert len(statistics) == 2
    for i in range(2):
        assert statistics[i].interval(0.9) == pytest.approx((low[i], high[i]))
