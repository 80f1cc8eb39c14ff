"""The session that the broker keeps for an aggregator: address, login and subscription."""

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
    """Raised when the broker refuses the login or the subscription; the text says which one."""


@dataclass(frozen=True)
class Session:
    """The address, client id and subscription of an aggregator or the door.

    Attributes:
        address: The broker's address.
        client_id: Names the session.
        tls: How to check the broker; None for plain TCP.
        fleets: Names to subscribe to; None for all.
        group: The Aggregator's share; None for none.
        retire: As in Counting.
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
        """Whether the session needs more than MQTT 3.1.1."""
        return self.group is not None or self.retire

    def filters(self, group: str | None) -> list[str]:
        """Return the topic filters of the fleets' reports, for a group or for one aggregator alone."""
        return [topics.report_filter(name, group) for name in self.fleets or (None,)]

    def experiment_filters(self) -> list[str]:
        """Return the topic filters of the fleets' experiments."""
        return [topics.experiment_filter(name) for name in self.fleets or (None,)]


def warn_of_hidden_experiments(connection: BrokerConnection, broker: str, status: Status) -> None:
    """Log a warning if the broker does not let the user read what is retained for devices."""
    if connection.watch_reason is not None and connection.watch_reason.is_failure:
        why = str(connection.watch_reason).lower()
        status.say(
            logging.WARNING,
            f"{broker} does not let this user read experiments ({why}), so cleared ones are not restored: "
            "grant it",
        )
