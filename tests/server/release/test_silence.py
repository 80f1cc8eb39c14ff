"""Missing reports: expectations by day, offline boards, and devices that count."""

import numpy as np
import pytest

from hushmote.server.release.difference import ReleaseError
from hushmote.server.release.plan import SilencePlan
from hushmote.server.release.silence import Presence, silence_looks, single_day_part, whole_day

PLAN = SilencePlan(300.0)


def presence(devices: list[float], reports: list[float], rate: float = 1.0) -> Presence:
    return Presence(np.array(devices, float), np.array(reports, float), rate)


class TestSilenceLooks:
    def test_expects_what_the_others_deliver_each_day(self):
        """On the second day the broker was out for most of the time, for both sides."""
        new, other = presence([100, 100], [80, 8], 0.5), presence([1000, 1000], [160, 16], 0.1)
        first, second = silence_looks(new, other, PLAN)
        assert (first.expected_reports, second.expected_reports) == pytest.approx((80, 88))
        assert second.received_reports == 88
        assert second.missing_share == pytest.approx(0.0)

    def test_variance_has_a_part_that_time_does_not_reduce(self):
        new = presence([200] * 1000, [200] * 1000)
        other = presence([10_000] * 1000, [10_000] * 1000)
        h = 0.1 / 0.9
        first, *_, last = silence_looks(new, other, PLAN)
        assert first.variance == pytest.approx(2 / 200 + h / 200 + 2 / 10_000 + h / 10_000)
        assert last.variance == pytest.approx(h / 200 + h / 10_000, rel=0.05)
        assert last.information == pytest.approx(1 / last.variance)

    def test_without_others_uses_the_usual_share(self):
        (look,) = silence_looks(presence([50], [0], 2.0), None, PLAN, usual=0.8)
        assert (look.expected_reports, look.received_reports, look.missing_share) == (pytest.approx(80), 0, 1)

    def test_days_that_show_nothing_are_no_looks(self):
        new = presence([0, 100, 100], [5, 90, 0])
        other = presence([1000, 1000, 1000], [900, 900, 0])
        assert [look.day for look in silence_looks(new, other, PLAN)] == [1]
        assert silence_looks(presence([], []), None, PLAN) == ()

    def test_a_day_with_less_information_is_no_look(self):
        """Most boards go back to the old version, so the boards of the whole period are fewer on average."""
        looks = silence_looks(presence([10_000, 1], [9000, 1]), None, SilencePlan(300.0, dispersion=1.0))
        assert [look.day for look in looks] == [0]

    def test_each_look_has_only_its_own_days(self):
        rng = np.random.default_rng(2)
        devices, reports = (
            rng.integers(100, 900, size=(2, 12)).cumsum(axis=1),
            rng.integers(50, 90, size=(2, 12)),
        )
        new, other = (presence(list(d), list(r)) for d, r in zip(devices, reports, strict=True))
        looks = silence_looks(new, other, PLAN)
        cut = [Presence(side.devices[:5], side.reports[:5], side.rate) for side in (new, other)]
        assert silence_looks(cut[0], cut[1], PLAN) == tuple(look for look in looks if look.day < 5)

    def test_rejects_impossible_inputs(self):
        with pytest.raises(ReleaseError, match="the same days, not 1 and 2"):
            silence_looks(presence([1], [1]), presence([1, 1], [1, 1]), PLAN)
        with pytest.raises(ReleaseError, match="usually arrive must be above 0"):
            silence_looks(presence([1], [1]), None, PLAN, usual=0.0)
        with pytest.raises(ReleaseError, match="one value for each day"):
            presence([1, 2], [1])
        with pytest.raises(ReleaseError, match="must be above 0, not 0"):
            presence([1], [1], 0.0)
        with pytest.raises(ReleaseError, match="must be 0 or more"):
            presence([1], [-1])


class TestSingleDayPart:
    def test_all_days_together_use_up_the_level_once(self):
        parts = [single_day_part(day, 14) for day in range(1, 20_000)]
        assert sum(parts[:14]) == pytest.approx(0.9)
        assert 0.9999 < sum(parts) < 1

    def test_planned_days_have_equal_parts(self):
        assert single_day_part(1, 14) == single_day_part(14, 14) > single_day_part(15, 14)


class TestWholeDay:
    def test_counts_few_new_and_many_other_devices(self):
        installed = np.array([0.0, 100.0, 500.0, 200.0])
        assert list(whole_day(installed, newest=True)) == [0, 100, 200]
        assert list(whole_day(installed, newest=False)) == [100, 500, 500]
