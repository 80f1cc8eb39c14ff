"""Fleets' ledgers as the page shows them: read once for all readers, and seldom where reading takes long."""

import asyncio
import datetime
from collections import defaultdict
from dataclasses import dataclass

from ...server.answers.store_reader import StoreReader
from ...server.budgets import remaining
from ...server.budgets.policy import Policy
from ..live import LiveStore
from .answer import FleetSupply, fleet_supply

_REST = 10  # times as long as reading took, a ledger is shown before it is read again
_LEAST_REST_S = 0.3


@dataclass(frozen=True)
class Read:
    """A ledger that was read at a version of the store; due_s: when it may be read again, the loop's time."""

    budget: FleetSupply
    version: int
    day: datetime.date
    due_s: float


class Ledgers:
    """What all readers of the Budget view share. policy: of the boards' firmware, None where nobody said."""

    def __init__(self, live: LiveStore, policy: Policy | None) -> None:
        self._live = live
        self._policy = policy
        self._read: dict[str, Read] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def read(self, fleet: str) -> Read:
        """The fleet's ledger, of now or of a little while ago. Raises StoreError, VersionRefused."""
        async with self._locks[fleet]:
            now_s, day = asyncio.get_running_loop().time(), datetime.datetime.now(datetime.UTC).date()
            previous, version = self._read.get(fleet), self._live.version
            if (
                previous is not None
                and previous.day == day
                and (previous.version == version or now_s < previous.due_s)
            ):
                return previous

            def work(reader: StoreReader) -> FleetSupply:
                return fleet_supply(remaining.read(reader.store, fleet, day, self._policy), day)

            budget = await self._live.ask(("budget", fleet, day), work, slow=True)
            end_s = asyncio.get_running_loop().time()
            rest_s = max(_REST * (end_s - now_s), _LEAST_REST_S)
            self._read[fleet] = Read(budget, version, day, end_s + rest_s)
            return self._read[fleet]
