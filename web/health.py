"""The aggregator's health, which one thread polls every few seconds for all readers."""

import asyncio
from collections.abc import Callable

from ..server.overview.aggregator import AggregatorHealth, ask

_INTERVAL_S = 2.0


class MonitoredAggregator:
    """An aggregator whose health is polled.

    Attributes:
        health: The last answer; None before the first answer or without a URL.
    """

    def __init__(self, url: str | None, on_change: Callable[[], None]) -> None:
        self._url = url
        self._on_change = on_change
        self.health: AggregatorHealth | None = None

    @property
    def is_monitored(self) -> bool:
        """Whether the aggregator has a URL to poll."""
        return self._url is not None

    @property
    def problem(self) -> str:
        """The aggregator's problem in one sentence; "" if it is well or not monitored."""
        return "" if self.health is None else self.health.problem

    async def run(self) -> None:
        """Poll the aggregator until cancelled, and call on_change() after every change."""
        while self._url is not None:
            health = await asyncio.to_thread(ask, self._url)
            if health != self.health:
                self.health = health
                self._on_change()
            await asyncio.sleep(_INTERVAL_S)
