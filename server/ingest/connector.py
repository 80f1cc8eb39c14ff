"""Connect to the broker: choose an MQTT version, interpret its answers, and explain lost connections."""

import logging
import time
from collections.abc import Callable
from typing import Generic, Literal, TypeVar

from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from ..errors import os_reason
from ..plain_text import bracketed
from .broker_limits import ending, impossibility
from .link import MqttLink, Protocol
from .session import BrokerRefused, Session
from .status import Loss, Status
from .tls import explain

SHORT_S = 10.0  # after a shorter connection, wait before the next attempt

_CONNACK_S = 10.0
_CONNACK_TRIAL_S = 2.0  # used while a fallback remains, because amqtt never answers MQTT 5

# CONNACK reasons that retrying does not change. paho translates MQTT 3.1.1's codes to these.
FINAL = {133, 134, 135, 138, 140}
# MQTT 3.1.1 brokers answer an MQTT 5 CONNECT with their code 1, which paho shows as 1 or 132.
_WRONG_PROTOCOL = {1, 132}


Connection = TypeVar("Connection", bound=MqttLink)


class Connector(Generic[Connection]):
    """Creates a session's connections and logs their events.

    Args:
        session: The address and the subscription.
        status: Logs changes.
        protocol: "auto" tries MQTT 5 and falls back to 3.1.1 until the broker has accepted one of them, if
            the session can use either.
        open_connection: Creates a connection that uses the given protocol.
        counts: Whether the session subscribes to reports and publishes experiments.
    """

    def __init__(
        self,
        session: Session,
        status: Status,
        protocol: Literal["auto", "5", "3.1.1"],
        open_connection: Callable[[Protocol], Connection],
        *,
        counts: bool = True,
    ) -> None:
        self._session = session
        self._status = status
        self._open_connection = open_connection
        self._counts = counts
        self.protocol: Protocol = "3.1.1" if protocol == "3.1.1" else "5"
        self._may_fall_back = protocol == "auto" and not session.needs_mqtt_5
        self._short_connections = 0
        self._servers = list(session.address.servers)

    def connect(self) -> Connection | None:
        """Return a connection that is waiting for its CONNACK, or None if nothing is listening."""
        for attempt in range(len(self._servers), 0, -1):
            where = self._servers[0]
            self._servers.append(self._servers.pop(0))  # start the next attempt with another server
            try:
                connection = self._open_connection(self.protocol)
                connection.connect(*where)
            except (OSError, ValueError) as e:
                if attempt == 1:
                    self._explain_failure(e, *where)
            else:
                return connection
        return None

    def _explain_failure(self, error: OSError | ValueError, host: str, port: int) -> None:
        why = explain(error)
        if why is not None:
            self._log_tls_failure(why)
            return
        reason = os_reason(error) if isinstance(error, OSError) else str(error)
        if self._session.tls is not None and isinstance(error, ConnectionResetError):
            reason += "; does it use TLS on this port?"
        message = f"no broker at {bracketed(host)}:{port} ({reason}): trying again"
        self._status.say(logging.WARNING, message, Loss.OTHER)

    def _log_tls_failure(self, why: str) -> None:
        self._status.say(logging.ERROR, f"no TLS with {self._session.address}: {why}", Loss.NO_TLS)

    def accepted(self, connection: Connection) -> bool:
        """Return whether the broker has accepted the connection.

        Raises:
            BrokerRefused: If it refuses and another attempt would not help.
        """
        answer, broker = connection.answer, self._session.address
        assert answer is not None
        if not answer.is_failure:
            self._may_fall_back = False
            why = impossibility(
                connection.connack_properties,
                counts=self._counts and not self._session.retire,
                in_group=self._session.group is not None,
            )
            if why:
                raise BrokerRefused(f"{broker} cannot be used: {why}")
            return True
        is_protocol_error, why = answer.value in _WRONG_PROTOCOL, str(answer).lower()
        if is_protocol_error and self._may_fall_back:
            self._fall_back()
        elif is_protocol_error and self._session.needs_mqtt_5:
            raise BrokerRefused(
                f"{broker} supports only MQTT 3.1.1, but share and --retire need MQTT 5: "
                "use another broker, or one aggregator without a group"
            )
        elif is_protocol_error or answer.value in FINAL:
            raise BrokerRefused(f"{broker} refuses the connection: {why}")
        else:
            self._explain("refuses the connection", answer, connection.connack_properties, "trying again")
        return False

    def has_waited_enough(self, connection: Connection, now: float) -> bool:
        """Return whether to give up on a broker that has not answered by this monotonic time."""
        patience_s = _CONNACK_TRIAL_S if self._may_fall_back else _CONNACK_S
        return connection.answer is None and now - connection.started_at > patience_s

    def explain_loss(self, connection: Connection) -> None:
        """Log why a connection ended, and change the protocol if it was never accepted.

        Raises:
            BrokerRefused: If the broker says so, and another attempt would not help.
        """
        broker = self._session.address
        if connection.answer is None:
            why = explain(connection.error)
            if why is not None:
                self._log_tls_failure(why)
                return
            text = f"{broker} did not answer"
            if self._session.needs_mqtt_5:
                text += " MQTT 5, which share and --retire need"
            elif self._session.tls is not None:
                if self._status.loss is Loss.NO_TLS:
                    return  # the earlier attempt's reason is more useful
                text += ": it may require a client certificate, HUSHMOTE_BROKER_CERT"
            self._status.say(logging.WARNING, text + ": trying again", Loss.OTHER)
            self._fall_back()
        elif not connection.answer.is_failure:
            if connection.end_reason is not None:
                properties = connection.end_properties
                self._explain("ended the connection", connection.end_reason, properties, "connecting again")
                return
            text = f"lost {broker}: connecting again"
            is_short = time.monotonic() - connection.started_at < SHORT_S
            self._short_connections = self._short_connections + 1 if is_short else 0
            if self._short_connections > 2:
                # Brokers drop the older of two clients with the same id, usually without giving a reason.
                text += f"; is there another client with the id {self._session.client_id}?"
            self._status.say(logging.WARNING, text, Loss.OTHER)

    def _explain(self, event: str, reason: ReasonCode, properties: Properties | None, next_step: str) -> None:
        """Log the reason that the broker gives; raise BrokerRefused if another attempt would not help."""
        words, can_retry = ending(reason, properties, self._session.client_id)
        text = f"{self._session.address} {event}: {words}"
        if not can_retry:
            raise BrokerRefused(text)
        self._status.say(logging.WARNING, f"{text}; {next_step}", Loss.OTHER)

    def _fall_back(self) -> None:
        if self._may_fall_back:
            # Alternate, because a broker that did not answer may have been starting.
            self.protocol = "3.1.1" if self.protocol == "5" else "5"
