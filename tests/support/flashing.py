"""A board to flash: real MicroPython on a pty with a real littlefs, and access to its flash contents.

It uses the first MicroPython in firmware_tests/runtimes.py with a board's features. The rig provides Wi-Fi,
the temperature sensor and deep sleep; everything else is what a board would run.
"""

import functools
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from running_aggregator import HANGS_S

from hushmote.fleet.provisioning import flash as flash_module
from hushmote.fleet.provisioning import usb
from hushmote.fleet.provisioning.flash import FlashResult, Load
from hushmote.fleet.provisioning.settings import Network, ProvisionError, provision_device
from hushmote.fleet.provisioning.usb import FlashError
from hushmote.server.wire import keys
from hushmote.simulator.board.board import SoftwareBoard

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "firmware_tests"))

import runtimes  # noqa: E402  # pyright: ignore[reportMissingImports]

MASTER = bytes(range(32))
FLEET_KEYS = keys.FleetKeys((MASTER,), MASTER)
FLEET = "garden"
WIFI = "home:correct horse"
NEEDS = {"littlefs", "urandom", "mpy", "socket", "memory"}
_compile_once = functools.cache(usb.compile_mpy)


@pytest.fixture(scope="session")
def interpreter() -> list[str]:
    """Provide the command of a MicroPython that can act as a board."""
    found, missing = runtimes.find()
    for runtime in found:
        if runtime.name not in ("board", "wasm") and runtime.features >= NEEDS:
            return list(runtime.argv)
    reasons = "; ".join(f"{m.name}: {m.reason}, {m.command}" for m in missing)
    pytest.skip(f"no MicroPython with {', '.join(sorted(NEEDS))} here: {reasons}")


class DisturbedBoard(SoftwareBoard):
    """A board on a bad cable or power supply.

    noise: the index of the escaped byte from the computer in which one bit is flipped. brownout_bytes: the
    power fails briefly once the computer has sent this many bytes, and `cut` is set.
    """

    def __init__(
        self, *arguments: Any, noise: int | None = None, brownout_bytes: int | None = None, **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self._noise = noise
        self._brownout_bytes = brownout_bytes
        self.cut = threading.Event()

    def received(self, data: bytes) -> bytes | None:
        if self._brownout_bytes is not None:
            self._brownout_bytes -= len(data)
            if self._brownout_bytes < 0:
                self._brownout_bytes = None
                self.cut.set()
                return None
        if self._noise is None:
            return data
        # Only bytes sent as \\xNN: this corrupts the data but leaves the program valid.
        escaped = list(re.finditer(rb"\\x[0-9a-f][0-8]", data))
        if len(escaped) <= self._noise:
            self._noise -= len(escaped)
            return data
        at = escaped[self._noise].end() - 1
        self._noise = None
        return data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :]


class Bench:
    """A board, its settings, and `hushmote flash` with these tests' standard arguments."""

    def __init__(self, folder: Path, interpreter: list[str]) -> None:
        self.folder = folder
        self.settings = self.new_settings("board1")
        self.lines: list[str] = []
        self.done: FlashResult | None = None  # the last flash's result
        self._interpreter = interpreter

    def new_settings(self, device_id: str, **changes: Any) -> Path:
        path = self.folder / f"{device_id}.settings.json"
        values: dict[str, Any] = {
            "wifi_ssid": "home",
            "wifi_password": "correct horse",
            "mqtt_host": "127.0.0.1",
        }
        provision_device(FLEET_KEYS, FLEET, device_id, Network(**(values | changes)), path=path)
        return path

    def board(self, wifi: str = WIFI, **options: Any) -> DisturbedBoard:
        return DisturbedBoard(self._interpreter, self.folder / "board.img", wifi=wifi, **options)

    def flash(self, board: SoftwareBoard, settings: Path | None = None, **options: Any):
        how = {"reset": False, "say": self.lines.append, "timeout_s": HANGS_S}
        how |= {name: options.pop(name) for name in ("reset", "timeout_s") if name in options}
        load = Load(yes=options.pop("yes", True), **options)
        with mock.patch.object(flash_module, "compile_mpy", _compile_once):
            self.done = flash_module.flash(board.port, settings or self.settings, load, **how)
        return self.done

    def contents(self) -> dict[str, str]:
        """Return every file on the idle board, in hex, read from its flash by a second MicroPython."""
        script = self.folder / "contents.py"
        script.write_text(_CONTENTS)
        result = subprocess.run(
            [*self._interpreter, str(script), str(self.folder / "board.img")],
            capture_output=True,
            text=True,
            timeout=HANGS_S,
            check=True,
            env={**os.environ, "MICROPYPATH": str(ROOT / "simulator" / "board")},
        )
        return json.loads(result.stdout)

    def fails(self, board: SoftwareBoard, settings: Path | None = None, **options: Any) -> str:
        """Flash the board and return the one-line error message."""
        with pytest.raises((FlashError, ProvisionError)) as caught:
            self.flash(board, settings, **options)
        line = str(caught.value)
        assert line
        assert "\n" not in line
        assert "Traceback" not in line
        return line


def give_up_at_the_cut(board: DisturbedBoard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let mpremote's copy time out as soon as the board loses power, since it would wait forever."""
    run = subprocess.run

    def watched(command: list[str], **how: Any) -> Any:
        if "fs" not in command or board.cut.is_set():
            return run(command, **how)
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            happened = board.cut.wait(HANGS_S)
            process.kill()
        assert happened, "the power has not failed"
        raise subprocess.TimeoutExpired(command, how["timeout"])

    monkeypatch.setattr(usb.subprocess, "run", watched)


@pytest.fixture
def bench(tmp_path: Path, interpreter: list[str]) -> Bench:
    return Bench(tmp_path, interpreter)


@pytest.fixture(scope="session")
def flashed_once(tmp_path_factory: pytest.TempPathFactory, interpreter: list[str]) -> Bench:
    """Provide a flashed board that is switched off, for tests to copy."""
    bench = Bench(tmp_path_factory.mktemp("flashed"), interpreter)
    with bench.board() as board:
        bench.flash(board)
    return bench


@pytest.fixture
def used(bench: Bench, flashed_once: Bench) -> Bench:
    """Provide a bench with an already flashed board."""
    for name in ("board.img", "board1.settings.json"):
        shutil.copy2(flashed_once.folder / name, bench.folder / name)
    return bench


def on_port(port: str, *arguments: str) -> list[str]:
    """Return the mpremote command line for a port."""
    return [sys.executable, "-m", "mpremote", "connect", port, *arguments]


def on_board(board: SoftwareBoard, script: str) -> str:
    """Run a script on the board with mpremote and return its output."""
    command = on_port(board.port, "exec", script)
    result = subprocess.run(command, capture_output=True, text=True, timeout=HANGS_S, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout.strip()


_CONTENTS = """
import sys, os, json, binascii, hardware
hardware.mount(sys.argv[1])
r = {}
def walk(d):
    for e in os.ilistdir(d or '/'):
        p = d + '/' + e[0]
        if e[1] & 0x4000: walk(p)
        else:
            with open(p, 'rb') as f: r[p] = binascii.hexlify(f.read()).decode()
walk('')
print(json.dumps(r))
"""
