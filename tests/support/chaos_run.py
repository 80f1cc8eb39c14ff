"""Faults at random instants, and what must hold of the store afterwards: each report counted exactly once.

A real mosquitto, real `hushmote serve` processes on a store, and boards that publish all the time. A plan is
drawn from a seed; when a fault strikes within the work of its victim is left to chance. After the last fault
everything runs undisturbed until nothing is under way, and the store is compared with the boards' accounts:

    told received  is a part of  counted  is a part of  published

with each report counted once and under its own code. Where no board died, all three are the same.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, TypeVar

import boards as wire
import numpy as np
from chaos_boards import Board, Encoded, Proxy, Shipped

from hushmote.server.store import Store, StoreError
from hushmote.server.store.number_set import NumberSet
from hushmote.server.wire import keys, report, topics
from hushmote.simulator.broker import MosquittoBroker

_T = TypeVar("_T")

FLEET = "chaos"
_READY_S = 60.0
_END_S = 120.0
_QUIET_S = 0.7
_COMMIT_S = 20.0
_CALM = 10  # times slower: the smallest batches are committed as they come
_AHEAD = 50  # twice the smallest batch is 100, less what is published until the kill strikes
_SAVED_S = 3.0  # autosave_interval 1 means every two seconds, at times
_RETRY_S = 25.0  # an aggregator that lost its broker may wait as long as 15 s

# SIGKILLs of a process; the rest disturbs in other ways.
KILLS = (
    "kill aggregator",
    "kill aggregator as it commits",
    "kill aggregator as it starts",
    "kill broker",
    "kill broker while connected",
    "kill database",
)
FAULTS = (
    *KILLS,
    "stop aggregator",
    "pause aggregator",
    "stop broker",
    "cut database",
    "swallow database",
    "cut aggregators",
    "swallow aggregators",
    "cut boards",
    "swallow boards",
    "swallow answers to boards",
    "board dies",
)


class Database(Protocol):
    """A database server that can be killed, with a database for this run."""

    port: int

    def kill(self) -> None: ...
    def start(self) -> None: ...
    def url(self, database: str, *, port: int | None = None) -> str: ...


@dataclass(frozen=True)
class Fault:
    """kind: one of FAULTS. after_s: since the fault before. lasts_s: until what was disturbed works again."""

    kind: str
    after_s: float
    lasts_s: float


def plan(seed: int, weights: Mapping[str, float], count: int, *, gap_s: float = 0.5) -> list[Fault]:
    """Draw count faults; gap_s is the mean time between two, some come in volleys of a few milliseconds."""
    rng = np.random.default_rng(seed)
    share = np.array(list(weights.values())) / sum(weights.values())
    faults = []
    for kind in rng.choice(list(weights), count, p=share).tolist():
        after_s = rng.uniform(0, 0.02) if rng.random() < 0.2 else rng.exponential(gap_s)
        lasts_s = float(rng.choice((0.0, 0.0, rng.uniform(0, 0.3), rng.uniform(0.3, 1.5))))
        faults.append(Fault(kind, after_s, lasts_s))
    return faults


@dataclass(frozen=True)
class Verdict:
    """What the store holds beside what the boards know; lost and the two after it must be 0.

    lost: reports that a board was told were received and that are not counted. strange: counted and never
    published. miscounted: distance of the histogram from that of the counted reports; it is 0 only if each is
    counted once and under its own code. untold: counted, but its board never heard of it.
    """

    published: int
    told: int
    counted: int
    lost: int
    strange: int
    miscounted: int
    untold: int
    sendings: int
    duplicates: int
    rejected: Mapping[str, int]
    faults: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def kills(self) -> int:
        """SIGKILLs of aggregators, brokers and databases."""
        return sum(count for kind, count in self.faults.items() if kind in KILLS)

    @property
    def exact(self) -> bool:
        """Whether nothing was lost and nothing counted twice or wrongly."""
        return not (self.lost or self.strange or self.miscounted)


def judge(store: Store, boards: Mapping[str, Board]) -> Verdict:
    """Compare a store's histograms and dedupe sets with the boards' accounts."""
    seen = list(store.seen(FLEET))
    counted = {(device, number) for device, _, numbers in seen for number in _numbers(numbers)}
    # Within the sets, but never counted: which ones a set with closed gaps no longer knows.
    late = sum(numbers.late for _, _, numbers in seen)
    told = {(device, number) for device, board in boards.items() for number in board.told}
    published = {
        (device, number): payload
        for device, board in boards.items()
        for number, payload in board.published.items()
    }
    right: Counter[tuple[bytes, int]] = Counter()
    for one in counted & published.keys():
        sent = report.decode(published[one])
        right[sent.digest, int.from_bytes(sent.code, "big")] += 1
    found: Counter[tuple[bytes, int]] = Counter()
    for version in store.experiments(FLEET):
        digest = version.experiment.digest
        for code, count in enumerate(store.histogram(FLEET, digest).tolist()):
            found[digest, code] = count
    rejected = store.rejects().get(FLEET, {})
    return Verdict(
        published=len(published),
        told=len(told),
        counted=len(counted) - late,
        lost=len(told - counted) + late,
        strange=len(counted - published.keys()),
        miscounted=sum(abs(right[key] - found[key]) for key in right.keys() | found.keys()),
        untold=len(counted - told),
        sendings=sum(board.sendings for board in boards.values()),
        duplicates=rejected.get("duplicate", 0),
        rejected=rejected,
    )


def _numbers(numbers: NumberSet) -> list[int]:
    bounds = numbers.bounds
    return [n for start, end in zip(bounds[::2], bounds[1::2], strict=True) for n in range(start, end)]


class AggregatorProcess:
    """`hushmote serve` as a process that is started, killed and started again; it logs to a file."""

    def __init__(
        self, folder: Path, store_url: str, port: int, client_id: str, options: Sequence[str]
    ) -> None:
        self.log = folder / f"{client_id}.log"
        self._command = [sys.executable, "-m", "hushmote", "serve", "--store", store_url]
        self._command += ["--broker", f"mqtt://127.0.0.1:{port}", "--client-id", client_id, *options]
        self._environment = os.environ | {
            keys.ENVIRONMENT_VARIABLE: f"{wire.MASTER.hex()},signing:{wire.MASTER.hex()}"
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0
        self.exits: list[int] = []

    def start(self) -> None:
        with open(self.log, "ab") as log:
            self._started_at = log.tell()
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, env=self._environment)

    @property
    def ready(self) -> bool:
        """Whether it has subscribed since it was started."""
        return self.subscribed_since(self._started_at)

    @property
    def logged_bytes(self) -> int:
        """How much it has logged, over all its lives."""
        return self.log.stat().st_size

    def subscribed_since(self, logged_bytes: int) -> bool:
        """Whether it runs and has subscribed since it had logged so much."""
        if self._process is None:
            return False
        if self._process.poll() is not None:
            last = self.log.read_text()[-2000:]
            # Started while its database is away it says so and ends; a service manager starts it again.
            assert self._process.returncode == 1, last
            assert "hushmote: cannot use postgresql" in last[last.rfind("ready\n") :], last
            self.start()
            return False
        return b"ready\n" in self.log.read_bytes()[max(logged_bytes, self._started_at) :]

    def signal(self, number: int) -> None:
        """Send a signal to a process that is to live on."""
        if self._process is not None:
            self._process.send_signal(number)

    def end(self, number: int) -> None:
        """End it by a signal and wait for that."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        code = process.wait(_END_S)
        if number == signal.SIGTERM:
            self.exits.append(code)


@dataclass(frozen=True)
class Setting:
    """What is disturbed.

    boards publish every gap_s seconds in the mean, each; every fifth runs the client that is shipped.
    hold_s: see Board. options: of `hushmote serve`. share: name of the group, for several aggregators on one
    store. broker_settings: lines of mosquitto.conf besides those that MosquittoBroker has.
    """

    boards: int = 30
    gap_s: float = 0.02
    hold_s: float | None = None
    aggregators: int = 1
    share: str | None = None
    options: Sequence[str] = ("--batch", "50", "--batch-s", "0.05")
    broker_settings: tuple[str, ...] = ()


def run(
    folder: Path,
    store_url: str,
    faults: Sequence[Fault],
    setting: Setting,
    *,
    seed: int = 1,
    database: Database | None = None,
) -> Verdict:
    """Run a plan against a new store and return what came of it.

    store_url: of an SQLite file, or of a database's own. database: its server, where it is to be disturbed;
    then aggregators reach it through a proxy. Raises AssertionError where something ends that should not, or
    does not come to rest.
    """
    return asyncio.run(_Chaos(folder, store_url, setting, seed, database).run(faults))


class _Chaos:
    def __init__(
        self, folder: Path, store_url: str, setting: Setting, seed: int, database: Database | None
    ) -> None:
        self._folder = folder
        self._url = store_url
        self._setting = setting
        self._rng = np.random.default_rng(seed)
        self._database = database
        self._done: Counter[str] = Counter()
        # One disturbance of a thing at a time, or who was killed and who was started gets mixed up.
        self._locks: dict[object, asyncio.Lock] = {}
        self._living: dict[str, asyncio.Task[None]] = {}

    async def run(self, faults: Sequence[Fault]) -> Verdict:
        start = time.monotonic()
        with Store(self._url) as store, MosquittoBroker(settings=self._setting.broker_settings) as broker:
            self._store, self._broker = store, broker
            self._prepare()
            self._proxies = {"boards": Proxy(broker.port), "aggregators": Proxy(broker.port)}
            if self._database is not None:
                self._proxies["database"] = Proxy(self._database.port)
            for proxy in self._proxies.values():
                await proxy.start()
            self._aggregators = [self._aggregator(i) for i in range(self._setting.aggregators)]
            try:
                for aggregator in self._aggregators:
                    aggregator.start()
                    await _until(lambda a=aggregator: a.ready, "ready", _READY_S)
                # A session that is not saved yet goes with a broker that is killed, and what it would get.
                await asyncio.sleep(_SAVED_S if any("kill broker" in f.kind for f in faults) else 0)
                boards = self._boards = self._make_boards()
                self._living = {name: asyncio.create_task(board.live()) for name, board in boards.items()}
                await self._disturb(faults)
                await self._come_to_rest()
            finally:
                for task in self._living.values():
                    task.cancel()
                for aggregator in self._aggregators:
                    aggregator.end(signal.SIGKILL)
                for proxy in self._proxies.values():
                    await proxy.close()
            verdict = judge(store, boards)
        return replace(verdict, faults=dict(self._done), seconds=round(time.monotonic() - start, 1))

    def _prepare(self) -> None:
        self._store.add_fleet(FLEET, keyed=True)
        for window in ("hour", "day"):
            asked = wire.experiment(name=f"by-{window}", window=window, budget={"rule": "unlimited"})
            self._store.add_experiment(FLEET, wire.payload_of(asked))

    def _aggregator(self, number: int) -> AggregatorProcess:
        options = list(self._setting.options)
        if self._setting.share is not None:
            options += ["--share", self._setting.share]
        url = self._url
        if self._database is not None:
            url = self._database.url(url.rpartition("/")[2], port=self._proxies["database"].port)
        port = self._proxies["aggregators"].port
        return AggregatorProcess(self._folder, url, port, f"aggregator-{number}", options)

    def _make_boards(self) -> dict[str, Board]:
        versions = self._store.experiments(FLEET)
        boards = {}
        for i in range(self._setting.boards):
            device, rng = f"board-{i}", self._rng.spawn(1)[0]
            version = versions[i % len(versions)]
            asked, key = version.experiment, keys.device_key(wire.MASTER, FLEET, device)
            if i % 5 == 0:
                client = wire.client(device, asked, key=key)
                source = Shipped(client, asked, rng)
            else:
                salt = int(rng.integers(1 << 32))
                source = Encoded(device, asked, key, lambda n, s=salt, c=asked.code_count: hash((s, n)) % c)
            boards[device] = Board(
                topics.report_topic(FLEET, device),
                self._proxies["boards"].port,
                source,
                rng,
                gap_s=self._setting.gap_s,
                hold_s=self._setting.hold_s,
            )
        return boards

    # Faults

    async def _disturb(self, faults: Sequence[Fault]) -> None:
        under_way = []
        for fault in faults:
            await asyncio.sleep(fault.after_s)
            under_way.append(asyncio.create_task(self._strike(fault)))
        await asyncio.gather(*under_way)

    async def _strike(self, fault: Fault) -> None:
        _, _, whom = fault.kind.partition(" ")
        if whom in ("aggregator", "aggregator as it commits"):
            await self._strike_aggregator(fault)
        elif whom == "aggregator as it starts":
            await self._strike_starting(fault)
        elif whom == "broker while connected":
            await self._strike_connected_broker(fault)
        elif whom == "broker":
            await self._end_and_start(self._broker, fault)
        elif fault.kind == "kill database":
            assert self._database is not None, "this run's store is a file"
            await self._end_and_start(self._database, fault)
        elif whom == "dies":
            self._living.pop(self._any(list(self._living))).cancel()
        else:
            await self._strike_connections(fault, self._proxies[whom.split()[-1]])
        self._done[fault.kind] += 1

    def _any(self, things: Sequence[_T]) -> _T:
        return things[int(self._rng.integers(len(things)))]

    def _lock(self, thing: object) -> asyncio.Lock:
        return self._locks.setdefault(thing, asyncio.Lock())

    async def _strike_aggregator(self, fault: Fault) -> None:
        aggregator = self._any(self._aggregators)
        async with self._lock(aggregator):
            if fault.kind.startswith("pause"):
                aggregator.signal(signal.SIGSTOP)
                await asyncio.sleep(fault.lasts_s)
                aggregator.signal(signal.SIGCONT)
                return
            # Mostly in its work; where kills come close together, also before it works.
            number = signal.SIGKILL if fault.kind.startswith("kill") else signal.SIGTERM
            if fault.kind != "kill aggregator" or self._rng.random() < 0.8:
                await _until(lambda: aggregator.ready, "ready", _READY_S)
                await asyncio.sleep(self._rng.uniform(0, 0.3))
            if fault.kind.endswith("commits"):
                await asyncio.to_thread(self._await_commit, self._rng.uniform(0, 0.004))
            await asyncio.to_thread(aggregator.end, number)
            await asyncio.sleep(fault.lasts_s)
            aggregator.start()

    def _await_commit(self, after_s: float) -> None:
        """Return after_s after something was written to SQLite's log: a commit is going on or just was."""
        log = Path(self._url.removeprefix("sqlite:///") + "-wal")
        before, end = log.stat(), time.monotonic() + _COMMIT_S
        while log.stat().st_mtime_ns == before.st_mtime_ns and time.monotonic() < end:
            time.sleep(0.0002)
        time.sleep(after_s)

    async def _strike_starting(self, fault: Fault) -> None:
        aggregator = self._any(self._aggregators)
        async with self._lock(aggregator):
            await asyncio.to_thread(aggregator.end, signal.SIGKILL)
            aggregator.start()
            await asyncio.sleep(fault.lasts_s)
            await asyncio.to_thread(aggregator.end, signal.SIGKILL)
            self._done["kill aggregator"] += 1
            aggregator.start()

    async def _end_and_start(self, server: MosquittoBroker | Database, fault: Fault) -> None:
        async with self._lock(server):
            if isinstance(server, MosquittoBroker) and fault.kind.startswith("stop"):
                await asyncio.to_thread(server.terminate)
            else:
                await asyncio.to_thread(server.kill)
            await asyncio.sleep(fault.lasts_s)
            end = time.monotonic() + _READY_S
            while True:
                try:
                    await asyncio.to_thread(server.start)
                    return
                except AssertionError:
                    # The children of a killed database server hold its shared memory until they notice.
                    if time.monotonic() > end:
                        raise
                    await asyncio.sleep(0.1)

    async def _strike_connected_broker(self, fault: Fault) -> None:
        """Kill the broker while all else works; what only an aggregator's memory holds needs a store, too."""
        things = [self._broker, *self._aggregators, self._proxies["aggregators"]]
        things += [self._database, self._proxies["database"]] if self._database is not None else []
        async with AsyncExitStack() as stack:
            for thing in things:
                await stack.enter_async_context(self._lock(thing))
            for aggregator in self._aggregators:
                await _until(lambda a=aggregator: a.ready, "ready", _READY_S)
            # The aggregators' sessions have been saved then, or nobody would keep what comes after the kill.
            await asyncio.sleep(_SAVED_S)
            for board in self._boards.values():
                board.gap_s *= _CALM
            await _until(self._caught_up, "caught up", _END_S)
            before = [aggregator.logged_bytes for aggregator in self._aggregators]
            await asyncio.to_thread(self._broker.kill)
            for board in self._boards.values():
                board.gap_s /= _CALM
            await asyncio.sleep(fault.lasts_s)
            await asyncio.to_thread(self._broker.start)
            for aggregator, logged in zip(self._aggregators, before, strict=True):
                await _until(lambda a=aggregator, n=logged: a.subscribed_since(n), "connected", _READY_S)

    def _caught_up(self) -> bool:
        """Whether aggregators hold all that is not counted yet, as they do when it fits their windows."""
        told = sum(len(board.told) for board in self._boards.values())
        return told - self._processed()[0] < _AHEAD

    async def _strike_connections(self, fault: Fault, proxy: Proxy) -> None:
        async with self._lock(proxy):
            if fault.kind.startswith("cut"):
                proxy.cut()
                return
            proxy.swallow("down", *(() if "answers" in fault.kind else ("up",)))
            await asyncio.sleep(fault.lasts_s)
            proxy.forward()

    # Rest

    async def _come_to_rest(self) -> None:
        """Wait until every living board has been told of all it made, and all that is queued is counted."""
        for aggregator in self._aggregators:
            await _until(lambda a=aggregator: a.ready, "ready", _READY_S)
        for name in self._living:
            self._boards[name].finish()
        async with asyncio.timeout(_END_S):
            await asyncio.gather(*self._living.values())
        told = sum(len(board.told) for board in self._boards.values())
        await self._until_quiet(told)
        # What is left now, if anything is: an aggregator that has just started waits for no connection.
        for aggregator in self._aggregators:
            await asyncio.to_thread(aggregator.end, signal.SIGTERM)
            aggregator.start()
            await _until(lambda a=aggregator: a.ready, "ready", _READY_S)
        await self._until_quiet(0)
        for aggregator in self._aggregators:
            await asyncio.to_thread(aggregator.end, signal.SIGTERM)
            assert not any(aggregator.exits), f"SIGTERM ended it with {aggregator.exits}"

    async def _until_quiet(self, wanted: int) -> None:
        """Wait until nothing is counted any more: for a while once so many are, and longer before."""
        before, since, end = (-1, -1), time.monotonic(), time.monotonic() + _END_S
        while time.monotonic() - since < (_QUIET_S if before[0] >= wanted else _RETRY_S):
            assert time.monotonic() < end, "the aggregators do not come to rest"
            await asyncio.sleep(0.1)
            now = self._processed()
            if now != before:
                before, since = now, time.monotonic()

    def _processed(self) -> tuple[int, int]:
        try:
            accepted = sum(p.reports for p in self._store.participation(FLEET).values())
            return accepted, sum(self._store.rejects().get(FLEET, {}).values())
        except StoreError:
            return -1, -1


async def _until(condition: Callable[[], bool], what: str, most_s: float) -> None:
    end = time.monotonic() + most_s
    while not condition():
        assert time.monotonic() < end, f"not {what} in {most_s:g} s"
        await asyncio.sleep(0.02)
