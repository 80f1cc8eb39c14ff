"""Checks for counts that honest devices cannot produce."""

import pytest

from hushmote.server.mechanisms.invariants import known_chances


class TestKnownChances:
    @pytest.mark.parametrize(
        ("chances", "reports", "statistics"),
        [
            ([1.0], [50], []),  # a single level is always drawn
            ([0.5, 0.5], [10, 30], [10.0]),  # 20 reports are expected on each level, the fewest in a group
            ([0.5, 0.5], [10, 29], []),
            ([0.25, 0.25, 0.5], [5, 5, 30], [10.0]),  # rare levels form a group
            ([0.3, 0.3, 0.4], [3, 3, 39], []),  # the last group has too few, and joins the one before
            ([0.0, 1.0], [3, 7], [3.0]),  # the first level is never drawn
        ],
    )
    def test_groups_have_enough_expected_reports(
        self, chances: list[float], reports: list[int], statistics: list[float]
    ):
        assert [check.statistic for check in known_chances(chances, reports)] == pytest.approx(statistics)
