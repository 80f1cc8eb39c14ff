"""The session that the broker keeps for an aggregator: where it connects, as whom, what it asks for."""

import logging
import ssl
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import HushmoteError
from ..wire import topics
from .broker_url import BrokerAddress
from .connection import BrokerConnection
from .link import Login
from .status import Status


class BrokerRefused(HushmoteError):
    """The broker refuses the login or the subscription; the text says which one."""


@dataclass(frozen=True)
class Session:
    """Where an aggregator or the door connects, as whom, and what it asks for.

    group: the Aggregator's share, which also has tls, fleets and retire.
    """

    address: BrokerAddress
    client_id: str
    tls: ssl.SSLContext | None = None
    fleets: Sequence[str] | None = None
    group: str | None = None
    retire: bool = False

    @property
    def login(self) -> Login:
        """User name and password, or None twice."""
        return self.address.username, self.address.password

    @property
    def needs_mqtt_5(self) -> bool:
        """Whether the request needs more than MQTT 3.1.1."""
        return self.group is not None or self.retire

    def filters(self, group: str | None) -> list[str]:
        """Return the topic filters of the fleets' reports, for a group or for one aggregator alone."""
        return [topics.report_filter(name, group) for name in self.fleets or (None,)]

    def experiment_filters(self) -> list[str]:
        """Return the topic filters of the fleets' experiments."""
        return [topics.experiment_filter(name) for name in self.fleets or (None,)]


def warn_unseen(connection: BrokerConnection, broker: str, status: Status) -> None:
    """Log it if the broker does not show what is retained for devices."""
    if connection.watched is not None and connection.watched.is_failure:
        why = str(connection.watched).lower()
        status.say(
            logging.WARNING,
            f"{broker} shows no experiments ({why}): what somebody clears stays cleared; let this user read "
            "them",
        )
