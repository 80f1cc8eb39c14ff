"""One connection of the door to the broker: publishes reports with QoS 1, and reads what is retained."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any

from paho.mqtt.client import Client, MQTTMessage, MQTTv5, MQTTv311
from paho.mqtt.enums import CallbackAPIVersion, LogLevel, MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from ..ingest.connection import Protocol
from ..ingest.paho_client import BatchClient
from .retained import Retained

_KEEPALIVE_S = 60
_FLUSH_S = 0.5
_MOST_PACKET_BYTES = 32_768  # of what the broker sends: a result has a few thousand
_MOST_IN_FLIGHT = 65_535
_NOT_SUBSCRIBED = "hushmote/v1/+/experiment/+/+"  # the answer to its end comes after all that is retained


class DoorConnection:
    """A connection from CONNECT to its loss, without a session: what is not acknowledged is its sender's.

    answer: the CONNACK's reason, None before it. refusal: the SUBACK's first refusal. settled: whether all
    that is retained has come. retained: what that is. most: publications that the broker takes before it has
    acknowledged the first. acknowledged: called with the packet id and reason of
    each PUBACK. trouble: what the socket's first failure was, before the CONNACK only.
    """

    def __init__(
        self,
        protocol: Protocol,
        client_id: str,
        login: tuple[str | None, str | None],
        tls: ssl.SSLContext | None,
        retained: Retained,
        acknowledged: Callable[[int, ReasonCode], None],
    ) -> None:
        self.protocol = protocol
        self.started = time.monotonic()
        self.answer: ReasonCode | None = None
        self.refusal: ReasonCode | None = None
        self.settled = False
        self.most = _MOST_IN_FLIGHT
        self.trouble = ""
        self.retained = retained
        self._acknowledged = acknowledged
        options: dict[str, Any] = {"client_id": client_id, "protocol": MQTTv5, "reconnect_on_failure": False}
        if protocol == "3.1.1":
            options |= {"protocol": MQTTv311, "clean_session": True}
        self.client = BatchClient(CallbackAPIVersion.VERSION2, **options)
        self.client.max_inflight_messages_set(0)  # no limit of paho's: see `most`
        if login[0] is not None:
            self.client.username_pw_set(*login)
        if tls is not None:
            self.client.tls_set_context(tls)
        self.client.on_connect = self._on_connect
        self.client.on_log = self._on_log
        self.client.on_message = self._on_message
        self.client.on_publish = self._on_publish
        self.client.on_subscribe = self._on_subscribe
        self.client.on_unsubscribe = self._on_unsubscribe

    def connect(self, host: str, port: int) -> None:
        """Send CONNECT; raises OSError where nobody listens and ValueError for what is not a host name."""
        options: dict[str, Any] = {}
        if self.protocol == "5":
            properties = Properties(PacketTypes.CONNECT)
            properties.MaximumPacketSize = _MOST_PACKET_BYTES
            options = {"clean_start": True, "properties": properties}
        self.client.connect(host, port, _KEEPALIVE_S, **options)

    def watch(self, filters: list[str]) -> None:
        """Ask for what is retained and whatever comes later; `settled` once the first part has come."""
        self.client.subscribe([(f, 0) for f in filters])
        self.client.unsubscribe(_NOT_SUBSCRIBED)

    def publish(self, topic: str, payload: bytes) -> int | None:
        """Publish with QoS 1; returns the packet id that its acknowledgement has, None where it is lost."""
        info = self.client.publish(topic, payload, qos=1)
        return info.mid if info.rc == MQTTErrorCode.MQTT_ERR_SUCCESS else None

    def turn(self, wait_s: float, wake: socket.socket) -> bool:
        """Wait wait_s seconds at most for the broker or for `wake`, then read and write; False once lost."""
        broker = self.client.socket()
        if broker is None:
            return False
        writing = [broker] if self.client.want_write() else []
        with contextlib.suppress(OSError, ValueError):  # of a socket that is gone; the loop says so
            select.select([broker, wake], writing, [], 0.0 if self.client.has_more else wait_s)
        rc = self.client.loop(0.0)
        while rc == MQTTErrorCode.MQTT_ERR_SUCCESS and self.client.has_more:
            rc = self.client.loop_read()
        return rc == MQTTErrorCode.MQTT_ERR_SUCCESS

    def close(self) -> None:
        """Send what is still unsent and disconnect."""
        end = time.monotonic() + _FLUSH_S
        while self.client.want_write() and time.monotonic() < end:
            if self.client.loop(0.01) != MQTTErrorCode.MQTT_ERR_SUCCESS:
                return
        self.client.disconnect()

    def _on_connect(
        self, client: Client, _data: Any, _flags: Any, reason: ReasonCode, properties: Properties | None
    ) -> None:
        self.answer = reason
        client.on_log = None  # it would cost a line's formatting for every message
        self.most = getattr(properties, "ReceiveMaximum", _MOST_IN_FLIGHT)

    def _on_log(self, _client: Client, _data: Any, level: int, text: str) -> None:
        if level == LogLevel.MQTT_LOG_ERR:  # why TLS failed after the handshake
            self.trouble = self.trouble or text  # then only that there is no connection

    def _on_message(self, _client: Client, _data: Any, message: MQTTMessage) -> None:
        with contextlib.suppress(UnicodeDecodeError):  # of a topic
            self.retained.take(message.topic, bytes(message.payload))

    def _on_publish(self, _client: Client, _data: Any, mid: int, reason: ReasonCode, _p: Any) -> None:
        self._acknowledged(mid, reason)

    def _on_subscribe(
        self, _client: Client, _data: Any, _mid: int, reasons: list[ReasonCode], _p: Any
    ) -> None:
        self.refusal = next((r for r in reasons if r.is_failure), None)

    def _on_unsubscribe(
        self, _client: Client, _data: Any, _mid: int, _reasons: list[ReasonCode], _p: Any
    ) -> None:
        self.settled = True
