"""What `hushmote status` draws, once or live in a terminal."""

import contextlib
import datetime
import signal
import threading
import time
from collections import deque
from dataclasses import replace

from rich.live import Live

from ...fleet.results.result import result_of
from ...server.answers import tables as show
from ...server.answers.query import Facts
from ...server.overview.aggregator import AggregatorHealth, ask
from ...server.overview.fleets import StoreOverview, overview
from ...server.overview.watch import StoreState, StoreWatch
from ...server.store.database import StoreError
from ...server.store.store import Store
from .picture import Snapshot, picture

_TURN_S = 0.25  # between two looks: a commit shows within a second
_REST = 3  # times as long as a picture took to work out, nothing is worked out
_HEALTH_S = 2.0
_RATE_S = 10.0  # over which reports a second are counted


def follow(store: str, url: str | None) -> None:
    """Draw the picture until Ctrl-C or SIGTERM, which leave the terminal as it was.

    url: the aggregator's own HTTP, None where nobody is to ask it.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    display, reader = Live(console=show.out, screen=True, auto_refresh=False), SnapshotReader()
    aggregator = _Aggregator(url)
    aggregator.start()
    with contextlib.suppress(KeyboardInterrupt), StoreWatch(store) as watch, display as live:
        while True:
            began_s = time.monotonic()
            state = watch.refresh()
            try:
                snapshot = Snapshot(state) if watch.store is None else reader.read(watch.store, state)
            except StoreError as e:  # damaged, or gone since the look
                snapshot = Snapshot(StoreState("unreadable", str(e), state.version))
            live.update(picture(replace(snapshot, health=aggregator.health)), refresh=True)
            time.sleep(max(_TURN_S, _REST * (time.monotonic() - began_s)))


class SnapshotReader:
    """What was seen of a store so far, for reports a second."""

    def __init__(self) -> None:
        self._store: Store | None = None
        self._snapshot: Snapshot | None = None
        self._before: deque[tuple[float, dict[tuple[str, str], int]]] = deque()

    def read(self, store: Store, state: StoreState, facts: Facts | None = None) -> Snapshot:
        """Return what there is to see now; facts: what was read of the store before. Raises StoreError."""
        last = self._snapshot if store is self._store else None
        if last is None or last.overview is None or state.version != last.state.version:
            now = datetime.datetime.now(datetime.UTC)
            store_overview, facts = overview(store, now, last and last.overview), facts or Facts(store)
            results = {
                (e.fleet, e.name): result_of(store, e.fleet, e.name, now, live=True, facts=facts)
                for f in store_overview.fleets
                for e in f.experiments
            }
            last = Snapshot(state, None, store_overview, results, at=now, where=store.where)
        assert last.overview is not None
        self._store, self._snapshot = store, replace(last, state=state, rates=self._rates(last.overview))
        return self._snapshot

    def _rates(self, store_overview: StoreOverview) -> dict[tuple[str, str], float]:
        """Reports a second of each experiment over the last seconds; empty at first."""
        now_s = time.monotonic()
        counts = {(e.fleet, e.name): e.reports for f in store_overview.fleets for e in f.experiments}
        self._before.append((now_s, counts))
        while len(self._before) > 2 and now_s - self._before[0][0] > _RATE_S:
            self._before.popleft()
        then_s, then = self._before[0]
        if now_s - then_s < 2 * _TURN_S:
            return {}
        return {name: max(0, n - then.get(name, n)) / (now_s - then_s) for name, n in counts.items()}


class _Aggregator(threading.Thread):
    """Asks an aggregator every few seconds: one that hangs does not hold up the picture."""

    health: AggregatorHealth | None = None

    def __init__(self, url: str | None) -> None:
        super().__init__(daemon=True)
        self._url = url

    def run(self) -> None:
        while self._url is not None:
            self.health = ask(self._url)
            time.sleep(_HEALTH_S)
