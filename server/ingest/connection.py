"""One connection of the aggregator to the broker: MQTT 5 or 3.1.1 with a session that the broker keeps."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from paho.mqtt.client import Client, MQTTMessage, MQTTMessageInfo, MQTTv5, MQTTv311
from paho.mqtt.enums import CallbackAPIVersion, LogLevel, MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from ..wire.report import MAX_PAYLOAD_BYTES
from ..wire.topics import is_experiment
from .pacing import Pace
from .paho_client import BatchClient

Protocol = Literal["5", "3.1.1"]

_KEEPALIVE_S = 60
_FLUSH_S = 1.0
_SESSION_S = 0xFFFFFFFF  # MQTT 5: the session never expires. Without an interval it ends with the connection
_MOST_PACKET_BYTES = (
    4096  # no report or experiment is half as large; with MQTT 5 the broker drops what is larger
)
_EXPERIMENT_BYTES = 2048  # that are looked at: the largest has 1,093 with its signature
_MOST_EXPERIMENTS = 4096  # topics that are remembered; any number may be retained that are not ours
_MAX_TOPIC = 128  # characters that are looked at: no valid topic has as many


class BrokerConnection:
    """A connection from CONNECT to its loss, and the messages that only it can acknowledge.

    Made anew for each attempt, so that no acknowledgement or half-read packet of an old connection gets into
    a new one. login: user name and password, or None twice. most: messages the broker may send unacknowledged
    (only MQTT 5 can say so). tls: how the broker is checked and what is shown to it, None for plain TCP.
    kept: whether the broker is to keep the session while nobody is connected.

    answer: the CONNACK's reason, None before it. session_present: whether the broker had kept the session.
    granted: the SUBACK's first refusal, else its first reason. unsubscribed: the UNSUBACK's first reason.
    trouble: what the socket's first failure was, before the CONNACK only.
    messages: (topic, payload) in order of arrival; mids: packet ids of those with QoS 1.
    experiments: topic -> what was last published there by somebody else, or is retained; whoever looks at it
    empties it. watched: the SUBACK's reason for these, None before it.
    most_bytes: of a packet that the broker takes, as its CONNACK says, None where it does not. refused:
    packet id of a publication -> why the broker refused it; only MQTT 5 says so.
    """

    def __init__(
        self,
        protocol: Protocol,
        client_id: str,
        login: tuple[str | None, str | None],
        most: int,
        pace: Pace,
        tls: ssl.SSLContext | None = None,
        *,
        kept: bool = True,
    ) -> None:
        self.protocol = protocol
        self.pace = pace
        self.started = time.monotonic()
        self.answer: ReasonCode | None = None
        self.session_present = False
        self.granted: ReasonCode | None = None
        self.unsubscribed: ReasonCode | None = None
        self.trouble = ""
        self.messages: list[tuple[str, bytes]] = []
        self.mids: list[int] = []
        self.experiments: dict[str, bytes] = {}
        self.watched: ReasonCode | None = None
        self.most_bytes: int | None = None
        self.refused: dict[int, str] = {}
        self._watch_mid: int | None = None
        self._most = most
        self._kept = kept
        options: dict[str, Any] = {"client_id": client_id, "manual_ack": True, "protocol": MQTTv5}
        if protocol == "3.1.1":
            options |= {"protocol": MQTTv311, "clean_session": not kept}
        self.client = BatchClient(CallbackAPIVersion.VERSION2, **options)
        if login[0] is not None:
            self.client.username_pw_set(*login)
        if tls is not None:
            self.client.tls_set_context(tls)
        self.client.on_connect = self._on_connect
        self.client.on_subscribe = self._on_subscribe
        self.client.on_unsubscribe = self._on_unsubscribe
        self.client.on_log = self._on_log
        self.client.on_message = self._on_message
        self.client.on_publish = self._on_publish

    def connect(self, host: str, port: int) -> None:
        """Send CONNECT; raises OSError where nobody listens and ValueError for what is not a host name."""
        options: dict[str, Any] = {}
        if self.protocol == "5":
            properties = Properties(PacketTypes.CONNECT)
            properties.SessionExpiryInterval = _SESSION_S if self._kept else 0
            properties.ReceiveMaximum = self._most
            properties.MaximumPacketSize = _MOST_PACKET_BYTES
            options = {"clean_start": not self._kept, "properties": properties}
        self.client.connect(host, port, _KEEPALIVE_S, **options)

    @property
    def accepted(self) -> bool:
        """Whether the broker has accepted the connection."""
        return self.answer is not None and not self.answer.is_failure

    @property
    def subscribed(self) -> bool:
        """Whether the broker has accepted the subscription."""
        return self.granted is not None and not self.granted.is_failure

    def subscribe(self, filters: Sequence[str]) -> None:
        """Ask for what these topic filters name, with QoS 1; `granted` is the answer."""
        self.client.subscribe([(f, 1) for f in filters])

    def watch(self, filters: Sequence[str]) -> None:
        """Ask for what is retained on these topic filters and what others publish there; `watched` answers.

        With QoS 0, so that the broker keeps nothing of it in the session.
        """
        if self.protocol == "5":
            options = SubscribeOptions(qos=0, noLocal=True)
            _, self._watch_mid = self.client.subscribe([(f, options) for f in filters])
        else:
            _, self._watch_mid = self.client.subscribe([(f, 0) for f in filters])

    def unsubscribe(self, filters: Sequence[str]) -> None:
        """Ask for no more of it; `unsubscribed` is the answer."""
        self.client.unsubscribe(list(filters))

    def publish(self, topic: str, payload: bytes) -> MQTTMessageInfo:
        """Publish with QoS 1, retained; what is returned says whether the broker has answered."""
        return self.client.publish(topic, payload, qos=1, retain=True)

    def turn(self, wait_s: float, most: int) -> bool:
        """Wait wait_s seconds at most for the broker, then read, write and keep alive; False once it is lost.

        Nothing more is read once `most` messages are held.
        """
        before = len(self.messages)
        if before >= most:  # loop() would read one more
            return self.client.loop_misc() == MQTTErrorCode.MQTT_ERR_SUCCESS
        rc = self.client.loop(0.0 if self.client.has_more else wait_s)
        while rc == MQTTErrorCode.MQTT_ERR_SUCCESS and self.client.has_more and len(self.messages) < most:
            rc = self.client.loop_read()
        if len(self.messages) > before:
            self.pace.arrived(len(self.messages), len(self.messages) - before, time.monotonic())
        return rc == MQTTErrorCode.MQTT_ERR_SUCCESS

    def _on_connect(self, client: Client, _data: Any, flags: Any, reason: ReasonCode, said: Any) -> None:
        self.answer = reason
        self.most_bytes = getattr(said, "MaximumPacketSize", None)
        self.session_present = bool(flags.session_present)
        client.on_log = None  # it would cost a line's formatting for every message

    def _on_log(self, _client: Client, _data: Any, level: int, text: str) -> None:
        # The only place where paho says why TLS failed after the handshake: a client certificate refused.
        if level == LogLevel.MQTT_LOG_ERR:
            self.trouble = self.trouble or text  # then only that there is no connection

    def _on_subscribe(
        self, _client: Client, _data: Any, mid: int, reasons: list[ReasonCode], _p: Any
    ) -> None:
        reason = next((r for r in reasons if r.is_failure), reasons[0])
        if mid == self._watch_mid:
            self.watched = reason
        else:
            self.granted = reason

    def _on_unsubscribe(
        self, _client: Client, _data: Any, _mid: int, reasons: list[ReasonCode], _p: Any
    ) -> None:
        self.unsubscribed = reasons[0] if reasons else ReasonCode(PacketTypes.UNSUBACK, "Success")

    def _on_publish(self, _client: Client, _data: Any, mid: int, reason: ReasonCode, _p: Any) -> None:
        if reason.is_failure:
            self.refused[mid] = str(reason).lower()

    def _on_message(self, _client: Client, _data: Any, message: MQTTMessage) -> None:
        try:
            topic = message.topic[:_MAX_TOPIC]
        except UnicodeDecodeError:
            topic = ""
        if message.qos == 0 and is_experiment(topic):
            if topic in self.experiments or len(self.experiments) < _MOST_EXPERIMENTS:
                self.experiments[topic] = bytes(message.payload[:_EXPERIMENT_BYTES])
            return
        # One byte too many is as malformed as a megabyte, and takes less memory.
        self.messages.append((topic, bytes(message.payload[: MAX_PAYLOAD_BYTES + 1])))
        if message.qos == 1:
            self.mids.append(message.mid)

    def acknowledge(self) -> None:
        """Acknowledge all messages in order and forget them; a connection that is gone takes no harm."""
        self.client.acknowledge(self.mids)
        self.pace.committed(len(self.messages), time.monotonic())
        self.messages.clear()
        self.mids.clear()

    def close(self, *, end_session: bool = False) -> None:
        """Send what is still unsent, acknowledgements first, and disconnect; once is enough.

        Returns when the broker has read all of it, or after a second or two: who connects again sooner takes
        the session over, and mosquitto then drops acknowledgements that it has not read yet. The session is
        kept, or with MQTT 5 and end_session is gone, and with it what the broker kept for it.
        """
        end = time.monotonic() + _FLUSH_S
        while self.client.want_write() and time.monotonic() < end:
            if self.client.loop(0.01) != MQTTErrorCode.MQTT_ERR_SUCCESS:
                return
        properties = Properties(PacketTypes.DISCONNECT)
        properties.SessionExpiryInterval = 0
        with self._held() as last:
            self.client.disconnect(properties=properties if end_session else None)
            if last is not None:
                _await_end(last, time.monotonic() + _FLUSH_S)

    @contextlib.contextmanager
    def _held(self) -> Iterator[socket.socket | None]:
        """Another hold on the connection, since paho closes its own once it has sent the DISCONNECT."""
        own = self.client.socket()
        if own is None or own.fileno() < 0:
            yield None
        else:
            with socket.socket(fileno=os.dup(own.fileno())) as other:
                yield other


def _await_end(connection: socket.socket, end: float) -> None:
    """Read, and forget, until the other side closes, or until the end."""
    with contextlib.suppress(OSError):
        while (left := end - time.monotonic()) > 0:
            connection.settimeout(left)
            if not connection.recv(1 << 16):
                return
