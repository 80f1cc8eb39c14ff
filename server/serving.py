"""The aggregator as a process: its log on standard error, SIGTERM and Ctrl-C as a clean end."""

from __future__ import annotations

import logging
import signal
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote, urlsplit

from .aggregator import Aggregator
from .store import Store

log = logging.getLogger(__name__)

READY = "ready"  # the line on standard output that tells a parent process: subscribed, experiments published


class BrokerUrlError(ValueError):
    """A broker's URL that cannot be read; the text says how it is written."""


@dataclass(frozen=True)
class BrokerAddress:
    """Where a broker listens, and the login it wants."""

    host: str
    port: int = 1883
    username: str | None = None
    password: str | None = None


def parse_broker_url(url: str) -> BrokerAddress:
    """Return the address in mqtt://[user:password@]host[:port]; raises BrokerUrlError."""
    try:
        parts = urlsplit(url)
        port = parts.port or 1883
    except ValueError:
        parts, port = urlsplit(""), 0
    if parts.scheme != "mqtt" or not parts.hostname or parts.path not in ("", "/") or parts.query:
        # Without the URL itself: it may hold a password.
        raise BrokerUrlError("a broker is written mqtt://[user:password@]host[:port]")
    username = None if parts.username is None else unquote(parts.username)
    password = None if parts.password is None else unquote(parts.password)
    return BrokerAddress(parts.hostname, port, username, password)


def serve(
    store: Store,
    broker: BrokerAddress,
    master: bytes | None,
    *,
    protocol: Literal["auto", "5", "3.1.1"],
    batch_reports: int,
    batch_s: float,
    client_id: str,
) -> None:
    """Run an aggregator until SIGTERM or SIGINT; raises what Aggregator.run() does."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    aggregator = Aggregator(
        store,
        broker.host,
        broker.port,
        username=broker.username,
        password=broker.password,
        master=master,
        client_id=client_id,
        protocol=protocol,
        batch_reports=batch_reports,
        batch_s=batch_s,
        on_ready=lambda: print(READY, flush=True),
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: aggregator.stop())
    aggregator.run()
    counters = aggregator.counters
    rejected = ", ".join(f"{reason} {count}" for reason, count in sorted(counters.rejected.items()))
    log.info("stopped: %d reports accepted; rejected: %s", counters.accepted, rejected or "none")
