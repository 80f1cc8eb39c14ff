"""Read the devices' retained status topics, which contain whether they are online and their problems.

Anyone with permission to publish there can send anything, so only known words are accepted, none of which
depends on a reading.
"""

import re
import secrets
import ssl
import time
from dataclasses import dataclass
from typing import Any

from paho.mqtt.client import error_string

from ..errors import HushmoteError
from ..plain_text import bracketed
from ..wire.topics import check_fleet, status_topic
from .broker_limits import LOGIN_IN_USE
from .broker_url import BrokerAddress
from .link import SUCCESS, MqttLink, worst

_TOPIC = re.compile(r"hushmote/v1/([a-z0-9_-]{1,32})/status/([a-z0-9-]{1,32})", re.ASCII)
_WORDS = re.compile(
    rb"(online|offline)((?: (?:locked|fault|duplicate-id|more|(?:spent|refused):[a-z0-9_-]{1,32})){0,7})",
    re.ASCII,
)
_MAX_BYTES = 400
_QUIET_S = 1.0  # after this long without a message, the broker has sent all retained messages
_MAX_S = 60.0
_ANSWER_S = 15.0  # the longest wait for the answers to CONNECT and SUBSCRIBE
_PAUSE_S = 30.0  # period for which servers are tried in turn; long enough to elect a new leader
_RETRY_S = 0.5


class BrokerUnreachable(HushmoteError):
    """Raised when the broker cannot be reached; the message says why."""


class _ServerLost(BrokerUnreachable):
    """Raised when one server fails; another one may answer."""


class _ServerPaused(_ServerLost):
    """Raised when a server accepts no login, like a cluster without a leader; it may answer later."""


@dataclass(frozen=True, slots=True)
class DeviceHealth:
    """The content of one device's status topic.

    Attributes:
        online: Whether the device is connected.
        locked: Whether the ledger is locked.
        fault: Whether the flash or the random source failed.
        spent: Names of experiments whose budget is spent.
        refused: Names of experiments that the device refuses.
        more: Whether some words did not fit into the message.
        duplicate: Whether another device may be using this one's id: the broker keeps ending its connections.
    """

    online: bool
    locked: bool
    fault: bool
    spent: tuple[str, ...]
    refused: tuple[str, ...]
    more: bool
    duplicate: bool = False


def parse(payload: bytes) -> DeviceHealth | None:
    """Return the health in a status topic's payload, or None if the payload is not a valid status."""
    match = _WORDS.fullmatch(payload) if len(payload) <= _MAX_BYTES else None
    if match is None:
        return None
    words = match[2].decode("ascii").split()
    return DeviceHealth(
        online=match[1] == b"online",
        locked="locked" in words,
        fault="fault" in words,
        spent=tuple(w.removeprefix("spent:") for w in words if w.startswith("spent:")),
        refused=tuple(w.removeprefix("refused:") for w in words if w.startswith("refused:")),
        more="more" in words,
        duplicate="duplicate-id" in words,
    )


def read(
    address: BrokerAddress,
    fleets: list[str],
    tls: ssl.SSLContext | None = None,
    *,
    quiet_s: float = _QUIET_S,
    max_s: float = _MAX_S,
    answer_s: float = _ANSWER_S,
    pause_s: float = _PAUSE_S,
) -> dict[tuple[str, str], DeviceHealth | None]:
    """Read the retained status topics of fleets.

    Reading ends once nothing has arrived for quiet_s seconds, or after max_s. In a cluster, the next server
    is tried if one does not answer or has no devices, and all are retried if one accepts no logins, which
    happens for some seconds after one of them has died.

    Args:
        address: The broker.
        fleets: The fleets' names.
        tls: How to check the broker; None for plain TCP.
        quiet_s: Seconds without a message after which reading ends.
        max_s: Seconds after which reading ends in any case.
        answer_s: Seconds to wait for answers to CONNECT and SUBSCRIBE.
        pause_s: Seconds for which the servers of a cluster are tried in turn.

    Returns:
        Each device's health by fleet and device; None for an invalid payload.

    Raises:
        BrokerUnreachable: If no server answers, or if the login's session at the broker is not ours to end.
    """
    client_id = f"status-{secrets.token_hex(6)}"
    filters = [(f"hushmote/v1/{check_fleet(fleet)}/status/+", 0) for fleet in fleets]
    began = time.monotonic()
    while True:
        failures: list[_ServerLost] = []
        for where in address.servers:
            reader = _Reader(client_id, address, tls, filters, quiet_s, answer_s)
            try:
                _refuse_others_session(client_id, address, tls, where, answer_s)
                reader.run(where, began + max_s)
            except _ServerLost as e:
                failures.append(e)
            else:
                if reader.devices:
                    return reader.devices
        if len(failures) < len(address.servers):
            return {}
        pausing = address.others and any(isinstance(failure, _ServerPaused) for failure in failures)
        if not pausing or time.monotonic() - began > pause_s:
            raise failures[-1]
        time.sleep(_RETRY_S)


def clear(address: BrokerAddress, tls: ssl.SSLContext, fleet: str, device: str) -> None:
    """Clear a device's retained status while logged in as that device.

    A broker that uses the certificate's name as the client id first ends the device's own connection.

    Raises:
        BrokerUnreachable: If no server answers, or the broker refuses to clear it.
    """
    failures: list[_ServerLost] = []
    for where in address.servers:
        try:
            _Clearer(address, tls, status_topic(fleet, device)).run(where, time.monotonic() + _ANSWER_S)
        except _ServerLost as e:
            failures.append(e)
        else:
            return
    raise failures[-1]


class _Exchange(MqttLink):
    """A connection for a single exchange.

    Attributes:
        last_message_at: Monotonic time of the last message or the first answer; None before either.
        answer_s: Seconds to wait for the first answer.
    """

    last_message_at: float | None = None
    answer_s = _ANSWER_S

    def deadline(self, answer_by: float) -> float:
        """Return the monotonic time at which the exchange ends: by default, as soon as there is an answer."""
        return answer_by if self.last_message_at is None else 0.0

    def run(self, where: tuple[str, int], end: float) -> None:
        """Exchange messages with a server until time `end`; raise _ServerLost if another may answer."""
        host, port = where
        try:
            self.connect(host, port)
        except (OSError, ValueError) as e:
            why = getattr(e, "strerror", None) or e
            raise _ServerLost(
                f"no broker at {bracketed(host)}:{port} ({why}); start one or correct the address"
            ) from None
        message = f"the broker at {bracketed(host)}:{port} ended the connection"
        answer_by = min(end, time.monotonic() + self.answer_s)
        try:
            while time.monotonic() < min(end, self.deadline(answer_by)):
                code = self.read(0.1)
                if self.answer is not None and self.answer.is_failure:
                    raise BrokerUnreachable(f"{message}: {self.answer}")
                if code != SUCCESS:
                    raise _ServerPaused(f"{message}: {error_string(code)}")
        except OSError as e:
            raise _ServerLost(f"{message}: {e}") from None
        finally:
            self.client.disconnect()
        if self.last_message_at is None:
            raise _ServerPaused(f"the broker at {bracketed(host)}:{port} did not answer")


def _refuse_others_session(
    client_id: str,
    address: BrokerAddress,
    tls: ssl.SSLContext | None,
    where: tuple[str, int],
    answer_s: float,
) -> None:
    """Raise BrokerUnreachable if a clean session would end another client's with the same login.

    Some brokers replace a new client id with the login's name. The session is then an aggregator's, with the
    reports that wait for it.
    """
    probe = _Probe(client_id, address, tls, answer_s)
    try:
        probe.run(where, time.monotonic() + answer_s)
    except _ServerLost:
        raise
    except BrokerUnreachable:
        return  # it may refuse only lasting sessions; the reader reports any other reason
    if probe.session_present:
        raise BrokerUnreachable(
            f"the broker at {bracketed(where[0])}:{where[1]} cannot be used: {LOGIN_IN_USE}"
        )


class _Probe(_Exchange):
    """A connection that shows whether its client id has a session, and leaves that as it is.

    The session that it creates otherwise ends with the next clean connection of this client id.
    """

    def __init__(
        self, client_id: str, address: BrokerAddress, tls: ssl.SSLContext | None, answer_s: float
    ) -> None:
        # manual_ack: reports that arrive are not ours.
        super().__init__("3.1.1", client_id, address, tls, {"SessionExpiryInterval": 0}, manual_ack=True)
        self.answer_s = answer_s

    def _on_connect(self, client: Any, _d: Any, flags: Any, reason: Any, properties: Any) -> None:
        super()._on_connect(client, _d, flags, reason, properties)
        self.last_message_at = time.monotonic()


class _Clearer(_Exchange):
    """A connection that clears a retained message."""

    def __init__(self, address: BrokerAddress, tls: ssl.SSLContext, topic: str) -> None:
        super().__init__("5", "", address, tls, {})
        self._topic = topic

    def _on_connect(self, client: Any, _d: Any, flags: Any, reason: Any, properties: Any) -> None:
        super()._on_connect(client, _d, flags, reason, properties)
        if not reason.is_failure:
            client.publish(self._topic, b"", qos=1, retain=True)

    def _on_publish(self, _client: Any, _data: Any, _mid: int, reason: Any, _properties: Any) -> None:
        if reason.is_failure:
            raise BrokerUnreachable(f"the broker refuses to clear {self._topic}: {reason}")
        self.last_message_at = time.monotonic()


class _Reader(_Exchange):
    """A connection that reads status topics.

    Attributes:
        devices: Each device's health by fleet and device.
    """

    def __init__(
        self,
        client_id: str,
        address: BrokerAddress,
        tls: ssl.SSLContext | None,
        filters: list[Any],
        quiet_s: float,
        answer_s: float,
    ) -> None:
        super().__init__("3.1.1", client_id, address, tls, {})
        self.devices: dict[tuple[str, str], DeviceHealth | None] = {}
        self.answer_s = answer_s
        self._filters, self._quiet_s = filters, quiet_s

    def _on_connect(self, client: Any, _d: Any, flags: Any, reason: Any, properties: Any) -> None:
        super()._on_connect(client, _d, flags, reason, properties)
        if not reason.is_failure:
            client.subscribe(self._filters)

    def _on_subscribe(self, _c: Any, _d: Any, _mid: int, reasons: list[Any], _p: Any) -> None:
        if worst(reasons).is_failure:
            raise BrokerUnreachable(
                "the broker does not let this user read the devices' status: use an aggregator's login"
            )
        self.last_message_at = time.monotonic()

    def _on_message(self, _client: Any, _data: Any, message: Any) -> None:
        self.last_message_at = time.monotonic()
        if names := _TOPIC.fullmatch(message.topic):
            self.devices[names[1], names[2]] = parse(message.payload)

    def deadline(self, answer_by: float) -> float:
        return answer_by if self.last_message_at is None else self.last_message_at + self._quiet_s
