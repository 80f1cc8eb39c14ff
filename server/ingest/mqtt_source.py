"""Receive reports over MQTT in a persistent session, alone or in a group, and retire the session."""

import logging
from collections.abc import Callable
from typing import Literal

from ..plain_text import bracketed
from .connection import NO_TOPIC, BrokerConnection
from .connector import Connector
from .link import Protocol
from .pacing import MAX_WAIT_S
from .session import BrokerRefused, Session, warn_of_hidden_experiments
from .status import Status

_RETRY_GROUP_S = 1.0  # a restarted mosquitto forgets the group and keeps no messages until a member is back
_QUIET_S = 3.0  # a broker with more messages for a session sends them within this time
_NO_SUBSCRIPTION = 17  # UNSUBACK reason code


class MqttSource:
    """A Source that subscribes a session's connections.

    To retire a session, it unsubscribes instead, so that later reports go to other aggregators, and counts
    the queued messages.

    Args:
        session: The address and the subscription.
        status: Logs changes.
        protocol: See Connector.
        open_connection: See Connector.
    """

    def __init__(
        self,
        session: Session,
        status: Status,
        protocol: Literal["auto", "5", "3.1.1"],
        open_connection: Callable[[Protocol], BrokerConnection],
    ) -> None:
        self.name, self.broker = session.client_id, str(session.address)
        self.max_wait_s = MAX_WAIT_S if session.group is None else _RETRY_GROUP_S
        self._session = session
        self._status = status
        self._connector = Connector(session, status, protocol, open_connection)
        self.has_waited_enough = self._connector.has_waited_enough
        self.explain_loss = self._connector.explain_loss
        self._filters = session.filters(session.group)  # rejects an invalid name before connecting
        self._answers: tuple[object, object] = None, None
        self._quiet_until = self._pinged_at = 0.0

    def connect(self) -> BrokerConnection | None:
        """Return a connection that is waiting for its CONNACK, or None if nothing is listening."""
        self._answers = None, None
        return self._connector.connect()

    def greet(self, connection: BrokerConnection, now: float) -> bool:
        """Subscribe once the broker's CONNACK has arrived.

        Returns:
            Whether the SUBACK has just arrived.

        Raises:
            BrokerRefused: If the broker refuses the login or the subscription.
        """
        before, self._answers = self._answers, (connection.answer, connection.subscribe_reason)
        if before == self._answers or not self._connector.accepted(connection):
            return False
        if before[0] is None:
            if self._session.retire:
                self._retire(connection, now)
            else:
                self._subscribe(connection)
        elif connection.subscribe_reason is not None:
            self._check(connection)
            return True
        return False

    def _subscribe(self, connection: BrokerConnection) -> None:
        if self._session.group is not None:
            # An earlier subscription without the group would receive all reports in addition to its share.
            connection.unsubscribe(self._session.filters(None))
        # Request these first, so that they have arrived when the subscription to reports is accepted.
        connection.watch(self._session.experiment_filters())
        connection.subscribe(self._filters)

    def _retire(self, connection: BrokerConnection, now: float) -> None:
        """Unsubscribe permanently; raise BrokerRefused if the broker does not keep this session."""
        if not connection.session_present:
            raise BrokerRefused(
                f"{self.broker} keeps nothing for a client with the id {self.name}: "
                "it was retired before, or the id is different"
            )
        self.note_messages(now)
        self._pinged_at = 0.0
        self._status.say(
            logging.INFO, f"retiring {self.name}: counting the messages that {self.broker} keeps for it"
        )
        connection.unsubscribe(self._filters)

    def _check(self, connection: BrokerConnection) -> None:
        """Log that the broker has accepted the subscription; raise BrokerRefused if it has not."""
        if not connection.subscribed:
            why = str(connection.subscribe_reason).lower()
            # NATS servers set up by `hushmote provision` do not allow aggregators to subscribe over MQTT.
            raise BrokerRefused(
                f"{self.broker} refuses the subscription: {why}; if it is a NATS server, write "
                "it as tls:// or nats://"
            )
        # Omit the group's name, because anyone who knows it and may subscribe could receive its reports.
        address = self._session.address
        where = f"{bracketed(address.host)}:{address.port} with MQTT {connection.protocol}"
        suffix = "" if self._session.group is None else ", sharing the reports with others"
        self._status.say(logging.INFO, f"subscribed at {where}{suffix}")
        warn_of_hidden_experiments(connection, self.broker, self._status)

    def note_messages(self, now: float) -> None:
        """Note that uncommitted messages have arrived, because more may follow."""
        self._quiet_until = now + _QUIET_S

    def is_over(self, connection: BrokerConnection, now: float) -> bool:
        """Return whether the session was ended because nothing is left to count.

        Raises:
            BrokerRefused: If the session is subscribed to something else.
        """
        if not self._session.retire or connection.unsubscribe_reason is None:
            return False
        if not self._pinged_at and connection.unsubscribe_reason.value == _NO_SUBSCRIPTION:
            # It may be subscribed with other options, whose reports would be lost with the session.
            raise BrokerRefused(
                f"{self.name} is not subscribed with these options: correct "
                "share; or, after a restart of the broker, start it once without --retire"
            )
        if connection.messages or now <= self._quiet_until:
            return False
        if self._pinged_at <= self._quiet_until:  # a broker that answers has read all acknowledgements
            self._pinged_at, connection.unsubscribe_reason = now, None
            connection.unsubscribe([NO_TOPIC])
            return False
        connection.close(end_session=True)
        self._status.say(logging.INFO, f"retired: nothing is left for {self.name} at {self.broker}")
        return True
