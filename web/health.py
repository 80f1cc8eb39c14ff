"""The aggregator's health: asked every few seconds, in a thread, once for all readers."""

import asyncio
from collections.abc import Callable

from ..server.overview.aggregator import AggregatorHealth, ask

_TURN_S = 2.0


class AskedAggregator:
    """The aggregator's health, asked again and again.

    Attributes:
        health: The last answer; None before the first, and if there is no URL to ask.
    """

    def __init__(self, url: str | None, changed: Callable[[], None]) -> None:
        self._url = url
        self._changed = changed
        self.health: AggregatorHealth | None = None

    @property
    def is_monitored(self) -> bool:
        """Whether there is a URL to ask."""
        return self._url is not None

    @property
    def problem(self) -> str:
        """The aggregator's problem in one sentence; "" if it is well or not monitored."""
        return "" if self.health is None else self.health.problem

    async def run(self) -> None:
        """Ask it until cancelled, and report every change."""
        while self._url is not None:
            health = await asyncio.to_thread(ask, self._url)
            if health != self.health:
                self.health = health
                self._changed()
            await asyncio.sleep(_TURN_S)
