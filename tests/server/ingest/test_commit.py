"""Failed commits are retried after a wait, and each outage begins with the shortest wait."""

import contextlib
import datetime
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from boards import FLEET_KEYS, ask_fleet, experiment, payload_of
from filled_store import fill
from traffic import crowd, full_disk

from hushmote.server.ingest import commit as module
from hushmote.server.ingest.commit import Committer, CountingGivenUp, QueuedErasures, Retention
from hushmote.server.ingest.pipeline import KnownFleets
from hushmote.server.ingest.status import Status
from hushmote.server.store import Description, Store
from hushmote.server.store.counting import ClockWrong
from hushmote.server.store.erase import queue_erasure, queued_erasures


class Clock:
    """A monotonic clock that only tests advance."""

    seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setattr(module.time, "monotonic", clock := Clock())
    return clock


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path / 'store.sqlite'}") as opened:
        ask_fleet(opened, "open", experiment())
        yield opened


class Counting:
    """A committer whose store is full or not, and batches that need room."""

    def __init__(self, store: Store, **options: Any) -> None:
        fleets = KnownFleets(store, Status())
        fleets.load()
        self.committer = Committer(store, fleets, Status(), **options)
        self._limit = full_disk(store)
        self._names = itertools.count()

    def commit(self, *, full: bool) -> bool:
        self._limit["pages"] = 1 if full else 1 << 30  # SQLite raises a lower limit to the pages in use
        messages, _ = crowd(300, prefix=f"n{next(self._names)}-")
        return self.committer.commit(messages)


class TestOutage:
    def test_each_begins_with_the_shortest_wait(self, store: Store, clock: Clock) -> None:
        counting = Counting(store)
        for _ in range(2):
            waits = []
            for _ in range(4):
                assert not counting.commit(full=True)
                waits.append(counting.committer.not_before - clock.seconds)
            assert waits == pytest.approx([0.2, 0.4, 0.8, 1.6])
            assert counting.committer.failing
            assert counting.commit(full=False)
            assert not counting.committer.failing

    def test_two_short_outages_are_not_a_long_outage(self, store: Store, clock: Clock) -> None:
        counting = Counting(store, give_up_s=10.0)
        for seconds, full in [(0, True), (5, False), (12, True), (21.9, True)]:
            clock.seconds = 100 + seconds
            assert counting.commit(full=full) is not full
        clock.seconds = 122
        with pytest.raises(CountingGivenUp, match="no batch could be committed for 10 s"):
            counting.commit(full=True)

    def test_lasts_an_hour_before_the_process_ends(self, store: Store, clock: Clock) -> None:
        counting = Counting(store)
        for clock.seconds in (100.0, 3_699.0):
            assert not counting.commit(full=True)
        clock.seconds = 3_700.0
        with pytest.raises(CountingGivenUp, match="no batch could be committed for 3600 s"):
            counting.commit(full=True)


class TestWrongClock:
    def test_is_checked_again_after_a_second(self, store: Store, clock: Clock) -> None:
        fleets = KnownFleets(store, Status())
        fleets.load()

        def fail() -> datetime.datetime:
            raise ClockWrong("behind", "the clock is wrong")

        committer = Committer(store, fleets, Status(), clock=fail)
        for clock.seconds in (100.0, 101.0):
            assert not committer.commit(crowd(1)[0])
            assert committer.not_before == clock.seconds + 1.0
            assert not committer.failing  # a restart would not correct the clock


@contextlib.contextmanager
def missing(store: Store, table: str) -> Iterator[None]:
    """Let the store fail at a table for a while."""
    for old, new in ((table, "away"), ("away", table)):
        with store.engine.begin() as connection:
            connection.exec_driver_sql(f"ALTER TABLE {old} RENAME TO {new}")
        if new == "away":
            yield


class TestQueuedErasures:
    def test_failure_is_retried_after_a_minute(self, store: Store, clock: Clock) -> None:
        erasures = QueuedErasures(store, Status(), FLEET_KEYS, None)
        store.allow_devices("open", ["first", "second"])

        def remaining_after(seconds: float) -> list[str]:
            clock.seconds += seconds
            erasures.turn()
            return [device for _, device in queued_erasures(store)]

        queue_erasure(store, "open", "first")
        with missing(store, "dedupe"):
            assert remaining_after(0) == ["first"]
        assert remaining_after(59.5) == ["first"]
        assert remaining_after(0.5) == []
        queue_erasure(store, "open", "second")
        assert remaining_after(4.5) == ["second"]
        assert remaining_after(0.5) == []

    def test_failure_does_not_delay_others(self, store: Store, clock: Clock) -> None:
        ask_fleet(store, "keyed", experiment(), keyed=True)
        for fleet in ("keyed", "open"):
            store.allow_devices(fleet, ["a"])
            queue_erasure(store, fleet, "a")
        QueuedErasures(store, Status(), None, None).turn()
        assert queued_erasures(store) == [("keyed", "a")]


class TestRetention:
    def test_failure_is_retried_in_the_next_hour(self, store: Store) -> None:
        exp = experiment(name="door", window="day")
        fill(store, "open", payload_of(exp), {"2026-11-21": 3})
        store.add_experiment("open", payload_of(exp), description=Description(keep="1d"))
        times = (datetime.datetime(2026, 12, 1, hour, tzinfo=datetime.UTC) for hour in (9, 9, 10))
        retention = Retention(store, Status(), lambda: next(times))
        with missing(store, "histogram"):
            retention.turn()
        retention.turn()
        assert store.windows("open", exp.digest) == ("2026-11-21",)
        retention.turn()
        assert store.windows("open", exp.digest) == ()
