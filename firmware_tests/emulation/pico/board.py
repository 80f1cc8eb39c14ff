"""Control the emulated Pico from Python: scripts, flash images, power cuts, and its USB port as a terminal.

python board.py SCRIPT     run a script on a fresh board, whose flash has the other files in the script's
folder
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RIG = HERE.parents[2] / ".rig"
DEVICE = HERE.parents[2] / "device"
FIRMWARE = RIG / "pico" / "firmware.bin"
FROZEN = RIG / "pico" / "frozen.bin"
TIMEOUT_S = 1200
_ENVIRONMENT = {**os.environ, "HUSHMOTE_PICO": str(RIG / "pico")}


@dataclass(frozen=True)
class Run:
    """The result of a script.

    Attributes:
        log: Marks, flash operations and times since the script began, as run.mjs writes them; seconds are of
            the board's clock, cycles of 125 MHz.
    """

    output: str
    error: str
    log: dict[str, Any]


def unix() -> list[str]:
    """Return the command for a unix port with littlefs; raise FileNotFoundError if none is installed."""
    for path in (RIG / "unix32f/micropython", RIG / "mp32/micropython"):
        if path.exists():
            return [str(path)]
    raise FileNotFoundError("flash images need unix32f or mp32: python firmware_tests/runtimes.py --install")


def make_image(path: Path, folder: Path, names: Sequence[str]) -> None:
    """Copy a folder's files into the root of a flash image, which is created if it is missing."""
    command = [*unix(), "-X", "heapsize=8m", str(HERE / "image.py"), str(path), *names]
    subprocess.run(command, cwd=folder, check=True, timeout=TIMEOUT_S)


def _command(firmware: Path, image: Path | None, keep: bool, stuck: bool) -> list[str]:
    command = [shutil.which("node") or "node", str(HERE / "run.mjs"), "--firmware", str(firmware)]
    command += ["--flash", str(image)] if image else []
    return command + ["--keep"] * keep + ["--stuck"] * stuck


def run(
    script: Path,
    image: Path | None = None,
    *,
    keep: bool = False,
    stuck: bool = False,
    cut: int | None = None,
    torn: bool = False,
    firmware: Path = FIRMWARE,
) -> Run:
    """Boot with the file system in `image`, and run a script through the raw REPL.

    Args:
        script: The script.
        image: The flash image.
        keep: Whether to write the flash's final state to `image`.
        stuck: Whether the ring oscillator's bit is always 1.
        cut: The script's flash operation at which the power fails, counted from 0.
        torn: Whether the power fails half-way through that operation.
        firmware: The firmware to boot.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.json"
        command = [*_command(firmware, image, keep, stuck), "--log", str(log)]
        command += ["--cut", str(cut)] if cut is not None else []
        command += ["--torn"] * torn + [str(script)]
        done = subprocess.run(
            command, capture_output=True, text=True, env=_ENVIRONMENT, timeout=TIMEOUT_S, check=False
        )
        return Run(done.stdout, done.stderr, json.loads(log.read_text()) if log.exists() else {})


@contextlib.contextmanager
def usb_port(folder: Path, image: Path, *, firmware: Path = FIRMWARE) -> Iterator[str]:
    """Yield a terminal that mpremote accepts as the USB port; write the flash to `image` at the end."""
    command = [*_command(firmware, image, True, False), "--port", "0"]
    emulator = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=_ENVIRONMENT
    )
    assert emulator.stdin is not None
    assert emulator.stdout is not None
    try:
        number = int(emulator.stdout.readline())
        port = folder / "usb"
        terminal = subprocess.Popen(["socat", f"PTY,link={port},raw,echo=0", f"TCP:127.0.0.1:{number}"])
        try:
            deadline = time.monotonic() + TIMEOUT_S
            while not port.exists():
                if terminal.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError("socat did not create a terminal")
                time.sleep(0.01)
            yield str(port)
        finally:
            terminal.terminate()
            terminal.wait(TIMEOUT_S)
        emulator.stdin.close()
        emulator.wait(TIMEOUT_S)
    finally:
        emulator.kill()
        emulator.wait()


def main() -> int:
    script = Path(sys.argv[1]).resolve()
    names = [p.name for p in script.parent.iterdir() if p.is_file() and not p.name.startswith("test_")]
    with tempfile.TemporaryDirectory() as folder:
        image = Path(folder) / "flash.img"
        make_image(image, script.parent, sorted(names))
        done = run(script, image)
    sys.stdout.write(done.output)
    sys.stderr.write(done.error)
    return 1 if done.error else 0


if __name__ == "__main__":
    sys.exit(main())
