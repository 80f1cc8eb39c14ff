"""Faults for a NATS cluster's servers: kill, stop, pause, wipe, isolate, fill the disk, cut the power."""

import asyncio
import os
import shutil
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack

import nats
import nats.errors
import numpy as np
from chaos_plan import Fault
from chaos_process import until
from nats.js.api import RetentionPolicy
from nats_sites import SiteServers
from running_aggregator import WAIT_S

from hushmote.server.wire.subjects import STREAM
from hushmote.simulator.nats_servers import NatsServers

CONSUMER = "aggregator"
_COUNTS = {"node": 1, "two nodes": 2, "all nodes": 3}
_FULL_S = 3.0  # time for a server to notice that its disk is full


async def keep_for_a_time(servers: NatsServers) -> None:
    """Configure the servers to keep each message for a week instead of until every consumer has seen it."""
    async with await nats.connect(_urls(servers)) as client:
        config = (await client.jsm().stream_info(STREAM)).config
        week = config.evolve(retention=RetentionPolicy.LIMITS, max_age=7 * 86_400.0)
        await client.jsm().update_stream(week)


def _urls(servers: NatsServers) -> list[str]:
    return [f"nats://{servers.host_of(i)}:{node.nats}" for i, node in enumerate(servers.nodes)]


class ChaosNodes:
    """Injects faults into the servers.

    told: returns the number of reports confirmed to boards so far. between: see Setting. killed: the number
    of processes killed with SIGKILL. held: the number of messages in the stream at the last query.
    """

    def __init__(
        self, servers: NatsServers, rng: np.random.Generator, told: Callable[[], int], between: int
    ) -> None:
        self._servers = servers
        self._rng = rng
        self._told = told
        self._between = between
        self._told_before = 0
        self.killed = 0
        self.held = 0
        # One fault per server at a time; several servers are locked in the order of their numbers.
        self._locks = [asyncio.Lock() for _ in servers.nodes]

    @staticmethod
    def strikes(kind: str) -> bool:
        """Return whether this kind of fault applies to servers."""
        return kind.partition(" ")[2] in _COUNTS

    async def strike(self, fault: Fault) -> None:
        """Inject the fault for its duration, then recover."""
        verb, _, whom = fault.kind.partition(" ")
        count = _COUNTS[whom]
        numbers = [int(n) for n in self._rng.permutation(len(self._servers.nodes))[:count]]
        # The other two must have the data that a wiped server loses, and all must know which server is
        # isolated.
        locked = range(len(self._locks)) if verb in ("wipe", "cut", "fill") else sorted(numbers)
        async with AsyncExitStack() as stack:
            for number in locked:
                await stack.enter_async_context(self._locks[number])
            if self._rng.random() < 0.8:
                wanted = self._told_before + int(self._rng.integers(1, self._between))
                await until(lambda: self._told() >= wanted, "confirming any report")
            self._told_before = self._told()
            disturb = {
                "kill": self.kill,
                "stop": self._stop,
                "pause": self._pause,
                "wipe": self._wipe,
                "cut": self._cut,
                "fill": self._fill,
                "unplug": self._unplug,
            }
            await disturb[verb](numbers, fault.lasts_s)

    @property
    def _sites(self) -> SiteServers:
        assert isinstance(self._servers, SiteServers), "these servers share one network and disk"
        return self._servers

    async def kill_some(self, lasts_s: float) -> None:
        """Kill one, two or all servers with SIGKILL, and restart them."""
        numbers = [int(n) for n in self._rng.permutation(len(self._locks))[: self._rng.integers(1, 4)]]
        async with AsyncExitStack() as stack:
            for number in sorted(numbers):
                await stack.enter_async_context(self._locks[number])
            await self.kill(numbers, lasts_s)

    async def kill(self, numbers: list[int], lasts_s: float) -> None:
        """Kill these servers simultaneously with SIGKILL, and restart them."""
        await asyncio.to_thread(self._servers.kill, *numbers)
        self.killed += len(numbers)
        await self._start(numbers, lasts_s)

    async def unprocessed_reports(self) -> int | None:
        """Return the number of reports the aggregators' consumer has yet to acknowledge, or None if unknown.

        A server that leads a consumer while still catching up may report 0.
        """
        for number in range(len(self._locks)):
            if not await asyncio.to_thread(self._servers.healthy, number):
                return None
        try:
            async with await nats.connect(_urls(self._servers), max_reconnect_attempts=1) as client:
                info = await client.jsm().consumer_info(STREAM, CONSUMER)
                self.held = (await client.jsm().stream_info(STREAM)).state.messages
        except (nats.errors.Error, OSError):
            return None
        # After a power cut a consumer may wait for messages that the stream has lost.
        return min((info.num_pending or 0) + (info.num_ack_pending or 0), self.held)

    async def all_healthy(self) -> None:
        """Wait until every server reports that its streams are up to date."""
        for number in range(len(self._locks)):
            async with asyncio.timeout(WAIT_S):
                while not await asyncio.to_thread(self._servers.healthy, number):
                    await asyncio.sleep(0.1)

    async def _start(self, numbers: list[int], lasts_s: float) -> None:
        await asyncio.sleep(lasts_s)
        for number in numbers:
            self._servers.start_node(number)
        # The next fault often hits servers that have not caught up yet.
        if self._rng.random() < 0.5:
            await asyncio.sleep(self._rng.uniform(0, 1))

    async def _stop(self, numbers: list[int], lasts_s: float) -> None:
        await asyncio.to_thread(self._servers.terminate, *numbers)
        await self._start(numbers, lasts_s)

    async def _pause(self, numbers: list[int], lasts_s: float) -> None:
        pids = [pid for n in numbers if (pid := self._servers.pid(n)) is not None]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(lasts_s)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)

    async def _wipe(self, numbers: list[int], lasts_s: float) -> None:
        await self.all_healthy()
        await asyncio.to_thread(self._servers.kill, *numbers)
        self.killed += len(numbers)
        for number in numbers:
            shutil.rmtree(self._servers.store(number))
        await self._start(numbers, lasts_s)
        await self.all_healthy()

    async def _cut(self, numbers: list[int], lasts_s: float) -> None:
        self._sites.cut(*numbers)
        try:
            # Must outlast an election, or the fault goes unnoticed.
            await asyncio.sleep(lasts_s + self._rng.uniform(0, 15))
        finally:
            self._sites.heal()

    async def _unplug(self, numbers: list[int], lasts_s: float) -> None:
        await asyncio.to_thread(self._sites.cut_power, *numbers)
        self.killed += len(numbers)
        await self._start(numbers, lasts_s)

    async def _fill(self, numbers: list[int], lasts_s: float) -> None:
        await asyncio.to_thread(self._sites.fill, *numbers)
        await asyncio.sleep(lasts_s + _FULL_S)
        self._sites.free(*numbers)
        # After a full disk, a server disables JetStream until it is restarted.
        await asyncio.to_thread(self._servers.terminate, *numbers)
        await self._start(numbers, 0)
