"""Deliver reports through a real MQTT broker: a few connections publish for many devices."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.reasoncodes import ReasonCode

from ..server.errors import HushmoteError
from ..server.wire.topics import report_topic
from .faithful import Delivery, SimulatedFleet

if TYPE_CHECKING:
    from .broker import Broker

# Deliveries that await acknowledgement on one connection. paho scans all of them at each acknowledgement;
# with 500, a delivery takes a third more processor time than with 64.
_WINDOW = 64
_KEEPALIVE_S = 60
_ASK_AGAIN_S = 1.0


class GatewayError(HushmoteError):
    """Raised if a broker cannot be reached, refuses the connection, or does not answer."""


class _Connection:
    """One connection, with the unacknowledged publications on it, by packet id.

    Args:
        servers: Equivalent (host, port); if one does not answer or dies, the next is tried.
    """

    def __init__(
        self,
        servers: Sequence[tuple[str, int]],
        username: str | None,
        password: str | None,
        timeout_s: float,
    ) -> None:
        self._servers = list(servers)
        self._timeout_s = timeout_s
        self._closing = False
        self.waiting: dict[int, Delivery] = {}
        self._acknowledged: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._connected: queue.SimpleQueue[ReasonCode] = queue.SimpleQueue()
        # Every broker supports MQTT 3.1.1, and mosquitto's receive maximum of 20 applies only to MQTT 5.
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv311)
        if username is not None:
            self._client.username_pw_set(username, password)
        self._client.max_inflight_messages_set(_WINDOW)
        # paho's default delays double until a single one is as long as the acknowledgement timeout.
        self._client.reconnect_delay_set(1, 2)
        self._client.on_connect = lambda _c, _u, _f, reason, _p: self._connected.put(reason)
        self._client.on_publish = lambda _c, _u, mid, _r, _p: self._acknowledged.put(mid)
        if len(self._servers) > 1:
            self._client.on_disconnect = self._client.on_connect_fail = self._use_next_server

    @property
    def _address(self) -> str:
        host, port = self._servers[0]
        return f"{host}:{port}"

    def open(self) -> None:
        for attempts_left in range(len(self._servers), 0, -1):
            try:
                self._client.connect(*self._servers[0], keepalive=_KEEPALIVE_S)
                break
            except OSError as e:
                if attempts_left == 1:
                    reason = e.strerror or str(e)
                    text = f"no MQTT broker at {self._address} ({reason}); start one there"
                    raise GatewayError(text) from None
                self._servers.append(self._servers.pop(0))
        self._client.loop_start()
        try:
            reason = self._connected.get(timeout=self._timeout_s)
        except queue.Empty:
            self.close()
            raise GatewayError(
                f"no answer in {self._timeout_s:g} s: {self._address} is not a broker"
            ) from None
        if reason.is_failure:
            self.close()
            raise GatewayError(f"the broker at {self._address} refuses the connection: {reason}")

    def _use_next_server(self, *_: object) -> None:
        """Make the client connect to the next server, where it resends everything unacknowledged."""
        if not self._closing:
            self._servers.append(self._servers.pop(0))
            self._client.connect_async(*self._servers[0], keepalive=_KEEPALIVE_S)

    def retained(self, topic: str, timeout_s: float) -> bytes | None:
        messages: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._client.on_message = lambda _c, _u, message: messages.put(bytes(message.payload))
        end = time.monotonic() + timeout_s
        try:
            while time.monotonic() < end:
                # Subscribe again each time: the server may have died, or sent nothing because it had lost its
                # peers.
                self._client.subscribe(topic, qos=0)
                with suppress(queue.Empty):
                    return messages.get(timeout=min(_ASK_AGAIN_S, timeout_s))
            return None
        finally:
            self._client.unsubscribe(topic)

    def publish(self, topic: str, delivery: Delivery) -> None:
        message = self._client.publish(topic, delivery.payload, qos=1)
        self.waiting[message.mid] = delivery

    def collect(self, fleet: SimulatedFleet, max_waiting: int) -> int:
        """Pass on acknowledgements until at most max_waiting remain; return how many were passed on."""
        acknowledged_count = 0
        deadline = time.monotonic() + self._timeout_s
        while self.waiting:
            is_enough = len(self.waiting) <= max_waiting
            try:
                mid = self._acknowledged.get(not is_enough, max(deadline - time.monotonic(), 0.001))
            except queue.Empty:
                if is_enough:
                    break
                text = f"{len(self.waiting)} reports have not been acknowledged for {self._timeout_s:g} s"
                raise GatewayError(f"{text} from {self._address}") from None
            fleet.acknowledge(self.waiting.pop(mid))
            acknowledged_count += 1
            deadline = time.monotonic() + self._timeout_s
        return acknowledged_count

    def close(self) -> None:
        self._closing = True
        self._client.disconnect()
        self._client.loop_stop()


class Gateways:
    """Connections that publish for a fleet with QoS 1, each report on its device's topic; a context manager.

    Each server gets one connection, which is fastest because all threads share a core with the devices; a
    connection moves to another server if its server dies. A device always uses the same connection, so that
    its reports stay in order. A broken connection is reopened, and unacknowledged reports are sent again.

    Args:
        other_servers: (host, port) of the other servers of a cluster.

    Raises:
        GatewayError: On entry, if the broker is unreachable or refuses the connection.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        username: str | None = None,
        password: str | None = None,
        other_servers: Sequence[tuple[str, int]] = (),
        timeout_s: float = 30.0,
    ) -> None:
        servers = [(host, port), *other_servers]
        self._connections = [
            _Connection(servers[first:] + servers[:first], username, password, timeout_s)
            for first in range(len(servers))
        ]

    def __enter__(self) -> Self:
        opened: list[_Connection] = []
        try:
            for connection in self._connections:
                connection.open()
                opened.append(connection)
        except GatewayError:
            for connection in opened:
                connection.close()
            raise
        return self

    def __exit__(
        self, type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self._connections:
            connection.close()

    def retained(self, topic: str, timeout_s: float) -> bytes | None:
        """Return the broker's retained message on a topic, as a device receives it, or None."""
        return self._connections[0].retained(topic, timeout_s)

    def deliver(
        self,
        fleet: SimulatedFleet,
        deliveries: Iterable[Delivery],
        progress: Callable[[int], object] = lambda _: None,
    ) -> int:
        """Publish all deliveries, wait for every acknowledgement, and return how many there were.

        Args:
            fleet: Records each acknowledgement.
            deliveries: The reports to publish.
            progress: Called occasionally with the number of acknowledgements since the last call.

        Raises:
            GatewayError: If the broker acknowledges nothing for timeout_s; the fleet has recorded earlier
                acknowledgements.
        """
        acknowledged_count = 0
        for delivery in deliveries:
            connection = self._connections[delivery.position % len(self._connections)]
            connection.publish(report_topic(fleet.name, delivery.device), delivery)
            collected = connection.collect(fleet, _WINDOW - 1)
            acknowledged_count += collected
            if collected:
                progress(collected)
        for connection in self._connections:
            collected = connection.collect(fleet, 0)
            acknowledged_count += collected
            progress(collected)
        return acknowledged_count


def gateways_at(broker: Broker) -> Gateways:
    """Return connections through which devices reach a broker, one per server if it has several."""
    return Gateways(
        broker.host,
        broker.port,
        username=broker.username,
        password=broker.password,
        other_servers=broker.others,
    )
