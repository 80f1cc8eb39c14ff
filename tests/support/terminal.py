"""The command line on a terminal of its own: what a person would see and type."""

import os
import pty
import select
import sys
import time
from collections.abc import Sequence
from pathlib import Path

INTERRUPT = "\x03"


def on_terminal(arguments: Sequence[str], typed: Sequence[str], cwd: Path) -> tuple[str, int]:
    """Run hushmote there; each text is typed at the next prompt. Returns what was shown, and the exit status.

    Raises TimeoutError where it has not ended after two minutes.
    """
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(cwd)
        clean = {k: v for k, v in os.environ.items() if not k.startswith("HUSHMOTE_")}
        os.execve(sys.executable, [sys.executable, "-m", "hushmote", *arguments], clean | {"COLUMNS": "80"})
    shown, answered, left = b"", 0, list(typed)
    deadline, again = time.monotonic() + 120, float("inf")
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                shown += os.read(terminal, 4096)
            except OSError:  # how a terminal says that nobody writes to it any more
                break
        if left and shown[answered:].endswith(b"> "):
            answered = len(shown)
            text = left.pop(0)
            os.write(terminal, (text if text == INTERRUPT else text + "\n").encode())
            again = time.monotonic() + 2 if text == INTERRUPT else again
        elif (
            time.monotonic() > again
        ):  # readline loses one that comes before it waits: a person presses it again
            os.write(terminal, INTERRUPT.encode())
            again = time.monotonic() + 2
    else:
        os.kill(child, 9)
        os.waitpid(child, 0)
        raise TimeoutError(shown.decode())
    os.close(terminal)
    return shown.decode(), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
