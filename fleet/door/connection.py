"""A connection from the door to the broker: publishes reports with QoS 1 and reads retained messages."""

import contextlib
import select
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any

from paho.mqtt.client import Client
from paho.mqtt.reasoncodes import ReasonCode

from ...server.ingest.broker_url import BrokerAddress
from ...server.ingest.link import SUCCESS, MqttLink, Protocol, worst
from ...server.ingest.paho_client import Message
from .retained import Retained

_FLUSH_S = 0.5
_MAX_PACKET_BYTES = 32_768  # for packets from the broker; a result has a few thousand bytes
_MAX_IN_FLIGHT = 65_535
_NOT_SUBSCRIBED = (
    "hushmote/v1/+/experiment/+/+"  # on most brokers, its UNSUBACK follows all retained messages
)
_MOST_S = 10.0  # a busy broker may never be quiet


class DoorConnection(MqttLink):
    """A connection without a session, because senders repeat reports that are not acknowledged.

    Attributes:
        granted: The SUBACK's first failure reason, or else its first reason.
        settled: Whether the broker has answered the subscription and what followed it.
        retained: Those messages.
        acknowledged: Called with the packet id and reason of each PUBACK.
    """

    def __init__(
        self,
        protocol: Protocol,
        client_id: str,
        address: BrokerAddress,
        tls: ssl.SSLContext | None,
        retained: Retained,
        acknowledged: Callable[[int, ReasonCode], None],
    ) -> None:
        properties = {"MaximumPacketSize": _MAX_PACKET_BYTES}
        super().__init__(protocol, client_id, address, tls, properties, reconnect_on_failure=False)
        self.granted: ReasonCode | None = None
        self.settled = False
        self._settled_at = self._last_message_at = 0.0
        self.retained = retained
        self._acknowledged = acknowledged
        self.client.max_inflight_messages_set(0)  # no limit in paho; see max_in_flight

    @property
    def max_in_flight(self) -> int:
        """The number of unacknowledged publications that the broker allows."""
        return getattr(self.connack_properties, "ReceiveMaximum", _MAX_IN_FLIGHT)

    def watch(self, filters: list[str]) -> None:
        """Subscribe; `settled` becomes True once the broker has answered."""
        self.client.subscribe([(f, 0) for f in filters])
        self.client.unsubscribe(_NOT_SUBSCRIBED)

    def is_complete(self, quiet_s: float) -> bool:
        """Return whether a message that has not arrived is not retained.

        Some brokers, such as aedes, send retained messages after their answers; no answer follows them.

        Args:
            quiet_s: Seconds without a message after which no further retained message is expected.
        """
        now = time.monotonic()
        last_at = max(self._settled_at, self._last_message_at)
        return self.settled and (now - last_at >= quiet_s or now - self._settled_at >= _MOST_S)

    def publish(self, topic: str, payload: bytes) -> int | None:
        """Publish with QoS 1; return the id of the packet, or None if the packet is lost."""
        info = self.client.publish(topic, payload, qos=1)
        return info.mid if info.rc == SUCCESS else None

    def turn(self, wait_s: float, wake: socket.socket) -> bool:
        """Wait up to wait_s seconds for the broker or `wake`, then read and write; return False once lost."""
        broker = self.client.socket()
        if broker is None:
            return False
        writing = [broker] if self.client.want_write() else []
        with contextlib.suppress(OSError, ValueError):  # a closed socket, which the loop notices
            select.select([broker, wake], writing, [], 0.0 if self.client.has_more else wait_s)
        return self.read(0.0) == SUCCESS

    def close(self) -> None:
        """Send all queued packets and disconnect."""
        if self.flush(_FLUSH_S):
            self.client.disconnect()

    def _on_message(self, _client: Client, _data: Any, message: Message) -> None:
        self._last_message_at = time.monotonic()
        self.retained.take(message.topic, message.payload)

    def _on_publish(self, _client: Client, _data: Any, mid: int, reason: ReasonCode, _p: Any) -> None:
        self._acknowledged(mid, reason)

    def _on_subscribe(self, _c: Client, _d: Any, mid: int, reasons: list[ReasonCode], _p: Any) -> None:
        self.granted = worst(reasons)

    def _on_unsubscribe(self, _c: Client, _d: Any, mid: int, reasons: list[ReasonCode], _p: Any) -> None:
        self._settled_at = time.monotonic()
        self.settled = True
