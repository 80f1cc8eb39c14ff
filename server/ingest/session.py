"""The session that the broker keeps for an aggregator: how it is subscribed, and how it is ended."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..errors import HushmoteError
from ..wire import topics
from .connection import BrokerConnection
from .status import Status

_QUIET_S = 3.0  # a broker that has more for a session sends it before this
_NO_SUBSCRIPTION = 17  # of UNSUBACK


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


class Subscription:
    """Subscribes a session, and never ends it."""

    def __init__(self, session: Session, status: Status) -> None:
        self._session = session
        self._status = status
        self._filters = session.filters(session.group)

    def open(self, connection: BrokerConnection, _now: float) -> None:
        """Ask for the reports, on a connection that the broker has accepted."""
        if self._session.group is not None:
            # Left by a time without the group: all reports would come here as well as this one's part.
            connection.unsubscribe(self._session.filters(None))
        # First, so that what is retained has come when the reports' subscription is granted.
        connection.watch(self._session.experiment_filters())
        connection.subscribe(self._filters)

    def granted(self, connection: BrokerConnection) -> None:
        """Say that the broker has granted it; raises BrokerRefused where it has not."""
        if connection.granted is not None and connection.granted.is_failure:
            why = str(connection.granted).lower()
            # NATS servers that `hushmote provision` told grant an aggregator none over MQTT.
            raise BrokerRefused(
                f"{self._session.broker} refuses the subscription: {why}; if it is a NATS server, write "
                "it as tls:// or nats://"
            )
        # Without the group's name: who knows it, and may subscribe, could take reports out of it.
        where = f"{self._session.host}:{self._session.port} with MQTT {connection.protocol}"
        shared = "" if self._session.group is None else ", sharing the reports with others"
        self._status.say(logging.INFO, f"subscribed at {where}{shared}")
        warn_unseen(connection, self._session.broker, self._status)

    def holds_messages(self, now: float) -> None:
        """Note that messages have come which are not committed yet."""

    def is_over(self, _connection: BrokerConnection, _now: float) -> bool:
        """Whether the session is to be ended: never."""
        return False


class Retirement(Subscription):
    """Ends a session's subscription, so that what is published from now on goes to others, and drains it."""

    _quiet_until = 0.0

    def open(self, connection: BrokerConnection, now: float) -> None:
        """Unsubscribe for good; raises BrokerRefused where the broker keeps no such session."""
        name, broker = self._session.client_id, self._session.broker
        if not connection.session_present:
            raise BrokerRefused(
                f"{broker} keeps nothing for a client with the id {name}: "
                "it was retired before, or the id is another"
            )
        self._quiet_until = now + _QUIET_S
        self._status.say(logging.INFO, f"retiring {name}: counting what {broker} keeps for it")
        connection.unsubscribe(self._filters)

    def holds_messages(self, now: float) -> None:
        """Note that messages have come which are not committed yet: more may follow."""
        self._quiet_until = now + _QUIET_S

    def is_over(self, connection: BrokerConnection, now: float) -> bool:
        """Whether the session has no subscription and nothing left to count; raises BrokerRefused."""
        if connection.unsubscribed is not None and connection.unsubscribed.value == _NO_SUBSCRIPTION:
            # It may be subscribed under another name; what came by that would go with the session.
            raise BrokerRefused(
                f"{self._session.client_id} is not subscribed as it would be with these options: correct "
                "share; or, after a restart of the broker, start it once without --retire"
            )
        return connection.unsubscribed is not None and not connection.messages and now > self._quiet_until
