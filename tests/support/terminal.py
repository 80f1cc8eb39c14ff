"""Run the command line on a pseudo-terminal, as a person would use it."""

import fcntl
import os
import pty
import select
import struct
import sys
import termios
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

INTERRUPT = "\x03"
_MAX_S = 600.0  # the longest wait for a text


class Terminal:
    """hushmote on a terminal of the given size, as a context manager.

    screen: its output so far, including control sequences.
    """

    def __init__(self, arguments: Sequence[str], cwd: Path, columns: int = 80, lines: int = 40) -> None:
        self.screen = b""
        self._status: int | None = None
        self._child, self._terminal = pty.fork()
        if self._child == 0:
            os.chdir(cwd)
            clean = {
                k: v for k, v in os.environ.items() if not k.startswith(("HUSHMOTE_", "COLUMNS", "LINES"))
            }
            size = struct.pack("HHHH", lines, columns, 0, 0)
            fcntl.ioctl(0, termios.TIOCSWINSZ, size)
            os.execve(
                sys.executable, [sys.executable, "-m", "hushmote", *arguments], clean | {"TERM": "xterm"}
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._status is None:
            os.killpg(self._child, 9)  # with the brokers and aggregators that it has started
            os.waitpid(self._child, 0)
        os.close(self._terminal)

    def until(self, words: str) -> None:
        """Wait until the words appear in the output since the last call; raise TimeoutError otherwise."""
        began, end = len(self.screen), time.monotonic() + _MAX_S
        while words.encode() not in self.screen[began:]:
            if time.monotonic() > end or not self._read():
                raise TimeoutError(self.screen[began:].decode(errors="replace"))

    def type(self, text: str) -> None:
        """Type text."""
        os.write(self._terminal, text.encode())

    def kill(self, number: int) -> None:
        """Send a signal to its process."""
        os.kill(self._child, number)

    def wait(self) -> int:
        """Wait for it to exit and return its exit status."""
        while self._read():
            pass
        self._status = os.waitstatus_to_exitcode(os.waitpid(self._child, 0)[1])
        return self._status

    def _read(self) -> bool:
        if select.select([self._terminal], [], [], 1.0)[0]:
            try:
                self.screen += os.read(self._terminal, 65_536)
            except OSError:
                return False
        return True
