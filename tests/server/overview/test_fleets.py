"""A store's overview, compared with commands that read the whole store."""

import datetime

import numpy as np
import pytest
from boards import ask_fleet, experiment, payload_of, reports
from sqlalchemy import event

from hushmote.server.estimate import plausibility
from hushmote.server.ingest import pipeline
from hushmote.server.overview.fleets import StoreOverview, overview, state_words
from hushmote.server.overview.rejects import Rejected, rejected_reports
from hushmote.server.store import Description, Store, StoreError, schema
from hushmote.server.wire import topics

NOON = datetime.datetime(2026, 11, 21, 12, tzinfo=datetime.UTC)
DAY = datetime.timedelta(1)
TEMP = experiment()
HOURLY = experiment(name="hourly", window="hour")
ALL_TIME = experiment(name="ever", window="all")


@pytest.fixture
def store(store_url: str):
    with Store(store_url) as store:
        store.add_fleet("home", keyed=False)
        for exp in (TEMP, HOURLY, ALL_TIME):
            store.add_experiment("home", payload_of(exp))
        yield store


def count(store: Store, exp, devices, now=NOON) -> None:
    messages = [(topics.report_topic("home", d), sent) for d in devices for sent in reports(d, exp, 2)]
    pipeline.ingest(store, messages, pipeline.fleets(store), now)


def experiment_overview(seen: StoreOverview, name: str):
    return next(e for fleet in seen.fleets for e in fleet.experiments if e.name == name)


class TestWords:
    def test_state_status_and_days_left(self, store: Store):
        until = NOON.date() + 9 * DAY
        words = Description("°C", "How warm is it?", "heating@example.org")
        store.add_experiment("home", payload_of(TEMP), until, description=words)
        store.withdraw_experiment("home", "ever")
        seen = overview(store, NOON)
        temp = experiment_overview(seen, "temp")
        assert (temp.purpose, temp.owner, temp.unit) == ("How warm is it?", "heating@example.org", "°C")
        assert (temp.state, temp.expires, temp.days_left) == ("current", until, 10)
        assert state_words(temp) == (
            "Devices are asked until 2026-11-30. 10 days are left. No reports have arrived yet."
        )
        assert state_words(experiment_overview(seen, "hourly")).startswith(
            "Devices are asked without an end date."
        )
        assert (experiment_overview(seen, "ever").state, experiment_overview(seen, "ever").days_left) == (
            "withdrawn",
            0,
        )
        last = experiment_overview(overview(store, NOON + 9 * DAY), "temp")
        assert "Today is the last day." in state_words(last)
        ended = experiment_overview(overview(store, NOON + 10 * DAY), "temp")
        assert (ended.state, ended.days_left) == ("expired", 0)
        assert state_words(ended).startswith("It ended on 2026-11-30: devices are no longer asked.")

    def test_purpose_cannot_control_a_terminal(self, store: Store):
        store.add_experiment("home", payload_of(TEMP), description=Description("", "\x1b]0;gone\x07", "‮x"))
        temp = experiment_overview(overview(store, NOON), "temp")
        assert "\x1b" not in temp.purpose
        assert "‮" not in temp.owner

    def test_report_an_implausible_histogram(self, store: Store):
        """Forge reports that all have one code, although honest boards draw each of the 64 codes."""
        seen = overview(store, NOON)
        forge(store, TEMP)
        seen = overview(store, NOON, seen)
        assert experiment_overview(seen, "temp").implausible.startswith(
            "honest devices do not produce this histogram"
        )
        assert experiment_overview(seen, "hourly").implausible == ""


def forge(store: Store, exp, window="2026-11-21", reports=5000) -> None:
    """Count reports that all have one code, which honest boards would not send."""
    version = next(v for v in store.experiments("home") if v.experiment.name == exp.name)
    row = {"experiment": version.id, "window": window, "group_index": 0, "code": 5, "count": reports}
    with store.writing() as connection:
        connection.execute(schema.histogram.insert().values(**row))


class TestAttention:
    def test_problems_are_sentences(self, store: Store):
        kept = Description(keep="1d")
        store.add_experiment("home", payload_of(TEMP), description=kept)
        forge(store, TEMP, "2026-11-17")
        forge(store, TEMP, "2026-11-18")
        temp = experiment_overview(overview(store, NOON), "temp")
        problems = temp.problems(lambda day: f"{day:%d %b}")
        assert list(problems) == ["implausible", "quiet", "overdue"]
        assert problems["implausible"].startswith("Honest devices do not produce this histogram: ")
        assert problems["quiet"] == "No report has arrived since 18 Nov."
        assert problems["overdue"] == (
            "Deletion of 2026-11-17 and 1 more is overdue; `hushmote serve` deletes while it runs."
        )

    def test_silence_is_no_problem_once_devices_are_not_asked(self, store: Store):
        count(store, TEMP, ["a"])
        later = NOON + 3 * DAY
        assert experiment_overview(overview(store, NOON + DAY), "temp").problems() == {}
        assert list(experiment_overview(overview(store, later), "temp").problems()) == ["quiet"]
        store.withdraw_experiment("home", "temp")
        assert experiment_overview(overview(store, later), "temp").problems() == {}

    def test_silence_from_the_start_is_a_problem(self, store: Store):
        added_at = datetime.datetime.now(datetime.UTC)
        new = experiment_overview(overview(store, added_at + DAY), "ever")
        assert (new.problems(), "No reports have arrived yet." in state_words(new)) == ({}, True)
        silent = experiment_overview(overview(store, added_at + 2 * DAY), "ever")
        words = f"No report has arrived since devices were asked on {added_at.date()}."
        assert (silent.problems(), "arrived" in state_words(silent)) == ({"quiet": words}, False)

    def test_erased_reports_count_as_arrived(self, store: Store):
        with store.writing() as connection:
            connection.execute(schema.experiment.update().values(erased=5))
        later = datetime.datetime.now(datetime.UTC) + 9 * DAY
        assert experiment_overview(overview(store, later), "temp").problems() == {}

    def test_unknown_publication_date_is_not_a_problem(self, store: Store):
        with store.writing() as connection:
            connection.execute(schema.experiment.update().values(serial=0))
        later = datetime.datetime.now(datetime.UTC) + 9 * DAY
        assert experiment_overview(overview(store, later), "temp").problems() == {}

    def test_most_serious_come_first(self, store: Store):
        count(store, TEMP, ["a"], NOON - 3 * DAY)
        forge(store, HOURLY, "2026-11-21T11")
        assert [e.name for e in overview(store, NOON).urgent_first()] == ["hourly", "temp", "ever"]

    def test_check_can_be_left_for_later(self, store: Store):
        forge(store, TEMP)
        early = overview(store, NOON, check=False)
        assert (early.is_checked, experiment_overview(early, "temp").implausible) == (False, "")
        seen = overview(store, NOON, early)
        assert seen.is_checked
        assert experiment_overview(seen, "temp").implausible
        later = overview(store, NOON + DAY, seen, check=False)
        assert later.is_checked
        assert experiment_overview(later, "temp").implausible

    def test_erasing_reports_withdraws_the_verdict(self, store: Store):
        forge(store, TEMP)
        seen = overview(store, NOON)
        with store.writing() as connection:
            connection.execute(schema.histogram.delete())
        count(store, TEMP, ["a"])
        assert experiment_overview(overview(store, NOON + DAY, seen), "temp").implausible == ""


class TestRefresh:
    def test_asks_as_often_for_many_experiments(self, store: Store):
        """Use the same number of queries for 3 experiments as for 23."""
        statements: list[str] = []
        event.listen(store.engine, "before_cursor_execute", lambda *a: statements.append(a[2]))
        numbers = []
        for _ in range(2):
            seen = overview(store, NOON)
            overview(store, NOON, seen)
            numbers.append(len(statements))
            for n in range(20):
                store.add_experiment("home", payload_of(experiment(name=f"more{n}")))
            count(store, TEMP, ["a"])
            statements.clear()
        assert numbers[0] == numbers[1]

    @pytest.mark.slow
    def test_adds_new_reports_to_the_previous_overview(self, store: Store):
        seen = None
        for day in range(6):
            for name in range(3):
                count(store, TEMP, [f"d{day}-{name}"], NOON + day * DAY)
                now = NOON + day * DAY
                seen = overview(store, now, seen)
                assert seen == overview(store, now)
                assert experiment_overview(seen, "temp").reports == store.histogram("home", TEMP.digest).sum()

    def test_reads_only_newest_windows_and_no_devices(self, store: Store):
        for day in range(5):
            count(store, TEMP, [f"d{day}"], NOON + day * DAY)
        before = overview(store, NOON)
        statements: list[tuple[str, object]] = []
        event.listen(store.engine, "before_cursor_execute", lambda *a: statements.append((a[2], a[3])))
        overview(store, NOON, before)
        assert not [text for text, _ in statements if "dedupe" in text or "FROM device" in text]
        sums = [
            parameters
            for text, parameters in statements
            if "sum(" in text and "2026-11-24" in str(parameters)
        ]
        assert len(sums) == 1  # temp's, from its last window but one

    @pytest.mark.slow
    def test_checks_a_histogram_again_only_when_it_has_grown(self, store: Store, monkeypatch):
        judged: list[int] = []

        def check(exp, counts):
            judged.append(int(np.sum(counts)))
            return judge(exp, counts)

        judge = plausibility.check
        monkeypatch.setattr(plausibility, "check", check)
        count(store, TEMP, [f"early{i}" for i in range(48)])  # 96 reports: too few to assess
        seen = overview(store, NOON)
        for i in range(22):
            count(store, TEMP, [f"d{i}"])
            seen = overview(store, NOON, seen)
        assert judged == [100, 112, 124, 138]


class TestRejected:
    def test_is_in_sentences_without_devices(self, store: Store):
        strangers = [(topics.report_topic("elsewhere", "d"), b""), (topics.report_topic("home", "d"), b"no")]
        pipeline.ingest(store, strangers, pipeline.fleets(store), NOON)
        twice = [(topics.report_topic("home", "board-7"), sent) for sent in reports("board-7", TEMP, 1)] * 3
        pipeline.ingest(store, twice, pipeline.fleets(store), NOON)
        seen = overview(store, NOON)
        (home,) = seen.fleets
        assert [r.words() for r in seen.rejects] == [
            "1 report was rejected: this store has no fleet of that name."
        ]
        assert [(r.reason, r.harmless) for r in home.rejects] == [("malformed", False), ("duplicate", True)]
        assert home.rejects[1].words() == (
            "2 reports were not counted a second time: they had already been counted; "
            "boards resend reports that are not acknowledged."
        )
        assert "board-7" not in repr(seen)

    @pytest.mark.parametrize("reason", pipeline.REASONS)
    def test_has_words_for_every_reason(self, reason: str):
        words = Rejected(reason, 12_000).words()
        assert words.startswith("12,000 reports were ")
        assert f": {reason}." not in words

    def test_formats_numbers_for_the_reader(self):
        assert rejected_reports({"bad tag": 12_000})[0].words(lambda n: f"{n:_}").startswith("12_000 reports")


class TestCounts:
    def test_daily_reports_match_histograms_for_any_window(self, store: Store):
        count(store, TEMP, ["a", "b"], NOON - DAY)
        count(store, TEMP, ["c"])
        count(store, HOURLY, ["a"], NOON - DAY)
        count(store, HOURLY, ["b"], NOON - datetime.timedelta(hours=3))
        count(store, HOURLY, ["c", "d"])
        count(store, ALL_TIME, ["a"])
        seen = overview(store, NOON)
        activity = {
            e.name: (e.reports, e.today, e.newest, e.newest_reports) for e in seen.fleets[0].experiments
        }
        assert activity == {
            "temp": (6, 2, "2026-11-21", 2),
            "hourly": (8, 6, "2026-11-21T12", 4),
            "ever": (2, None, "all", 2),
        }
        assert seen.reports == 16

    def test_cover_all_versions_with_a_name(self, store: Store):
        count(store, TEMP, ["a"])
        newer = experiment(epsilon=500_000)
        store.add_experiment("home", payload_of(newer), description=Description("K"))
        count(store, newer, ["b"])
        temp = experiment_overview(overview(store, NOON), "temp")
        assert (temp.versions, temp.reports, temp.today, temp.unit) == (2, 4, 4, "K")

    def test_are_empty_for_an_empty_store(self, tmp_path):
        with Store(f"sqlite:///{tmp_path / 's.sqlite'}") as store:
            seen = overview(store, NOON)
        assert (seen.fleets, seen.rejects, seen.reports) == ((), (), 0)

    def test_damaged_one_is_one_line(self, tmp_path):
        with Store(f"sqlite:///{tmp_path / 's.sqlite'}") as store:
            ask_fleet(store, "home", TEMP)
            with store.writing() as connection:
                connection.exec_driver_sql("INSERT INTO histogram VALUES (1, '2026-11-21', 0, 1, 9e999)")
            with pytest.raises(StoreError, match="is damaged"):
                overview(store, NOON)
