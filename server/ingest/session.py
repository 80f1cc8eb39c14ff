"""The session that the broker keeps for an aggregator: where it connects, as whom, what it asks for."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..errors import HushmoteError
from ..wire import topics
from .connection import BrokerConnection
from .status import Status


class BrokerRefused(HushmoteError):
    """The broker refuses the login or the subscription; the text says which."""


@dataclass(frozen=True)
class Session:
    """Where an aggregator connects, as whom, and what it asks for.

    login: user name and password, or None twice. others: (host, port) of further servers, any of which will
    do. group: Aggregator's share. The others are its as well.
    """

    host: str
    port: int
    client_id: str
    login: tuple[str | None, str | None] = field(default=(None, None), repr=False)
    tls: ssl.SSLContext | None = None
    fleets: Sequence[str] | None = None
    group: str | None = None
    retire: bool = False
    others: tuple[tuple[str, int], ...] = ()

    @property
    def broker(self) -> str:
        """The broker in words."""
        if self.others:
            return "the cluster at " + ",".join(f"{host}:{port}" for host, port in self.servers)
        return f"the broker at {self.host}:{self.port}"

    @property
    def servers(self) -> tuple[tuple[str, int], ...]:
        """(Host, port) of all servers."""
        return (self.host, self.port), *self.others

    @property
    def needs_mqtt_5(self) -> bool:
        """Whether MQTT 3.1.1 cannot do what is asked for."""
        return self.group is not None or self.retire

    def filters(self, group: str | None) -> list[str]:
        """The topic filters of the fleets' reports, for a group or for one aggregator alone."""
        return [topics.report_filter(name, group) for name in self.fleets or (None,)]

    def experiment_filters(self) -> list[str]:
        """The topic filters of the fleets' experiments."""
        return [topics.experiment_filter(name) for name in self.fleets or (None,)]


def warn_unseen(connection: BrokerConnection, broker: str, status: Status) -> None:
    """Say so where the broker does not show what is retained for boards."""
    if connection.watched is not None and connection.watched.is_failure:
        why = str(connection.watched).lower()
        status.say(
            logging.WARNING,
            f"{broker} shows no experiments ({why}): one that somebody clears stays so; let this user read "
            "them",
        )
