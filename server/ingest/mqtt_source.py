"""Reports by MQTT: a session that the broker keeps, alone or in a group."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Literal

from .connection import BrokerConnection, Protocol
from .connector import Connector
from .pacing import MOST_WAIT_S
from .session import Retirement, Session, Subscription
from .status import Status

_RETRY_GROUP_S = 1.0  # mosquitto keeps no group over its restart, and nothing until a member is back


class MqttSource:
    """A session's connections, subscribed or retiring; a Source. protocol, make: as Connector's."""

    def __init__(
        self,
        session: Session,
        status: Status,
        protocol: Literal["auto", "5", "3.1.1"],
        make: Callable[[Protocol], BrokerConnection],
    ) -> None:
        self.name, self.broker = session.client_id, session.broker
        self.most_wait_s = MOST_WAIT_S if session.group is None else _RETRY_GROUP_S
        self._status = status
        self._connector = Connector(session, status, protocol, make)
        self._subscription = (Retirement if session.retire else Subscription)(session, status)
        self.has_waited_enough = self._connector.has_waited_enough
        self.explain_loss = self._connector.explain_loss
        self.holds_messages = self._subscription.holds_messages
        self._said: tuple[object, object] = None, None

    def connect(self) -> BrokerConnection | None:
        """Return a connection whose CONNACK is still to come, or None where nobody listens."""
        self._said = None, None
        return self._connector.connect()

    def greet(self, connection: BrokerConnection, now: float) -> bool:
        """Answer the broker's CONNACK with the subscription; whether the SUBACK has just come.

        Raises BrokerRefused.
        """
        before, self._said = self._said, (connection.answer, connection.granted)
        if before == self._said or not self._connector.accepted(connection):
            return False
        if before[0] is None:
            self._subscription.open(connection, now)
        elif connection.granted is not None:
            self._subscription.granted(connection)
            return True
        return False

    def is_over(self, connection: BrokerConnection, now: float) -> bool:
        """Whether the session has been ended, as nothing was left to count; raises BrokerRefused."""
        over = self._subscription.is_over(connection, now)
        if over:
            connection.close(end_session=True)
            self._status.say(logging.INFO, f"retired: nothing is left for {self.name} at {self.broker}")
        return over
