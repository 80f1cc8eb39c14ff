"""paho's client for many small messages: it reads ahead, acknowledges in one piece, holds no large packet.

paho asks the kernel three times for every packet and once for every acknowledgement, and keeps a packet of
up to 256 MB until it is complete. It ends the connection at a message that has U+FEFF in its MQTT 5
properties, which brokers pass on, and send again to whoever connects again. The methods overridden and called
here are private to paho, whose major version is bounded; nothing else in Hushmote touches them.
"""

import contextlib
import ssl
import struct
from collections.abc import Iterable
from typing import Any

from paho.mqtt.client import Client, MQTTv5
from paho.mqtt.enums import MessageType, MQTTErrorCode
from paho.mqtt.properties import VariableByteIntegers

_AHEAD_BYTES = 1 << 16
KEPT_BYTES = 1 << 17
"""The longest topic, the packet id, and more than a report and the properties that a bridge adds to it.

With MQTT 3.1.1 the broker cannot be told a limit: bytes beyond this are read, to reach the next packet, and
thrown away.
"""
_PUBACK = struct.Struct("!BBH")


class BatchClient(Client):
    """paho's client, whose loop_read() must be called again as long as `has_more`."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._ahead = b""
        self._at = 0

    @property
    def has_more(self) -> bool:
        """Whether bytes were read ahead: select() does not know about them."""
        return self._at < len(self._ahead)

    def _sock_recv(self, bufsize: int) -> bytes:
        if self._at >= len(self._ahead):
            del self._in_packet["packet"][KEPT_BYTES:]
            self._ahead, self._at = super()._sock_recv(_AHEAD_BYTES), 0
        self._at += bufsize
        return self._ahead[self._at - bufsize : self._at]

    def _handle_publish(self) -> MQTTErrorCode:
        if self._protocol == MQTTv5:  # nobody reads the properties: they are cut out
            packet = self._in_packet["packet"]
            at = 2 + int.from_bytes(packet[:2], "big") + (2 if self._in_packet["command"] & 6 else 0)
            length, size = VariableByteIntegers.decode(packet[at : at + 4])
            packet[at : at + size + length] = b"\0"
        return super()._handle_publish()

    def _sock_send(self, buf: bytes | bytearray) -> int:
        try:
            return super()._sock_send(buf)
        except (ConnectionError, ssl.SSLError):
            # A broker that refuses our certificate says why and closes: the alert is still unread.
            if isinstance(self._sock, ssl.SSLSocket):
                with contextlib.suppress(ssl.SSLWantReadError):
                    self._sock.recv(1)
            raise

    def acknowledge(self, mids: Iterable[int]) -> None:
        """Send the acknowledgements of messages with QoS 1, by packet id, in order."""
        packets = b"".join(_PUBACK.pack(MessageType.PUBACK, 2, mid) for mid in mids)
        if packets:
            self._packet_queue(MessageType.PUBACK, packets, 0, 1)
