"""An aggregator with a real broker records when counting works, and thus the days without counting."""

import datetime

import pytest
from running_aggregator import running, until
from traffic import counted_reports, crowd, publish, total

from hushmote.server.store.counting import BEHIND
from hushmote.simulator.broker import MosquittoBroker, free_port

# Experiments are added now, so the clock must not be behind the present.
TODAY, TOMORROW = (datetime.datetime.now(datetime.UTC).date() + datetime.timedelta(n) for n in (1, 2))
EVENING = datetime.datetime.combine(TODAY, datetime.time(23, 10), datetime.UTC)


class Clock:
    """A clock that moves only when a test advances it."""

    def __init__(self) -> None:
        self.time = EVENING

    def __call__(self) -> datetime.datetime:
        return self.time

    def advance(self, minutes: int) -> None:
        self.time += datetime.timedelta(minutes=minutes)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def broker():
    with MosquittoBroker(port=free_port()) as broker:
        yield broker


class TestInterruption:
    def down(self, store, broker, clock, minutes):
        """Count, go offline for a number of minutes while reports arrive, and count those."""
        messages, _ = crowd(20)
        with running(store, broker, clock=clock, client_id="one") as aggregator:
            publish(broker, messages[:10])
            until(lambda: total(aggregator) == 10, aggregator.counters)
        publish(broker, messages[10:])
        clock.advance(minutes)
        with running(store, broker, clock=clock, client_id="one") as aggregator:
            until(lambda: total(aggregator) == 10, aggregator.counters)
        assert counted_reports(store) == 20
        assert store.counting_time() == clock.time

    def test_50_minutes_record_no_day(self, store, broker, clock):
        self.down(store, broker, clock, 50)
        assert store.interrupted_days() == frozenset()

    def test_two_hours_over_midnight_record_both_days(self, store, broker, clock):
        self.down(store, broker, clock, 120)
        assert store.interrupted_days() == {TODAY, TOMORROW}

    def test_absent_broker_records_the_days(self, store, broker, clock):
        with running(store, broker, clock=clock) as aggregator:
            publish(broker, crowd(10)[0])
            until(lambda: total(aggregator) == 10, aggregator.counters)
            broker.terminate()
            until(lambda: not aggregator.condition.connected, "the loss is noticed")
            clock.advance(120)
            broker.start()
            until(lambda: store.interrupted_days() == {TODAY, TOMORROW}, store.interrupted_days)


class TestIdle:
    def test_records_the_time_and_no_day(self, store, broker, clock):
        with running(store, broker, clock=clock) as aggregator:
            publish(broker, crowd(10)[0])
            until(lambda: total(aggregator) == 10, aggregator.counters)
            for _ in range(4):
                clock.advance(45)
                until(lambda: store.counting_time() == clock.time, store.counting_time)
            assert aggregator.counters.batches >= 1
        assert clock.time.date() == TOMORROW
        assert store.interrupted_days() == frozenset()

    def test_failure_does_not_stop_counting(self, store, broker, clock):
        with running(store, broker, clock=clock) as aggregator:
            publish(broker, crowd(10)[0])
            until(lambda: total(aggregator) == 10, aggregator.counters)
            turned_at = clock.time
            with store.writing() as connection:
                connection.exec_driver_sql("ALTER TABLE counting RENAME TO lost")
            clock.advance(20)
            until(lambda: "cannot be recorded" in aggregator.condition.state, aggregator.condition)
            publish(broker, crowd(20, prefix="e")[0])
            until(lambda: total(aggregator) == 30, aggregator.counters)
            assert aggregator.counters.failures == 0
            with store.writing() as connection:
                connection.exec_driver_sql("ALTER TABLE lost RENAME TO counting")
            assert store.counting_time() == turned_at
            clock.advance(20)
            until(lambda: store.counting_time() == clock.time, store.counting_time)
        assert counted_reports(store) == 30

    def test_failing_batches_do_not_count_as_counting(self, store, broker, clock):
        with running(store, broker, clock=clock) as aggregator:
            publish(broker, crowd(10)[0])
            until(lambda: total(aggregator) == 10, aggregator.counters)
            with store.writing() as connection:
                connection.exec_driver_sql("ALTER TABLE histogram RENAME TO lost")
            publish(broker, crowd(10, prefix="e")[0])
            until(lambda: aggregator.condition.failing, aggregator.condition)
            for failures in (2, 3):
                clock.advance(40)
                until(lambda n=failures: aggregator.counters.failures >= n, aggregator.counters)
            assert store.counting_time() == EVENING
            with store.writing() as connection:
                connection.exec_driver_sql("ALTER TABLE lost RENAME TO histogram")
            until(lambda: total(aggregator) == 20, aggregator.counters)
        assert store.interrupted_days() == {TODAY, TOMORROW}

    def test_clock_that_moves_back_records_nothing(self, store, broker, clock):
        with running(store, broker, clock=clock) as aggregator:
            publish(broker, crowd(10)[0])
            until(lambda: total(aggregator) == 10, aggregator.counters)
            clock.advance(-300)
            publish(broker, crowd(10, prefix="e")[0])
            until(lambda: aggregator.condition.uncommitted == 10, aggregator.condition)
            until(lambda: aggregator.condition.clock == BEHIND, aggregator.condition)
            assert total(aggregator) == 10
            clock.advance(300)
            until(lambda: total(aggregator) == 20, aggregator.counters)
        assert (store.counting_time(), store.interrupted_days()) == (EVENING, frozenset())
