"""A software board: the real interpreter, a real littlefs, a pseudo-terminal for the real mpremote.

    with SoftwareBoard(["micropython"], "board.img") as board:
        subprocess.run(["mpremote", "connect", board.port, "exec", "print(1)"])

The unix port of MicroPython runs repl.py, which provides the REPL. This process owns the terminal, turns
Ctrl-C into a signal while a program runs, and starts the interpreter again after a reset or a deep sleep.
"""

import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import termios
import threading
import time
import tty
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

IMAGE_BYTES = 512 * 1024
ANY_WIFI = "*"
THERMOMETER_C = 24.6  # the thermometer in hardware.py always reads this

_REPL = Path(__file__).with_name("repl.py")
_SOFT, _SOFT_RAW, _RESET, _SLEEP = 42, 43, 44, 45
# Time for a program to react to Ctrl-C before the following input is sent anyway.
_INTERRUPT_S = 3.0
# Time for the computer to read the board's output during a session.
_READER_S = 10.0
_KEPT_BYTES = 1 << 20  # bytes of recent output to keep


class SoftwareBoard:
    """A board: an image file for its flash, a pseudo-terminal for its USB port.

    Args:
        interpreter: Command of a unix-port MicroPython with VfsLfs2.
        image: The flash image; a blank one of `flash_bytes` is created if it is missing.
        wifi: "ssid:password" of the only access point in range, ANY_WIFI for one with any name, or "" for a
            board without `network`.
        sleep_scale: Real seconds per second of deep sleep.
        console: Called with each line that a program prints while no computer talks to the board, and with
            one in brackets when the board falls asleep.
    """

    def __init__(
        self,
        interpreter: Sequence[str],
        image: Path | str,
        *,
        flash_bytes: int = IMAGE_BYTES,
        wifi: str = "",
        sleep_scale: float = 1.0,
        console: Callable[[str], None] | None = None,
    ) -> None:
        self.image = Path(image).resolve()
        if not self.image.exists():
            self.image.write_bytes(b"\xff" * flash_bytes)
        self._interpreter = list(interpreter)
        self._wifi = wifi
        self._sleep_scale = sleep_scale
        self._console = console
        self.output = b""  # roughly the last megabyte that the board has sent
        self.sleeps_ms: list[int] = []
        self.failure: str | None = None
        self._line = b""
        self._is_in_session = False  # whether a computer has sent something since the last start
        self._stop_r, self._stop_w = os.pipe()
        self._host, self._port_fd = pty.openpty()
        tty.setraw(self._host)
        tty.setraw(self._port_fd)
        os.set_blocking(self._host, False)
        self.port = os.ttyname(self._port_fd)
        self._thread = threading.Thread(target=self._run_and_signal, name="software-board", daemon=True)
        # A Ctrl-C during join() makes it treat the thread as ended, and the files would be closed too early.
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        os.write(self._stop_w, b"x")
        self._ended.wait(10)
        for fd in (self._host, self._port_fd, self._stop_r, self._stop_w):
            os.close(fd)

    def wait(self) -> None:
        """Block until the interpreter ends permanently; `failure` holds the reason."""
        # Without a timeout, a signal that arrives just before would not be handled.
        while not self._ended.wait(0.2):
            pass

    def wait_for(self, text: bytes, timeout_s: float) -> bool:
        """Return whether the board sends the text within timeout_s, and before it ends permanently."""
        end = time.monotonic() + timeout_s
        while text not in self.output and time.monotonic() < end and not self._ended.is_set():
            time.sleep(0.02)
        return text in self.output

    # The methods below run in the thread.

    def _run_and_signal(self) -> None:
        try:
            self._run()
        finally:
            self._ended.set()

    def received(self, data: bytes) -> bytes | None:
        """Return the part of the computer's bytes that arrives, or None if the power fails at this moment."""
        return data

    def _run(self) -> None:
        mode, cause, sent = "friendly", "POWER", b""
        while True:
            try:
                status, sleep_ms, unread = self._run_interpreter(mode, cause, sent)
            except OSError as e:
                self.failure = f"cannot run {self._interpreter[0]}: {e.strerror}"
                return
            if status is None:
                return
            mode, cause, sent = "friendly", "POWER", b""
            if status in (_SOFT, _SOFT_RAW):
                mode, cause = "raw" if status == _SOFT_RAW else "friendly", "SOFT"
            elif status == _SLEEP:
                self.sleeps_ms.append(sleep_ms)
                if self._console is not None:
                    self._console(f"(asleep for {sleep_ms / 1000:,.0f} s)")
                cause, sent = self._sleep(sleep_ms / 1000 * self._sleep_scale, unread)
                if cause == "OFF":
                    return
                mode = "interrupted" if sent else "friendly"
            elif status not in (_RESET, "power"):
                log = self.image.with_suffix(".log")
                self.failure = f"MicroPython ended with status {status}: see {log}"
                self._send(b"the interpreter ended with status %d: see the image's .log\r\n" % status)
                return

    def _sleep(self, seconds: float, unread: bytes) -> tuple[str, bytes]:
        """Sleep; return why the board woke (SLEEP: its clock; OFF: switched off) and the next input.

        A Ctrl-C wakes it with POWER and keeps main.py from running: mpremote resets an ESP32 when it opens
        the port, and a person would press a button first. A Ctrl-C in input that the board's programs never
        read has the same effect.
        """
        if b"\x03" in unread:
            return "POWER", unread
        end = time.monotonic() + seconds
        while (remaining_s := end - time.monotonic()) > 0:
            ready = select.select([self._stop_r, self._host], [], [], remaining_s)[0]
            if self._stop_r in ready:
                return "OFF", b""
            sent = self._read_host() if ready else b""
            if b"\x03" in sent:
                return "POWER", sent
        return "SLEEP", b""

    def _run_interpreter(self, mode: str, cause: str, sent: bytes) -> tuple[int | str | None, int, bytes]:
        """Run the interpreter until it ends; return its status, the sleep time in ms, and unread input.

        The status is None if the board was switched off. The input is what the computer sent to a board that
        never reached its REPL.
        """
        status_r, status_w = os.pipe()
        board = [str(self.image), mode, cause, self._wifi]
        try:
            log = open(self.image.with_suffix(".log"), "ab")  # noqa: SIM115 - the child process writes to it
            with log:
                child = subprocess.Popen(
                    [*self._interpreter, str(_REPL), str(status_w), *board],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    pass_fds=(status_w,),
                    start_new_session=True,
                )
        finally:
            os.close(status_w)
        assert child.stdin is not None
        assert child.stdout is not None
        self._is_in_session = mode != "friendly"
        self._line = b""
        try:
            return self._bridge(child, child.stdin.fileno(), child.stdout.fileno(), status_r, sent)
        finally:
            child.kill()
            child.wait()
            child.stdin.close()
            child.stdout.close()
            os.close(status_r)

    def _bridge(
        self, child: subprocess.Popen[bytes], to_board: int, from_board: int, status_r: int, sent: bytes
    ) -> tuple[int | str | None, int, bytes]:
        is_busy = False
        unread: bytes | None = b""
        pending = b""  # the computer's input after Ctrl-C, until the program has stopped
        pending_until = 0.0
        sleep_ms = 0
        sources = [self._stop_r, self._host, from_board, status_r]
        self._write(to_board, sent)
        while True:
            ready = select.select(sources, [], [], 0.1 if pending else None)[0]
            if self._stop_r in ready:
                return None, 0, b""
            if status_r in ready:
                states = os.read(status_r, 4096)
                for state in re.findall(rb"B|I|R|S\d+", states):
                    is_busy = state == b"B" if state in b"BI" else is_busy
                    unread = None if state == b"R" else unread
                    sleep_ms = int(state[1:]) if state[:1] == b"S" else sleep_ms
                if not states:
                    sources.remove(status_r)
            if from_board in ready:
                data = os.read(from_board, 4096)
                if not data:
                    return child.wait(), sleep_ms, unread or b""
                self._send(re.sub(rb"(?<!\r)\n", b"\r\n", data))
            if self._host in ready:
                data = self.received(self._read_host())
                if data is None:
                    return "power", 0, b""
                # A session begins with Ctrl-C. Earlier input is mpremote's end of a session with a board that
                # has been reset since: the program that runs now keeps printing to the console.
                data = data if self._is_in_session else data.lstrip(b"\r\x02")
                self._is_in_session = self._is_in_session or bool(data)
                unread = None if unread is None else unread + data
                if is_busy and b"\x03" in data and not pending:
                    child.send_signal(signal.SIGINT)
                    pending_until = time.monotonic() + _INTERRUPT_S
                    data = data.replace(b"\x03", b"")
                    pending = b"\r"
                pending, data = (pending + data, b"") if pending else (b"", data)
                self._write(to_board, data)
            if pending and (not is_busy or time.monotonic() > pending_until):
                self._write(to_board, pending)
                pending = b""

    def _read_host(self) -> bytes:
        try:
            return os.read(self._host, 4096)
        except BlockingIOError:
            return b""

    @staticmethod
    def _write(fd: int, data: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):  # the interpreter has just restarted
            while data:
                data = data[os.write(fd, data) :]

    def _send(self, data: bytes) -> None:
        """Send data to the computer; data that is not read in time is lost, as on USB."""
        self.output += data
        if len(self.output) > 2 * _KEPT_BYTES:
            self.output = self.output[-_KEPT_BYTES:]
        if self._console is not None and not self._is_in_session:
            *lines, self._line = (self._line + data).split(b"\r\n")
            for line in lines:
                self._console(line.decode(errors="replace"))
        end = time.monotonic() + (_READER_S if self._is_in_session else 0)
        while data:
            with contextlib.suppress(BlockingIOError):
                data = data[os.write(self._host, data) :]
                continue
            remaining_s = end - time.monotonic()
            if remaining_s <= 0:
                termios.tcflush(self._port_fd, termios.TCIFLUSH)
                return
            if self._stop_r in select.select([self._stop_r], [self._host], [], remaining_s)[0]:
                return
