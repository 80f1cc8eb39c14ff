"""A MicroPython board on a pseudo-terminal: the real interpreter, a real littlefs, for the real mpremote.

    with PtyBoard(["micropython"], "board.img") as board:
        subprocess.run(["mpremote", "connect", board.port, "exec", "print(1)"])

    python firmware_tests/pty_board.py --image board.img --wifi SSID:PASSWORD -- micropython

The unix port of MicroPython runs rawrepl.py, which speaks the REPL; this side owns the terminal, turns ctrl-C
into a signal while a program runs, and starts the interpreter again after a reset or a deep sleep.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time
import tty
from collections.abc import Sequence
from pathlib import Path

IMAGE_BYTES = 512 * 1024

_SHIM = Path(__file__).with_name("rawrepl.py")
_SOFT, _SOFT_RAW, _RESET, _SLEEP = 42, 43, 44, 45
# How long a program may take to notice ctrl-C before what follows is sent on anyway.
_INTERRUPT_S = 3.0


class PtyBoard:
    """One board: an image file for its flash, a pty for its USB port.

    interpreter: the command of a unix-port MicroPython with VfsLfs2. image: made blank, of flash_bytes, where
    there is none. wifi: "ssid:password" of the only access point in reach, empty for a board without
    `network`. firmware: the version that `sys.implementation` shows, empty for the true one. sleep_scale:
    real seconds per second of deep sleep. noise: flip one bit of the n-th escaped byte that the computer
    sends, as a bad cable would.
    brownout_bytes: the power fails for a moment once the computer has sent so many bytes.
    """

    def __init__(
        self,
        interpreter: Sequence[str],
        image: Path | str,
        *,
        flash_bytes: int = IMAGE_BYTES,
        wifi: str = "",
        firmware: str = "",
        sleep_scale: float = 1.0,
        noise: int | None = None,
        brownout_bytes: int | None = None,
    ) -> None:
        self.image = Path(image).resolve()
        if not self.image.exists():
            self.image.write_bytes(b"\xff" * flash_bytes)
        self._interpreter = list(interpreter)
        self._wifi = wifi
        self._firmware = firmware
        self._sleep_scale = sleep_scale
        self._noise = noise
        self._brownout_bytes = brownout_bytes
        self.output = b""  # all that the board has sent since it was made
        self.sleeps_ms: list[int] = []
        self._stop_r, self._stop_w = os.pipe()
        self._host, self._port_fd = pty.openpty()
        tty.setraw(self._host)
        tty.setraw(self._port_fd)
        self.port = os.ttyname(self._port_fd)
        self._thread = threading.Thread(target=self._run, name="pty-board", daemon=True)

    def __enter__(self) -> PtyBoard:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        os.write(self._stop_w, b"x")
        self._thread.join(10)
        for fd in (self._host, self._port_fd, self._stop_r, self._stop_w):
            os.close(fd)

    def wait_for(self, text: bytes, timeout_s: float) -> bool:
        """Whether the board sends text within timeout_s, counted from its first start."""
        end = time.monotonic() + timeout_s
        while text not in self.output and time.monotonic() < end:
            time.sleep(0.02)
        return text in self.output

    def power_cycle(self) -> None:
        """Take the power away and give it back."""
        os.write(self._stop_w, b"p")

    # What follows runs in the thread.

    def _run(self) -> None:
        mode, cause = "friendly", "POWER"
        while True:
            status, sleep_ms = self._run_interpreter(mode, cause)
            if status is None:
                return
            mode, cause = "friendly", "POWER"
            if status in (_SOFT, _SOFT_RAW):
                mode, cause = "raw" if status == _SOFT_RAW else "friendly", "SOFT"
            elif status == _SLEEP:
                self.sleeps_ms.append(sleep_ms)
                if select.select([self._stop_r], [], [], sleep_ms / 1000 * self._sleep_scale)[0]:
                    return
                cause = "SLEEP"
            elif status not in (_RESET, "power"):
                self._send(b"the interpreter ended with status %d: see the image's .log\r\n" % status)
                return

    def _run_interpreter(self, mode: str, cause: str) -> tuple[int | str | None, int]:
        """Run it until it ends; return its status (None: switched off) and for how long it sleeps."""
        status_r, status_w = os.pipe()
        board = [str(self.image), mode, cause, self._wifi, self._firmware]
        log = open(self.image.with_suffix(".log"), "ab")  # noqa: SIM115 - the child's
        child = subprocess.Popen(
            [*self._interpreter, str(_SHIM), str(status_w), *board],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            pass_fds=(status_w,),
            start_new_session=True,
        )
        os.close(status_w)
        log.close()
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            return self._bridge(child, child.stdin.fileno(), child.stdout.fileno(), status_r)
        finally:
            child.kill()
            child.wait()
            child.stdin.close()
            child.stdout.close()
            os.close(status_r)

    def _bridge(
        self, child: subprocess.Popen[bytes], to_board: int, from_board: int, status_r: int
    ) -> tuple[int | str | None, int]:
        busy = False
        held = b""  # what the computer sent after ctrl-C, until the program has stopped
        held_until = 0.0
        sleep_ms = 0
        sources = [self._stop_r, self._host, from_board, status_r]
        while True:
            ready = select.select(sources, [], [], 0.1 if held else None)[0]
            if self._stop_r in ready:
                return ("power" if os.read(self._stop_r, 1) == b"p" else None), 0
            if status_r in ready:
                said = os.read(status_r, 4096)
                for state in re.findall(rb"B|I|S\d+", said):
                    busy = state == b"B" if state in b"BI" else busy
                    sleep_ms = int(state[1:]) if state[:1] == b"S" else sleep_ms
                if not said:
                    sources.remove(status_r)
            if from_board in ready:
                data = os.read(from_board, 4096)
                if not data:
                    return child.wait(), sleep_ms
                self._send(re.sub(rb"(?<!\r)\n", b"\r\n", data))
            if self._host in ready:
                data = self._disturb(os.read(self._host, 4096))
                if self._brownout_bytes is not None:
                    self._brownout_bytes -= len(data)
                    if self._brownout_bytes < 0:
                        self._brownout_bytes = None
                        return "power", 0
                if busy and b"\x03" in data and not held:
                    child.send_signal(signal.SIGINT)
                    held_until = time.monotonic() + _INTERRUPT_S
                    data = data.replace(b"\x03", b"")
                    held = b"\r"
                held, data = (held + data, b"") if held else (b"", data)
                self._write(to_board, data)
            if held and (not busy or time.monotonic() > held_until):
                self._write(to_board, held)
                held = b""

    @staticmethod
    def _write(fd: int, data: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):  # it has just reset
            while data:
                data = data[os.write(fd, data) :]

    def _send(self, data: bytes) -> None:
        self.output += data
        self._write(self._host, data)

    def _disturb(self, data: bytes) -> bytes:
        """Flip one bit of the n-th byte that is sent as \\xNN: the program stays valid, the data does not."""
        if self._noise is None:
            return data
        escaped = list(re.finditer(rb"\\x[0-9a-f][0-8]", data))
        if len(escaped) <= self._noise:
            self._noise -= len(escaped)
            return data
        at = escaped[self._noise].end() - 1
        self._noise = None
        return data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :]


def main() -> None:
    """Run a board until ctrl-C; the first line printed is its port."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--image", required=True, help="file that is the board's flash; made where there is none"
    )
    parser.add_argument("--wifi", default="", metavar="SSID:PASSWORD")
    parser.add_argument("--firmware", default="", metavar="VERSION", help="the version to pretend")
    parser.add_argument("interpreter", nargs="+", help="after --: the MicroPython command")
    args = parser.parse_args()
    with PtyBoard(args.interpreter, args.image, wifi=args.wifi, firmware=args.firmware) as board:
        print(board.port, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                time.sleep(3600)


if __name__ == "__main__":
    sys.exit(main())
