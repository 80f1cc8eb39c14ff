"""Clear an experiment that a broker retains for devices, so that they stop reporting to it."""

import enum
import secrets
import ssl
import time
from collections.abc import Callable

from ..errors import HushmoteError, os_reason
from ..log.proof import proof_topic
from ..plain_text import bracketed
from ..wire import keys, topics
from .broker_url import BrokerAddress
from .connection import NO_TOPIC, BrokerConnection
from .connector import FINAL
from .device_health import BrokerUnreachable
from .link import Protocol
from .pacing import Pace

_ATTEMPTS = 6  # an aggregator with the same login takes its session back, at first after 0.2 s
_ANSWER_S = 10.0
_TRIAL_S = 2.0  # amqtt never answers MQTT 5
_QUIET_S = 0.5  # NATS servers and amqtt may send retained messages after their other answers
_TURN_S = 0.05


class NotCleared(HushmoteError):
    """Raised when an experiment cannot be cleared; the message says why and what to do."""


class Clearing(enum.Enum):
    """What clear() did."""

    NOTHING = "nothing was retained"
    WITHDRAWN = "a withdrawal was retained already"
    CLEARED = "cleared"


class _Lost(Exception):
    """Raised when the connection ends before the exchange does."""


def clear(
    address: BrokerAddress,
    tls: ssl.SSLContext | None,
    fleet: str,
    name: str,
    signing_key: Callable[[], bytes],
) -> Clearing:
    """Clear an experiment that the broker retains, or replace it with a withdrawal if it is signed.

    Devices refuse a withdrawal whose serial is not higher than the experiment's, so it gets the next one.

    A broker may give every client with one login the same session. Ours would then be an aggregator's, in
    which its reports wait. So it is continued, no report is acknowledged, and it is not ended.

    Args:
        address: The broker.
        tls: How to check the broker; None for plain TCP.
        fleet: The fleet's name.
        name: The experiment's name.
        signing_key: Returns the fleet's signing key; called if the experiment is signed.

    Raises:
        NotCleared: If the broker does not allow it, or the key is not the one that signed the experiment.
        BrokerUnreachable: If no server answers.
    """
    protocol: Protocol = "5"
    error = ""
    for attempt in range(_ATTEMPTS):
        host, port = address.servers[attempt % len(address.servers)]
        where = f"{bracketed(host)}:{port}"
        client_id = f"hushmote-clear-{secrets.token_hex(8)}"
        connection = BrokerConnection(
            protocol, client_id, address, 1, Pace(), tls, keep_session=protocol == "5"
        )
        exchange = _Exchange(connection, fleet, name)
        try:
            connection.connect(host, port)
            return exchange.run(signing_key)
        except (OSError, ValueError) as e:
            error = f"no broker at {where} ({os_reason(e) if isinstance(e, OSError) else e})"
        except _Lost:
            error = f"the broker at {where} ended the connection or did not answer"
            if connection.answer is None or connection.answer.is_failure:
                protocol = "3.1.1" if protocol == "5" else "5"
        finally:
            connection.close(end_session=protocol == "5" and not connection.session_present)
    raise BrokerUnreachable(f"{error}; start one or correct the address")


class _Exchange:
    """One attempt on one connection."""

    def __init__(self, connection: BrokerConnection, fleet: str, name: str) -> None:
        self._connection = connection
        self._names = fleet, name
        self._topic = topics.experiment_topic(fleet, name)

    def run(self, signing_key: Callable[[], bytes]) -> Clearing:
        connection, topic = self._connection, self._topic
        patience_s = _TRIAL_S if connection.protocol == "5" else _ANSWER_S
        self._wait(lambda: connection.answer is not None, patience_s)
        assert connection.answer is not None
        if connection.answer.value in FINAL:
            raise NotCleared(f"the broker refuses the connection: {str(connection.answer).lower()}")
        if connection.answer.is_failure:
            raise _Lost
        retained = self._read()
        if keys.is_withdrawal(retained):
            return Clearing.WITHDRAWN if retained else Clearing.NOTHING
        message = _withdrawal(topic, retained, signing_key)
        info = connection.publish(topic, message)
        self._wait(info.is_published)
        proof = connection.publish(proof_topic(*self._names), b"")
        self._wait(proof.is_published)
        why = connection.refusals.get(topic)
        # A broker that speaks MQTT 3.1.1 acknowledges what it refuses.
        if why is not None or self._read() == retained:
            raise NotCleared(
                f"the broker does not let this user write {topic}{f' ({why})' if why else ''}: use an "
                "aggregator's login"
            )
        return Clearing.CLEARED

    def _read(self) -> bytes:
        """Return the topic's retained message, and leave the session without a subscription to it."""
        connection = self._connection
        connection.experiments.clear()
        connection.watch_reason = None
        connection.watch([self._topic])
        self._wait(lambda: connection.watch_reason is not None)
        reason = connection.watch_reason
        assert reason is not None
        if reason.is_failure:
            raise NotCleared(
                f"the broker does not let this user read {self._topic} ({str(reason).lower()}): use an "
                "aggregator's login"
            )
        self._unsubscribe(NO_TOPIC)
        quiet_until = time.monotonic() + (0.0 if connection.protocol == "5" else _QUIET_S)
        self._wait(lambda: self._topic in connection.experiments or time.monotonic() >= quiet_until)
        self._unsubscribe(self._topic)
        return connection.experiments.get(self._topic, b"")

    def _unsubscribe(self, topic: str) -> None:
        """Unsubscribe, and wait for the answer."""
        self._connection.unsubscribe_reason = None
        self._connection.unsubscribe([topic])
        self._wait(lambda: self._connection.unsubscribe_reason is not None)

    def _wait(self, condition: Callable[[], bool], seconds: float = _ANSWER_S) -> None:
        end = time.monotonic() + seconds
        while not condition():
            # Reports that wait in an aggregator's session arrive as well; they are not acknowledged.
            self._connection.messages.clear()
            self._connection.mids.clear()
            if not self._connection.turn(_TURN_S, 1000) or time.monotonic() > end:
                raise _Lost


def _withdrawal(topic: str, retained: bytes, signing_key: Callable[[], bytes]) -> bytes:
    serial = keys.signed_serial(retained)
    if serial is None:
        return b""
    key = signing_key()
    if not keys.is_experiment_signed(key, topic, retained):
        raise NotCleared(
            f"the experiment on {topic} was signed with another key, so boards would refuse this one's "
            "withdrawal: give the key that signed it"
        )
    return keys.sign_experiment(key, topic, b"", serial + 1)
