"""What becomes an alert, and what does not, with stores of known histograms."""

import datetime
from collections.abc import Iterator
from pathlib import Path

import pytest
from boards import experiment, payload_of
from certificates import Authority
from experiments import experiment_json
from filled_store import fill
from open_groups import fill_groups
from release_store import NEW, OLD, add_release
from release_store import at as after_days

from hushmote.fleet.alerts import events
from hushmote.fleet.alerts.silence import arrivals
from hushmote.server.answers.finding import find
from hushmote.server.answers.query import Facts
from hushmote.server.answers.question import Selection
from hushmote.server.answers.releases.first_plan import PlanRequest
from hushmote.server.answers.releases.judge import judge
from hushmote.server.budgets import remaining
from hushmote.server.store import Store
from hushmote.server.store.number_set import NumberSet

FIRST = datetime.date(2026, 10, 1)
DAY = datetime.timedelta(days=1)
DOOR = experiment_json(name="door", epsilon=1_000_000)


def at(days: int) -> datetime.datetime:
    """Return noon after this many completed days."""
    return datetime.datetime.combine(FIRST, datetime.time(12), datetime.UTC) + days * DAY


def days(count: int, reports: int = 4_000) -> dict[str, int]:
    return {str(FIRST + i * DAY): reports for i in range(count)}


def shares(
    count: int, step: int | None = None, before: float = 0.3, after: float = 0.4
) -> dict[str, list[float]]:
    """Return the share of yes on each day, which changes on day `step`."""
    yes = [before if step is None or i < step else after for i in range(count)]
    return {str(FIRST + i * DAY): [1 - share, share] for i, share in enumerate(yes)}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path / 'hushmote.sqlite'}") as opened:
        yield opened


class TestChanges:
    def test_tells_of_a_change_with_its_certainty_and_epsilon(self, store: Store):
        fill(store, "home", DOOR, days(30), shares(30, 20))
        (alert,) = events.changes(Facts(store, at(30)), "home", 40)
        assert alert.title == "Yes is up: door (home)"
        assert alert.direction == "up"
        assert alert.first <= FIRST + 20 * DAY <= alert.last
        sentence, epsilons = alert.text.split("\n\n")
        assert sentence.startswith(("Yes: 3", "Yes: 4"))
        assert "Up from" in sentence
        assert epsilons.startswith("ε of a report: 1. ε of what all messages about it show: ")

    def test_is_silent_without_a_change(self, store: Store):
        fill(store, "home", DOOR, days(30), shares(30))
        assert list(events.changes(Facts(store, at(30)), "home", 1)) == []

    def test_needs_more_evidence_if_a_fleet_asks_more(self, store: Store):
        fill(store, "home", DOOR, days(30), shares(30, 20, after=0.33))
        facts = Facts(store, at(30))
        assert find(facts, Selection("door", "home")).findings[0].change is not None
        assert len(list(events.changes(facts, "home", 1))) == 1
        assert list(events.changes(facts, "home", 10**12)) == []

    def test_leaves_out_withdrawn_and_expired_experiments(self, store: Store):
        fill(store, "home", DOOR, days(30), shares(30, 20))
        store.withdraw_experiment("home", "door")
        assert list(events.changes(Facts(store, at(30)), "home", 1)) == []

    def test_names_no_suppressed_group(self, store: Store):
        reports = {
            "2.3.1": days(30, 900),
            "2.4.0": days(30, 900),
            "2.5.0": {str(FIRST): 30},
            "other": {str(FIRST): 100},
        }
        by_day = {day: each[1] for day, each in shares(30, 20, after=0.6).items()}
        fill_groups(store, "home", reports=reports, shares=by_day)
        alerts = list(events.changes(Facts(store, at(30)), "home", 5))
        groups = {alert.key[1] for alert in alerts}
        assert {"", "2.3.1", "2.4.0"} <= groups
        assert not groups & {"2.5.0", "other"}
        assert "boards with firmware 2.3.1" in "".join(alert.title for alert in alerts)


class TestComparisons:
    def test_count_questions_and_groups_of_all_experiments(self, store: Store):
        fill(store, "home", DOOR, {})
        fill(store, "home", payload_of(experiment()), {}, asked="20:\n24:\nmedian")
        facts = Facts(store, at(1))
        assert events.count_comparisons(facts, "home") == 4
        store.withdraw_experiment("home", "door")
        assert events.count_comparisons(Facts(store, at(1)), "home") == 4
        fill_groups(store, "home")
        assert events.count_comparisons(Facts(store, at(1)), "home") == 4 + 1 + 4


class TestReleases:
    def test_tells_a_verdict_of_a_stored_plan(self, store: Store):
        reports = {OLD: [2_000] * 14, NEW: [2_000] * 14}
        add_release(store, reports, {OLD: 0.02, NEW: 0.3})
        facts = Facts(store, after_days(14))
        assert list(events.releases(facts, "home")) == []  # nobody asked for a verdict
        judge(facts, "home", PlanRequest(NEW, (OLD,)), store.add_release_plan)
        (alert,) = events.releases(Facts(store, after_days(14)), "home")
        assert alert.title == "Stop: firmware 2.4.0 (home)"
        assert alert.direction == "stop"
        assert "board_crash: ε of a report: 2." in alert.text


class TestSilence:
    def counts(self, count: int, weekdays: int = 7) -> dict[str, int]:
        return {str(FIRST + i * DAY): 100 for i in range(count) if (FIRST + i * DAY).weekday() < weekdays}

    def test_begins_when_twenty_reports_are_missing(self):
        counts = self.counts(20)
        for day, silent in ((20, False), (21, True)):
            seen = arrivals(counts, at(day))
            assert seen is not None
            assert seen.is_silent is silent
        assert seen.missing == 100
        few = arrivals(dict.fromkeys(counts, 9), at(22))
        assert few is not None
        assert (few.is_silent, few.missing) == (False, 18)

    def test_does_not_take_nights_and_weekends_for_silence(self):
        working_days = self.counts(30, weekdays=5)
        last = max(datetime.date.fromisoformat(day) for day in working_days)
        monday = datetime.datetime.combine(last, datetime.time(9), datetime.UTC) + 3 * DAY
        seen = arrivals(working_days, monday)
        assert seen is not None
        assert not seen.is_silent
        hours = {f"{FIRST + i * DAY}T08": 100 for i in range(20)}
        for hour in range(24):
            seen = arrivals(hours, at(19).replace(hour=hour) + (DAY if hour < 8 else 0 * DAY))
            assert seen is not None
            assert not seen.is_silent
        seen = arrivals(hours, at(20))
        assert seen is not None
        assert seen.is_silent

    @pytest.mark.parametrize(("count", "silent"), [(1, False), (6, False), (7, True)])
    def test_needs_a_week_of_reports(self, count: int, silent: bool):
        seen = arrivals(self.counts(count), at(60))
        assert seen is not None
        assert seen.is_silent is silent

    def test_leaves_out_interrupted_days(self):
        outage = {FIRST + i * DAY for i in range(20, 30)}
        seen = arrivals(self.counts(20), at(30), outage)
        assert seen is not None
        assert not seen.is_silent

    def test_needs_windows_with_an_end(self):
        assert arrivals({"all": 1_000}, at(30)) is None
        assert arrivals({}, at(30)) is None


class TestCertificates:
    def test_come_30_and_7_days_before_the_end(self, tmp_path: Path):
        file = Path(Authority(tmp_path).file)
        start, end = events.validity(file)
        keys = []
        for left in (end - start) / 2, (end - start) / 4, (end - start) / 20, -DAY:
            alert = events.certificate_alert("HUSHMOTE_BROKER_CA", file, end - left)
            keys.append(alert and alert.key[-1])
        assert keys == [None, "30", "7", "7"]


class TestBudgets:
    @pytest.mark.parametrize(
        ("spent", "level"), [(20, None), (60, "low"), (96, "spent")], ids=["plenty", "low", "spent"]
    )
    def test_tell_when_little_is_left(self, store: Store, spent: int, level: str | None):
        """Of 100 devices with two reports each, some have made both, and no report came lately."""
        payload = experiment_json(name="door", budget={"rule": "count", "cap": 2})
        store.add_fleet("home", keyed=False)
        store.add_experiment("home", payload)
        (version,) = store.experiments()
        numbers = {("home", "door", f"d{i}"): NumberSet(2 if i < spent else 1) for i in range(100)}
        with store.ingest() as transaction:
            transaction.write(numbers, {(version.id, str(FIRST), 0, 0): 100 + spent}, {})
        today = FIRST + 30 * DAY
        alerts = list(events.budget_alerts("home", remaining.read(store, "home", today).lines(today), today))
        assert [alert.key for alert in alerts] == ([] if level is None else [("door", level)])
        if level == "spent":
            assert alerts[0].title == "Budget used up: door (home)"
            assert alerts[0].text.startswith(
                "Only 4% of the 100 devices that have reported can still report;"
            )
        if level == "low":
            assert alerts[0].text.startswith("40% of the 100 devices that have reported can still report. ")

    def test_asked_once_is_meant_to_be_used_up(self, store: Store):
        fill(store, "home", experiment_json(name="door", budget={"rule": "count", "cap": 1}), days(3))
        today = FIRST + 30 * DAY
        lines = remaining.read(store, "home", today).lines(today)
        assert list(events.budget_alerts("home", lines, today)) == []
