"""Rollouts: the part of the devices, its growth, and the day on which it will be half."""

import numpy as np
import pytest

from hushmote.server.release.difference import ReleaseError
from hushmote.server.release.progress import Progress, rollout_progress


def progress(*new: float, total: float = 1000.0) -> Progress:
    """Return the progress of a version with so many reports of `total` each day."""
    result = rollout_progress(np.array(new), total - np.array(new))
    assert result is not None
    return result


class TestRolloutProgress:
    def test_half_follows_from_the_rate(self):
        result = progress(50, 100, 150, 200)
        assert result.part == pytest.approx(0.2)
        assert result.growth == pytest.approx(0.05, rel=0.05)
        assert result.days_to_half == 6

    def test_only_the_last_week_counts(self):
        stopped = progress(*np.linspace(10, 300, 10), *[300.0] * 7)
        assert stopped.growth is None
        assert stopped.days_to_half is None

    def test_more_than_half_is_reached(self):
        assert progress(100, 300, 600).days_to_half == 0
        assert progress(1000).part == 1

    def test_chance_is_no_growth(self):
        assert progress(5, 7, 6, 9, total=100.0).growth is None
        assert progress(10, 400).growth is None  # two days may be a weekend

    def test_rates_turn_reports_into_devices(self):
        """Each device with the new version reports, but only 1 in 130 of the others."""
        result = rollout_progress(np.array([1000.0]), np.array([146.0]), 1.0, 1 / 130)
        assert result is not None
        assert result.part == pytest.approx(0.05, abs=1e-4)

    def test_days_without_reports_are_left_out(self):
        gap = rollout_progress(np.array([50.0, 100, 0, 200, 0]), np.array([950.0, 900, 0, 800, 0]))
        assert gap is not None
        assert gap.part == pytest.approx(0.2)
        assert gap.growth == pytest.approx(0.05, rel=0.05)

    def test_without_reports_there_is_none(self):
        assert rollout_progress(np.zeros(3), np.zeros(3)) is None

    def test_rejects_impossible_inputs(self):
        with pytest.raises(ReleaseError, match="the same days, not 1 and 2"):
            rollout_progress(np.ones(1), np.ones(2))
        with pytest.raises(ReleaseError, match="must be above 0"):
            rollout_progress(np.ones(1), np.ones(1), 0.0)
