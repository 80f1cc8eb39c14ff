"""The clock of simulated fleets: whole days before today, then this machine's time; nothing else moves it."""

import datetime

import pytest

from hushmote.server.ingest import clock
from hushmote.server.ingest.clock import HurryingClock

PRESENT = datetime.datetime(2026, 11, 22, 14, 30, tzinfo=datetime.UTC)


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The monotonic clock, to be set; the machine's own stands at half past two."""
    now = [1000.0]
    monkeypatch.setattr(clock.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(clock, "now", lambda: PRESENT)
    return now


def test_it_runs_through_whole_days_and_is_then_the_machines(seconds: list[float]):
    hurrying = HurryingClock(3, day_s=10)
    for seconds[0] in (1000.0, 5000.0):  # it stands still until it is called
        assert hurrying.look() == datetime.datetime(2026, 11, 19, tzinfo=datetime.UTC)
    assert hurrying() == hurrying.look()
    for passed, wanted in (
        (9.99, "2026-11-19"),
        (10, "2026-11-20"),
        (15, "2026-11-20"),
        (29.9, "2026-11-21"),
    ):
        seconds[0] = 5000.0 + passed
        assert hurrying().date().isoformat() == wanted
    seconds[0] = 5015.0
    assert hurrying().hour == 12
    for passed in (30, 31, 10_000):
        seconds[0] = 5000.0 + passed
        assert hurrying() == PRESENT


def test_it_never_goes_back(seconds: list[float]):
    hurrying = HurryingClock(2, day_s=1)
    told = []
    for _ in range(60):
        told.append(hurrying())
        seconds[0] += 0.05
    assert told == sorted(told)
    assert told[-1] == PRESENT
