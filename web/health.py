"""The aggregator as the page sees it: asked every few seconds, in a thread, once for all readers."""

import asyncio
from collections.abc import Callable

from ..server.overview.aggregator import AggregatorHealth, ask

_TURN_S = 2.0


class AskedAggregator:
    """health: what it said last; None before the first answer, and where nobody is to ask it (url None)."""

    def __init__(self, url: str | None, changed: Callable[[], None]) -> None:
        self._url = url
        self._changed = changed
        self.health: AggregatorHealth | None = None

    @property
    def is_monitored(self) -> bool:
        """Whether anybody is to ask it."""
        return self._url is not None

    @property
    def trouble(self) -> str:
        """Why it is not well, one sentence; empty where it is, or is not asked."""
        return "" if self.health is None else self.health.problem

    async def run(self) -> None:
        """Ask it until cancelled, and tell of every change."""
        while self._url is not None:
            health = await asyncio.to_thread(ask, self._url)
            if health != self.health:
                self.health = health
                self._changed()
            await asyncio.sleep(_TURN_S)
