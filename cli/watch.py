"""The picture of `hushmote status`: once, or live in a terminal."""

from __future__ import annotations

import contextlib
import datetime
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Group
from rich.live import Live

from ..server.answers import tables as show
from ..server.answers.query import Facts
from ..server.errors import UsageError
from ..server.overview.aggregator import AggregatorHealth, ask
from ..server.overview.fleets import StoreOverview, overview
from ..server.overview.watch import StoreState, StoreWatch
from ..server.results.result import Result, result_of
from ..server.store.database import StoreError
from ..server.store.store import Store
from .watch_picture import Watched, picture

_TURN_S = 0.25  # between two looks: a commit shows within a second
_REST = 3  # times as long as a picture took to work out, nothing is worked out
_HEALTH_S = 2.0
_RATE_S = 10.0  # over which reports a second are counted


def once(store: str, fleet: str | None, health: AggregatorHealth | None) -> Group:
    """Return the picture of a store as it is; fleet: the one to show, None for all.

    health: what its aggregator said, None where nobody asked. Raises StoreError, and UsageError for a fleet
    that is not there.
    """
    with StoreWatch(store) as watch:
        state = watch.look()
        if watch.store is None:
            raise StoreError(state.words)
        return picture(_Counting(fleet).look(watch.store, state, health))


def follow(store: str, fleet: str | None, url: str | None) -> None:
    """Draw the picture until Ctrl-C or SIGTERM; url: the aggregator's own HTTP. Raises UsageError."""
    with StoreWatch(store) as watch:
        _watch(watch, _Counting(fleet), url)


def _watch(watch: StoreWatch, counting: _Counting, url: str | None) -> None:
    """Draw until Ctrl-C or SIGTERM, which leave the terminal as it was."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    drawn = Live(console=show.out, screen=True, auto_refresh=False)
    with contextlib.suppress(KeyboardInterrupt), _asked(url) as asked, drawn as live:
        while True:
            began_s = time.monotonic()
            state = watch.look()
            try:
                if watch.store is not None:
                    seen = counting.look(watch.store, state, asked.health)
                else:
                    seen = Watched(state, asked.health)
            except StoreError as e:  # damaged, or gone since the look
                seen = Watched(StoreState("unreadable", str(e), state.version), asked.health)
            live.update(picture(seen), refresh=True)
            time.sleep(max(_TURN_S, _REST * (time.monotonic() - began_s)))


class _Counting:
    """What was seen of a store so far, for reports a second. fleet: the one to show, None for all."""

    def __init__(self, fleet: str | None) -> None:
        self._fleet = fleet
        self._store: Store | None = None
        self._overview: StoreOverview | None = None
        self._results: dict[tuple[str, str], Result] = {}
        self._version = -1
        self._at = datetime.datetime.now(datetime.UTC)
        self._before: deque[tuple[float, dict[tuple[str, str], int]]] = deque()

    def look(self, store: Store, state: StoreState, health: AggregatorHealth | None) -> Watched:
        """What there is to see now; raises StoreError, and UsageError for a fleet that is not there."""
        now = datetime.datetime.now(datetime.UTC)
        if store is not self._store or state.version != self._version:
            before = self._overview if store is self._store else None
            self._overview = overview(store, now, before)
            if self._fleet is not None and self._fleet not in [f.name for f in self._overview.fleets]:
                names = ", ".join(f.name for f in self._overview.fleets) or "none yet"
                raise UsageError(f"no fleet {self._fleet} in this store; its fleets: {names}")
            facts = Facts(store)
            self._results = {
                (e.fleet, e.name): result_of(store, e.fleet, e.name, now, live=True, facts=facts)
                for f in self._overview.fleets
                if self._fleet in (None, f.name)
                for e in f.experiments
            }
            self._store, self._version, self._at = store, state.version, now
        assert self._overview is not None
        fleets = tuple(f for f in self._overview.fleets if self._fleet in (None, f.name))
        shown = StoreOverview(
            fleets, self._overview.rejects if self._fleet is None else (), self._overview.day
        )
        return Watched(state, health, shown, self._results, self._rates(shown), self._at, store.where)

    def _rates(self, seen: StoreOverview) -> dict[tuple[str, str], float]:
        """Reports a second of each experiment over the last seconds; empty at first."""
        now_s = time.monotonic()
        counts = {(e.fleet, e.name): e.reports for f in seen.fleets for e in f.experiments}
        self._before.append((now_s, counts))
        while len(self._before) > 2 and now_s - self._before[0][0] > _RATE_S:
            self._before.popleft()
        then_s, then = self._before[0]
        if now_s - then_s < 2 * _TURN_S:
            return {}
        return {name: max(0, n - then.get(name, n)) / (now_s - then_s) for name, n in counts.items()}


@dataclass
class _Asked:
    """The aggregator's last answer; None before the first, and where nobody is to ask it."""

    health: AggregatorHealth | None = None


@contextlib.contextmanager
def _asked(url: str | None) -> Iterator[_Asked]:
    """Ask an aggregator every few seconds in a thread: one that hangs does not hold up the picture."""
    asked, over = _Asked(), threading.Event()

    def run() -> None:
        while url is not None and not over.is_set():
            asked.health = ask(url)
            over.wait(_HEALTH_S)

    threading.Thread(target=run, daemon=True).start()
    try:
        yield asked
    finally:
        over.set()
