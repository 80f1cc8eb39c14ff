"""Connects to the broker: which MQTT version to try, what its answers mean, why a connection was lost."""

import logging
import time
from collections.abc import Callable
from typing import Generic, Literal, TypeVar

from ..errors import os_reason
from .link import MqttLink, Protocol
from .session import BrokerRefused, Session
from .status import Loss, Status
from .tls import explain

SHORT_S = 10.0  # after a connection shorter than this, wait before the next try

_CONNACK_S = 10.0
_CONNACK_TRIAL_S = 2.0  # while another protocol is left to try, because amqtt does not answer MQTT 5 at all

# CONNACK reasons that retrying does not change. paho translates MQTT 3.1.1's codes to these.
FINAL = {133, 134, 135, 138, 140}
# MQTT 3.1.1 brokers answer an MQTT 5 CONNECT with their own code 1, which reads as 1 or 132 here.
_WRONG_PROTOCOL = {1, 132}


Connection = TypeVar("Connection", bound=MqttLink)


class Connector(Generic[Connection]):
    """Makes a session's connections, and logs their events.

    Args:
        session: Where to connect, and the subscription.
        status: Receives lines for the log.
        protocol: "auto" tries MQTT 5 and falls back to 3.1.1, until the broker has accepted one of them and
            if the session can use either.
        make: Makes a connection that speaks a protocol.
    """

    def __init__(
        self,
        session: Session,
        status: Status,
        protocol: Literal["auto", "5", "3.1.1"],
        make: Callable[[Protocol], Connection],
    ) -> None:
        self._session = session
        self._status = status
        self._make = make
        self.protocol: Protocol = "3.1.1" if protocol == "3.1.1" else "5"
        self._may_fall_back = protocol == "auto" and not session.needs_mqtt_5
        self._short_connections = 0
        self._servers = list(session.address.servers)

    def connect(self) -> Connection | None:
        """Return a connection whose CONNACK is still to come, or None if nobody listens."""
        for attempt in range(len(self._servers), 0, -1):
            where = self._servers[0]
            self._servers.append(self._servers.pop(0))  # start the next attempt with another server
            try:
                connection = self._make(self.protocol)
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
            self._say_no_tls(why)
            return
        reason = os_reason(error) if isinstance(error, OSError) else str(error)
        if self._session.tls is not None and isinstance(error, ConnectionResetError):
            reason += "; does it speak TLS on this port?"
        self._status.say(logging.WARNING, f"no broker at {host}:{port} ({reason}): trying again", Loss.OTHER)

    def _say_no_tls(self, why: str) -> None:
        self._status.say(logging.ERROR, f"no TLS with {self._session.address}: {why}", Loss.NO_TLS)

    def accepted(self, connection: Connection) -> bool:
        """Return whether the broker has accepted the connection.

        Raises:
            BrokerRefused: If it refuses, and another try would not help.
        """
        answer, broker = connection.answer, self._session.address
        assert answer is not None
        if not answer.is_failure:
            self._may_fall_back = False
            return True
        old, why = answer.value in _WRONG_PROTOCOL, str(answer).lower()
        if old and self._may_fall_back:
            self._fall_back()
        elif old and self._session.needs_mqtt_5:
            raise BrokerRefused(
                f"{broker} speaks only MQTT 3.1.1, but share and --retire need MQTT 5: "
                "use another broker, or one aggregator without a group"
            )
        elif old or answer.value in FINAL:
            raise BrokerRefused(f"{broker} refuses the connection: {why}")
        else:
            self._status.say(logging.WARNING, f"{broker} answers {why}: trying again", Loss.OTHER)
        return False

    def has_waited_enough(self, connection: Connection, now: float) -> bool:
        """Return whether to give up at this monotonic time on a broker that has not answered."""
        patience_s = _CONNACK_TRIAL_S if self._may_fall_back else _CONNACK_S
        return connection.answer is None and now - connection.started_at > patience_s

    def explain_loss(self, connection: Connection) -> None:
        """Log why a connection ended, and change the protocol if it was never accepted."""
        broker = self._session.address
        if connection.answer is None:
            why = explain(connection.error)
            if why is not None:
                self._say_no_tls(why)
                return
            text = f"{broker} did not answer"
            if self._session.needs_mqtt_5:
                text += " MQTT 5, which share and --retire need"
            elif self._session.tls is not None:
                if self._status.loss is Loss.NO_TLS:
                    return  # the reason of the earlier attempt is more useful
                text += ": it may require a client certificate, HUSHMOTE_BROKER_CERT"
            self._status.say(logging.WARNING, text + ": trying again", Loss.OTHER)
            self._fall_back()
        elif not connection.answer.is_failure:
            text = f"lost {broker}: connecting again"
            short = time.monotonic() - connection.started_at < SHORT_S
            self._short_connections = self._short_connections + 1 if short else 0
            if self._short_connections > 2:
                # Brokers drop the older of two clients with one id, mostly without saying so.
                text += f"; is there another client with the id {self._session.client_id}?"
            self._status.say(logging.WARNING, text, Loss.OTHER)

    def _fall_back(self) -> None:
        if self._may_fall_back:
            # Alternate, because a broker that did not answer may have been starting.
            self.protocol = "3.1.1" if self.protocol == "5" else "5"
