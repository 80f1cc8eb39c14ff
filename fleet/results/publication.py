"""Settings and gauges of a publisher, without heavy imports because the aggregator loads this module."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...server.errors import UsageError

REPUBLISH_S = 600
"""The interval at which an unchanged result is published again, to show that the publisher is alive."""

DISCOVERY_PREFIX = "homeassistant"
"""Home Assistant's default."""

_MISSED = 3  # missing results until a sensor is unavailable
_PREFIX = re.compile(r"[A-Za-z0-9_-]{1,32}", re.ASCII)


@dataclass(frozen=True)
class Publication:
    """The selection of results that `hushmote serve` publishes.

    Args:
        live_s: Also publish during running windows, at this interval; None for ended windows only.
        newest: The number of newest windows to include; None for all.
        home_assistant: Home Assistant's discovery prefix; None for no discovery.
        topic_prefix: The topic prefix in the broker's address, for the topics that sensors read.

    Raises:
        UsageError: If the prefix is not a single topic level.
    """

    live_s: float | None = None
    newest: int | None = None
    home_assistant: str | None = None
    topic_prefix: str = ""

    def __post_init__(self) -> None:
        if self.home_assistant is not None and _PREFIX.fullmatch(self.home_assistant) is None:
            raise UsageError("HUSHMOTE_DISCOVERY_PREFIX must be 1 to 32 of letters, digits, _ and -")

    @property
    def expire_s(self) -> int:
        """Seconds without a result after which a sensor is unavailable."""
        return int(_MISSED * max(REPUBLISH_S, self.live_s or 0))


class Gauge(NamedTuple):
    """A number with its labels, name -> text."""

    name: str
    labels: dict[str, str]
    value: float


class Scrape(NamedTuple):
    """The gauges of a scrape, the unix time of the last update, and whether the newest update failed."""

    gauges: Sequence[Gauge] = ()
    updated_at: float | None = None
    failing: bool = False
