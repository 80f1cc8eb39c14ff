"""Exact forecasts of how long budgets last, compared with sampled boards."""

import datetime

import numpy as np
import pytest
from scipy import stats

from hushmote.server.budgets.forecast import (
    Forecast,
    ReportRate,
    daily_reports,
    draw_forecasts,
    mean_daily_reports,
)


class TestForecast:
    def test_follows_the_binomial_course(self):
        forecast = Forecast({0: 10, 3: 20, None: 5}, every=4, per_day=0.5)  # 2 calls a day
        days = np.array([0.0, 10.0])
        alive = stats.binom.cdf(2, 20, 0.25)
        assert forecast.share_able_to_report(days) == pytest.approx([25 / 35, (20 * alive + 5) / 35])
        assert forecast.reports_a_day(days) == pytest.approx([12.5, 0.5 * (20 * alive + 5)])
        assert forecast.days_until(0.05) is None  # five boards have no cap

    def test_board_without_every_is_silent_to_the_day(self):
        forecast = Forecast({6: 3, 12: 1}, every=1, per_day=2.0)
        assert forecast.share_able_to_report(np.array([0, 2.9, 3, 5.9, 6])) == pytest.approx(
            [1, 1, 0.25, 0.25, 0]
        )
        assert (forecast.days_until(0.5), forecast.days_until(0.05)) == (3.0, 6.0)
        assert Forecast({0: 3}, 1, 1.0).days_until(0.5) == 0.0


class TestRate:
    def test_covers_full_days_and_empty_ones(self):
        today = datetime.date(2026, 11, 21)
        days = daily_reports(
            {"2026-11-17": 4, "2026-11-19T03": 5, "2026-11-19T14": 3, "2026-11-21": 99}, today
        )
        assert list(days.values()) == [4, 0, 8, 0]
        assert (mean_daily_reports(days, 7), mean_daily_reports(days, 2)) == (3.0, 4.0)
        assert mean_daily_reports(daily_reports({"2026-11-21": 99}, today), 7) is None
        assert daily_reports({"all": 5}, today) == {}


class TestLifetimeBudget:
    def test_matches_sampled_boards(self):
        """Draw 4,000 boards with a fixed seed; a correct forecast fails for one seed in 2.5e9."""
        rates = [ReportRate(500_000, 5, 0.2), ReportRate(1_000_000, 2, 0.1)]
        kinds = [((3, 8), 0, 0), ((0, 2), 0, 0)]
        counts: list[dict[int | None, int]] = [{3: 300, 0: 100}, {8: 300, 2: 100}]
        for drawn, report_rate, left in zip(
            draw_forecasts(rates, (10**9, 0), kinds, [300, 100]), rates, counts, strict=True
        ):
            exact = Forecast(left, report_rate.every, report_rate.per_day)
            for days in np.array([[10.0], [40.0]]):
                expected = float(exact.share_able_to_report(days)[0])
                low, high = stats.binom.interval(1 - 1e-10, 4_000, expected)
                assert low <= drawn.share_able_to_report(days)[0] * 4_000 <= high
            exact_half, half = exact.days_until(0.4), drawn.days_until(0.4)
            assert exact_half is not None
            assert half == pytest.approx(exact_half, rel=0.15)
            assert drawn.boards == exact.boards

    def test_ends_an_uncapped_experiment(self):
        forecasts = draw_forecasts(
            [ReportRate(10**6, 1, 1.0), ReportRate(10**6, 1, 1.0)], (10**7, 0), [((None, None), 0, 0)], [5]
        )
        assert [x.days_until(0.05) for x in forecasts] == [5.0, 5.0]
        assert forecasts[0].reports_a_day(np.array([4.9, 5.0])) == pytest.approx([5.0, 0.0])

    def test_squares_budget_is_spent_by_squares(self):
        """Without `every`, two experiments cost 1 + 4 a day: 25 last 5 days, or 4 if 5 are spent already."""
        rates = [ReportRate(10**6, 1, 1.0), ReportRate(2 * 10**6, 1, 1.0)]
        for spent, days in ((0, 5.0), (5 * 10**12, 4.0)):
            forecasts = draw_forecasts(rates, (0, 25 * 10**12), [((None, None), 0, spent)], [3])
            assert [x.days_until(0.0) for x in forecasts] == [days, days]

    def test_lasts_while_either_cap_holds(self):
        """At one report of ε = 1 a day, a sum of 3 lasts 3 days, squares of 7 last 7, and both last 7."""
        for caps, days in (((3, 0), 3.0), ((0, 7), 7.0), ((3, 7), 7.0), ((7, 3), 7.0)):
            lifetime = (caps[0] * 10**6, caps[1] * 10**12)
            (forecast,) = draw_forecasts([ReportRate(10**6, 1, 1.0)], lifetime, [((None,), 0, 0)], [1])
            assert forecast.days_until(0.0) == days
