"""Periods as people type them, resolved to whole windows before the running one."""

import datetime

import pytest

from hushmote.server.answers import periods
from hushmote.server.errors import UsageError

DAYS = tuple(f"2026-11-{day:02}" for day in range(1, 31))
NOON = datetime.datetime(2026, 11, 30, 12, tzinfo=datetime.UTC)


class TestLast:
    def test_ends_before_the_running_day(self):
        assert periods.last_windows("7d", DAYS, NOON) == DAYS[-8:-1]
        assert periods.last_windows("1w", DAYS, NOON, before=1) == DAYS[-15:-8]

    def test_hours_end_before_the_running_hour(self):
        hours = ("2026-11-30T01", "2026-11-30T10", "2026-11-30T11", "2026-11-30T12")
        assert periods.last_windows("2h", hours, NOON) == hours[1:3]

    def test_all_covers_completed_windows(self):
        assert periods.last_windows("all", DAYS, NOON) == DAYS[:-1]
        assert periods.last_windows("all", ("all",), NOON) == ("all",)

    def test_period_without_reports_names_its_days(self):
        with pytest.raises(UsageError, match="newest window with reports is 2026-11-30") as none:
            periods.last_windows("2d", DAYS, NOON + datetime.timedelta(days=9))
        assert "no reports arrived from 2026-12-07 to 2026-12-08, the last 2d before today" in str(none.value)
        hours = ("2026-11-30T01",)
        with pytest.raises(UsageError, match="from 2026-12-09 10:00 to 2026-12-09 12:00 UTC"):
            periods.last_windows("2h", hours, NOON + datetime.timedelta(days=9))

    @pytest.mark.parametrize("length", ["9x", "0d", "d", ""])
    def test_rejects_other_texts(self, length: str):
        with pytest.raises(UsageError, match="must look like 7d, 12h, 2w or all"):
            periods.last_windows(length, DAYS, NOON)


class TestPreceding:
    def test_is_as_long(self):
        assert periods.preceding_windows(DAYS[20:27], DAYS) == DAYS[13:20]

    def test_is_nothing_before_the_first_window(self):
        assert periods.preceding_windows(DAYS, DAYS) == periods.preceding_windows(("all",), ("all",)) == ()


class TestUsual:
    def test_is_the_newest_seven_completed_days(self):
        assert periods.default_windows(DAYS, NOON) == DAYS[-8:-1]

    def test_counts_back_from_the_last_report(self):
        later = NOON + datetime.timedelta(days=60)
        assert periods.default_windows(DAYS, later) == DAYS[-7:]
        assert periods.default_windows((*DAYS[:2], *DAYS[-3:]), later) == DAYS[-3:]

    def test_hours_come_from_completed_days(self):
        hours = tuple(f"2026-11-{day}T{hour:02}" for day in (28, 29, 30) for hour in (3, 9, 15))
        assert periods.default_windows(hours, NOON) == hours[:6]
        assert periods.default_windows(hours[6:], NOON) == hours[6:8]  # before a day has ended

    def test_is_the_running_window_before_any_ended(self):
        assert periods.default_windows(DAYS[-1:], NOON) == DAYS[-1:]
        assert periods.default_windows(("all",), NOON) == ("all",)
        assert periods.default_windows((), NOON) == ()


class TestPeriod:
    def test_days_are_counted_if_they_have_reports(self):
        period = periods.period_of([DAYS[0], DAYS[2]])
        assert period is not None
        assert (period.units, period.present, period.is_days) == (3, 2, True)
        assert (period.first_day, period.last_day) == (datetime.date(2026, 11, 1), datetime.date(2026, 11, 3))

    def test_hours_become_days_only_if_complete(self):
        part = periods.period_of(["2026-11-01T08", "2026-11-01T10"])
        period = periods.period_of(["2026-11-01T00", "2026-11-01T23"])
        assert part is not None
        assert period is not None
        assert (part.units, part.present, part.is_days) == (3, 2, False)
        assert (period.units, period.present, period.is_days) == (1, 1, True)

    def test_wanted_period_may_lack_its_ends(self):
        period = periods.period_of(DAYS[-6:-1], periods.period_of_length("7d", NOON))
        assert period is not None
        assert (period.units, period.present) == (7, 5)

    def test_all_has_no_start(self):
        assert periods.period_of(["all"]) is None
        assert periods.period_of([]) is None


class TestNames:
    def test_days_months_and_spans_add_up(self):
        several = ["2026-11-01..2026-11-03", "2026-11-02", "2026-11-05..2026-11-05", "2027-01"]
        assert periods.resolve_periods(several, DAYS) == (*DAYS[:3], DAYS[4], "2027-01")
        assert periods.resolve_periods(["2026-11"], DAYS) == DAYS

    def test_rejects_an_inverted_span(self):
        with pytest.raises(UsageError, match="must start with the earlier day"):
            periods.resolve_periods(["2026-11-03..2026-11-01"], DAYS)

    def test_groups_by_week_and_month(self):
        assert [*periods.group_windows(DAYS, "week")] == [f"2026-W{week}" for week in range(44, 50)]
        assert periods.group_windows(DAYS, "month") == {"2026-11": DAYS}
        with pytest.raises(UsageError, match="grouped by day, week, month, not year"):
            periods.group_windows(DAYS, "year")
