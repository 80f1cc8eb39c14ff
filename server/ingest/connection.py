"""One connection of the aggregator to the broker: MQTT 5 or 3.1.1, with a session kept by the broker."""

import contextlib
import os
import socket
import ssl
import time
from collections.abc import Sequence
from typing import Any

from paho.mqtt.client import Client, MQTTMessageInfo
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from ..wire.report import MAX_PAYLOAD_BYTES
from ..wire.topics import is_experiment
from .link import SUCCESS, Login, MqttLink, Protocol, worst
from .pacing import Pace
from .paho_client import KEPT_BYTES, Message

NO_TOPIC = "hushmote/v1/none"
"""Nobody subscribes to it: its UNSUBACK comes after all that the broker sends before it reads that."""

_FLUSH_S = 1.0
_SESSION_S = 0xFFFFFFFF  # MQTT 5: the session never expires. Without an interval it ends with the connection
_EXPERIMENT_BYTES = 2048  # longer ones are ignored: the largest has 1,093 with its signature
_MOST_EXPERIMENTS = 4096  # topics that are remembered; any number of others may be retained
_MAX_TOPIC = 128  # longer topics are ignored: no valid one is this long


class BrokerConnection(MqttLink):
    """A connection, and the messages that only it can acknowledge; a ReportConnection.

    most: messages the broker may send unacknowledged (only MQTT 5 can say so). kept: whether the broker
    should keep the session while nobody is connected.

    session_present: whether the broker had kept the session. granted: the SUBACK's first refusal, else its
    first reason. unsubscribed: the last UNSUBACK's first reason.
    messages: (topic, payload) in order of arrival; mids: packet ids of those with QoS 1.
    experiments: topic -> what somebody else last published there, or what is retained; the reader
    empties it. watched: the SUBACK's reason for these, None before it. refused: packet id of a publication ->
    why the broker refused it; only MQTT 5 says so.
    """

    def __init__(
        self,
        protocol: Protocol,
        client_id: str,
        login: Login,
        most: int,
        pace: Pace,
        tls: ssl.SSLContext | None = None,
        *,
        kept: bool = True,
    ) -> None:
        properties = {"ReceiveMaximum": most, "MaximumPacketSize": KEPT_BYTES}  # larger ones are dropped
        if kept:
            properties["SessionExpiryInterval"] = _SESSION_S
        super().__init__(protocol, client_id, login, tls, properties, manual_ack=True)
        self.pace = pace
        self.session_present = False
        self.granted: ReasonCode | None = None
        self.unsubscribed: ReasonCode | None = None
        self.messages: list[tuple[str, bytes]] = []
        self.mids: list[int] = []
        self.experiments: dict[str, bytes] = {}
        self.watched: ReasonCode | None = None
        self.refused: dict[int, str] = {}
        self._watch_mid: int | None = None
        self._most = most

    @property
    def most_bytes(self) -> int | None:
        """The largest packet that the broker takes, by its CONNACK, in bytes; None if it does not say."""
        return getattr(self.said, "MaximumPacketSize", None)

    @property
    def subscribed(self) -> bool:
        """Whether the broker has accepted the subscription."""
        return self.granted is not None and not self.granted.is_failure

    def subscribe(self, filters: Sequence[str]) -> None:
        """Subscribe to these topic filters with QoS 1; `granted` is the answer."""
        self.client.subscribe([(f, 1) for f in filters])

    def watch(self, filters: Sequence[str]) -> None:
        """Ask for what is retained on these topic filters and what others publish there; see `watched`.

        With QoS 0, so that the broker keeps nothing of it in the session.
        """
        options: Any = SubscribeOptions(qos=0, noLocal=True) if self.protocol == "5" else 0
        _, self._watch_mid = self.client.subscribe([(f, options) for f in filters])

    def unsubscribe(self, filters: Sequence[str]) -> None:
        """Unsubscribe from these topic filters; `unsubscribed` is the answer."""
        self.client.unsubscribe(list(filters))

    def publish(self, topic: str, payload: bytes) -> MQTTMessageInfo:
        """Publish with QoS 1, retained; the return value tells whether the broker has answered."""
        return self.client.publish(topic, payload, qos=1, retain=True)

    def turn(self, wait_s: float, most: int) -> bool:
        """Wait at most wait_s seconds for the broker, then read, write and keep alive; False once it is lost.

        Nothing more is read once `most` messages are held.
        """
        before, self._most = len(self.messages), most
        if before >= most:  # loop() would read one more
            return self.client.loop_misc() == SUCCESS
        alive = self.read(wait_s) == SUCCESS
        if len(self.messages) > before:
            self.pace.arrived(len(self.messages), len(self.messages) - before, time.monotonic())
        return alive

    def _may_read(self) -> bool:
        return len(self.messages) < self._most

    def _on_connect(self, client: Client, _data: Any, flags: Any, reason: ReasonCode, said: Any) -> None:
        super()._on_connect(client, _data, flags, reason, said)
        self.session_present = bool(flags.session_present)

    def _on_subscribe(self, _c: Client, _d: Any, mid: int, reasons: list[ReasonCode], _p: Any) -> None:
        if mid == self._watch_mid:
            self.watched = worst(reasons)
        else:
            self.granted = worst(reasons)

    def _on_unsubscribe(self, _c: Client, _d: Any, _mid: int, reasons: list[ReasonCode], _p: Any) -> None:
        self.unsubscribed = reasons[0] if reasons else ReasonCode(PacketTypes.UNSUBACK, "Success")

    def _on_publish(self, _client: Client, _data: Any, mid: int, reason: ReasonCode, _p: Any) -> None:
        if reason.is_failure:
            self.refused[mid] = str(reason).lower()

    def _on_message(self, _client: Client, _data: Any, message: Message) -> None:
        topic = message.topic[:_MAX_TOPIC]
        if message.qos == 0 and is_experiment(topic):
            if topic in self.experiments or len(self.experiments) < _MOST_EXPERIMENTS:
                self.experiments[topic] = message.payload[:_EXPERIMENT_BYTES]
            return
        # Keep one byte too many: it is as malformed as a megabyte, in less memory.
        self.messages.append((topic, message.payload[: MAX_PAYLOAD_BYTES + 1]))
        if message.qos == 1:
            self.mids.append(message.mid)

    def acknowledge(self) -> None:
        """Acknowledge all messages in order and forget them; harmless if the connection is gone."""
        self.client.acknowledge(self.mids)
        self.pace.committed(len(self.messages), time.monotonic())
        self.messages.clear()
        self.mids.clear()

    def close(self, *, end_session: bool = False) -> None:
        """Send what is still unsent, acknowledgements first, and disconnect; once is enough.

        Returns when the broker has read all of it, or after a second or two: a client that connects again
        sooner takes the session over, and mosquitto then drops acknowledgements that it has not read. The
        session is kept; with MQTT 5 and end_session it ends, with everything the broker kept for it.
        """
        if not self.flush(_FLUSH_S):
            return
        properties = Properties(PacketTypes.DISCONNECT)
        properties.SessionExpiryInterval = 0
        own = self.client.socket()
        # A second hold on the connection, since paho closes its own after sending the DISCONNECT.
        fd = -1 if own is None else own.fileno()
        with contextlib.nullcontext() if fd < 0 else _second_hold(fd) as last:
            self.client.disconnect(properties=properties if end_session else None)
            if last is not None:
                _await_end(last, time.monotonic() + _FLUSH_S)


def _second_hold(fd: int) -> contextlib.AbstractContextManager[socket.socket | None]:
    try:
        return socket.socket(fileno=os.dup(fd))
    except OSError:  # too many open files: then nobody waits until the broker has read all
        return contextlib.nullcontext()


def _await_end(connection: socket.socket, end: float) -> None:
    """Read and discard until the other side closes, or until the end."""
    with contextlib.suppress(OSError):
        while (left := end - time.monotonic()) > 0:
            connection.settimeout(left)
            if not connection.recv(1 << 16):
                return
