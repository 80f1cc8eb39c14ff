"""A connection from the door to the broker: publishes reports with QoS 1 and reads retained messages."""

import contextlib
import select
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any

from paho.mqtt.client import Client
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from ...server.ingest.broker_limits import SESSION_S
from ...server.ingest.broker_url import BrokerAddress
from ...server.ingest.link import SUCCESS, MqttLink, Protocol, worst
from ...server.ingest.paho_client import Message
from .retained import Retained

_FLUSH_S = 0.5
_MAX_PACKET_BYTES = 32_768  # for packets from the broker; a result has a few thousand bytes
_MAX_IN_FLIGHT = 65_535
_NOT_SUBSCRIBED = "hushmote/v1/+/experiment/+/+"  # its UNSUBACK usually follows the retained messages
_SESSION_S = 300  # how long the broker may keep a session whose connection was lost
_NO_ANSWER_S = 2.0  # time after the SUBACK at which the UNSUBACK is no longer expected
_MOST_S = 10.0  # a busy broker may never be quiet


class DoorConnection(MqttLink):
    """A connection without a session, because senders repeat reports that are not acknowledged.

    With MQTT 5 it does not start by ending the client id's session, which is an aggregator's if the broker
    uses logins as client ids and both have the same. A session of its own ends with the connection.

    Attributes:
        granted: The SUBACK's first failure reason, or else its first reason.
        retained: The retained messages so far.
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
        if protocol == "5":
            properties["SessionExpiryInterval"] = _SESSION_S
        # manual_ack: only another client's session has messages with QoS 1.
        options = {"reconnect_on_failure": False, "manual_ack": True}
        super().__init__(protocol, client_id, address, tls, properties, **options)
        self.granted: ReasonCode | None = None
        self._unsubscribed = False
        self._answered_at = self._last_message_at = 0.0
        self.retained = retained
        self._acknowledged = acknowledged
        self.client.max_inflight_messages_set(0)  # no limit in paho; see max_in_flight

    @property
    def max_in_flight(self) -> int:
        """The number of unacknowledged publications that the broker allows."""
        return getattr(self.connack_properties, "ReceiveMaximum", _MAX_IN_FLIGHT)

    def watch(self, filters: list[str]) -> None:
        """Subscribe, and unsubscribe from something else; see `settled`."""
        self.client.subscribe([(f, 0) for f in filters])
        self.client.unsubscribe(_NOT_SUBSCRIBED)

    @property
    def settled(self) -> bool:
        """Whether the broker has answered both, or the subscription long ago: rumqttd answers only that."""
        long_ago = time.monotonic() - self._answered_at >= _NO_ANSWER_S
        return self.granted is not None and (self._unsubscribed or long_ago)

    def is_complete(self, quiet_s: float) -> bool:
        """Return whether all retained messages have arrived.

        Some brokers, such as aedes, send retained messages after their answers, and nothing marks the last.

        Args:
            quiet_s: Seconds without a message after which no further retained message is expected.
        """
        now = time.monotonic()
        last_at = max(self._answered_at, self._last_message_at)
        return self.settled and (now - last_at >= quiet_s or now - self._answered_at >= _MOST_S)

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
        """Send all queued packets, disconnect and end the session, unless it is another client's."""
        if self.flush(_FLUSH_S):
            properties = Properties(PacketTypes.DISCONNECT)
            properties.SessionExpiryInterval = SESSION_S if self.session_present else 0
            self.client.disconnect(properties=properties if self.protocol == "5" else None)

    def _on_message(self, _client: Client, _data: Any, message: Message) -> None:
        self._last_message_at = time.monotonic()
        self.retained.take(message.topic, message.payload)

    def _on_publish(self, _client: Client, _data: Any, mid: int, reason: ReasonCode, _p: Any) -> None:
        self._acknowledged(mid, reason)

    def _on_subscribe(self, _c: Client, _d: Any, mid: int, reasons: list[ReasonCode], _p: Any) -> None:
        self.granted, self._answered_at = worst(reasons), time.monotonic()

    def _on_unsubscribe(self, _c: Client, _d: Any, mid: int, reasons: list[ReasonCode], _p: Any) -> None:
        self._unsubscribed, self._answered_at = True, time.monotonic()
