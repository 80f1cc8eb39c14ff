"""Inject faults at random times, then check that the store counted each report exactly once.

A real mosquitto or NATS cluster, real `hushmote serve` processes on a store, and boards that publish
continuously. A plan is drawn from a seed; the exact moment a fault hits its target is random. After the last
fault everything runs undisturbed until it is idle, and the store is compared with the boards' records:

    confirmed  is a subset of  counted  is a subset of  published

with each report counted once and under its own code. If no board died, all three are equal.
"""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import boards as wire
import numpy as np
from chaos_boards import Board, Encoded, Proxy, Shipped
from chaos_nats import CONSUMER, ChaosNodes, keep_for_a_time
from chaos_plan import Fault, Setting, is_kill
from chaos_process import AggregatorProcess, until
from chaos_verdict import FLEET, Verdict, judge
from hasty_serve import HASTY
from postgres import Cluster, Pgbouncer
from running_aggregator import WAIT_S

from hushmote.server.store import Store, StoreError
from hushmote.server.wire import keys, topics
from hushmote.simulator.broker import MosquittoBroker
from hushmote.simulator.nats_servers import NatsServers

_T = TypeVar("_T")

_HASTE = "aggregator between acknowledging and committing"  # only hasty_serve.py can be caught at this point

_QUIET_S = 0.7
_COMMIT_S = 20.0
_AT_ONCE = 6  # concurrent faults
_RETRY_S = 25.0  # an aggregator that lost its broker may wait up to 15 s


def run(
    folder: Path,
    store_url: str,
    faults: Sequence[Fault],
    setting: Setting,
    *,
    seed: int = 1,
    database: Cluster | Pgbouncer | None = None,
) -> Verdict:
    """Run a plan against a new store and return the verdict.

    store_url: the URL of an SQLite file or of a database. database: the database server or pooler to
    disturb, if any; aggregators then connect through a proxy. Raises AssertionError if a process ends
    unexpectedly or the system does not become idle.
    """
    return asyncio.run(_Chaos(folder, store_url, setting, seed, database).run(faults))


class _Chaos:
    def __init__(
        self, folder: Path, store_url: str, setting: Setting, seed: int, database: Cluster | Pgbouncer | None
    ) -> None:
        self._folder = folder
        self._url = store_url
        self._setting = setting
        self._rng = np.random.default_rng(seed)
        self._database = database
        self._done: Counter[str] = Counter()
        self._unseen = 0
        self._nodes: ChaosNodes | None = None
        # One fault per target at a time, so that kills and restarts do not interleave.
        self._locks: dict[object, asyncio.Lock] = {}
        self._living: dict[str, asyncio.Task[None]] = {}

    async def run(self, faults: Sequence[Fault]) -> Verdict:
        start = time.monotonic()
        with Store(self._url) as store, self._setting.broker() as broker:
            self._store, self._broker = store, broker
            self._prepare()
            self._proxies = self._make_proxies(broker)
            for proxy in self._all_proxies():
                await proxy.start()
            self._aggregators = [self._aggregator(i) for i in range(self._setting.aggregators)]
            try:
                for aggregator in self._aggregators:
                    aggregator.start()
                await self._all_ready()
                if any("kill broker" in f.kind for f in faults):
                    await self._sessions_saved()
                boards = self._boards = self._make_boards()
                if isinstance(broker, NatsServers):
                    if self._setting.limits:
                        await keep_for_a_time(broker)
                    self._nodes = ChaosNodes(broker, self._rng.spawn(1)[0], self._told, self._setting.between)
                self._living = {name: asyncio.create_task(board.live()) for name, board in boards.items()}
                await self._disturb(faults)
                await until(lambda: self._told() >= self._setting.min_reports, "enough reports confirmed")
                await self._come_to_rest()
            finally:
                for task in self._living.values():
                    task.cancel()
                for aggregator in self._aggregators:
                    aggregator.end(signal.SIGKILL)
                for proxy in self._all_proxies():
                    await proxy.close()
            verdict = judge(store, boards)
            unanswered = sum(len(boards[name].published) - len(boards[name].told) for name in self._living)
        servers, held = (0, 0) if self._nodes is None else (self._nodes.killed, self._nodes.held)
        return replace(
            verdict,
            faults=dict(self._done),
            unseen=self._unseen,
            unanswered=unanswered,
            servers=servers,
            held=held,
            seconds=round(time.monotonic() - start, 1),
        )

    async def _all_ready(self) -> None:
        for aggregator in self._aggregators:
            await until(lambda a=aggregator: a.is_ready, "ready")

    @asynccontextmanager
    async def _hold(self, things: Sequence[object]) -> AsyncIterator[None]:
        """Lock these targets against other faults."""
        async with AsyncExitStack() as stack:
            for thing in things:
                await stack.enter_async_context(self._lock(thing))
            yield

    def _make_proxies(self, broker: MosquittoBroker | NatsServers) -> dict[str, list[Proxy]]:
        if isinstance(broker, NatsServers):
            hosts = [(broker.host_of(i), node) for i, node in enumerate(broker.nodes)]
            mqtt = [[Proxy(node.mqtt, host) for host, node in hosts] for _ in range(2)]
            proxies = {"boards": mqtt[0], "aggregators": [Proxy(n.nats, host) for host, n in hosts] + mqtt[1]}
        else:
            proxies = {"boards": [Proxy(broker.port)], "aggregators": [Proxy(broker.port)]}
        if self._database is not None:
            proxies["database"] = [Proxy(self._database.port)]
        return proxies

    def _all_proxies(self) -> Iterator[Proxy]:
        return (proxy for proxies in self._proxies.values() for proxy in proxies)

    def _prepare(self) -> None:
        self._store.add_fleet(FLEET, keyed=True)
        for window in ("hour", "day"):
            payload = wire.experiment(name=f"by-{window}", window=window, budget={"rule": "unlimited"})
            self._store.add_experiment(FLEET, wire.payload_of(payload))

    def _aggregator(self, number: int) -> AggregatorProcess:
        setting, ports = self._setting, [proxy.port for proxy in self._proxies["aggregators"]]
        # On NATS, aggregators with the same name share the reports; over MQTT each is a separate client.
        name = CONSUMER if setting.cluster else f"aggregator-{number}"
        names = {"HUSHMOTE_CLIENT_ID": name, "HUSHMOTE_SHARE": setting.share or ""}
        url, broker = self._url, f"mqtt://127.0.0.1:{ports[0]}"
        if self._database is not None:
            url = self._database.url(url.rpartition("/")[2], port=self._proxies["database"][0].port)
        if setting.cluster:
            nats = ",".join(f"127.0.0.1:{port}" for port in ports[:3])
            broker = f"nats://{nats}?mqtt={','.join(map(str, ports[3:]))}"
        log = self._folder / f"aggregator-{number}.log"
        return AggregatorProcess(log, url, broker, setting.options, setting.program, names)

    def _make_boards(self) -> dict[str, Board]:
        versions = self._store.experiments(FLEET)
        boards = {}
        for i in range(self._setting.boards):
            device, rng = f"board-{i}", self._rng.spawn(1)[0]
            version = versions[i % len(versions)]
            exp, key = version.experiment, keys.device_key(wire.MASTER, FLEET, device)
            if i % 5 == 0:
                client = wire.client(device, exp, key=key)
                source = Shipped(client, exp, rng)
            else:
                salt = int(rng.integers(1 << 32))
                source = Encoded(device, exp, key, lambda n, s=salt, c=exp.code_count: hash((s, n)) % c)
            boards[device] = Board(
                topics.report_topic(FLEET, device),
                [proxy.port for proxy in self._proxies["boards"]],
                source,
                rng,
                gap_s=self._setting.gap_s,
                in_flight=self._setting.in_flight,
                hold_s=self._setting.hold_s,
            )
        return boards

    # Faults

    async def _disturb(self, faults: Sequence[Fault]) -> None:
        slots = asyncio.Semaphore(_AT_ONCE)
        async with asyncio.TaskGroup() as under_way:
            for fault in faults:
                await asyncio.sleep(fault.after_s)
                while slots.locked():
                    await asyncio.sleep(0.02)
                under_way.create_task(self._strike(fault, slots))

    async def _strike(self, fault: Fault, slots: asyncio.Semaphore) -> None:
        async with slots:
            await self._strike_one(fault)
        self._done[fault.kind] += 1

    async def _strike_one(self, fault: Fault) -> None:
        _, _, whom = fault.kind.partition(" ")
        if whom in ("aggregator", "aggregator as it commits", _HASTE):
            await self._strike_aggregator(fault, whom)
        elif whom == "aggregator as it starts":
            await self._strike_starting(fault)
        elif whom == "broker while connected":
            await self._strike_connected_broker(fault)
        elif whom == "broker":
            assert isinstance(self._broker, MosquittoBroker)
            await self._end_and_start(self._broker, fault)
        elif fault.kind == "kill database":
            assert self._database is not None, "this run's store is a file"
            await self._end_and_start(self._database, fault)
        elif whom == "nodes with no aggregator":
            await self._strike_unseen(fault)
        elif self._nodes is not None and ChaosNodes.strikes(fault.kind):
            await self._nodes.strike(fault)
        elif whom == "dies":
            self._living.pop(self._any(list(self._living))).cancel()
        else:
            await self._strike_connections(fault, whom.split()[-1])

    def _any(self, things: Sequence[_T]) -> _T:
        return things[int(self._rng.integers(len(things)))]

    def _lock(self, thing: object) -> asyncio.Lock:
        return self._locks.setdefault(thing, asyncio.Lock())

    async def _strike_aggregator(self, fault: Fault, whom: str) -> None:
        aggregator = self._any(self._aggregators)
        async with self._lock(aggregator):
            if fault.kind.startswith("pause"):
                aggregator.signal(signal.SIGSTOP)
                await asyncio.sleep(fault.lasts_s)
                aggregator.signal(signal.SIGCONT)
                return
            # Usually while it is working; kills in quick succession also hit it while it starts.
            number = signal.SIGKILL if is_kill(fault.kind) else signal.SIGTERM
            if fault.kind != "kill aggregator" or self._rng.random() < 0.8:
                await until(lambda: aggregator.is_ready, "ready")
                await asyncio.sleep(self._rng.uniform(0, 0.3))
            if fault.kind.endswith("commits"):
                await asyncio.to_thread(self._await_commit, self._rng.uniform(0, 0.004))
            elif whom == _HASTE:
                await until(lambda: aggregator.has_logged(HASTY), "hasty")
            await asyncio.to_thread(aggregator.end, number)
            await asyncio.sleep(fault.lasts_s)
            aggregator.start()

    def _await_commit(self, after_s: float) -> None:
        """Wait after_s seconds after a write to SQLite's log, until a commit is in progress or just done."""
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

    async def _end_and_start(self, server: MosquittoBroker | Cluster | Pgbouncer, fault: Fault) -> None:
        async with self._lock(server):
            if isinstance(server, MosquittoBroker) and fault.kind.startswith("stop"):
                await asyncio.to_thread(server.terminate)
            else:
                await asyncio.to_thread(server.kill)
            await asyncio.sleep(fault.lasts_s)
            end = time.monotonic() + WAIT_S
            while True:
                try:
                    await asyncio.to_thread(server.start)
                    return
                except AssertionError:
                    # A killed database server's children hold its shared memory until they notice.
                    if time.monotonic() > end:
                        raise
                    await asyncio.sleep(0.1)

    async def _strike_connected_broker(self, fault: Fault) -> None:
        """Kill the broker while everything else works and every confirmed report is counted."""
        assert isinstance(self._broker, MosquittoBroker)
        things = [self._broker, *self._aggregators, "aggregators"]
        things += [self._database, "database"] if self._database is not None else []
        async with self._hold(things):
            await self._all_ready()
            await self._sessions_saved()
            self._pause(True)
            await until(self._caught_up, "caught up")
            before = [aggregator.logged_bytes for aggregator in self._aggregators]
            await asyncio.to_thread(self._broker.kill)
            self._pause(False)
            await asyncio.sleep(fault.lasts_s)
            await asyncio.to_thread(self._broker.start)
            for aggregator, logged in zip(self._aggregators, before, strict=True):
                await until(lambda a=aggregator, n=logged: a.has_subscribed_since(n), "connected")

    async def _sessions_saved(self) -> None:
        """Wait for a save that begins after this call, since a killed broker loses unsaved sessions."""
        broker = self._broker
        assert isinstance(broker, MosquittoBroker)
        for _ in range(2):  # the first may have begun before the call
            before = broker.saved_ns
            await until(lambda since=before: broker.saved_ns > since, "saved")

    def _pause(self, paused: bool) -> None:
        for board in self._boards.values():
            board.paused = paused

    def _caught_up(self) -> bool:
        """Return whether the paused boards are idle and every confirmed report is counted."""
        if (
            any(self._boards[name].has_unconfirmed_reports for name in self._living)
            or self._processed()[0] < self._told()
        ):
            return False
        return not judge(self._store, self._boards).lost

    async def _strike_unseen(self, fault: Fault) -> None:
        """Kill all aggregators, and then servers once reports that no aggregator received are confirmed."""
        async with self._hold(self._aggregators):
            for aggregator in self._aggregators:
                await asyncio.to_thread(aggregator.end, signal.SIGKILL)
                self._done["kill aggregator"] += 1
            before, wanted = self._told(), int(self._rng.integers(1, self._setting.between // 2))
            await until(lambda: self._told() >= before + wanted, "confirming any report")
            self._unseen += self._told() - before
            assert self._nodes is not None
            await self._nodes.kill_some(fault.lasts_s)
            for aggregator in self._aggregators:
                aggregator.start()

    async def _strike_connections(self, fault: Fault, whose: str) -> None:
        proxies = self._proxies[whose]
        async with self._lock(whose), asyncio.timeout(WAIT_S):
            if fault.kind.startswith("cut"):
                for proxy in proxies:
                    proxy.cut()
                return
            answers = "answers" in fault.kind
            before = sum(proxy.swallowed for proxy in proxies)
            # No client gets an answer while the broker is down, so repeat until received reports are resent.
            while True:
                for proxy in proxies:
                    proxy.swallow("down", *(() if answers else ("up",)))
                await asyncio.sleep(fault.lasts_s + 0.2 * answers)
                for proxy in proxies:
                    proxy.forward()
                if not answers or sum(proxy.swallowed for proxy in proxies) > before:
                    return
                await asyncio.sleep(0.2)

    def _told(self) -> int:
        return sum(len(board.told) for board in self._boards.values())

    # Waiting until idle

    async def _come_to_rest(self) -> None:
        """Wait until every living board's reports are confirmed and every queued report is counted."""
        await self._all_ready()
        for name in self._living:
            self._boards[name].finish()
        async with asyncio.timeout(WAIT_S):
            await asyncio.gather(*self._living.values())
        await self._until_quiet(self._told())
        # Check for remaining reports; a newly started aggregator has no connection yet.
        for aggregator in self._aggregators:
            await asyncio.to_thread(aggregator.end, signal.SIGTERM)
            aggregator.start()
            await until(lambda a=aggregator: a.is_ready, "ready")
        await self._until_quiet(0)
        for aggregator in self._aggregators:
            await asyncio.to_thread(aggregator.end, signal.SIGTERM)
            assert not any(aggregator.exits), f"SIGTERM ended it with {aggregator.exits}"

    async def _until_quiet(self, wanted: int) -> None:
        """Wait until the count stops rising; the wait is short once `wanted` reports are counted.

        NATS servers report the number of remaining messages, so they need no wait.
        """
        before, since, end = (-1, -1), time.monotonic(), time.monotonic() + WAIT_S
        while (idle := time.monotonic() - since) < (_QUIET_S if before[0] >= wanted else _RETRY_S):
            if self._nodes is not None and idle > _QUIET_S:
                if await self._nodes.unprocessed_reports() == 0:
                    return
                since = time.monotonic()
            assert time.monotonic() < end, "the aggregators did not become idle"
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
