"""The checked clock never gives a wrong time."""

import datetime
from typing import Any

import pytest

from hushmote.server.ingest.clock import CheckedClock
from hushmote.server.ingest.commit import Retention
from hushmote.server.ingest.status import Status
from hushmote.server.store import StoreError
from hushmote.server.store.counting import AHEAD, BEHIND, ClockWrong

PRESENT = datetime.datetime(2026, 11, 22, 14, 30, tzinfo=datetime.UTC)

UNITS = ("seconds", "minutes", "hours", "days")
SECOND, MINUTE, HOUR, DAY = (datetime.timedelta(**{unit: 1}) for unit in UNITS)


class Machine:
    """A machine's two clocks, and a store's last time."""

    def __init__(self, last: datetime.datetime | None = PRESENT):
        self.time, self.seconds, self.last = PRESENT, 500.0, last
        self.lines = []
        self.fails = False
        self.clock = CheckedClock(
            self.last_time,
            lambda _level, text: self.lines.append(text),
            lambda: self.time,
            lambda: self.seconds,
        )

    def last_time(self):
        if self.fails:
            raise StoreError("the disk is full")
        return self.last and int(self.last.timestamp())

    def pass_(self, time):
        """Advance both clocks."""
        self.time += time
        self.seconds += time.total_seconds()

    def refuses(self, reason):
        with pytest.raises(ClockWrong):
            self.clock()
        return self.clock.fault == reason


class TestCheckedClock:
    @pytest.mark.parametrize(
        ("wrong", "reason"), [(-21 * DAY, BEHIND), (-2000 * DAY, BEHIND), (32 * DAY, AHEAD)], ids=str
    )
    def test_logs_an_error_once_and_recovers(self, wrong, reason):
        machine = Machine()
        machine.time += wrong
        for _ in range(100):
            machine.pass_(MINUTE)
            assert machine.refuses(reason)
        machine.time -= wrong
        assert machine.clock() == machine.time
        assert machine.clock.fault == ""
        first_line, second_line = machine.lines
        assert first_line.startswith("the clock says ")
        assert first_line.endswith("reports wait at the broker")
        assert second_line == "the clock is right again: reports are counted"

    def test_new_store_is_judged_by_the_monotonic_clock(self):
        machine = Machine(None)
        machine.clock()
        machine.time += 32 * DAY
        assert machine.refuses(AHEAD)

    def test_months_without_the_store_are_not_a_jump(self):
        machine = Machine()
        machine.clock()
        machine.fails = True
        machine.pass_(100 * DAY)
        machine.clock()
        machine.fails = False
        machine.pass_(HOUR)
        assert machine.clock() == machine.time

    def test_jump_back_is_judged_by_the_newest_commit(self):
        machine = Machine(PRESENT - DAY)
        machine.clock()
        machine.last = PRESENT  # as the commit at this time recorded it
        machine.time -= 6 * MINUTE
        assert machine.refuses(BEHIND)

    def test_accepts_an_operators_decision(self):
        machine = Machine()
        machine.time += 1800 * DAY
        assert machine.refuses(AHEAD)
        machine.last = machine.time
        machine.pass_(2 * SECOND)
        assert machine.clock() == machine.time

    def test_waits_for_the_operators_decision(self):
        machine = Machine(PRESENT + 1800 * DAY)
        machine.time += 1800 * DAY
        machine.clock()
        machine.last = PRESENT  # accepted on another machine
        machine.pass_(2 * SECOND)
        assert machine.refuses(AHEAD)

    def test_gives_no_time_before_the_store_was_read(self):
        machine = Machine()
        machine.fails = True
        with pytest.raises(StoreError, match="the disk is full"):
            machine.clock()
        machine.fails = False
        assert machine.clock() == PRESENT


class TestErasingTime:
    def test_equals_a_clock_that_never_jumps(self):
        machine = Machine()
        for _ in range(100):
            assert machine.clock.steady_time() == machine.time
            machine.pass_(HOUR)

    @pytest.mark.parametrize("jump", [3 * HOUR, 20 * DAY, 1000 * DAY], ids=str)
    def test_jump_ahead_counts_after_a_day(self, jump):
        machine = Machine()
        machine.clock()
        machine.pass_(5 * HOUR)
        before = machine.clock.steady_time()
        machine.time += jump
        if jump > 31 * DAY:
            with pytest.raises(ClockWrong):
                machine.clock.steady_time()
            machine.last = machine.time  # an operator accepts it
        for hour in range(60):
            machine.pass_(HOUR)
            erased_by = machine.clock.steady_time()
            if hour < 24:
                assert erased_by == before + (hour + 1) * HOUR
        assert erased_by == machine.time

    def test_time_before_the_start_counts_after_a_day(self):
        machine = Machine(PRESENT - 20 * DAY)
        assert machine.clock.steady_time() == PRESENT - 20 * DAY
        machine.pass_(23 * HOUR)
        assert machine.clock.steady_time() == PRESENT - 20 * DAY + 23 * HOUR
        machine.pass_(HOUR)
        machine.clock.steady_time()
        machine.pass_(MINUTE)
        assert machine.clock.steady_time() == machine.time

    def test_jump_back_counts_immediately(self):
        machine = Machine()
        machine.clock()
        machine.time -= 4 * MINUTE
        assert machine.clock.steady_time() == machine.time

    def test_nothing_is_erased_by_a_wrong_clock(self):
        machine = Machine()
        machine.time += 1000 * DAY
        store: Any = None  # the queue is empty
        Retention(store, Status(), machine.clock.steady_time).turn()
