"""What the page is told when it starts."""

from __future__ import annotations

from dataclasses import dataclass

from ..server.planning.policy import Policy

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 9419


@dataclass(frozen=True)
class PageSettings:
    """Where the page listens and what it shows.

    store       URL of the store, which is only read
    host, port  where it listens
    fleet       the one fleet that is shown, or None for all
    aggregator  URL of the aggregator's HTTP endpoint, or None where nobody is to ask it
    policy      of the boards' firmware, for what they can still give, or None where nobody said it
    """

    store: str
    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    fleet: str | None = None
    aggregator: str | None = None
    policy: Policy | None = None
