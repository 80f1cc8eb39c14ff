"""device/main.py's real wake-ups on CPython: Wi-Fi and MQTT client are counted, all else is as shipped."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from enumeration import POLICY, memory

from hushmote.device import ldp_client, main
from hushmote.server.wire import topics

FLEET = "home"
DEVICE = "board-1"


class Air:
    """What a board can reach: an access point and a broker with retained messages.

    connections: how often Wi-Fi was switched on. messages: (topic, payload) as published by the board.
    """

    STA_IF = 0

    def __init__(self) -> None:
        self.retained: dict[bytes, bytes] = {}
        self.connections = 0
        self.messages: list[tuple[bytes, bytes]] = []
        self.up = True
        self.on = False

    def experiment(self, name: str, payload: bytes) -> None:
        self.retained[topics.experiment_topic(FLEET, name).encode()] = payload

    def reports(self) -> list[bytes]:
        return [payload for topic, payload in self.messages if b"/report/" in topic]

    # network

    def WLAN(self, interface: int) -> "Air":
        return self

    def active(self, on: bool) -> None:
        self.connections += on
        self.on = on

    def isconnected(self) -> bool:
        return self.up

    def status(self) -> int:
        return 0

    def connect(self, *_: Any, **__: Any) -> None:
        """Both the station's and the MQTT client's."""

    def disconnect(self) -> None:
        """Likewise."""

    # umqtt.simple

    sock = None
    keepalive = 0

    def set_callback(self, take: Callable[[bytes, bytes], None]) -> None:
        self._take = take

    def set_last_will(self, *_: Any) -> None:
        pass

    def subscribe(self, topic: bytes, qos: int) -> None:
        if topic in self.retained:
            self._take(topic, self.retained[topic])

    def publish(self, topic: bytes, payload: bytes, retain: bool, qos: int) -> None:
        self.messages.append((bytes(topic), bytes(payload)))

    def check_msg(self) -> None:
        pass

    def ping(self) -> None:
        pass


def policy(*names: str) -> dict[str, Any]:
    return POLICY | {"experiments": names}


def provisioned() -> dict[int, bytes]:
    storage = memory()
    ldp_client.provision(storage, consent=True)
    return storage.slots


def install(
    patch: pytest.MonkeyPatch,
    air: Air,
    folder: Path,
    storage: Any,
    readings: Mapping[str, Any],
    rng: Any = None,
) -> None:
    """Make main.Application() a board with this flash, these sensors (a reading, or an exception) and rng."""

    def sensor(reading: Any) -> Callable[[], Any]:
        def read() -> Any:
            if isinstance(reading, Exception):
                raise reading
            return reading

        return read

    def make_client(_settings: Any) -> ldp_client.Client:
        client = ldp_client.Client(main.POLICY, storage, DEVICE, fleet=FLEET)
        if rng is not None:
            client.rng = rng
        return client

    patch.setattr(main, "POLICY", policy(*readings))
    patch.setattr(main, "READINGS", {name: sensor(value) for name, value in readings.items()})
    patch.setattr(main, "EXPERIMENTS", str(folder))
    patch.setattr(main, "network", air)
    patch.setattr(main, "load_settings", lambda: {"wifi_ssid": "home", "mqtt_host": "broker"})
    patch.setattr(main, "make_client", make_client)
    patch.setattr(main, "make_mqtt_maker", lambda _settings: lambda: air)
    patch.setattr(main, "print", lambda *_: None, raising=False)
