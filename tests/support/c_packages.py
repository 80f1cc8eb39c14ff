"""Compile the C client's packages against other people's headers, or models of them."""

import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
from c_core import SANITIZED

_RIGS = Path(__file__).parents[2] / "rigs"
_ARDUINO = Path(os.environ.get("HUSHMOTE_ARDUINO", "nowhere"))
WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wstrict-prototypes", "-Werror", "-fsyntax-only")


def build_sketch(library: Path, folder: Path) -> Path:
    """Build a sketch that uses an Arduino library's folder as a program for this machine; return its path.

    This needs HUSHMOTE_ARDUINO, a folder with ArduinoCore-API and the MQTT library as arduino-mqtt.
    """
    mqtt, api = _ARDUINO / "arduino-mqtt" / "src", _ARDUINO / "ArduinoCore-API"
    if not (mqtt.exists() and api.exists()) or shutil.which("g++") is None:
        pytest.skip("HUSHMOTE_ARDUINO must name a folder with ArduinoCore-API and arduino-mqtt")
    include = [f"-I{path}" for path in (_RIGS / "arduino_host", api, mqtt, library / "src")]
    flags = ["-c", "-g", "-w", "-DARDUINO=10819", "-DHOST", *include]
    third_party = [
        api / "api" / f"{name}.cpp" for name in ("String", "IPAddress", "Print", "Stream", "Common")
    ]
    third_party += [mqtt / "MQTTClient.cpp", *(mqtt / "lwmqtt").glob("*.c")]
    for path in [_RIGS / "arduino_host" / "board.cpp", *(library / "src").glob("*.c*"), *third_party]:
        compiler = ["gcc"] if path.suffix == ".c" else ["g++", "-std=gnu++17"]
        output = f"{path.parent.name}_{path.stem}.o"  # both libraries have a client.c
        sanitized = SANITIZED if path not in third_party else ()
        subprocess.run([*compiler, *flags, *sanitized, path, "-o", output], cwd=folder, check=True)
    subprocess.run(["g++", *SANITIZED, "-o", "board", *folder.glob("*.o")], cwd=folder, check=True)
    return folder / "board"


def check_port(port: str, sources: Iterable[Path], *folders: Path) -> None:
    """Compile sources without warnings against the model of a port's headers, "idf" or "zephyr"."""
    paths = (f"-I{folder}" for folder in (*folders, _RIGS / f"{port}_model"))
    done = subprocess.run(
        ["gcc", "-std=gnu17", *WARNINGS, *paths, *sources], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
