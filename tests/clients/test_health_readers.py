"""The readers of the standard questions on their clients, during the recorded lifetime of a device.

firmware_tests/test_health.py runs device/health.py on MicroPython in 64 KiB; here it runs on CPython.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable
from ctypes import c_char_p, c_int, c_size_t, c_uint8, c_uint32
from typing import Any

import make_health_lifetime
import pytest
from c_client import CBoard, Source, library
from c_core import Reading, needs_gcc
from enumeration import MemoryStorage

from hushmote.device.health import Health
from hushmote.device.ldp_client import Client, Experiment, provision
from hushmote.planning.library import question

LINES = make_health_lifetime.PATH.read_text("ascii").splitlines()
PAYLOADS: dict[str, str] = json.loads(LINES[0])
EVENTS: list[tuple[int, str, Any]] = [json.loads(line) for line in LINES[1:]]
POLICY = {
    "sum": 8_000_000,
    "squares": 0,
    "epsilon": 2_000_000,
    "rules": ("sum",),
    "experiments": tuple(PAYLOADS),
}
CAUSES = ("other", "power", "panic", "watchdog", "brown-out", "update")
OUTCOMES = (None, "ok", "download", "verify", "rolled back", "refused")


class TestRecord:
    def test_is_current(self):
        assert make_health_lifetime.text().splitlines() == LINES, "run tools/make_health_lifetime.py"

    def test_every_question_has_several_answers(self):
        for name in PAYLOADS:
            assert len({values[name][1] for _, kind, values in EVENTS if kind == "read"}) > 1, name

    def test_experiments_are_those_of_the_library(self):
        for name, payload in PAYLOADS.items():
            assert payload.encode() == question(name).payload()


def compare(read: Callable[[str, int], Any]) -> list[dict[str, Any]]:
    """Compare the readings with the recorded truth and its index; return the readings."""
    readings = []
    for now, kind, values in EVENTS:
        if kind != "read":
            read("", now)
            continue
        readings.append({name: read(name, now) for name in values})
        for name, (truth, index) in values.items():
            value = readings[-1][name]
            assert value == truth or value == pytest.approx(truth, rel=1e-9, abs=2e-3), (name, now)
            bucket = Experiment.parse(PAYLOADS[name].encode()).bucket(value)
            assert bucket in (index, None), (name, now, value, index)
    return readings


def replay_into(health: Health) -> Callable[[str, int], Any]:
    """Return a reader that first gives the next event to the readers."""
    events = iter(EVENTS)
    calls: dict[str, Callable[[Any, int], None]] = {
        "start": health.start,
        "ack": health.acknowledged,
        "heap": health.sample,
        "newer": lambda _, now: health.newer_version(now),
        "updated": lambda outcome, _: health.updated(outcome),
        "why": lambda why, _: health.restarting(why),
        "battery": health.battery,
    }

    def read(name: str, now: int) -> Any:
        if name:
            return health.read(name, now)
        event = next(event for event in events if event[1] != "read")
        return calls[event[1]](event[2], event[0])

    return read


def test_micropython_readings_are_the_truth_and_are_reported():
    readings = compare(replay_into(Health({})))
    storage: Any = MemoryStorage()
    provision(storage, consent=True)
    client = Client(POLICY, storage, "board-1")
    for payload in PAYLOADS.values():
        client.enroll(payload.replace('"every":14400', '"every":1').encode())
    for name in list(PAYLOADS)[:4]:
        assert client.report(name, readings[-1][name]) is not None


class Board(ctypes.Structure):
    """struct test_board of c_client.c."""

    _fields_ = (("seconds", c_uint32), ("free_heap", c_uint32), ("rssi", c_int), ("cause", c_int))


def value_of(reading: Reading) -> Any:
    """Return a C reading as a Python value."""
    if reading.kind == 4:
        return ctypes.string_at(reading.data, reading.count).decode()
    return (None, bool(reading.number), reading.number, reading.number / 1000)[reading.kind]


@needs_gcc
def test_c_readings_are_the_truth_and_are_reported():
    c = library()
    c.test_health_read.restype = Reading
    state = (c_uint8 * c_size_t.in_dll(c, "test_health_bytes").value)()
    board, events = Board(rssi=0), iter(EVENTS)

    def c_reading(name: str, now: int) -> Reading:
        board.seconds = now
        return c.test_health_read(state, ctypes.byref(board), c_char_p(name.encode()))

    def read(name: str, now: int) -> Any:
        if name:
            return value_of(c_reading(name, now))
        at, kind, value = next(event for event in events if event[1] != "read")
        board.seconds = at
        number = value if isinstance(value, int) else 0
        if kind == "start":
            board.cause = CAUSES.index(value)
        elif kind == "why":
            number = CAUSES.index(value)
        elif kind == "updated":
            number = OUTCOMES.index(value)
        elif kind == "ack":
            board.rssi = value
        elif kind == "heap":
            board.free_heap = value
        return c.test_health(state, ctypes.byref(board), kind.encode(), number)

    compare(read)
    client = CBoard(POLICY, MemoryStorage(), entropy=Source(1), begin=False)
    client.provision(consent=2)
    client.begun = client._call("begin", client.config_pointer)
    for payload in PAYLOADS.values():
        client.enroll(payload.replace('"every":14400', '"every":1').encode())
    for name in list(PAYLOADS)[:4]:
        assert client.report(name, c_reading(name, EVENTS[-1][0])) is not None


@needs_gcc
def test_c_clock_that_starts_anew_counts_no_time():
    c = library()
    c.test_health_read.restype = Reading
    state, board = (c_uint8 * c_size_t.in_dll(c, "test_health_bytes").value)(), Board(cause=3)

    def read(name: str, now: int) -> Any:
        board.seconds = now
        return value_of(c.test_health_read(state, ctypes.byref(board), name.encode()))

    for seconds, cause in ((1_000_000, 3), (10, 1)):
        board.seconds, board.cause = seconds, cause
        c.test_health(state, ctypes.byref(board), b"start", 0)
    assert read("crashed", 20)
    assert read("uptime", 3_610) == 1
    assert read("restart", 3_610) == "power"
    assert not read("crashed", 20 + 86_400)
    assert read("update", 20 + 86_400) is None
    assert read("uptime", 800_000_000) == pytest.approx((20 + 86_400 - 10) / 3600, abs=1e-3)  # it was set
