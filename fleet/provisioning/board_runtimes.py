"""The runtimes that can run a board's files: CPython, MicroPython on this machine, or a board."""

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
_ERROR_BYTES = 4096  # how much of a failed runtime's last output to read
_KINDS = ("RUNTIME ", "JOB ", "TALLY ", "CODE ")


class RuntimeFault(HushmoteError):
    """Raised if a runtime failed or misbehaved; the message says how."""


@dataclass(frozen=True)
class Runtime:
    """A Python interpreter for boards' files.

    Attributes:
        name: The runtime's name.
        argv: The command that runs a script next to ldp_client.py.
        board: Whether mpremote sends the script to a board, which uses its installed ldp_client.
    """

    name: str
    argv: tuple[str, ...]
    board: bool = False


# Without site-packages, so that a user's own board file cannot import hushmote.
CPYTHON = Runtime("cpython", (sys.executable, "-S"))


def run_script(
    runtime: Runtime, script: Path, files: Sequence[Path], call: str, silence_s: float = 120.0
) -> Iterator[list[str]]:
    """Run a script that ends with this call; yield the words of each line that it prints before END.

    Args:
        runtime: The runtime.
        script: The script.
        files: The client's file, followed by the modules to import before the call; a board uses its own
            files and may lack some.
        call: The script's last line.
        silence_s: How long the script may print nothing, in seconds.

    Raises:
        RuntimeFault: If the script failed, hung or printed something else.
    """
    with tempfile.TemporaryDirectory(prefix="hushmote-board-") as name:
        folder = Path(name)
        client, *further = files
        shutil.copy(client, folder / "ldp_client.py")
        for path in further:
            shutil.copy(path, folder)
        on_missing = "pass" if runtime.board else "raise"
        lines = [f"try:\n    import {path.stem}\nexcept ImportError:\n    {on_missing}" for path in further]
        sent = folder / "board_script.py"
        sent.write_text("\n".join([script.read_text(encoding="utf-8"), *lines, call, ""]), encoding="utf-8")
        end = ("run", str(sent), "+", "reset") if runtime.board else (sent.name,)
        for line in _lines(runtime.name, (*runtime.argv, *end), folder, silence_s):
            yield line.split()


def _lines(name: str, argv: Sequence[str], folder: Path, silence_s: float) -> Iterator[str]:
    """Yield the lines that a process prints before END."""
    with open(folder / "stderr.txt", "w+b") as errors:
        try:
            process = subprocess.Popen(
                argv, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        except OSError as e:
            raise RuntimeFault(f"cannot run {name}: {e}") from None
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
                        raise RuntimeFault(f"{name} has printed nothing for {silence_s:g} s: it may hang")
                    elif not line:
                        break
                    last_line = line.strip() or last_line
            finally:
                process.kill()
        errors.seek(max(0, errors.tell() - _ERROR_BYTES))
        text = errors.read().decode(errors="replace").strip() or last_line
        raise RuntimeFault(f"{name} did not finish: {text.splitlines()[-1] if text else 'no reason given'}")
