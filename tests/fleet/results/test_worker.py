"""When a worker recomputes results and when it only repeats them, with simulated times."""

import datetime
from collections.abc import Iterator
from pathlib import Path

import pytest
from boards import experiment, payload_of
from filled_store import fill

from hushmote.fleet.results import worker
from hushmote.fleet.results.publication import REPUBLISH_S, Gauge, Publication
from hushmote.fleet.results.worker import Watch
from hushmote.server.store import Store
from hushmote.server.wire.topics import result_topic

NOON = datetime.datetime(2026, 11, 22, 12, 30, tzinfo=datetime.UTC)
TOPIC = result_topic("open", "temp")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path / 'hushmote.sqlite'}") as opened:
        fill(opened, "open", payload_of(experiment()), {"2026-11-21": 300, "2026-11-22": 40})
        yield opened


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[datetime.datetime]:
    """Record the times of all computations, which still run."""
    times, take_snapshot = [], worker.take_snapshot

    def record_time(store, publication, at):
        times.append(at)
        return take_snapshot(store, publication, at)

    monkeypatch.setattr(worker, "take_snapshot", record_time)
    return times


def later(seconds: float) -> datetime.datetime:
    return NOON + datetime.timedelta(seconds=seconds)


def test_publishes_changes_and_every_ten_minutes(store: Store, looks: list[datetime.datetime]):
    watch = Watch(store, Publication())
    first = watch.turn(NOON, 0.0)
    assert first is not None
    assert watch.turn(later(5), 5.0) is None
    store.withdraw_experiment("open", "temp")
    withdrawn = watch.turn(later(10), 10.0)
    assert withdrawn is not None
    assert (first["retained"][TOPIC][:1], withdrawn["retained"][TOPIC]) == ("{", "")
    assert watch.turn(later(15), 15.0) is None
    store.add_experiment("open", payload_of(experiment()))
    second = watch.turn(later(20), 20.0)
    assert second is not None
    assert '"reports":300,' in second["retained"][TOPIC]
    assert len(looks) == 3
    # A day later, today's window has ended.
    tomorrow = watch.turn(NOON + datetime.timedelta(days=1), 86_400.0)
    assert tomorrow is not None
    assert '"reports":340,' in tomorrow["retained"][TOPIC]


def test_repeats_results_when_computing_is_slow(store: Store, looks: list[datetime.datetime]):
    watch = Watch(store, Publication(), idle=1e9)  # as if each check had been very slow
    snapshots = [watch.turn(later(s), s) for s in (0.0, REPUBLISH_S - 1, REPUBLISH_S, 2 * REPUBLISH_S)]
    assert [snapshot is not None for snapshot in snapshots] == [True, False, True, True]
    assert looks == [NOON]
    assert snapshots[3] is not None
    assert snapshots[3]["at"] == later(2 * REPUBLISH_S).timestamp()
    worked_out = {g.value for g in snapshots[3]["gauges"] if g.name == "hushmote_estimate_timestamp_seconds"}
    assert worked_out == {NOON.timestamp()}
    assert f'"at":"{later(2 * REPUBLISH_S):%Y-%m-%dT%H:%M:%SZ}"' in snapshots[3]["retained"][TOPIC]


def test_live_results_follow_requested_interval(store: Store, looks: list[datetime.datetime]):
    watch = Watch(store, Publication(live_s=1_000.0))
    for s in (0.0, 5.0, 999.0, 1_000.0, 1_001.0):
        watch.turn(later(s), s)
    assert looks == [NOON, later(1_000.0)]


def test_budgets_follow_first_board_then_every_hour(
    store: Store, looks: list[datetime.datetime], monkeypatch: pytest.MonkeyPatch
):
    times = []

    def read(_store: Store, at: datetime.datetime) -> list[Gauge]:
        times.append((at - NOON).total_seconds())
        return [] if len(times) == 1 else [Gauge("hushmote_budget_boards", {}, float(len(times)))]

    monkeypatch.setattr(worker, "budgets", read)
    watch = Watch(store, Publication(live_s=600.0))
    for s in range(0, 7_900, 600):
        watch.turn(later(s), s)
    assert times == [0, 600, 4_200, 7_800]
    assert len(looks) == 14
