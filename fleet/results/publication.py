"""What is asked of a publisher, and what a scrape shows of it: light, because the aggregator loads it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...server.errors import UsageError

AGAIN_S = 600
"""How often a result is published again although nothing changed: whoever reads it knows that it is alive."""

DISCOVERY_PREFIX = "homeassistant"
"""Home Assistant's own."""

_MISSED = 3  # results that may fail to come before a sensor is unavailable
_PREFIX = re.compile(r"[A-Za-z0-9_-]{1,32}", re.ASCII)


@dataclass(frozen=True)
class Publication:
    """What `hushmote serve` was asked to publish.

    live_s: also inside running windows, every so many seconds; None for ended windows only. newest: over so
    many of the newest windows, None for all. home_assistant: its discovery prefix, None for no discovery.
    Raises UsageError for a prefix that is not one level of a topic.
    """

    live_s: float | None = None
    newest: int | None = None
    home_assistant: str | None = None

    def __post_init__(self) -> None:
        if self.home_assistant is not None and _PREFIX.fullmatch(self.home_assistant) is None:
            raise UsageError("HUSHMOTE_DISCOVERY_PREFIX must be 1 to 32 of letters, digits, _ and -")

    @property
    def expire_s(self) -> int:
        """Seconds without a result after which a sensor is unavailable."""
        return int(_MISSED * max(AGAIN_S, self.live_s or 0))


class Gauge(NamedTuple):
    """A number with its labels, name -> text."""

    name: str
    labels: dict[str, str]
    value: float


class Scrape(NamedTuple):
    """What a scrape shows: gauges, the unix time of their look, whether the last look failed."""

    gauges: Sequence[Gauge] = ()
    updated_at: float | None = None
    failing: bool = False
