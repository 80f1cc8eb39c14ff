"""The names of periods: which are accepted, and what the messages for the others say."""

import datetime
import re

import pytest

from hushmote.server.answers.period_names import days_of_group, length_of, named_period
from hushmote.server.answers.periods import (
    Period,
    day_of,
    last_windows,
    period_of,
    resolve_periods,
    span,
)
from hushmote.server.errors import UsageError
from hushmote.server.local_days import Calendar
from hushmote.server.words.findings import dates

NOW = datetime.datetime(2026, 11, 29, 12, tzinfo=datetime.UTC)


def ends(text: str) -> str:
    named = named_period(text, Calendar(), NOW)
    return f"{named.first}..{named.last}"


class TestNamedPeriod:
    @pytest.mark.parametrize(
        "text",
        [
            "2026-11-28", "20261128", "2026/11/28", "2026.11.28", "28.11.2026", "28/11/2026", "11/28/2026",
            "11-28-2026", "28 Nov 2026", "28. November 2026", "Nov 28, 2026", "November 28 2026", "28 Nov",
            "Nov 28", "yesterday", " Yesterday ",
        ],
    )  # fmt: skip
    def test_accepts_the_usual_ways_to_write_a_day(self, text: str):
        assert ends(text) == "2026-11-28..2026-11-28"

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("today", "2026-11-29..2026-11-29"),
            ("2.3.2026", "2026-03-02..2026-03-02"),
            ("3/3/2026", "2026-03-03..2026-03-03"),
            ("2026-W47", "2026-11-16..2026-11-22"),
            ("2026w47", "2026-11-16..2026-11-22"),
            ("2026-W53", "2026-12-28..2027-01-03"),
            ("2026-11", "2026-11-01..2026-11-30"),
            ("11/2026", "2026-11-01..2026-11-30"),
            ("Dec 2026", "2026-12-01..2026-12-31"),
            ("2026", "2026-01-01..2026-12-31"),
            ("2026-11-01..2026-11-07", "2026-11-01..2026-11-07"),
            ("2026-10..2026-W45", "2026-10-01..2026-11-08"),
            ("1.11.2026 - 7.11.2026", "2026-11-01..2026-11-07"),
            ("21 to 27 Nov", "2026-11-21..2026-11-27"),
            ("29 Oct to 7 Nov 2025", "2025-10-29..2025-11-07"),
            ("29 Dec 2025 to 4 Jan 2026", "2025-12-29..2026-01-04"),
            ("Nov 21 – 27", "2026-11-21..2026-11-27"),
            ("yesterday..today", "2026-11-28..2026-11-29"),
            ("2026-11-21T14", "2026-11-21 14:00:00+00:00..2026-11-21 14:00:00+00:00"),
            ("2026-11-23 to 2026-11-29 (7 days, UTC)", "2026-11-23..2026-11-29"),
            ("2026-W44 to 2026-W48 (5 weeks), days in UTC", "2026-10-26..2026-11-29"),
            ("21 to 27 Nov (6 of 7 days)", "2026-11-21..2026-11-27"),
            ("2026-W47 (part)", "2026-11-16..2026-11-22"),
            ("27 Nov, 08:00 to 20:00 UTC", "2026-11-27 08:00:00+00:00..2026-11-27 19:00:00+00:00"),
            ("27 Nov 22:00 to 28 Nov 24:00", "2026-11-27 22:00:00+00:00..2026-11-28 23:00:00+00:00"),
        ],
    )
    def test_accepts_weeks_months_ranges_and_hours(self, text: str, expected: str):
        assert ends(text) == expected

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("11/12/2026", "11/12/2026 can be read in two ways: write 2026-12-11 or 2026-11-12"),
            (
                "last week",
                "a period must look like 2026-11-21, 2026-W47, 2026-11, 2026-11-01..2026-11-07, today",
            ),
            ("28.11.26", "a period must look like 2026-11-21"),
            ("2026-02-30", "there is no 2026-02-30 in the calendar; a period must look like"),
            ("2025-W53", "there is no 2025-W53 in the calendar"),
            ("31.11.2026", "there is no 31.11.2026 in the calendar"),
            ("13/13/2026", "there is no 13/13/2026 in the calendar"),
            ("2026-11-21T25", "there is no 2026-11-21T25 in the calendar"),
            ("2026-11-21 14:00", "a period must look like"),
            ("0000-01-01", "there is no 0000-01-01 in the calendar"),
            ("7d", "7d is a length of time: write last=7d"),
            ("all", "all is a length of time: write last=all"),
            ("2026-11-03..2026-11-01", "must start with the earlier day"),
            ("..2026-11-01", "a period must look like"),
            ("28 Nox 2026", "a period must look like"),
            ("", "a period must look like"),
            ("27 Nov, 20:00 to 08:00", "must start with the earlier hour"),
            ("27 Nov, 08:30 to 20:00", "write 2026-11-27T08 or 2026-11-27T09, not 08:30"),
            ("27 Nov, 08:00 to 25:00", "a period must look like"),
            ("27 Nov, 08:00 to 20:00 Europe/Berlin", "a period must look like"),
        ],
    )
    def test_refuses_others_with_the_correct_form(self, text: str, message: str):
        with pytest.raises(UsageError) as refusal:
            named_period(text, Calendar(), NOW)
        assert message in str(refusal.value)
        assert "\n" not in str(refusal.value)

    def test_resolves_to_windows(self):
        days = tuple(f"2026-11-{day:02}" for day in range(1, 30))
        for text in ("28.11.2026", "yesterday", "28 Nov"):
            assert resolve_periods([text], days, at=NOW) == ("2026-11-28",)
        assert resolve_periods(["2026-W47"], days) == days[15:22]
        assert resolve_periods(["2027-W01"], days) == ("2027-W01",)


class TestPrintedPeriod:
    @pytest.mark.parametrize(
        "zone", ["Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Apia", ""]
    )
    def test_is_read_back_as_the_same_windows(self, zone: str):
        calendar = Calendar(zone, "sunday")
        first = datetime.datetime(2026, 10, 20, tzinfo=datetime.UTC)
        hours = tuple(f"{first + datetime.timedelta(hours=n):%Y-%m-%dT%H}" for n in range(24 * 20))
        refusals = list[str]()
        for begin in range(0, len(hours), 13):
            windows = hours[begin : begin + (1, 2, 5, 24, 48, 200)[begin % 6]]
            period = period_of(windows, calendar=calendar)
            texts = [span(windows, calendar)] if zone else []
            for text in (*texts, dates(period, NOW), dates(period, NOW.replace(year=2027))):
                try:
                    read = resolve_periods([text], hours, calendar, NOW)
                except UsageError as e:  # two hours have one name, or a zone is not whole hours from UTC
                    refusals.append(str(e))
                    continue
                period = period_of(windows, calendar=calendar)
                assert period is not None
                whole = tuple(w for w in hours if day_of(w, calendar) in days_of(period))
                assert read == (whole if period.is_days else windows), text
        expected = re.compile(r".*comes twice in|.*write 2026-\d\d-\d\dT\d\d or", re.DOTALL)
        assert all(map(expected.match, refusals))

    def test_hour_that_comes_twice_is_refused(self):
        with pytest.raises(UsageError, match=r"02:00 comes twice .*: write 2026-10-25T00 or 2026-10-25T01"):
            named_period("25 Oct, 02:00 to 05:00", Calendar("Europe/Berlin"), NOW)
        with pytest.raises(UsageError, match="02:00 does not exist in Europe/Berlin"):
            named_period("29 Mar, 02:00 to 05:00", Calendar("Europe/Berlin"), NOW)


def days_of(period: Period) -> set[datetime.date]:
    return {period.first_day + datetime.timedelta(days=n) for n in range(period.units)}


class TestLength:
    def test_accepts_words(self):
        days = tuple(f"2026-11-{day:02}" for day in range(1, 30))
        for text in ("7d", "7 days", "7D", "1w", "1 week", "last 7 days", "the last 7d"):
            assert last_windows(text, days, NOW) == days[-8:-1]
        assert length_of("12 hours").is_hours

    @pytest.mark.parametrize("text", ["2026-11-21", "yesterday", "2026-W47"])
    def test_refuses_a_date_and_names_the_right_option(self, text: str):
        with pytest.raises(UsageError, match=r"7d.*; to name a period by its date, use window"):
            length_of(text)

    @pytest.mark.parametrize("text", ["1m", "0d", "last week", ""])
    def test_refuses_other_texts(self, text: str):
        with pytest.raises(UsageError, match="must look like 7d, 12h, 2w or all, not") as refusal:
            length_of(text)
        assert "window" not in str(refusal.value)


class TestDaysOfGroup:
    def test_reads_only_names_of_groups(self):
        calendar = Calendar(week="sunday")
        assert days_of_group("2026-W47", calendar) == (
            datetime.date(2026, 11, 15),
            datetime.date(2026, 11, 21),
        )
        assert days_of_group("all", calendar) is None
        assert days_of_group("2026-11-21T14", calendar) is None
        assert days_of_group("2026-13", calendar) is None
