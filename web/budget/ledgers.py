"""The page's ledgers of fleets, which all readers share; a ledger that is slow to read is read less often."""

import asyncio
import datetime
from collections import defaultdict
from dataclasses import dataclass

from ...server.answers.store_reader import StoreReader
from ...server.budgets import remaining
from ...server.budgets.policy import Policy
from ..live import LiveStore
from .answer import FleetBudgets, fleet_budgets

_PAUSE_FACTOR = 10  # pause before a ledger is read again, as a multiple of the time that reading it took
_MIN_PAUSE_S = 0.3


@dataclass(frozen=True)
class CachedBudgets:
    """A fleet's budgets, and the store version and day that they are from.

    Attributes:
        due_s: The event loop's time at which the ledger may be read again.
    """

    budget: FleetBudgets
    version: int
    day: datetime.date
    due_s: float


class Ledgers:
    """Ledgers shared by all readers; `policy` is the firmware's policy, or None if it is unknown."""

    def __init__(self, live: LiveStore, policy: Policy | None) -> None:
        self._live = live
        self._policy = policy
        self._cache: dict[str, CachedBudgets] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def read(self, fleet: str) -> CachedBudgets:
        """Return the fleet's budgets, which may be slightly outdated.

        Raises:
            StoreError, VersionRefused: If the store cannot be read.
        """
        async with self._locks[fleet]:
            now_s, day = asyncio.get_running_loop().time(), datetime.datetime.now(datetime.UTC).date()
            previous, version = self._cache.get(fleet), self._live.version
            if (
                previous is not None
                and previous.day == day
                and (previous.version == version or now_s < previous.due_s)
            ):
                return previous

            def compute(reader: StoreReader) -> FleetBudgets:
                # What is left of the policy is unknown if one of the experiments that share it is.
                is_complete = self._policy is None or not reader.store.readable_experiments(fleet)[1]
                policy = self._policy if is_complete else None
                return fleet_budgets(remaining.read(reader.store, fleet, day, policy), day)

            budget = await self._live.ask(("budget", fleet, day), compute, slow=True)
            end_s = asyncio.get_running_loop().time()
            pause_s = max(_PAUSE_FACTOR * (end_s - now_s), _MIN_PAUSE_S)
            self._cache[fleet] = CachedBudgets(budget, version, day, end_s + pause_s)
            return self._cache[fleet]
