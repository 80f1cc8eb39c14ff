"""The rules for counting that hold whichever broker delivers the reports."""

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator

import pytest
from boards import experiment
from every_broker import GOOD, REJECTED, AggregatorsBroker, every_broker
from running_aggregator import WAIT_S, address_of, running, until
from sqlalchemy import event
from traffic import counted_reports, crowd, publish, total

from hushmote.server import aggregator as module
from hushmote.server.aggregator import Aggregator, Counting
from hushmote.server.ingest.pacing import Backoff
from hushmote.server.store import Store
from hushmote.simulator.broker import MosquittoBroker

__all__ = ["every_broker"]

NAME = "counts-here"


@contextlib.contextmanager
def read_only(store: Store) -> Iterator[None]:
    """Let all writes to a SQLite store fail."""
    mode = ["ON"]
    event.listen(store.engine, "checkout", lambda c, *_: c.execute(f"PRAGMA query_only={mode[0]}").close())
    yield
    mode[0] = "OFF"


class Crash(Exception):
    """Raised to end an aggregator after a commit."""


class TestAcknowledgement:
    def test_waits_for_a_commit(self, store: Store, every_broker: AggregatorsBroker) -> None:
        messages, counts = crowd(15)
        with running(store, every_broker, client_id=NAME) as first, read_only(store):
            publish(every_broker, messages)
            until(lambda: first.condition.uncommitted == 15, lambda: first.condition)
            until(lambda: first.counters.failures > 0, lambda: first.counters)
            first.stop()
            until(lambda: not first.ready.is_set(), "the end")
        assert counted_reports(store) == 0
        with running(store, every_broker, client_id=NAME) as second:
            until(lambda: total(second) == 15, lambda: second.counters)
            assert second.counters.rejected == {}
        assert list(store.histogram("open", experiment().digest)) == counts

    def test_follows_the_commit(self, store: Store, every_broker: AggregatorsBroker) -> None:
        messages, counts = crowd(15)

        def crash(*_: object) -> None:
            raise Crash

        def run() -> None:
            with pytest.raises(Crash):
                aggregator.run()

        counting = Counting(client_id=NAME, protocol=every_broker.protocol)
        aggregator = Aggregator(store, address_of(every_broker), counting, on_commit=crash)
        thread = threading.Thread(target=run)
        thread.start()
        assert aggregator.ready.wait(WAIT_S)
        publish(every_broker, messages)
        thread.join(WAIT_S)
        committed = counted_reports(store)
        assert committed > 0
        with running(store, every_broker, client_id=NAME) as second:
            until(lambda: total(second) == 15, lambda: second.counters)
            assert second.counters.rejected == {"duplicate": committed}
        assert list(store.histogram("open", experiment().digest)) == counts

    def test_includes_rejected_reports(self, store: Store, every_broker: AggregatorsBroker) -> None:
        reasons = Counter(reason for _, reason in REJECTED)
        with running(store, every_broker, client_id=NAME) as first:
            publish(every_broker, [GOOD])
            until(lambda: total(first) == 1, lambda: first.counters)
            publish(every_broker, [message for message, _ in REJECTED])
            until(lambda: total(first) == 1 + len(REJECTED), lambda: first.counters)
            assert first.counters.rejected == reasons
        with running(store, every_broker, client_id=NAME) as second:
            publish(every_broker, crowd(1, prefix="another")[0])
            until(lambda: total(second) >= 1, lambda: second.counters)
            assert second.counters.rejected == {}
        rejects = store.rejects()
        assert sum((Counter(fleet) for fleet in rejects.values()), Counter()) == reasons


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return a list of the waits before new attempts, in seconds, to which later ones are added."""
    waits: list[float] = []
    next_s = Backoff.next_s
    monkeypatch.setattr(Backoff, "next_s", lambda backoff: waits.append(next_s(backoff)) or waits[-1])
    return waits


class TestOutage:
    def test_each_begins_with_the_shortest_wait(
        self,
        store: Store,
        every_broker: AggregatorsBroker,
        waits: list[float],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(module, "SHORT_S", 0.0)  # every connection is a long one
        with running(store, every_broker) as aggregator:
            for _ in range(2):
                waits.clear()
                every_broker.kill()
                until(lambda: len(waits) >= 3, lambda: waits)
                assert waits[:3] == pytest.approx([0.2, 0.4, 0.8])
                every_broker.start()
                until(aggregator.ready.is_set, lambda: aggregator.condition)

    def test_short_connections_do_not_end_it(
        self, store: Store, waits: list[float], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "SHORT_S", 3600.0)
        with MosquittoBroker() as broker, running(store, broker) as aggregator:
            broker.kill()
            until(lambda: waits, "a wait")
            broker.start()
            until(aggregator.ready.is_set, lambda: aggregator.condition)
            before = len(waits)
            broker.kill()
            until(lambda: len(waits) > before, "another wait")
        assert waits[:before] == pytest.approx([0.2 * 2**n for n in range(before)])
        assert waits[before] == 2 * waits[before - 1]
