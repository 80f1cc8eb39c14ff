"""A board joins its network and finds its broker, on test doubles without Wi-Fi."""

import sys
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


class Momentary(Radio):
    """A WLAN that rejects the first `rejections` attempts, as it does if the signal is weak."""

    def __init__(self, patch: pytest.MonkeyPatch, platform: str, rejections: int) -> None:
        super().__init__(patch)
        self.platform = platform
        self.rejections = rejections
        patch.setattr(station.sys, "platform", platform)

    def connect(self, ssid: str, password: str, **where: Any) -> None:
        if self.platform == "esp32" and self.joined:
            raise OSError("Wifi Internal State Error")  # it is still connecting
        super().connect(ssid, password, **where)
        self.up = self.platform == "rp2" and len(self.joined) > self.rejections

    def pass_ms(self, ms: int) -> None:
        super().pass_ms(ms)
        if self.platform == "esp32":  # it tries again by itself
            self.up = self.now_ms > 1000 * self.rejections

    def status(self) -> int:
        return 1 if self.up else self.STAT_WRONG_PASSWORD


class TestWrongPassword:
    @pytest.mark.parametrize("platform", ["esp32", "rp2"])
    def test_is_no_reason_to_stop_before_the_timeout(self, platform: str, monkeypatch: pytest.MonkeyPatch):
        radio = Momentary(monkeypatch, platform, 4)
        assert station.connect(radio, radio, SETTINGS, [], lambda: None) is None
        assert 3000 < radio.now_ms < 20_000

    @pytest.mark.parametrize("platform", ["esp32", "rp2"])
    def test_is_reported_at_the_timeout(self, platform: str, monkeypatch: pytest.MonkeyPatch):
        radio = Momentary(monkeypatch, platform, 99)
        line = "Wi-Fi home: wrong password or weak signal: check wifi_password"
        assert station.connect(radio, radio, SETTINGS, [], lambda: None) == line
        assert 20_000 < radio.now_ms < 20_300


class Time:
    """A board's clock, and a time server that sets it unless `error` is set."""

    def __init__(self, patch: pytest.MonkeyPatch, year: int) -> None:
        self.year, self.s = year, 1000
        self.error: Exception | None = None
        self.host = "time.example"  # as an earlier call left it
        self.queries: list[str] = []
        patch.setitem(sys.modules, "ntptime", self)
        patch.setattr(station, "time", self)

    def gmtime(self) -> tuple[int]:
        return (self.year,)

    def time(self) -> int:
        return self.s

    def settime(self) -> None:
        self.queries.append(self.host)
        if self.error:
            raise self.error
        self.year, self.s = 2026, 800_000_000


def look_up(_: Any, host: str, port: int) -> Any:
    return [(2, 1, 0, "", (f"address of {host}", port))]


class TestClock:
    def test_asks_time_server_of_the_settings(self, monkeypatch: pytest.MonkeyPatch):
        clock = Time(monkeypatch, 2021)
        assert station.set_clock(look_up, {"time_server": "ntp.example"}, {}) is None
        clock.year = 2021
        assert station.set_clock(look_up, {"time_server": ""}, {}) is None
        assert clock.queries == ["address of ntp.example", "address of pool.ntp.org"]

    def test_is_set_once_a_day_whatever_the_year(self, monkeypatch: pytest.MonkeyPatch):
        clock, last = Time(monkeypatch, 2031), {}
        for hours in (0, 1, 22, 2, 1):
            clock.s += 3600 * hours
            before = len(clock.queries)
            assert station.set_clock(look_up, {}, last) is None
            assert len(clock.queries) - before == (hours in (0, 2)), hours

    @pytest.mark.parametrize("error", [OSError(110), ValueError("buffer too small")])
    def test_continues_without_answer_if_it_may_be_right(
        self, error: Exception, monkeypatch: pytest.MonkeyPatch
    ):
        clock, last = Time(monkeypatch, 2026), {}
        clock.error = error
        assert station.set_clock(look_up, {}, last) is None
        assert last == {}
        line = "the clock says 2026 and pool.ntp.org did not answer: allow NTP, or set time_server"
        assert station.set_clock(look_up, {}, last, True) == line
        clock.year = 2021
        assert station.set_clock(look_up, {}, last) == line.replace("2026", "2021")

    def test_is_set_again_after_a_rejected_date(self, monkeypatch: pytest.MonkeyPatch):
        clock, last = Time(monkeypatch, 2026), {}
        for rejected in (False, True):
            assert station.set_clock(look_up, {}, last, rejected) is None
        assert len(clock.queries) == 2


def test_looks_up_time_server_like_the_broker(monkeypatch: pytest.MonkeyPatch):
    """Both use the lookup that feeds the watchdog."""
    clock = Time(monkeypatch, 2021)
    assert station.set_clock(lambda _, host, port: names(True)("broker.example", port), {}, {}) is None
    assert clock.queries == ["10.0.0.7"]


def test_uses_last_broker_address_when_dns_fails(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(main, "_last", {})
    with pytest.raises(OSError, match="-2"):
        main.look_up(names(False), "broker.example", 1883)
    assert main.look_up(names(True), "broker.example", 1883)[0][-1] == ("10.0.0.7", 1883)
    assert main.look_up(names(False), "broker.example", 1884)[0][-1] == ("10.0.0.7", 1884)
