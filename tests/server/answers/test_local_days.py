"""Local days and weeks: the hours they consist of, and every answer that is grouped by them."""

import datetime
import json
from pathlib import Path

import pytest
from experiments import experiment_json
from filled_store import fill

from hushmote.fleet.results.result import result_of
from hushmote.server.answers import periods
from hushmote.server.answers.ask import ask
from hushmote.server.answers.daily import series_of
from hushmote.server.answers.finding import find
from hushmote.server.answers.query import Facts
from hushmote.server.answers.question import Question, Selection
from hushmote.server.answers.rows import TrendRow
from hushmote.server.errors import UsageError
from hushmote.server.experiments.definition import DefinitionError, parse
from hushmote.server.local_days import Calendar
from hushmote.server.overview.fleets import overview
from hushmote.server.store.store import Description, Store

BERLIN, NEW_YORK = Calendar("Europe/Berlin"), Calendar("America/New_York")
SUNDAYS = Calendar("America/New_York", "sunday")
HOURLY = experiment_json(name="door", epsilon=2_000_000, window="hour")
DOOR = """
name = "door"
purpose = "Is the door open?"
owner = "me@example.org"
expires = 9999-12-31
type = "bool"
epsilon = 2
{}
[budget]
rule = "sum"
cap = 4
"""


def utc(*moment: int) -> datetime.datetime:
    return datetime.datetime(*moment, tzinfo=datetime.UTC)  # pyright: ignore[reportArgumentType]


def hours(first: datetime.datetime, count: int) -> list[str]:
    return [f"{first + datetime.timedelta(hours=n):%Y-%m-%dT%H}" for n in range(count)]


YEARS = tuple(hours(utc(2025, 12, 1), 24 * 500))  # to April 2027


def day(name: str, calendar: Calendar) -> tuple[str, ...]:
    return periods.named_windows(name, YEARS, calendar, utc(2026, 11, 28, 12))


@pytest.fixture
def store(tmp_path: Path):
    with Store(f"sqlite:///{tmp_path}/store.sqlite") as opened:
        yield opened


def set_days(store: Store, payload: bytes, zone: str, week: str = "") -> None:
    """Change only the description of the newest version."""
    store.add_experiment("home", payload, description=Description(day=zone, week=week))


class TestDay:
    @pytest.mark.parametrize(
        ("name", "calendar", "first", "count"),
        [
            ("2026-11-21", BERLIN, (2026, 11, 20, 23), 24),
            ("2026-07-01", BERLIN, (2026, 6, 30, 22), 24),
            ("2026-03-29", BERLIN, (2026, 3, 28, 23), 23),
            ("2026-10-25", BERLIN, (2026, 10, 24, 22), 25),
            ("2026-11-21", NEW_YORK, (2026, 11, 21, 5), 24),
            ("2026-03-08", NEW_YORK, (2026, 3, 8, 5), 23),
            ("2026-11-01", NEW_YORK, (2026, 11, 1, 4), 25),
            ("2026-04-24", Calendar("Africa/Cairo"), (2026, 4, 23, 22), 23),  # midnight is skipped
            ("2026-11-21", Calendar("Pacific/Auckland"), (2026, 11, 20, 11), 24),
            ("2026-11-21", Calendar("Asia/Kolkata"), (2026, 11, 20, 18), 24),  # 18:30 UTC
            ("2026-11-21", Calendar("Asia/Kathmandu"), (2026, 11, 20, 18), 24),  # 18:15 UTC
            ("2026-10-04", Calendar("Australia/Lord_Howe"), (2026, 10, 3, 13), 24),  # 13:30 to 13:00 UTC
            ("2026-11-21", Calendar(), (2026, 11, 21, 0), 24),
        ],
    )
    def test_consists_of_its_hours(self, name: str, calendar: Calendar, first: tuple[int, ...], count: int):
        assert list(day(name, calendar)) == hours(utc(*first), count)

    @pytest.mark.parametrize(
        "zone", ["Europe/Berlin", "Asia/Kathmandu", "Australia/Lord_Howe", "America/Havana"]
    )
    def test_every_hour_is_in_one_day(self, zone: str):
        calendar = Calendar(zone)
        groups = periods.group_windows(YEARS, "day", calendar)
        assert [window for members in groups.values() for window in members] == list(YEARS)
        assert [*groups] == sorted(groups)
        for name, members in list(groups.items())[1:-1]:
            assert periods.start_of(members[0]) == calendar.begin(datetime.date.fromisoformat(name))

    @pytest.mark.parametrize(
        ("zone", "approximate"),
        [("Europe/Berlin", False), ("Asia/Kolkata", True), ("Asia/Kathmandu", True)],
    )
    def test_is_approximate_if_it_begins_within_an_hour(self, zone: str, approximate: bool):
        november = datetime.date(2026, 11, 21)
        assert Calendar(zone).is_approximate(november, november) == approximate
        lord_howe = Calendar("Australia/Lord_Howe")  # +11:00 in summer, +10:30 in winter
        assert not lord_howe.is_approximate(november, november)
        assert lord_howe.is_approximate(datetime.date(2026, 10, 4), november)

    def test_yesterday_is_local(self):
        at = utc(2026, 11, 28, 2)  # 21:00 on the 27th in New York
        assert periods.named_windows("yesterday", YEARS, NEW_YORK, at) == day("2026-11-26", NEW_YORK)
        assert periods.named_windows("yesterday", YEARS, BERLIN, at) == day("2026-11-27", BERLIN)

    def test_ends_when_its_last_hour_has_ended(self):
        windows = day("2026-10-25", BERLIN)  # it ends at 23:00 UTC
        before, after = utc(2026, 10, 25, 23, 1), utc(2026, 10, 25, 23, 2)
        assert periods.windows_of_completed_days(windows, before, BERLIN) == ()
        assert periods.windows_of_completed_days(windows, after, BERLIN) == windows

    def test_last_week_has_an_extra_hour_in_autumn(self):
        at = utc(2026, 10, 28, 12)
        assert len(periods.last_windows("7d", YEARS, at, calendar=BERLIN)) == 7 * 24 + 1
        assert len(periods.default_windows(day("2026-10", BERLIN), at, BERLIN)) == 7 * 24 + 1
        assert len(periods.last_windows("24h", YEARS, at, calendar=BERLIN)) == 24
        week = periods.period_of(periods.last_windows("7d", YEARS, at, calendar=BERLIN), calendar=BERLIN)
        assert week is not None
        assert (week.units, week.present, week.is_days) == (7, 7, True)
        assert (week.first_day, week.last_day) == (datetime.date(2026, 10, 21), datetime.date(2026, 10, 27))

    def test_preceding_period_has_as_many_days(self):
        week = periods.named_windows("2026-10-26..2026-11-01", YEARS, BERLIN)
        before = periods.preceding_windows(week, YEARS, BERLIN)
        assert before == periods.named_windows("2026-10-19..2026-10-25", YEARS, BERLIN)
        assert (len(week), len(before)) == (168, 169)

    @pytest.mark.parametrize(
        ("name", "before", "at"),
        [
            ("2026-11-21", "2026-11-20", utc(2026, 11, 28)),
            ("2026-W47", "2026-11-09..2026-11-15", utc(2026, 11, 28)),
            ("today", "2026-11-20T17..2026-11-21T06", utc(2026, 11, 21, 22)),
        ],
    )
    def test_named_days_are_preceded_by_as_many_days(self, name: str, before: str, at: datetime.datetime):
        """The first and the last hours of the days have no reports."""
        sparse = tuple(w for w in YEARS if w[-2:] in ("07", "08", "20"))
        windows = periods.named_windows(name, sparse, BERLIN, at)
        preceding = periods.preceding_windows(windows, sparse, BERLIN, name, at)
        assert preceding == periods.named_windows(before, sparse, BERLIN, at)

    def test_window_counted_by_the_day_is_in_one_day(self):
        mixed = ("2026-11-20", *hours(utc(2026, 11, 21), 48))
        groups = periods.group_windows(mixed, "day", NEW_YORK)
        assert groups["2026-11-20"] == ("2026-11-20", *hours(utc(2026, 11, 21), 5))


class TestWeek:
    @pytest.mark.parametrize(
        ("name", "calendar", "first"),
        [
            ("2026-W47", Calendar(), "2026-11-16"),
            ("2026-W47", Calendar(week="sunday"), "2026-11-15"),
            ("2026-W47", Calendar(week="saturday"), "2026-11-14"),
            ("2026-W53", Calendar(), "2026-12-28"),
            ("2026-W53", Calendar(week="sunday"), "2026-12-27"),
            ("2027-W01", Calendar(week="sunday"), "2027-01-03"),
            ("2026-W01", Calendar(week="sunday"), "2025-12-28"),
        ],
    )
    def test_begins_on_the_first_weekday(self, name: str, calendar: Calendar, first: str):
        groups = periods.group_windows(YEARS, "week", calendar)
        begin = datetime.datetime.fromisoformat(f"{first}T00:00+00:00")
        assert list(groups[name]) == hours(begin, 168)
        assert periods.named_windows(name, YEARS, calendar) == groups[name]
        assert periods.group_start(name, calendar) == begin

    @pytest.mark.parametrize("week", ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday"])
    def test_names_are_unique_across_years(self, week: str):
        calendar, winter = Calendar("Europe/Berlin", week), YEARS[24 * 370 : 24 * 420]
        groups = periods.group_windows(winter, "week", calendar)
        whole = dict(list(groups.items())[1:-1])
        assert [len(members) for members in whole.values()] == [168] * len(whole)
        assert [*groups] == sorted(groups)
        for name, members in whole.items():
            assert periods.named_windows(name, winter, calendar) == members


class TestAnswer:
    def test_day_of_25_hours_contains_all_its_reports(self, store: Store):
        windows = dict.fromkeys(YEARS[7800:8000], 100)  # 22 to 30 October 2026
        fill(store, "home", HOURLY, windows)
        set_days(store, HOURLY, "Europe/Berlin")
        facts = Facts(store, utc(2026, 11, 28, 12))
        question = Question(experiment="door", fleet="home")
        long_day = ask(facts, question.replace(windows=("2026-10-25",)))
        assert (long_day.estimate.reports, long_day.once.reports) == (2500, 2500)
        assert long_day.estimate.which == "fleet home, 2026-10-25 (1 day, Europe/Berlin)"
        assert "25 Oct" in long_day.headline
        table = ask(facts, question.replace(by="day")).answers[0]
        reports = {row.window: row.reports for row in table.rows if isinstance(row, TrendRow)}
        assert reports["2026-10-25"] == 2500
        assert reports["2026-10-26"] == 2400
        assert sum(reports.values()) == 20_000

    def test_answers_use_a_changed_zone(self, store: Store):
        fill(store, "home", HOURLY, dict.fromkeys(hours(utc(2026, 11, 20), 96), 100))
        facts = Facts(store, utc(2026, 11, 28, 12))
        question = Question(experiment="door", fleet="home", windows=("2026-11-21",))
        sources = []
        for zone in ("", "Europe/Berlin", "America/New_York"):
            set_days(store, HOURLY, zone)
            sources.append(ask(Facts(store, facts.at), question).estimate.sources)
        starts = [min(source.window for source in each) for each in sources]
        assert starts == ["2026-11-21T00", "2026-11-20T23", "2026-11-21T05"]
        assert all(len(each) == 24 for each in sources)

    def test_zone_applies_to_earlier_versions(self, store: Store):
        older = experiment_json(name="door", epsilon=1_000_000, window="hour")
        fill(store, "home", older, dict.fromkeys(hours(utc(2026, 11, 20), 48), 1000))
        fill(store, "home", HOURLY, dict.fromkeys(hours(utc(2026, 11, 22), 48), 1000))
        set_days(store, HOURLY, "Europe/Berlin")
        facts = Facts(store, utc(2026, 11, 28, 12))
        digest = store.experiments("home")[0].experiment.digest.hex()
        reply = ask(facts, Question(experiment="door", fleet="home", windows=("2026-11-21",), version=digest))
        assert min(source.window for source in reply.estimate.sources) == "2026-11-20T23"

    def test_approximate_days_are_marked_once(self, store: Store):
        fill(store, "home", HOURLY, dict.fromkeys(hours(utc(2026, 11, 1), 600)[::12], 200))
        set_days(store, HOURLY, "Asia/Kolkata")
        facts = Facts(store, utc(2026, 11, 28, 12))
        question = Question(experiment="door", fleet="home")
        for each in (
            question,
            question.replace(ranges=("yes",)),
            question.replace(last="1w", against=("before",)),
        ):
            reply = ask(facts, each)
            assert reply.headline.count("Days are approximate: ") == 1
            assert reply.to_dict()["days_note"] in reply.headline
        result = result_of(store, "home", "door", facts.at)
        assert "Days are approximate" in result.finding
        set_days(store, HOURLY, "Europe/Berlin")
        assert "approximate" not in ask(Facts(store, facts.at), question).headline

    def test_shared_hours_cannot_be_compared(self, store: Store):
        fill(store, "home", HOURLY, dict.fromkeys(hours(utc(2026, 11, 20), 96), 100))
        set_days(store, HOURLY, "Europe/Berlin")
        facts = Facts(store, utc(2026, 11, 28, 12))
        question = Question(experiment="door", fleet="home", windows=("2026-11-21",))
        assert ask(facts, question.replace(against=("2026-11-22",))).comparison
        with pytest.raises(UsageError, match="2026-11-20T23 would be on both sides"):
            ask(facts, question.replace(against=("2026-11-20T23",)))

    def test_every_zone_counts_towards_the_second_epsilon(self, store: Store):
        fill(store, "home", HOURLY, dict.fromkeys(hours(utc(2026, 11, 20), 96), 100))
        question = Question(experiment="door", fleet="home", by="day")
        totals = []
        for zone in ("", "Europe/Berlin"):
            set_days(store, HOURLY, zone)
            reply = ask(Facts(store, utc(2026, 11, 28, 12)), question)
            totals.append(reply.every_day)
        # Hours are the atoms, so days of any zone are covered.
        assert totals[0] == totals[1]
        assert totals[0].reports == 9600

    def test_hours_of_an_incomplete_day_are_local(self, store: Store):
        fill(store, "home", HOURLY, dict.fromkeys(hours(utc(2026, 11, 27), 12), 100))
        set_days(store, HOURLY, "America/New_York")
        finding = find(Facts(store, utc(2026, 11, 27, 12, 30)), Selection("door", "home"))
        assert "26 Nov, 19:00 to 24:00 America/New_York." in finding.sentence

    def test_weekdays_are_local(self, store: Store):
        fill(store, "home", HOURLY, dict.fromkeys(hours(utc(2026, 10, 1), 24 * 40), 50))
        set_days(store, HOURLY, "Pacific/Auckland")
        selected = Facts(store, utc(2026, 11, 28, 12)).selected(Selection("door", "home"))
        series = series_of(selected)
        assert series is not None
        assert series.first == datetime.date(2026, 10, 2)
        assert series.counts.weekdays[0] == 4
        assert len(series.windows[0]) == 24
        assert series.windows[0][0] == "2026-10-01T11"


class TestPartial:
    def test_ends_of_a_trend_are_marked_everywhere(self, store: Store, tmp_path: Path):
        fill(store, "home", HOURLY, dict.fromkeys(hours(utc(2026, 10, 30, 4), 24 * 26)[::12], 200))
        set_days(store, HOURLY, "America/New_York", "sunday")
        facts = Facts(store, utc(2026, 11, 28, 12))
        reply = ask(facts, Question(experiment="door", fleet="home", by="week"))
        (table,) = reply.answers
        partial = {row.window: row.partial for row in table.rows if isinstance(row, TrendRow)}
        assert partial == {
            "2026-W44": True, "2026-W45": False, "2026-W46": False, "2026-W47": False, "2026-W48": True,
        }  # fmt: skip
        assert table.note.startswith(
            "Partial weeks: 2026-W44 from 30 Oct; 2026-W48 until 24 Nov.\nWeeks begin on Sunday."
        )
        rows = reply.to_dict()["answers"][0]["rows"]
        assert [row["partial"] for row in rows] == [True, False, False, False, True]
        assert "partial" in table.to_csv().partition("\n")[0].split(",")
        assert "2026-W44 (part)" in str(table)
        labels = [axes.get_xlabel() for axes in table.plot(tmp_path / "trend.png").axes]
        assert labels == ["hollow: partial"]
        frame = table.to_pandas()
        assert str(frame.index[1]) == "2026-11-01 00:00:00-04:00"

    def test_running_week_and_month_are_partial(self):
        days = tuple(f"2026-11-{number:02}" for number in range(2, 29))
        at = utc(2026, 11, 28, 12)
        weeks = periods.partial_groups(days, days, "week", at)
        assert [(group.name, str(group.first), str(group.last)) for group in weeks] == [
            ("2026-W48", "None", "2026-11-28")
        ]
        (month,) = periods.partial_groups(days, days, "month", at)
        assert (str(month.first), str(month.last)) == ("2026-11-02", "2026-11-28")
        assert periods.partial_groups(days, days, "", at) == ()

    def test_selection_cuts_weeks(self):
        days = tuple(f"2026-11-{number:02}" for number in range(2, 30))
        selection = days[3:-3]
        groups = periods.partial_groups(selection, days, "week", utc(2026, 12, 28))
        assert [group.name for group in groups] == ["2026-W45", "2026-W48"]


class TestOverview:
    def test_today_and_silence_are_local(self, store: Store):
        at = utc(2026, 11, 28, 2)  # 27 November in New York, 28 November in Auckland
        zones = {"america": "America/New_York", "utc": "", "zealand": "Pacific/Auckland"}
        for name, zone in zones.items():
            payload = experiment_json(name=name, epsilon=2_000_000, window="hour")
            fill(store, "home", payload, dict.fromkeys(hours(utc(2026, 11, 27), 26), 10))
            set_days(store, payload, zone)
        experiments = overview(store, at).experiments
        assert [(e.name, e.today) for e in experiments] == [("america", 210), ("utc", 20), ("zealand", 150)]
        assert [e.calendar.zone_name for e in experiments] == ["America/New_York", "UTC", "Pacific/Auckland"]
        late = overview(store, utc(2026, 11, 30, 4)).experiments
        assert [str(e.quiet_since) for e in late] == ["2026-11-27", "2026-11-28", "2026-11-28"]


class TestDefinition:
    @pytest.mark.parametrize(
        ("lines", "message"),
        [
            ('day = "Europe/Berlin"', 'day needs hourly windows: add window = "hour", or omit day'),
            ('week = "sunday"\nwindow = "day"', 'week needs hourly windows: add window = "hour"'),
            ('day = "Berlin"\nwindow = "hour"', "day: it must be a time zone .*did you mean Europe/Berlin"),
            (
                'day = "Europe"\nwindow = "hour"',
                r"\(there are Europe/Amsterdam, Europe/Andorra, .* and others",
            ),
            ('day = "Asia/Tokio"\nwindow = "hour"', r"\(did you mean Asia/Tokyo\?\)"),
            ('day = "Europe/Frankfurt"\nwindow = "hour"', r"\(there are Europe/Amsterdam, .* and others\)"),
            ('day = "GMT+1"\nwindow = "hour"', r"not 'GMT\+1' \(name a place, so that clocks change"),
            ('day = "CEST"\nwindow = "hour"', "not 'CEST'$"),
            ('day = "../etc/passwd"\nwindow = "hour"', "day: it must be a time zone in the IANA database"),
            ('day = ""\nwindow = "hour"', "day: it must be a time zone in the IANA database"),
            ('week = "Sunday"\nwindow = "hour"', "week must be .*'sunday'"),
        ],
    )
    def test_refuses_days_and_weeks_that_do_not_fit(self, lines: str, message: str):
        with pytest.raises(DefinitionError, match=message) as refusal:
            parse(DOOR.format(lines))
        assert "\n" not in str(refusal.value)

    def test_devices_do_not_see_the_zone(self):
        plain = parse(DOOR.format('window = "hour"'))
        local = parse(DOOR.format('window = "hour"\nday = "Europe/Berlin"\nweek = "sunday"'))
        assert local.payload() == plain.payload()
        assert local.description().calendar == Calendar("Europe/Berlin", "sunday")
        usual = parse(DOOR.format('window = "hour"\nday = "UTC"\nweek = "monday"'))
        assert usual.description() == plain.description()
        assert "Berlin" not in json.dumps(json.loads(local.payload()))

    def test_change_is_only_words(self, store: Store):
        store.add_fleet("home", keyed=False)
        texts = [DOOR.format(f'window = "hour"\n{line}') for line in ("", 'day = "Europe/Berlin"')]
        for text, kind in zip((*texts, texts[1]), ("new experiment", "only words", "unchanged"), strict=True):
            definition = parse(text)
            addition = store.add_version(
                "home", definition.payload(), definition.expires, description=definition.description()
            )
            assert addition.kind == kind
