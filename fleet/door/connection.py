"""One connection of the door to the broker: publishes reports with QoS 1, and reads what is retained."""

import contextlib
import select
import socket
import ssl
from collections.abc import Callable
from typing import Any

from paho.mqtt.client import Client
from paho.mqtt.reasoncodes import ReasonCode

from ...server.ingest.link import SUCCESS, Login, MqttLink, Protocol, worst
from ...server.ingest.paho_client import Message
from .retained import Retained

_FLUSH_S = 0.5
_MOST_PACKET_BYTES = 32_768  # of what the broker sends: a result has a few thousand
_MOST_IN_FLIGHT = 65_535
_NOT_SUBSCRIBED = "hushmote/v1/+/experiment/+/+"  # its UNSUBACK comes after all that is retained


class DoorConnection(MqttLink):
    """A connection without a session: the sender repeats what is not acknowledged.

    granted: the SUBACK's first refusal, else its first reason. settled: whether all retained messages have
    come. retained: those messages. acknowledged: called with the packet id and reason of each PUBACK.
    """

    def __init__(
        self,
        protocol: Protocol,
        client_id: str,
        login: Login,
        tls: ssl.SSLContext | None,
        retained: Retained,
        acknowledged: Callable[[int, ReasonCode], None],
    ) -> None:
        properties = {"MaximumPacketSize": _MOST_PACKET_BYTES}
        super().__init__(protocol, client_id, login, tls, properties, reconnect_on_failure=False)
        self.granted: ReasonCode | None = None
        self.settled = False
        self.retained = retained
        self._acknowledged = acknowledged
        self.client.max_inflight_messages_set(0)  # no limit in paho: see `most`

    @property
    def most(self) -> int:
        """How many publications the broker takes before it has acknowledged the first."""
        return getattr(self.connack_properties, "ReceiveMaximum", _MOST_IN_FLIGHT)

    def watch(self, filters: list[str]) -> None:
        """Ask for what is retained and what comes later; `settled` once all retained messages have come."""
        self.client.subscribe([(f, 0) for f in filters])
        self.client.unsubscribe(_NOT_SUBSCRIBED)

    def publish(self, topic: str, payload: bytes) -> int | None:
        """Publish with QoS 1; returns the packet id that its acknowledgement will have, None if lost."""
        info = self.client.publish(topic, payload, qos=1)
        return info.mid if info.rc == SUCCESS else None

    def turn(self, wait_s: float, wake: socket.socket) -> bool:
        """Wait at most wait_s seconds for the broker or for `wake`, then read and write; False once lost."""
        broker = self.client.socket()
        if broker is None:
            return False
        writing = [broker] if self.client.want_write() else []
        with contextlib.suppress(OSError, ValueError):  # from a closed socket; the loop notices
            select.select([broker, wake], writing, [], 0.0 if self.client.has_more else wait_s)
        return self.read(0.0) == SUCCESS

    def close(self) -> None:
        """Send what is still unsent and disconnect."""
        if self.flush(_FLUSH_S):
            self.client.disconnect()

    def _on_message(self, _client: Client, _data: Any, message: Message) -> None:
        self.retained.take(message.topic, message.payload)

    def _on_publish(self, _client: Client, _data: Any, mid: int, reason: ReasonCode, _p: Any) -> None:
        self._acknowledged(mid, reason)

    def _on_subscribe(self, _c: Client, _d: Any, mid: int, reasons: list[ReasonCode], _p: Any) -> None:
        self.granted = worst(reasons)

    def _on_unsubscribe(self, _c: Client, _d: Any, mid: int, reasons: list[ReasonCode], _p: Any) -> None:
        self.settled = True
