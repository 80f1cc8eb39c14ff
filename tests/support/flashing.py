"""A board to flash: real MicroPython on a pty with a real littlefs, and what its flash holds.

Which MicroPython: the first of firmware_tests/runtimes.py that has what a board has. Wi-Fi, the temperature
sensor and deep sleep are the rig's; everything else is what a board would run.
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
    """Provide the command of a MicroPython that can play a board."""
    found, missing = runtimes.find()
    for runtime in found:
        if runtime.name not in ("board", "wasm") and runtime.features >= NEEDS:
            return list(runtime.argv)
    reasons = "; ".join(f"{m.name}: {m.reason}, {m.command}" for m in missing)
    pytest.skip(f"no MicroPython with {', '.join(sorted(NEEDS))} here: {reasons}")


class DisturbedBoard(SoftwareBoard):
    """A board at a bad cable or a bad socket.

    noise: flip one bit of the n-th escaped byte that the computer sends. brownout_bytes: the power fails
    for a moment once the computer has sent this many bytes; cut is set then.
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
        # What is sent as \\xNN: the program stays valid, the data does not.
        escaped = list(re.finditer(rb"\\x[0-9a-f][0-8]", data))
        if len(escaped) <= self._noise:
            self._noise -= len(escaped)
            return data
        at = escaped[self._noise].end() - 1
        self._noise = None
        return data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :]


class Bench:
    """A board, settings for it, and flash with what these tests always give it."""

    def __init__(self, folder: Path, interpreter: list[str]) -> None:
        self.folder = folder
        self.settings = self.new_settings("board1")
        self.lines: list[str] = []
        self.done: FlashResult | None = None  # what the last flash did
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
        """Every file on the board, in hex, read from its flash by another MicroPython while it is idle."""
        script = self.folder / "contents.py"
        script.write_text(_CONTENTS)
        done = subprocess.run(
            [*self._interpreter, str(script), str(self.folder / "board.img")],
            capture_output=True,
            text=True,
            timeout=HANGS_S,
            check=True,
            env={**os.environ, "MICROPYPATH": str(ROOT / "simulator" / "board")},
        )
        return json.loads(done.stdout)

    def fails(self, board: SoftwareBoard, settings: Path | None = None, **options: Any) -> str:
        """Return the one line with which a flash fails."""
        with pytest.raises((FlashError, ProvisionError)) as caught:
            self.flash(board, settings, **options)
        line = str(caught.value)
        assert line
        assert "\n" not in line
        assert "Traceback" not in line
        return line


def give_up_at_the_cut(board: DisturbedBoard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the time of an mpremote that copies be up once the board's power has failed: it waits for ever."""
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
    """Provide a board that was flashed, switched off; tests work on copies of it."""
    bench = Bench(tmp_path_factory.mktemp("flashed"), interpreter)
    with bench.board() as board:
        bench.flash(board)
    return bench


@pytest.fixture
def used(bench: Bench, flashed_once: Bench) -> Bench:
    """Provide a bench whose board was flashed already."""
    for name in ("board.img", "board1.settings.json"):
        shutil.copy2(flashed_once.folder / name, bench.folder / name)
    return bench


def on_port(port: str, *arguments: str) -> list[str]:
    """Return the command line of mpremote at a port."""
    return [sys.executable, "-m", "mpremote", "connect", port, *arguments]


def on_board(board: SoftwareBoard, script: str) -> str:
    """Run a script on the board with mpremote; what it printed."""
    command = on_port(board.port, "exec", script)
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


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
