"""The display of `hushmote status`, printed once or live in a terminal."""

import contextlib
import datetime
import signal
import threading
import time
from collections import deque
from dataclasses import replace

from rich.live import Live

from ...fleet.results.result import Result, result_of
from ...server.answers import tables as show
from ...server.answers.query import Facts
from ...server.epsilon import MICRO
from ...server.errors import HushmoteError
from ...server.overview.aggregator import AggregatorHealth, ask
from ...server.overview.fleets import StoreOverview, overview
from ...server.overview.watch import StoreState, StoreWatch
from ...server.plain_text import visible
from ...server.store.database import StoreError, affects_whole_store
from ...server.store.store import Store
from ...server.store.versions import Version, most_reports
from ...server.words.epsilon import belief_of_all
from .picture import MAX_LISTED, Snapshot, picture

_TURN_S = 0.25  # interval between polls, short enough to show a commit within a second
_REST = 3  # pause after drawing, as a multiple of the drawing time
_HEALTH_S = 2.0
_RATE_S = 10.0  # period over which the rate of reports is measured


def follow(store: str, url: str | None) -> None:
    """Draw the picture until Ctrl-C or SIGTERM, then restore the terminal.

    Args:
        store: The store's URL.
        url: The aggregator's HTTP address, or None to leave out its health.
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
            except StoreError as e:  # damaged, or removed since the last poll
                snapshot = Snapshot(StoreState("unreadable", str(e), state.version))
            now = datetime.datetime.now(datetime.UTC)
            live.update(picture(replace(snapshot, health=aggregator.health, now=now)), refresh=True)
            time.sleep(max(_TURN_S, _REST * (time.monotonic() - began_s)))


class SnapshotReader:
    """Reads snapshots of a store, and remembers earlier counts for the rate of reports."""

    def __init__(self) -> None:
        self._store: Store | None = None
        self._snapshot: Snapshot | None = None
        self._before: deque[tuple[float, dict[tuple[str, str], int]]] = deque()

    def read(self, store: Store, state: StoreState, facts: Facts | None = None) -> Snapshot:
        """Return the current snapshot; raises StoreError.

        Args:
            store: The store.
            state: The store's state.
            facts: Data already read from the store.
        """
        last = self._snapshot if store is self._store else None
        if last is None or last.overview is None or state.version != last.state.version:
            now = datetime.datetime.now(datetime.UTC)
            store_overview, facts = overview(store, now, last and last.overview), facts or Facts(store)
            results, errors = dict[tuple[str, str], Result](), dict[tuple[str, str], str]()
            for e in store_overview.urgent_first()[:MAX_LISTED]:
                try:
                    result = result_of(store, e.fleet, e.name, now, live=True, facts=facts)
                    results[e.fleet, e.name] = result
                except HushmoteError as error:  # damaged counts, or a custom mechanism that fails
                    if affects_whole_store(error):
                        raise
                    errors[e.fleet, e.name] = visible(str(error))
            last = Snapshot(
                state,
                None,
                store_overview,
                results,
                errors=errors,
                at=now,
                where=store.where,
                privacy=_privacy(facts, store_overview),
            )
        assert last.overview is not None
        self._store, self._snapshot = store, replace(last, state=state, rates=self._rates(last.overview))
        return self._snapshot

    def _rates(self, store_overview: StoreOverview) -> dict[tuple[str, str], float]:
        """Return each experiment's reports per second over the last few seconds, or nothing at first."""
        now_s = time.monotonic()
        counts = {(e.fleet, e.name): e.reports for e in store_overview.experiments}
        self._before.append((now_s, counts))
        while len(self._before) > 2 and now_s - self._before[0][0] > _RATE_S:
            self._before.popleft()
        earlier_s, earlier_counts = self._before[0]
        if now_s - earlier_s < 2 * _TURN_S:
            return {}
        return {
            name: max(0, n - earlier_counts.get(name, n)) / (now_s - earlier_s) for name, n in counts.items()
        }


def _privacy(facts: Facts, store_overview: StoreOverview) -> str:
    """Describe how much a device's reports to one experiment can reveal at most; "" if unknown."""
    if store_overview.unreadable:  # it may reveal more than the others
        return ""
    kinds = set[tuple[float, int | None]]()
    for fleet in store_overview.fleets:
        names = {e.name for e in fleet.experiments if e.reports}
        versions = [v for v in facts.versions(fleet.name) if v.experiment.name in names] if names else []
        allowed = most_reports(versions)
        by_name: dict[str, list[Version]] = {}
        for v in versions:
            by_name.setdefault(v.experiment.name, []).append(v)
        for same in by_name.values():
            numbers = [allowed[v.id] for v in same]
            max_reports = None if None in numbers else max(filter(None, numbers), default=1)
            kinds.add((max(v.experiment.epsilon for v in same) / MICRO, max_reports))
    return belief_of_all(*kinds) if kinds else ""


class _Aggregator(threading.Thread):
    """Polls an aggregator in a thread, so that a hanging aggregator does not delay the display."""

    health: AggregatorHealth | None = None

    def __init__(self, url: str | None) -> None:
        super().__init__(daemon=True)
        self._url = url

    def run(self) -> None:
        while self._url is not None:
            self.health = ask(self._url)
            time.sleep(_HEALTH_S)
