"""The process that computes results for an aggregator: `python -m hushmote.fleet.results.worker`.

The first line of input names the store. Each line of output is an update; worker_process says how they are
read.
"""

import datetime
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ...server.ingest.clock import CheckedClock
from ...server.store.store import Store
from .publication import REPUBLISH_S, Gauge, Publication
from .snapshot import Snapshot, budgets, retained_messages, state_of, take_snapshot
from .worker_process import POLL_S, serve_updates

_BUDGETS_S = 3600.0


@dataclass
class Watch:
    """The newest snapshot of a store, and when to take the next; times in monotonic seconds.

    Attributes:
        clock: Returns the time of a snapshot; raises ClockWrong for an impossible time.
        idle: Ratio of the pause between periodic snapshots to the time that the last one took.
    """

    store: Store
    publication: Publication
    idle: float = 20.0
    _snapshot: Snapshot = field(default_factory=Snapshot)
    _state: object = None
    _refresh_due_at: float = float("-inf")
    _say_due_at: float = float("-inf")
    _budgets: list[Gauge] = field(default_factory=list)
    _budgets_due_at: float = float("-inf")

    def __post_init__(self) -> None:
        self.clock = CheckedClock(self.store.last_time)

    def turn(self, at: datetime.datetime, clock_s: float) -> dict[str, Any] | None:
        """Return the update at a time (UTC), or None if nothing is due. Raises StoreError."""
        state = state_of(self.store.readable_experiments()[0], at)
        if state != self._state or clock_s >= self._refresh_due_at:
            self._refresh(at, clock_s)
            self._state = state
        elif clock_s < self._say_due_at:
            return None
        self._say_due_at = clock_s + REPUBLISH_S
        messages = retained_messages(self._snapshot, self.publication, at)
        return {
            "retained": {topic: payload.decode() for topic, payload in messages.items()},
            "gauges": [*self._snapshot.gauges, *self._budgets],
            "notes": list(self._snapshot.notes),
            "at": at.timestamp(),
        }

    def _refresh(self, at: datetime.datetime, clock_s: float) -> None:
        start_s = time.monotonic()
        self._snapshot = take_snapshot(self.store, self.publication, at)
        if clock_s >= self._budgets_due_at:
            self._budgets = budgets(self.store, at)
            self._budgets_due_at = clock_s + (_BUDGETS_S if self._budgets else 0)
        took_s, live_s = time.monotonic() - start_s, self.publication.live_s
        # A snapshot of millions of rows takes a minute. Use a small share of the time, or up to half if live.
        pause_s = max(REPUBLISH_S, self.idle * took_s) if live_s is None else max(live_s, 2 * took_s)
        self._refresh_due_at = clock_s + pause_s


def main() -> None:
    """Print updates until the input ends."""
    serve_updates(_start, lambda request: min(POLL_S, Publication(**request["publication"]).live_s or POLL_S))


def _start(request: dict[str, Any]) -> tuple[Callable[[], dict[str, Any] | None], Callable[[], None]]:
    store = Store(request["store"], create=False)
    watch = Watch(store, Publication(**request["publication"]))
    return lambda: watch.turn(watch.clock(), time.monotonic()), store.close


if __name__ == "__main__":
    main()
