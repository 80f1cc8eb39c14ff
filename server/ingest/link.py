"""An MQTT connection from CONNECT until it is lost, for the aggregator, the door and `hushmote status`."""

import ssl
import time
from collections.abc import Mapping
from typing import Any, Literal

from paho.mqtt.client import Client, MQTTv5, MQTTv311
from paho.mqtt.enums import CallbackAPIVersion, LogLevel, MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from .broker_url import BrokerAddress
from .paho_client import BatchClient

Protocol = Literal["5", "3.1.1"]
_KEEPALIVE_S = 60
SUCCESS = MQTTErrorCode.MQTT_ERR_SUCCESS


class MqttLink:
    """A connection, created anew for each attempt so that it does not inherit any state.

    Subclasses handle packets in _on_message, _on_publish, _on_subscribe and _on_unsubscribe, as in paho.

    Args:
        protocol: The MQTT version.
        client_id: The client id, which identifies the session.
        address: The broker's login, WebSocket path and topic prefix.
        tls: How to check the broker and which certificate to send; None for plain TCP.
        properties: MQTT 5 CONNECT properties by name; without SessionExpiryInterval no session is kept.
        options: Passed to paho's Client.

    Attributes:
        started_at: The monotonic time at which the connection was created.
        answer: The CONNACK's reason; None until it arrives.
        session_present: Whether the broker had a session for the client id.
        connack_properties: The CONNACK's MQTT 5 properties.
        end_reason: The reason in the broker's DISCONNECT; None if it sent none, as before MQTT 5.
        end_properties: That DISCONNECT's properties.
        error: The socket's first error, recorded only before the CONNACK.
    """

    def __init__(
        self,
        protocol: Protocol,
        client_id: str,
        address: BrokerAddress,
        tls: ssl.SSLContext | None,
        properties: Mapping[str, int],
        **options: Any,
    ) -> None:
        self.protocol = protocol
        self.started_at = time.monotonic()
        self.answer: ReasonCode | None = None
        self.session_present = False
        self.connack_properties: Properties | None = None
        self.end_reason: ReasonCode | None = None
        self.end_properties: Properties | None = None
        self.error = ""
        self._properties = properties
        self._keeps_session = "SessionExpiryInterval" in properties
        mqtt_311 = {"protocol": MQTTv311, "clean_session": not self._keeps_session}
        options |= {"protocol": MQTTv5} if protocol == "5" else mqtt_311
        if address.websocket:
            options["transport"] = "websockets"
        self.client = BatchClient(CallbackAPIVersion.VERSION2, client_id, **options)
        self.client.topic_prefix = address.prefix
        if address.websocket:
            self.client.ws_set_options(address.websocket)
        if address.username is not None:
            self.client.username_pw_set(address.username, address.password)
        if tls is not None:
            self.client.tls_set_context(tls)
        for event in ("connect", "disconnect", "log", "message", "publish", "subscribe", "unsubscribe"):
            setattr(self.client, f"on_{event}", getattr(self, f"_on_{event}", None))

    def connect(self, host: str, port: int) -> None:
        """Send CONNECT.

        Raises:
            OSError: If nothing is listening.
            ValueError: If the host name is invalid.
        """
        options: dict[str, Any] = {}
        if self.protocol == "5":
            options = {"clean_start": not self._keeps_session, "properties": Properties(PacketTypes.CONNECT)}
            for name, value in self._properties.items():
                setattr(options["properties"], name, value)
        self.client.connect(host, port, _KEEPALIVE_S, **options)

    @property
    def accepted(self) -> bool:
        """Whether the broker has accepted the connection."""
        return self.answer is not None and not self.answer.is_failure

    def read(self, wait_s: float) -> MQTTErrorCode:
        """Wait at most wait_s seconds, read, write and keep alive; return SUCCESS unless it is lost."""
        rc = self.client.loop(0.0 if self.client.has_more else wait_s)
        while rc == SUCCESS and self.client.has_more and self._may_read():
            rc = self.client.loop_read()
        return rc

    def flush(self, seconds: float) -> bool:
        """Send pending packets for at most this many seconds; return False if the connection is lost."""
        end = time.monotonic() + seconds
        while self.client.want_write() and time.monotonic() < end:
            if self.client.loop(0.01) != SUCCESS:
                return False
        return True

    def _may_read(self) -> bool:
        return True

    def _on_connect(
        self, client: Client, _data: Any, flags: Any, reason: ReasonCode, properties: Any
    ) -> None:
        self.answer, self.connack_properties = reason, properties
        self.session_present = bool(flags.session_present)
        most = getattr(properties, "ReceiveMaximum", None)
        if most is not None:
            self.client.limit_in_flight(most)
        client.on_log = None  # otherwise paho formats a log line for every message

    def _on_disconnect(self, _c: Client, _d: Any, flags: Any, reason: ReasonCode, properties: Any) -> None:
        if flags.is_disconnect_packet_from_server:
            self.end_reason, self.end_properties = reason, properties

    def _on_log(self, _client: Client, _data: Any, level: int, text: str) -> None:
        # Only this log line says why TLS failed after the handshake, such as a refused client certificate.
        if level == LogLevel.MQTT_LOG_ERR:
            self.error = self.error or text  # later lines only report that there is no connection


def worst(reasons: list[ReasonCode]) -> ReasonCode:
    """Return the first refusal among a SUBACK's reasons, or the lowest QoS if there is no refusal."""
    return next((r for r in reasons if r.is_failure), min(reasons, key=lambda reason: reason.value))
