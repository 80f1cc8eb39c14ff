"""The heartbeat records that counting works, with a batch a minute or alone if no report arrives."""

import datetime
import logging

import pytest
from boards import ask_fleet, experiment
from traffic import counted_reports, crowd

from hushmote.server.ingest.commit import Committer, Heartbeat
from hushmote.server.ingest.pipeline import KnownFleets
from hushmote.server.ingest.status import Status
from hushmote.server.store import Store, StoreError

EVENING = datetime.datetime(2026, 11, 21, 23, 10, tzinfo=datetime.UTC)
DAYS = {datetime.date(2026, 11, 21), datetime.date(2026, 11, 22)}


class Clock:
    """A clock that moves only when a test advances it."""

    def __init__(self) -> None:
        self.time = EVENING

    def __call__(self) -> datetime.datetime:
        return self.time

    def advance(self, minutes: float) -> None:
        self.time += datetime.timedelta(minutes=minutes)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(store_url):
    with Store(store_url) as store:
        ask_fleet(store, "open", experiment())
        yield store


class Process:
    """The state of an aggregator's process; its reports come from separate devices."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.status = Status()
        fleets = KnownFleets(store, self.status)
        fleets.load()
        self.heartbeat = Heartbeat(store, self.status, clock)
        self.committer = Committer(store, fleets, self.status, clock=clock, heartbeat=self.heartbeat)
        self._before = counted_reports(store)

    def commit(self, count: int = 3) -> bool:
        messages, _ = crowd(count, prefix=f"n{self._before}-")
        self._before += count
        return self.committer.commit(messages)


@pytest.fixture
def process(store, clock):
    return Process(store, clock)


@pytest.fixture
def records(store, monkeypatch):
    """Return the times that were recorded without a batch."""
    times, record = [], store.record_counting
    monkeypatch.setattr(store, "record_counting", lambda time: (times.append(time), record(time)))
    return times


class TestWithBatches:
    def test_first_ever_records_no_day(self, store, process):
        assert process.commit()
        assert store.counting_time() == EVENING
        assert not store.interrupted_days()

    def test_down_for_50_minutes_records_no_day(self, store, clock, process):
        process.commit()
        clock.advance(50)
        Process(store, clock).commit()
        assert store.counting_time() == clock.time
        assert not store.interrupted_days()

    def test_down_for_two_hours_over_midnight_is_two_days(self, store, clock, process):
        process.commit()
        clock.advance(120)
        Process(store, clock).commit()
        assert store.interrupted_days() == DAYS

    def test_process_unable_to_count_is_the_same(self, store, clock, process):
        process.commit()
        clock.advance(120)
        process.commit()
        assert store.interrupted_days() == DAYS

    def test_clock_that_moves_back_records_nothing(self, store, clock, process):
        process.commit()
        clock.advance(-180)
        process.commit()
        process.heartbeat.turn()
        assert store.counting_time() == EVENING
        clock.advance(200)
        process.commit()
        assert store.counting_time() == clock.time
        assert not store.interrupted_days()

    def test_minute_is_recorded_once(self, clock, process, monkeypatch):
        due = []
        is_due = process.heartbeat.is_due
        monkeypatch.setattr(process.heartbeat, "is_due", lambda now: due.append(is_due(now)) or due[-1])
        for _ in range(8):
            process.commit()
            clock.advance(0.25)
        assert due == [True, False, False, False] * 2

    def test_batch_that_fails_leaves_its_minute_due(self, store, clock, process, monkeypatch):
        def fail():
            raise StoreError("the disk is full")

        with monkeypatch.context() as patch:
            patch.setattr(store, "ingest", fail)
            assert not process.commit()
        assert store.counting_time() is None
        assert process.commit()
        assert store.counting_time() == clock.time

    def test_without_a_heartbeat_nothing_is_recorded(self, store, process, clock):
        fleets = KnownFleets(store, process.status)
        fleets.load()
        assert Committer(store, fleets, process.status, clock=clock).commit(crowd(3)[0])
        assert store.counting_time() is None


class TestIdle:
    def test_records_every_ten_minutes_and_no_day(self, store, clock, process, records):
        for _ in range(360):
            process.heartbeat.turn()
            clock.advance(0.5)
        assert len(records) == 17
        assert store.counting_time() == records[-1].replace(second=0)
        assert not store.interrupted_days()

    def test_waits_ten_minutes_after_a_batch(self, clock, process, records):
        process.heartbeat.turn()
        for _ in range(10):
            clock.advance(8)
            process.commit()
            process.heartbeat.turn()
        assert records == []
        clock.advance(10)
        process.heartbeat.turn()
        assert records == [clock.time]

    def test_records_an_interruption_that_left_no_backlog(self, store, clock, process):
        process.commit()
        clock.advance(120)
        restarted = Process(store, clock)
        restarted.heartbeat.turn()
        assert not store.interrupted_days()
        clock.advance(10)
        restarted.heartbeat.turn()
        assert store.interrupted_days() == DAYS

    def test_goes_on_when_the_clock_is_set_back(self, store, clock, process, records):
        process.heartbeat.turn()
        clock.advance(-60)
        process.heartbeat.turn()
        clock.advance(10)
        process.heartbeat.turn()
        assert len(records) == 2
        assert store.counting_time() == clock.time

    def test_failure_is_logged_and_tried_again(self, store, clock, process, monkeypatch, caplog):
        def fail(_):
            raise StoreError("the disk is full")

        process.heartbeat.turn()
        with monkeypatch.context() as patch:
            patch.setattr(store, "record_counting", fail)
            for _ in range(20):
                clock.advance(1)
                process.heartbeat.turn()
        line = "the time at which counting works cannot be recorded: the disk is full"
        assert {r.getMessage() for r in caplog.records if r.levelno == logging.ERROR} == {line}
        assert process.status.text == line
        clock.advance(10)
        process.heartbeat.turn()
        assert store.counting_time() == clock.time
