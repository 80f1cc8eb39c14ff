"""An aggregator's connection to the broker, with MQTT 5 or 3.1.1 and a persistent session."""

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
from ..wire.topics import is_experiment, is_proof
from .broker_limits import SESSION_S
from .broker_url import BrokerAddress
from .link import SUCCESS, MqttLink, Protocol, worst
from .pacing import Pace
from .paho_client import KEPT_BYTES, Message

NO_TOPIC = "hushmote/v1/none"
"""A topic without subscribers; its UNSUBACK follows everything that the broker sent before reading it."""

_FLUSH_S = 1.0
# Longer messages are truncated; the largest valid one has 1,093 bytes with its signature.
_EXPERIMENT_BYTES = 2048
_MAX_EXPERIMENTS = 4096  # topics to keep, because a broker may retain any number
_MAX_TOPIC = 128  # longer topics are ignored because no valid topic is this long


class BrokerConnection(MqttLink):
    """A connection with the messages that only it can acknowledge; a ReportConnection.

    Args:
        protocol: The MQTT version.
        client_id: The client id, which identifies the session.
        address: As for MqttLink.
        max_in_flight: How many unacknowledged messages the broker may send; has no effect before MQTT 5.
        pace: Determines when a batch is due.
        tls: How to check the broker; None for plain TCP.
        keep_session: Whether the broker should keep the session while the client is disconnected.

    Attributes:
        subscribe_reason: The SUBACK's first refusal, or else its lowest QoS; None until it arrives.
        unsubscribe_reason: The last UNSUBACK's first reason; None until it arrives.
        messages: (topic, payload) pairs in order of arrival.
        mids: Packet ids of the messages with QoS 1.
        experiments: Retained experiments and proofs, and other clients' publications of them, by topic; the
            reader empties it.
        watch_reason: The SUBACK's reason for `experiments`; None until it arrives.
        refusals: Why the broker refused publications, by topic, which the reader removes; only MQTT 5 has
            reasons.
    """

    def __init__(
        self,
        protocol: Protocol,
        client_id: str,
        address: BrokerAddress,
        max_in_flight: int,
        pace: Pace,
        tls: ssl.SSLContext | None = None,
        *,
        keep_session: bool = True,
    ) -> None:
        properties = {
            "ReceiveMaximum": max_in_flight,
            "MaximumPacketSize": KEPT_BYTES,
        }  # larger ones are dropped
        if keep_session:
            properties["SessionExpiryInterval"] = SESSION_S  # the default is to end with the connection
        super().__init__(protocol, client_id, address, tls, properties, manual_ack=True)
        self.pace = pace
        self.subscribe_reason: ReasonCode | None = None
        self.unsubscribe_reason: ReasonCode | None = None
        self.messages: list[tuple[str, bytes]] = []
        self.mids: list[int] = []
        self.experiments: dict[str, bytes] = {}
        self.watch_reason: ReasonCode | None = None
        self.refusals: dict[str, str] = {}
        self._topics: dict[int, str] = {}  # of unacknowledged publications, by packet id
        self._watch_mid: int | None = None
        self._max_messages = max_in_flight

    @property
    def most_bytes(self) -> int | None:
        """The largest packet that the broker accepts, in bytes, or None if unknown."""
        return getattr(self.connack_properties, "MaximumPacketSize", None)

    @property
    def subscribed(self) -> bool:
        """Whether the broker has accepted the subscription."""
        return self.subscribe_reason is not None and not self.subscribe_reason.is_failure

    def subscribe(self, filters: Sequence[str]) -> None:
        """Subscribe to these topic filters with QoS 1; `subscribe_reason` holds the answer."""
        self.client.subscribe([(f, 1) for f in filters])

    def watch(self, filters: Sequence[str]) -> None:
        """Request retained messages and other clients' publications on these filters; see `watch_reason`.

        It uses QoS 0, so that the broker does not keep any of them in the session.
        """
        options: Any = SubscribeOptions(qos=0, noLocal=True) if self.protocol == "5" else 0
        _, self._watch_mid = self.client.subscribe([(f, options) for f in filters])

    def unsubscribe(self, filters: Sequence[str]) -> None:
        """Unsubscribe from these topic filters; `unsubscribe_reason` holds the answer."""
        self.client.unsubscribe(list(filters))

    def publish(self, topic: str, payload: bytes, *, retain: bool = True) -> MQTTMessageInfo:
        """Publish a message with QoS 1; the result shows whether the broker has answered."""
        info = self.client.publish(topic, payload, qos=1, retain=retain)
        self._topics[info.mid] = topic
        return info

    def turn(self, wait_s: float, most: int) -> bool:
        """Wait for the broker, then read, write and keep alive.

        Args:
            wait_s: The longest wait, seconds.
            most: The number of messages at which reading stops.

        Returns:
            False once the connection is lost.
        """
        before, self._max_messages = len(self.messages), most
        if before >= most:  # loop() would read one more
            return self.client.loop_misc() == SUCCESS
        alive = self.read(wait_s) == SUCCESS
        if len(self.messages) > before:
            self.pace.note_arrival(len(self.messages), len(self.messages) - before, time.monotonic())
        return alive

    def _may_read(self) -> bool:
        return len(self.messages) < self._max_messages

    def _on_subscribe(self, _c: Client, _d: Any, mid: int, reasons: list[ReasonCode], _p: Any) -> None:
        if mid == self._watch_mid:
            self.watch_reason = worst(reasons)
        else:
            self.subscribe_reason = worst(reasons)

    def _on_unsubscribe(self, _c: Client, _d: Any, _mid: int, reasons: list[ReasonCode], _p: Any) -> None:
        self.unsubscribe_reason = reasons[0] if reasons else ReasonCode(PacketTypes.UNSUBACK, "Success")

    def _on_publish(self, _client: Client, _data: Any, mid: int, reason: ReasonCode, _p: Any) -> None:
        topic = self._topics.pop(mid, "")
        if reason.is_failure:
            self.refusals[topic] = str(reason).lower()

    def _on_message(self, _client: Client, _data: Any, message: Message) -> None:
        topic = message.topic[:_MAX_TOPIC]
        if message.qos == 0 and (is_experiment(topic) or is_proof(topic)):
            if topic in self.experiments or len(self.experiments) < _MAX_EXPERIMENTS:
                self.experiments[topic] = message.payload[:_EXPERIMENT_BYTES]
            return
        # Truncate long payloads to save memory; one extra byte is enough to reject them as malformed.
        self.messages.append((topic, message.payload[: MAX_PAYLOAD_BYTES + 1]))
        if message.qos == 1:
            self.mids.append(message.mid)

    def acknowledge(self) -> None:
        """Acknowledge all messages in order and forget them; harmless after the connection is lost."""
        self.client.acknowledge(self.mids)
        self.pace.note_commit(len(self.messages), time.monotonic())
        self.messages.clear()
        self.mids.clear()

    def close(self, *, end_session: bool = False) -> None:
        """Send pending packets, acknowledgements first, and disconnect; further calls do nothing.

        It returns when the broker has read everything, or after a second or two. A client that connects
        sooner takes over the session, and mosquitto then drops acknowledgements that it has not read.

        Args:
            end_session: Whether to end the session and discard everything kept for it; only with MQTT 5.
        """
        if not self.flush(_FLUSH_S):
            return
        properties = Properties(PacketTypes.DISCONNECT)
        properties.SessionExpiryInterval = 0
        client_socket = self.client.socket()
        # Use a duplicate, because paho closes its socket after sending the DISCONNECT.
        fd = -1 if client_socket is None else client_socket.fileno()
        with contextlib.nullcontext() if fd < 0 else _duplicate_socket(fd) as duplicate:
            self.client.disconnect(properties=properties if end_session else None)
            if duplicate is not None:
                _await_end(duplicate, time.monotonic() + _FLUSH_S)


def _duplicate_socket(fd: int) -> contextlib.AbstractContextManager[socket.socket | None]:
    try:
        return socket.socket(fileno=os.dup(fd))
    except OSError:  # too many open files: do not wait until the broker has read everything
        return contextlib.nullcontext()


def _await_end(connection: socket.socket, end: float) -> None:
    """Read and discard data until the other side closes, or until the monotonic time `end`."""
    with contextlib.suppress(OSError):
        while (remaining_s := end - time.monotonic()) > 0:
            connection.settimeout(remaining_s)
            if not connection.recv(1 << 16):
                return
