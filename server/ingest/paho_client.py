"""A paho client for many small messages, which reads ahead, batches acknowledgements and truncates packets.

paho makes three system calls for every packet and one for every acknowledgement, creates half a dozen objects
for each message, and keeps a packet of up to 256 MB until it is complete. It ends the connection at a message
with U+FEFF in its MQTT 5 properties, which brokers forward and send again at the next connection. The methods
overridden and called here are private to paho, whose major version is pinned; nothing else in Hushmote uses
them.
"""

import contextlib
import ssl
import struct
from collections.abc import Iterable
from typing import Any, NamedTuple

from paho.mqtt.client import Client, MQTTMessageInfo, MQTTv5
from paho.mqtt.enums import MessageType, MQTTErrorCode

from ..wire.topics import ROOT

_AHEAD_BYTES = 1 << 16
KEPT_BYTES = 1 << 17
"""Packets are truncated to this length, which fits the longest topic, packet id, report and a bridge's
properties.

An MQTT 3.1.1 client cannot announce a limit, so further bytes are read and discarded to reach the next
packet.
"""
_PUBACK = struct.Struct("!BBH")
_LENGTH_BYTES = 4  # maximum length of MQTT's variable byte integers


class Message(NamedTuple):
    """A message received with QoS 0 or 1; mid is 0 for QoS 0, and topic is "" if it is not UTF-8."""

    topic: str
    payload: bytes
    qos: int
    mid: int


class BatchClient(Client):
    """A paho client whose loop_read() must be called again as long as `has_more` is true.

    on_message receives a Message. Subscriptions must not request more than QoS 1.

    Attributes:
        topic_prefix: Added to Hushmote's own topics in messages to the broker, and removed from those in
            messages from it; other topics, such as Home Assistant's, do not change.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.topic_prefix = ""
        self._ahead = b""
        self._at = 0

    @property
    def has_more(self) -> bool:
        """Whether there are bytes that were read ahead, which select() does not know about."""
        return self._at < len(self._ahead)

    def publish(self, topic: str, *arguments: Any, **options: Any) -> MQTTMessageInfo:
        return super().publish(self._prefixed(topic), *arguments, **options)

    def subscribe(self, topic: Any, *arguments: Any, **options: Any) -> tuple[MQTTErrorCode, int | None]:
        """Subscribe to a list of (filter, QoS or options) pairs."""
        pairs = [(self._prefixed(name), qos) for name, qos in topic]
        return super().subscribe(pairs, *arguments, **options)

    def unsubscribe(self, topic: Any, *arguments: Any, **options: Any) -> tuple[MQTTErrorCode, int | None]:
        """Unsubscribe from a filter, or from a list of them."""
        topics = [topic] if isinstance(topic, str) else topic
        return super().unsubscribe([self._prefixed(name) for name in topics], *arguments, **options)

    def _prefixed(self, topic: str) -> str:
        share, own, rest = topic.partition(ROOT)
        is_own = own and (not share or share.startswith("$share/"))
        return f"{share}{self.topic_prefix}{own}{rest}" if is_own else topic

    def limit_in_flight(self, most: int) -> None:
        """Leave at most this many publications unacknowledged; paho does not read a broker's limit."""
        if self._max_inflight_messages:  # 0 for no limit
            self._max_inflight_messages = min(self._max_inflight_messages, most)

    def _sock_recv(self, bufsize: int) -> bytes:
        if self._at >= len(self._ahead):
            del self._in_packet["packet"][KEPT_BYTES:]
            self._ahead, self._at = super()._sock_recv(_AHEAD_BYTES), 0
        self._at += bufsize
        return self._ahead[self._at - bufsize : self._at]

    def _handle_publish(self) -> MQTTErrorCode:
        try:
            message = _decode(self._in_packet["command"], self._in_packet["packet"], self._protocol == MQTTv5)
        except IndexError:
            return MQTTErrorCode.MQTT_ERR_PROTOCOL
        if self.topic_prefix and message.topic.startswith(f"{self.topic_prefix}{ROOT}/"):
            message = message._replace(topic=message.topic[len(self.topic_prefix) :])
        if self.on_message is not None:
            with self._in_callback_mutex:  # so that paho only queues messages that a callback publishes
                self.on_message(self, self._userdata, message)  # pyright: ignore[reportArgumentType]
        if message.qos == 1 and not self._manual_ack:
            return self._send_puback(message.mid)
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _sock_send(self, buf: bytes | bytearray) -> int:
        try:
            return super()._sock_send(buf)
        except (ConnectionError, ssl.SSLError):
            # A broker that refuses our certificate sends an alert before it closes the connection, so read
            # the alert.
            if isinstance(self._sock, ssl.SSLSocket):
                with contextlib.suppress(ssl.SSLWantReadError):
                    self._sock.recv(1)
            raise

    def acknowledge(self, mids: Iterable[int]) -> None:
        """Acknowledge messages with QoS 1 by packet id, in order."""
        packets = b"".join(_PUBACK.pack(MessageType.PUBACK, 2, mid) for mid in mids)
        if packets:
            self._packet_queue(MessageType.PUBACK, packets, 0, 1)


def _decode(command: int, packet: bytearray, has_properties: bool) -> Message:
    """Decode a PUBLISH, skipping its properties; raise IndexError if it is malformed."""
    end = 2 + (packet[0] << 8 | packet[1])
    try:
        topic = packet[2:end].decode()
    except UnicodeDecodeError:
        topic = ""
    qos, mid, at = command >> 1 & 3, 0, end
    if qos > 1:
        raise IndexError("QoS 2")
    if qos:
        mid, at = packet[end] << 8 | packet[end + 1], end + 2
    if has_properties:
        length = shift = 0
        for byte in packet[at : at + _LENGTH_BYTES]:
            length |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        else:
            raise IndexError("the properties' length is invalid")
        at += shift // 7 + length
    if at > len(packet):
        raise IndexError("the packet ends too soon")
    return Message(topic, bytes(packet[at:]), qos, mid)
