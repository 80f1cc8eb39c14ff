"""Where a board's files run: CPython, the MicroPython runtimes of this machine, a board."""

import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...device import ldp_client
from ...server.errors import HushmoteError

CLIENT = Path(ldp_client.__file__)
_ERROR_BYTES = 4096  # of what a failing runtime wrote last
_KINDS = ("RUNTIME ", "JOB ", "TALLY ", "CODE ")


class RuntimeFault(HushmoteError):
    """A runtime that fails or does not do what it should; the text says how."""


@dataclass(frozen=True)
class Runtime:
    """A Python for boards' files: its name, and the command that takes a script, run beside ldp_client.py.

    board: the script goes through mpremote and uses the ldp_client that is installed there.
    """

    name: str
    argv: tuple[str, ...]
    board: bool = False


# Without site-packages: there is no hushmote that a board file of one's own could find first.
CPYTHON = Runtime("cpython", (sys.executable, "-S"))


def run_script(
    runtime: Runtime, script: Path, files: Sequence[Path], call: str, silence_s: float = 120.0
) -> Iterator[list[str]]:
    """Yield the words of each line that a script prints before END, where its last line is this call.

    files: the client's first, and what lies beside it, which is imported before the call; a board has its
    own, and may lack some. silence_s: how long it may print nothing. Raises RuntimeFault where it fails,
    hangs, or prints something else.
    """
    with tempfile.TemporaryDirectory(prefix="hushmote-board-") as name:
        folder = Path(name)
        client, *further = files
        shutil.copy(client, folder / "ldp_client.py")
        for path in further:
            shutil.copy(path, folder)
        lacking = "pass" if runtime.board else "raise"
        lines = [f"try:\n    import {path.stem}\nexcept ImportError:\n    {lacking}" for path in further]
        sent = folder / "board_script.py"
        sent.write_text("\n".join([script.read_text(encoding="utf-8"), *lines, call, ""]), encoding="utf-8")
        end = ("run", str(sent), "+", "reset") if runtime.board else (sent.name,)
        for line in _lines(runtime.name, (*runtime.argv, *end), folder, silence_s):
            yield line.split()


def _lines(name: str, argv: Sequence[str], folder: Path, silence_s: float) -> Iterator[str]:
    """The lines that a process prints before END."""
    with open(folder / "stderr.txt", "w+b") as errors:
        try:
            process = subprocess.Popen(
                argv, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        except OSError as e:
            raise RuntimeFault(f"{name} does not run: {e}") from None
        silent, last_line = threading.Event(), ""

        def stop() -> None:
            silent.set()
            process.kill()

        with process:
            try:
                while True:
                    watch = threading.Timer(silence_s, stop)
                    watch.start()
                    line = process.stdout.readline() if process.stdout else ""
                    watch.cancel()
                    if line.startswith(_KINDS):
                        yield line
                    elif line.rstrip() == "END":
                        return
                    elif silent.is_set():
                        raise RuntimeFault(f"{name} has said nothing for {silence_s:g} s: does it hang?")
                    elif not line:
                        break
                    last_line = line.strip() or last_line
            finally:
                process.kill()
        errors.seek(max(0, errors.tell() - _ERROR_BYTES))
        text = errors.read().decode(errors="replace").strip() or last_line
        raise RuntimeFault(f"{name} did not finish: {text.splitlines()[-1] if text else 'no reason given'}")
