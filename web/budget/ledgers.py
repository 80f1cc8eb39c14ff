"""Fleets' ledgers for the page: read once for all readers, and less often if reading is slow."""

import asyncio
import datetime
from collections import defaultdict
from dataclasses import dataclass

from ...server.answers.store_reader import StoreReader
from ...server.budgets import remaining
from ...server.budgets.policy import Policy
from ..live import LiveStore
from .answer import FleetBudgets, fleet_budgets

_REST = 10  # a ledger is shown for this many times its reading time before it is read again
_LEAST_REST_S = 0.3


@dataclass(frozen=True)
class Read:
    """A ledger and its store version; due_s is the event loop's time from which it may be read again."""

    budget: FleetBudgets
    version: int
    day: datetime.date
    due_s: float


class Ledgers:
    """Ledgers shared by all readers of the Budget view; `policy` is the boards' firmware's, or None."""

    def __init__(self, live: LiveStore, policy: Policy | None) -> None:
        self._live = live
        self._policy = policy
        self._read: dict[str, Read] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def read(self, fleet: str) -> Read:
        """Return the fleet's ledger, current or slightly older.

        Raises:
            StoreError, VersionRefused: If the store cannot be read.
        """
        async with self._locks[fleet]:
            now_s, day = asyncio.get_running_loop().time(), datetime.datetime.now(datetime.UTC).date()
            previous, version = self._read.get(fleet), self._live.version
            if (
                previous is not None
                and previous.day == day
                and (previous.version == version or now_s < previous.due_s)
            ):
                return previous

            def work(reader: StoreReader) -> FleetBudgets:
                return fleet_budgets(remaining.read(reader.store, fleet, day, self._policy), day)

            budget = await self._live.ask(("budget", fleet, day), work, slow=True)
            end_s = asyncio.get_running_loop().time()
            rest_s = max(_REST * (end_s - now_s), _LEAST_REST_S)
            self._read[fleet] = Read(budget, version, day, end_s + rest_s)
            return self._read[fleet]
