"""A board joins its network and finds its broker, on test doubles without Wi-Fi."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from hushmote.device import main, station

SETTINGS = {"wifi_ssid": "home", "wifi_password": "secret"}


class Radio:
    """A Pico W's WLAN near a network's two access points; those in `gone` do not respond."""

    STAT_WRONG_PASSWORD = -3

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now_ms = 0
        self.scans = 0
        self.up = False
        self.joined: list[dict[str, Any]] = []
        self.addresses: tuple[str, ...] = ()
        self.gone: set[bytes] = set()
        patch.setattr(station.sys, "platform", "rp2")
        patch.setattr(station, "ticks_ms", lambda: self.now_ms)
        patch.setattr(station, "sleep_ms", self.pass_ms)

    def pass_ms(self, ms: int) -> None:
        self.now_ms += ms

    def active(self, on: bool) -> None:
        self.on = on

    def ifconfig(self, four: tuple[str, ...]) -> None:
        assert not self.joined, "too late for this connection"
        self.addresses = four

    def connect(self, ssid: str, password: str, **where: Any) -> None:
        self.joined.append(where)
        self.up = where.get("bssid") not in self.gone

    def disconnect(self) -> None:
        self.up = False

    def isconnected(self) -> bool:
        return self.up

    def status(self) -> int:
        return 1

    def scan(self) -> list[tuple[Any, ...]]:
        self.scans += 1
        weak, strong = (b"home", b"weak..", 1, -80), (b"home", b"strong", 11, -40)
        return [weak, strong, (b"other", b"other.", 6, -20)]


def test_pico_w_rejoins_access_point_without_scan(
    monkeypatch: pytest.MonkeyPatch,
):
    radio, ap = Radio(monkeypatch), []
    for _ in range(3):
        assert station.connect(radio, radio, SETTINGS, ap, lambda: None) is None
        radio.disconnect()
    assert radio.joined == [{}] + [{"channel": 11, "bssid": b"strong"}] * 2
    assert radio.scans == 1
    radio.gone.add(b"strong")
    assert station.connect(radio, radio, SETTINGS, ap, lambda: None) is None
    assert radio.joined[-2:] == [{"channel": 11, "bssid": b"strong"}, {}]


def test_sets_fixed_address_before_connecting(monkeypatch: pytest.MonkeyPatch):
    radio = Radio(monkeypatch)
    four = ("10.0.0.9", "255.0.0.0", "10.0.0.1", "10.0.0.1")
    assert (
        station.connect(radio, radio, SETTINGS | {"wifi_address": ",".join(four)}, [], lambda: None) is None
    )
    assert radio.addresses == four


def names(answers: bool) -> Any:
    def getaddrinfo(host: str, port: int) -> list[Any]:
        if not answers and host == "broker.example":
            raise OSError(-2)
        return [(2, 1, 0, "", ("10.0.0.7" if host == "broker.example" else host, port))]

    return getaddrinfo


def test_looks_up_time_server_like_the_broker(monkeypatch: pytest.MonkeyPatch):
    """Both use the lookup that feeds the watchdog."""
    asked: list[str] = []
    clock = SimpleNamespace(host="pool.ntp.org", settime=lambda: asked.append(clock.host))
    monkeypatch.setitem(sys.modules, "ntptime", clock)
    monkeypatch.setattr(station, "time", SimpleNamespace(gmtime=lambda: (2021,)))
    assert station.set_clock(lambda _, host, port: names(True)("broker.example", port)) is None
    assert asked == ["10.0.0.7"]


def test_uses_last_broker_address_when_dns_fails(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(main, "_last", {})
    with pytest.raises(OSError, match="-2"):
        main.look_up(names(False), "broker.example", 1883)
    assert main.look_up(names(True), "broker.example", 1883)[0][-1] == ("10.0.0.7", 1883)
    assert main.look_up(names(False), "broker.example", 1884)[0][-1] == ("10.0.0.7", 1884)
