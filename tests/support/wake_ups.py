"""Run device/main.py's wake-ups on CPython with a fake Wi-Fi and MQTT client; the rest is as shipped."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from enumeration import POLICY, memory

from hushmote.device import ldp_client, main
from hushmote.device import memory as board_memory
from hushmote.server.wire import topics

FLEET = "home"
DEVICE = "board-1"


class Air:
    """The board's environment: an access point and a broker with retained messages.

    connections: the number of times Wi-Fi was switched on. messages: the (topic, payload) pairs that the
    board published.
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
        """Connect, as either the Wi-Fi station or the MQTT client."""

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
    """Give main.Application() this flash and rng, and sensors that return readings or raise exceptions."""

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
    patch.setattr(board_memory, "print", lambda *words: vars(main)["print"](*words), raising=False)
