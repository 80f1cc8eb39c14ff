"""What a watch sends as time passes, with real receivers and simulated times."""

import datetime
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from experiments import experiment_json
from filled_store import fill, write
from receivers import Webhook
from sqlalchemy import update

from hushmote.fleet.alerts.alert import KINDS
from hushmote.fleet.alerts.outbox import CLAIM_S, MAX_PAUSE_S
from hushmote.fleet.alerts.receivers import parse_receivers
from hushmote.fleet.alerts.worker import AlertWatch
from hushmote.server.store import Store, schema
from hushmote.server.store.counting import BEHIND, ClockWrong

DAY = datetime.timedelta(days=1)
TODAY = datetime.date(2026, 11, 22)
START = TODAY - 40 * DAY
DOOR = experiment_json(name="door", epsilon=1_000_000)


def noon(day: int) -> datetime.datetime:
    return datetime.datetime.combine(START + day * DAY, datetime.time(12), datetime.UTC)


def fill_days(store: Store, count: int, step: int = 1_000, name: str = "door", reports: int = 4_000) -> None:
    """Add days of reports; the share of yes rises on day `step`."""
    days = [str(START + i * DAY) for i in range(count)]
    shares = {day: [0.7, 0.3] if i < step else [0.5, 0.5] for i, day in enumerate(days)}
    fill(store, "home", experiment_json(name=name, epsilon=1_000_000), dict.fromkeys(days, reports), shares)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path / 'hushmote.sqlite'}") as opened:
        yield opened


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with Webhook() as running:
        yield running


class Watching:
    """A watch whose clock is set by the test."""

    def __init__(self, store: Store, hook: Webhook) -> None:
        self.watch = AlertWatch(store, parse_receivers(hook.url, "x"), "aggregator-1")
        self.error: ClockWrong | None = None
        self.day = 0
        self.watch.clock = self._clock

    def _clock(self) -> datetime.datetime:
        if self.error is not None:
            raise self.error
        return noon(self.day)

    def on(self, day: int):
        """Take a turn on a day, counted from the first with reports."""
        self.day = day
        return self.watch.turn(day * 86_400.0)


@contextmanager
def pause_over(store: Store) -> Iterator[None]:
    """Let all claims and pauses end."""
    with store.writing() as connection:
        due = schema.alert_delivery.c.due
        connection.execute(update(schema.alert_delivery).values(due=due - MAX_PAUSE_S - CLAIM_S))
    yield


class TestStart:
    def test_says_that_alerts_are_on_and_sends_nothing_old(self, store: Store, hook: Webhook):
        fill_days(store, 31, step=20)
        first = Watching(store, hook)
        first.on(30)
        assert hook.titles == ["Alerts are on"]
        assert "1 event before now will not be sent" in hook.messages[0]["message"]
        first.on(31)
        Watching(store, hook).on(31)  # after a restart
        assert hook.titles == ["Alerts are on"]

    def test_sends_a_change_once(self, store: Store, hook: Webhook):
        fill_days(store, 19)
        watching = Watching(store, hook)
        watching.on(19)
        watching.on(19)
        with store.writing() as connection:
            for table in (schema.histogram, schema.dedupe, schema.experiment):
                connection.execute(table.delete())
        fill_days(store, 30, step=20)
        for _ in range(2):
            watching.on(30)
            Watching(store, hook).on(30)
        assert hook.titles == ["Alerts are on", "Yes is up: door (home)"]
        assert {m["type"] for m in hook.messages} == {"info"}


class TestSilence:
    def test_begins_and_ends(self, store: Store, hook: Webhook):
        fill_days(store, 20)
        watching = Watching(store, hook)
        for day in (20, 21, 22, 23):
            watching.on(day)
        assert hook.titles[1:] == ["No reports: door (home)"]
        (event,) = watching.watch._active
        assert (event.kind, event.fleet, event.experiment) == ("silence", "home", "door")
        (version,) = store.experiments()
        write(store, "home", version.experiment, {(str(START + 23 * DAY), 0): 5})
        watching.on(24)
        watching.on(25)
        assert hook.titles[1:] == ["No reports: door (home)", "Reports again: door (home)"]

    def test_ends_quietly_if_the_experiment_is_withdrawn(self, store: Store, hook: Webhook):
        fill_days(store, 20)
        watching = Watching(store, hook)
        watching.on(20)
        watching.on(23)
        store.withdraw_experiment("home", "door")
        watching.on(24)
        assert hook.titles[1:] == ["No reports: door (home)"]
        assert watching.watch.outbox.open_events("silence") == []


class TestClock:
    def test_is_told_once_and_its_end(self, store: Store, hook: Webhook):
        fill_days(store, 20)
        watching = Watching(store, hook)
        watching.on(19)
        watching.error = ClockWrong(BEHIND, "the clock says 1970")
        watching.on(19)
        watching.on(20)
        after_restart = Watching(store, hook)
        after_restart.error = watching.error
        after_restart.on(20)
        assert hook.titles[1:] == ["Wrong clock: aggregator-1 counts nothing"]
        after_restart.error = None
        after_restart.on(23)  # not enough time to tell whether reports have stopped
        assert hook.titles[2:] == ["Clock right again: aggregator-1"]
        after_restart.on(24)
        assert hook.titles[3:] == ["No reports: door (home)"]


class TestFailures:
    def test_is_sent_when_a_receiver_is_back(self, store: Store, hook: Webhook):
        fill_days(store, 10)
        hook.status = 500
        watching = Watching(store, hook)
        update = watching.on(10)
        assert update is not None
        (note,) = update["notes"]
        assert note.endswith("line 1 (JSON): the server answered 500; trying again")
        assert "s3cretpassword" not in str(update)
        assert {g.name: g.value for g in update["gauges"]}["hushmote_alerts_waiting"] == 1
        hook.status = 200
        watching.on(10)
        assert hook.titles == []
        with pause_over(store):
            watching.on(10)
        assert hook.titles == ["Alerts are on"]

    def test_one_bad_fleet_does_not_stop_the_others(self, store: Store, hook: Webhook):
        fill_days(store, 20, step=12)
        store.add_fleet("bad", keyed=False)
        store.add_experiment("bad", DOOR)
        with store.writing() as connection:
            bad = update(schema.experiment).where(schema.experiment.c.fleet == "bad")
            connection.execute(bad.values(payload=b"{}"))
        watching = Watching(store, hook)
        watching.on(20)
        assert "1 event before now" in hook.messages[0]["message"]


class TestHomeAssistant:
    def test_gets_each_event_once_and_what_is_active(self, store: Store, hook: Webhook):
        fill_days(store, 20)
        watching = Watching(store, hook)
        watching.watch.home_assistant, watching.watch.topic_prefix = "homeassistant", "site/"
        watching.watch.__post_init__()
        watching.watch.clock = watching._clock
        update = watching.on(20)
        assert update is not None
        assert update["events"] == []  # that alerts are on is no event
        event = json.loads(update["retained"]["homeassistant/event/hushmote_home/alerts/config"])
        assert event["state_topic"] == "site/hushmote/v1/home/alert/event"
        assert event["event_types"] == list(KINDS)
        sensor = json.loads(update["retained"]["homeassistant/binary_sensor/hushmote_home/alerts/config"])
        assert sensor["state_topic"] == "site/hushmote/v1/home/alert/active"
        assert json.loads(update["retained"]["hushmote/v1/home/alert/active"])["active"] == []
        update = watching.on(23)
        assert update is not None
        ((topic, payload),) = update["events"]
        assert topic == "hushmote/v1/home/alert/event"
        assert json.loads(payload)["event_type"] == "silence"
        (active,) = json.loads(update["retained"]["hushmote/v1/home/alert/active"])["active"]
        assert active["title"] == "No reports: door (home)"
        update = watching.on(24)
        assert update is not None
        assert update["events"] == []
