"""Privacy of device/main.py's wake-ups: whether a board connects, and what it sends."""

import contextlib
import math
import re
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from enumeration import assert_private, distribution, memory
from experiments import experiment_json
from wake_ups import Air, install, provisioned

from hushmote.device import main
from hushmote.device import memory as board_memory
from hushmote.device.kept_experiments import KeptExperiments
from hushmote.device.ldp_client import Client, provision

SENSOR_ERRORS = (OSError(19), OSError("CRC"), ValueError("checksum"), RuntimeError(), MemoryError())
WRONG_TYPES = ("21.4", b"21.4", [21.4], (), object(), True)

EXPERIMENTS = {
    "grr": {"type": "number", "low": 0, "high": 40_000, "bins": 3, "mechanism": "grr"},
    "olh": {"type": "number", "low": 0, "high": 40_000, "bins": 4, "mechanism": "olh", "g": 3},
    "hh": {
        "type": "number",
        "low": 0,
        "high": 40_000,
        "bins": 5,
        "mechanism": "hh",
        "fanout": 2,
        "cells": [2, 2, 5],
    },
}


def kept_in(folder: Path, payloads: dict[str, bytes]) -> dict[int, bytes]:
    """Store experiments as an earlier wake-up would have, and return the board's ledger."""
    slots = provisioned()
    with pytest.MonkeyPatch.context() as patch:
        install(patch, Air(), folder, memory(slots), payloads)
        experiments = KeptExperiments(
            Client(main.POLICY, memory(slots), "board-1", fleet="home"), str(folder)
        )
        for name, payload in payloads.items():
            experiments.take(name, payload)
    return slots


def wake_ups(
    folder: Path,
    slots: dict[int, bytes],
    payloads: dict[str, bytes],
    inputs: list[dict[str, Any]],
    times: int = 1,
) -> dict[int, dict[Any, Fraction]]:
    """Return input -> (which wake-ups connected, what was sent) -> exact probability."""

    def run(rng: Any, readings: dict[str, Any]) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            air = Air()
            for name, payload in payloads.items():
                air.experiment(name, payload)
            storage = memory(slots)
            connected = []
            for _ in range(times):
                install(patch, air, folder, storage, readings, rng)
                before = air.connections
                main.Application().wake_up()
                connected.append(air.connections > before)
        return tuple(connected), tuple(air.messages)

    return {i: distribution(lambda rng, r=r: run(rng, r)) for i, r in enumerate(inputs)}


def connecting(outputs: dict[Any, Fraction]) -> dict[Any, Fraction]:
    chances: dict[Any, Fraction] = {}
    for (connected, _), chance in outputs.items():
        chances[connected] = chances.get(connected, Fraction(0)) + chance
    return chances


def raising(name: str) -> Any:
    reading = main.READINGS[name]
    assert reading is not None
    return reading()


class TestPeriod:
    """A reading of a period is reported under the version that ran in it, whatever the reading is."""

    NAME = "board_crash"
    VERSIONS = ("2.3.1", "2.4.0")

    @pytest.fixture
    def start(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
        fields: dict[str, Any] = {"name": self.NAME, "epsilon": 16_000_000, "budget": {"rule": "unlimited"}}
        payload = experiment_json(group="firmware", groups=list(self.VERSIONS), **fields)
        storage = memory(provisioned())
        air = Air()
        air.experiment(self.NAME, payload)
        monkeypatch.setattr(main, "POLICY", main.POLICY)
        reading = main.READINGS[self.NAME]

        def run(version: str, has_crashed: bool = False, wakes: int = 1) -> list[tuple[int, bool]]:
            """Start a board, and return the (group, crashed) of its reports; epsilon is high enough."""
            install(monkeypatch, air, tmp_path / "kept", storage, {self.NAME: None})
            monkeypatch.setitem(main.POLICY, "groups", ("firmware",))
            monkeypatch.setitem(main.READINGS, self.NAME, reading)
            cause = SimpleNamespace(WDT_RESET=3, reset_cause=lambda: 3 if has_crashed else 1)
            periods = board_memory.start_periods(cause, True, str(tmp_path / "periods.json"), version)
            monkeypatch.setattr(main, "LEDGER", str(tmp_path))
            monkeypatch.setattr(main, "_periods", periods)
            before = len(air.reports())
            application = main.Application()
            application.client.groups = {"firmware": version}
            for _ in range(wakes):
                application.wake_up()
                assert application.sleep_s() <= main.INTERVAL_S
            return [(report[9], bool(report[10])) for report in air.reports()[before:]]

        return run

    def test_crash_before_update_belongs_to_the_old_version(self, start: Any):
        assert start("2.3.1", wakes=2) == [(0, False), (0, False)]
        assert start("2.4.0", True, wakes=2) == [(0, True), (1, False)]

    def test_rollback_after_crash_reports_the_version_that_crashed(self, start: Any):
        assert start("2.4.0") == [(1, False)]
        assert start("2.3.1", True, wakes=3) == [(1, True), (0, False), (0, False)]

    def test_group_does_not_depend_on_the_crash(self, start: Any):
        for has_crashed in (True, False):
            start("2.3.1", wakes=2)
            groups = [group for group, _ in start("2.4.0", has_crashed, wakes=3)]
            assert groups == [0, 1, 1]
            start("2.3.1", wakes=2)

    def test_updates_before_a_reading_keep_each_versions_crashes(self, start: Any):
        start("2.3.1")
        start("2.4.0", True, wakes=0)
        start("2.4.0", True, wakes=0)
        assert start("2.5.0", False, wakes=4) == [(0, True), (1, True), (2, False), (2, False)]

    def test_damaged_file_starts_anew(self, start: Any, tmp_path: Path):
        for damage in ("", "[]", "{}", "[[1]]", '[["2.3.1", null]]', "[7]", "\0"):
            start("2.3.1")
            (tmp_path / "periods.json").write_text(damage)
            assert start("2.4.0", wakes=2) == [(1, False), (1, False)], damage

    def test_other_readings_belong_to_the_running_version(self, start: Any, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(main, "PERIOD_READINGS", ())
        start("2.3.1")
        assert [group for group, _ in start("2.4.0", True)] == [1]


class TestPrivacy:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        "mechanism", ["grr", *(pytest.param(name, marks=pytest.mark.long) for name in ("olh", "hh"))]
    )
    def test_connecting_ignores_reading_and_reports_are_private(self, mechanism: str, tmp_path: Path):
        budget = {"rule": "sum", "cap": 8_000_000}
        payload = experiment_json(
            name="t", epsilon=1_000_000, every=3, budget=budget, **EXPERIMENTS[mechanism]
        )
        slots = kept_in(tmp_path, {"t": payload})
        values = [0, 13, 20.5, 39, -1e9, math.inf, math.nan, None, *SENSOR_ERRORS, *WRONG_TYPES]
        exact = wake_ups(tmp_path, slots, {"t": payload}, [{"t": value} for value in values])
        ratio = assert_private(exact, 1_000_000)
        assert ratio > 2  # the codes reveal as much as they may
        refresh = Fraction(main.INTERVAL_S * 2**30 // main.REFRESH_S, 2**30)
        expected = 1 - (1 - refresh) * Fraction(2, 3)
        for outputs in exact.values():
            assert connecting(outputs) == {(True,): expected, (False,): 1 - expected}

    @pytest.mark.slow
    def test_two_sensors_stay_within_their_budgets(self, tmp_path: Path):
        # With a cap of one report each, the second wake-up's silence is random as well.
        shape = {"type": "bool", "mechanism": "rr", "every": 2, "budget": {"rule": "count", "cap": 1}}
        payloads = {name: experiment_json(name=name, epsilon=1_000_000, **shape) for name in ("a", "b")}
        slots = kept_in(tmp_path, payloads)
        pairs = [(True, True), (False, False), (None, True), (OSError(5), False), (False, "on")]
        inputs = [{"a": a, "b": b} for a, b in pairs]
        exact = wake_ups(tmp_path, slots, payloads, inputs, times=2)
        assert assert_private(exact, 2_000_000) > 4  # both sensors differ in it
        first = connecting(exact[0])
        assert len(first) == 4
        assert all(connecting(outputs) == first for outputs in exact.values())

    def test_always_connects_and_reports_without_experiment(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        payload = experiment_json(name="t", epsilon=1_000_000, every=2, **EXPERIMENTS["grr"])
        monkeypatch.setattr(KeptExperiments, "_write", lambda *_: None)  # no state between branches
        inputs = [{"t": v} for v in (1, 39, None, OSError(5), "x")]
        exact = wake_ups(tmp_path / "none", provisioned(), {"t": payload}, inputs)
        assert_private(exact, 1_000_000)
        for outputs in exact.values():
            assert connecting(outputs) == {(True,): 1}
            assert sum(chance for (_, sent), chance in outputs.items() if len(sent) == 2) == Fraction(1, 2)

    @pytest.mark.slow
    def test_long_and_short_sleeps_send_the_same_reports(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        shape = {"type": "bool", "mechanism": "rr", "every": 2, "budget": {"rule": "count", "cap": 2}}
        payload = experiment_json(name="t", epsilon=1_000_000, **shape)
        slots = kept_in(tmp_path, {"t": payload})
        monkeypatch.setattr(main, "MAX_SLEEP_S", 2 * main.INTERVAL_S)
        calls = 3

        def run(rng: Any) -> Any:
            with pytest.MonkeyPatch.context() as patch:
                air, storage, due = Air(), memory(slots), None
                air.experiment("t", payload)
                connected = [False] * (calls + 2)
                at = 0
                while at < calls:
                    install(patch, air, tmp_path, storage, {"t": True}, rng)
                    application = main.Application()
                    application.due = due
                    before = air.connections
                    application.wake_up()
                    connected[at] = air.connections > before
                    at += application.sleep_s() // main.INTERVAL_S
                    due = application.due
            return tuple(connected[:calls]), tuple(air.messages)

        (each_time,) = wake_ups(tmp_path, slots, {"t": payload}, [{"t": True}], calls).values()
        assert distribution(run) == each_time

    @pytest.mark.parametrize("broken", ["a sensor that raises is silence", "a wrong type is silence"])
    def test_proof_can_fail(self, broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        payload = experiment_json(name="t", epsilon=1_000_000, every=2, **EXPERIMENTS["grr"])
        slots = kept_in(tmp_path, {"t": payload})

        def report(self: Any, name: str, value: Any, drawn: Any, group: Any) -> Any:
            try:
                return self._client.report(name, value, drawn)
            except TypeError:
                return None

        def wake_up(self: Any) -> None:
            with contextlib.suppress(OSError):  # as main() did
                original(self)

        original = main.Application.wake_up
        if "type" in broken:
            monkeypatch.setattr(main.Reporter, "report", report)
        else:
            monkeypatch.setattr(main, "read", raising)
            monkeypatch.setattr(main.Application, "wake_up", wake_up)
        exact = wake_ups(tmp_path, slots, {"t": payload}, [{"t": v} for v in (1, OSError(5), "warm")])
        with pytest.raises(AssertionError, match="impossible for another"):
            assert_private(exact, 1_000_000)


@pytest.mark.parametrize("answer", [None, False], ids=["not asked", "opt-out"])
def test_reads_and_contacts_nothing_without_consent(
    answer: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    air, storage = Air(), memory()
    provision(storage)
    install(monkeypatch, air, tmp_path, storage, {"t": 21.4})
    application = main.Application()
    if answer is False:
        application.client.consent = False
    reads: list[str] = []
    monkeypatch.setitem(main.READINGS, "t", lambda: reads.append("t"))
    slots = dict(storage.slots)
    for _ in range(3):
        application.wake_up()
    assert (reads, air.connections, air.messages, storage.slots) == ([], 0, [], slots)
    application.client.consent = True
    application.wake_up()
    assert (reads, air.connections) == (["t"], 1)


@pytest.fixture
def printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the lines that main.py prints on a board with the experiment room_temp."""
    air = Air()
    air.experiment("room_temp", experiment_json(name="room_temp", **EXPERIMENTS["grr"], epsilon=100_000))
    install(monkeypatch, air, tmp_path, memory(provisioned()), {"room_temp": 21.4})
    lines: list[str] = []
    monkeypatch.setattr(main, "print", lines.append)
    return lines


class TestPrompt:
    def test_shows_why_an_experiment_is_refused(self, printed: list[str], monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setitem(main.POLICY, "ask", "each")
        main.Application().wake_up()
        assert "hushmote: room_temp: refused: nobody has consented to it: call agree(name)" in printed

    def test_shows_the_last_8_reports(self, printed: list[str], monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(main, "_reports", [])
        application = main.Application()
        for _ in range(11):
            application.wake_up()
        lines = [line.removeprefix("hushmote: ") for line in printed if " code " in line]
        assert len(lines) == 11
        printed.clear()
        main.last()
        assert [line[17:] for line in printed] == lines[-8:]
        assert all(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d ", line[:17]) for line in printed)
