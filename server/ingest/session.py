"""An aggregator's session at the broker: address, login and subscription."""

import logging
import ssl
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import HushmoteError
from ..wire import topics
from .broker_url import BrokerAddress
from .connection import BrokerConnection
from .status import Status


class BrokerRefused(HushmoteError):
    """Raised when the broker refuses the login or the subscription; the message says which one."""


@dataclass(frozen=True)
class Session:
    """An aggregator's or the door's address, client id and subscription.

    Attributes:
        address: The broker's address.
        client_id: The client id, which identifies the session.
        tls: How to check the broker; None for plain TCP.
        fleets: Names of the fleets to subscribe to; None for all.
        group: The group with which the aggregator shares reports; None without a group.
        retire: See Counting.
        has_log: Whether the experiments have proofs from a log, which are watched as well.
    """

    address: BrokerAddress
    client_id: str
    tls: ssl.SSLContext | None = None
    fleets: Sequence[str] | None = None
    group: str | None = None
    retire: bool = False
    has_log: bool = False

    @property
    def needs_mqtt_5(self) -> bool:
        """Whether the session needs more than MQTT 3.1.1."""
        return self.group is not None or self.retire

    def filters(self, group: str | None) -> list[str]:
        """Return the topic filters of the fleets' reports, for a group or for a single aggregator."""
        return [topics.report_filter(name, group) for name in self.fleets or (None,)]

    def announcement_filters(self) -> list[str]:
        """Return the topic filters of the fleets' experiments, and of their proofs if there is a log."""
        kinds = (topics.experiment_filter, *([topics.proof_filter] if self.has_log else []))
        return [kind(name) for kind in kinds for name in self.fleets or (None,)]


def warn_of_hidden_experiments(
    connection: BrokerConnection, session: Session, broker: str, status: Status
) -> None:
    """Log a warning if the broker does not let the user read the messages retained for devices."""
    if connection.watch_reason is not None and connection.watch_reason.is_failure:
        why = str(connection.watch_reason).lower()
        what = "experiments or their proofs" if session.has_log else "experiments"
        status.say(
            logging.WARNING,
            f"{broker} does not let this user read {what} ({why}), so cleared ones are not restored: "
            "allow it",
        )
