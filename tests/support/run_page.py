"""Run a page's commands as printed, in an empty folder with a separate network and process tree.

    .venv/bin/python tests/support/run_page.py README.md docs/*.md

With - instead of pages, it reads page names from standard input, one per line, and ends each page's output
with END and a status. Exit status 0: every block succeeded. 1: a block failed; the end of its output follows
its line. 3: a page cannot run on this machine; the line gives the reason.
"""

import argparse
import contextlib
import os
import re
import resource
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import page_blocks
from page_blocks import Block
from quick_commands import commands

from hushmote.fleet.provisioning import interpreters
from hushmote.simulator.broker import find_mosquitto

ROOT = Path(__file__).parents[2]
CANNOT = 3
END = "== "
BLOCK_S = 600  # enough for the longest full study on a busy machine
START_S = 60
STOP_S = 120
SLOW_CPU_S = 10
LAST_LINES = 15
_NAMESPACES = ("--net", "--pid", "--fork", "--mount-proc", "--kill-child")
_INSIDE = "HUSHMOTE_PAGE_NETWORK"  # set inside the page's own network
_BROKER = re.compile(r"mqtts?://localhost|\bhushmote serve\b")
_BOARD = re.compile(r"^hushmote board\b", re.MULTILINE)
_OWN_BROKER = re.compile(r"(?:^|\s)mosquitto(?:\s|$)", re.MULTILINE)
_COMPILER = re.compile(r"^(cc|make -f) ", re.MULTILINE)
LIBRARY = Path("/usr/include/mosquitto.h")  # needed to compile clients/c/posix
# The state passed from block to block, as in a reader's shell: variables and working folder.
_PRELUDE = """unset BASH_ENV
[ ! -e {state} ] || . {state}
trap 'echo $LINENO > {failed}' ERR
trap 'if [ $? = 0 ]; then {{ export -p; printf "cd %q\\n" "$PWD"; }} > {state}; fi' EXIT
"""


@dataclass(frozen=True)
class Outcome:
    """A block's result; fault: "" if it succeeded; cpu_s: its CPU seconds, including its children's."""

    block: Block
    fault: str = ""
    output: str = ""
    cpu_s: float = 0.0


def own_network() -> list[str] | None:
    """Return a command prefix that gives a command its own network and process tree, or None."""
    tries = [["unshare", *_NAMESPACES], ["unshare", "--user", "--map-root-user", *_NAMESPACES]]
    for command in tries if shutil.which("unshare") and shutil.which("ip") else []:
        probe = [*command, "ip", "link", "set", "lo", "up"]
        if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
            return command
    return None


def select_blocks(blocks: tuple[Block, ...], slow: bool) -> list[Block]:
    """Return the blocks to run on this machine."""
    return [block for block in blocks if not block.needs and (slow or not block.slow)]


def needs_broker(blocks: list[Block]) -> bool:
    """Return whether the commands expect mosquitto on localhost:1883 and do not start it themselves."""
    texts = "\n".join(line for block in blocks for line in (*block.setup, block.text))
    return bool(_BROKER.search(texts)) and not _OWN_BROKER.search(texts)


def check_board() -> None:
    """Raise NotHere if no MicroPython can act as a board with TLS."""
    try:
        interpreter = interpreters.for_board()
    except interpreters.NoInterpreter as e:
        raise NotHere(str(e)) from None
    if "tls" not in interpreter.features:
        raise NotHere(
            f"{shlex.join(interpreter.argv)} has no TLS: take another MicroPython for `hushmote board`"
        )


class Shell:
    """A reader's shell, with one folder, the venv first in PATH and none of our settings."""

    def __init__(self, folder: Path, quick: Path | None) -> None:
        self.folder = folder / "page"
        self._cpu = quick / "cpu" if quick else None
        self._own = folder / "own"
        self._background: list[tuple[Block, subprocess.Popen[bytes], Path]] = []
        venv = Path(sys.executable).parent
        system = (f"{at}/{of}" for at in ("/usr/local", "/usr", "") for of in ("bin", "sbin"))
        programs = [*([quick] if quick else []), venv, *system]
        for directory in (self.folder, self._own, folder / "home"):
            directory.mkdir()
        for name in ("clients", "examples"):
            shutil.copytree(ROOT / name, self.folder / name)
        (self.folder / ".venv" / "bin").mkdir(parents=True)
        shutil.copy(venv / "activate", self.folder / ".venv" / "bin")
        self._environment = {
            "PATH": ":".join(map(str, programs)),
            "HOME": str(folder / "home"),
            "LANG": "C.UTF-8",
            "MPLCONFIGDIR": os.environ.get("MPLCONFIGDIR") or str(Path.home() / ".cache" / "matplotlib"),
            "BASH_ENV": str(self._own / "prelude"),
        }
        names = {name: shlex.quote(str(self._own / name)) for name in ("state", "failed")}
        (self._own / "prelude").write_text(_PRELUDE.format(**names))

    def run(self, block: Block) -> Outcome:
        """Run a block after its setup command."""
        before = self._cpu_s()
        for command in block.setup:
            status, output = self._run(command + "\n")
            if status:
                return Outcome(block, f"exit status {status} of the setup `{command}`", output)
        # Only a block's last command runs in the background.
        lines = block.text.splitlines(keepends=True)
        at = [*block.commands()][-1][0] - block.line if block.background else len(lines)
        status, output = self._run("".join(lines[:at]))
        cpu_s = self._cpu_s() - before
        if "Traceback (most recent call last)" in output:
            return Outcome(block, "a traceback", output, cpu_s)
        if block.fails:
            return Outcome(
                block, "" if status in (1, 2) else f"exit status {status}, not refused", output, cpu_s
            )
        if block.background and not status:
            return self._start(block, "".join(lines[at:]))
        return Outcome(block, self._where(block, status) if status else "", output, cpu_s)

    def _where(self, block: Block, status: int) -> str:
        failed = self._own / "failed"
        line = block.line - 1 + int(failed.read_text()) if failed.exists() else block.line
        return f"exit status {status} at line {line}"

    def _run(self, text: str) -> tuple[int, str]:
        (self._own / "failed").unlink(missing_ok=True)
        output = self._own / "output"
        with self._started(text, output) as process:
            try:
                process.wait(BLOCK_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
        return process.returncode, output.read_text(errors="replace")

    def _started(self, text: str, output: Path) -> subprocess.Popen[bytes]:
        script = output.with_suffix(".sh")
        script.write_text(text)
        with open(output, "wb") as file:
            return subprocess.Popen(
                ["bash", "-eu", "-o", "pipefail", script],
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _start(self, block: Block, text: str) -> Outcome:
        """Start a block's last command; wait until it has printed something and run for another second."""
        output = self._own / f"background_{block.line}"
        process = self._started(text, output)
        self._background.append((block, process, output))
        end = time.monotonic() + START_S
        while time.monotonic() < end and process.poll() is None and not output.stat().st_size:
            time.sleep(0.05)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1)
        printed = output.read_text(errors="replace")
        if process.poll() is not None:
            return Outcome(block, f"it ended at once, with exit status {process.returncode}", printed)
        return Outcome(block, "" if printed else f"it says nothing for {START_S} s", printed)

    def _cpu_s(self) -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        calls = self._cpu.read_text().split() if self._cpu and self._cpu.exists() else ()
        return used.ru_utime + used.ru_stime + sum(map(float, calls))

    def close(self) -> Iterator[Outcome]:
        """Stop background commands as Ctrl-C does, the newest first."""
        for block, process, output in reversed(self._background):
            has_ended = process.poll() is not None
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
            try:
                process.wait(STOP_S)
                fault = (
                    f"it ended before the page, with exit status {process.returncode}" if has_ended else ""
                )
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                fault = f"it goes on {STOP_S} s after Ctrl-C"
            printed = output.read_text(errors="replace")
            if not fault and "Traceback (most recent call last)" in printed:
                fault = "a traceback"
            if fault:
                yield Outcome(block, fault, printed)


@contextlib.contextmanager
def _broker(mosquitto: str, folder: Path) -> Iterator[None]:
    """Run mosquitto on localhost:1883, as set up in docs/operations.md."""
    (folder / "mosquitto.conf").write_text(
        "listener 1883 localhost\nallow_anonymous true\nmax_queued_messages 0\nuser root\n"
    )
    command = [mosquitto, "-c", folder / "mosquitto.conf"]
    with (
        open(folder / "mosquitto.log", "wb") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as process,
    ):
        try:
            end = time.monotonic() + START_S
            while time.monotonic() < end and process.poll() is None:
                with contextlib.suppress(OSError), socket.create_connection(("localhost", 1883), 1):
                    break
                time.sleep(0.05)
            yield
        finally:
            process.terminate()


def run(page: Path, slow: bool, quick: Path | None = None) -> list[Outcome]:
    """Run a page's blocks in a temporary folder and return the outcomes.

    quick: the executables' folder from quick_commands.py.
    """
    blocks = select_blocks(page_blocks.read(page.read_text()).blocks, slow)
    with tempfile.TemporaryDirectory(prefix="page-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        shell = Shell(folder, quick)
        if any(_BOARD.search(block.text) for block in blocks):
            check_board()
        if _COMPILER.search("\n".join(block.text for block in blocks)):
            if shutil.which("cc") is None:
                raise NotHere("there is no C compiler (cc)")
            if not LIBRARY.exists():
                raise NotHere("libmosquitto is not there: apt-get install libmosquitto-dev")
        if needs_broker(blocks):
            mosquitto = find_mosquitto()
            if not os.environ.get(_INSIDE):
                raise NotHere("no separate network namespace can be created here (unshare)")
            if mosquitto is None:
                raise NotHere("mosquitto is not installed")
            stack.enter_context(_broker(mosquitto, folder))
        outcomes = [shell.run(block) for block in blocks]
        return [*outcomes, *shell.close()]


class NotHere(Exception):
    """Raised if this machine lacks something the page needs; the message names it."""


def _main() -> int:
    parser = argparse.ArgumentParser(description="Run the commands of pages as printed.")
    parser.add_argument(
        "pages", nargs="+", help="Markdown files, or - to read their names from standard input"
    )
    parser.add_argument("--slow", action="store_true", help="run blocks marked slow as well")
    options = parser.parse_args()
    if not os.environ.get(_INSIDE):
        command = own_network()
        if command is not None:
            inner = [sys.executable, __file__, *options.pages, *["--slow"] * options.slow]
            return subprocess.run(
                [*command, "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *inner],
                env=os.environ | {_INSIDE: "1"},
                check=False,
            ).returncode
    followed = options.pages == ["-"]
    worst = 0
    with tempfile.TemporaryDirectory(prefix="pages-") as name, commands(Path(name)) as quick:
        for page in map(str.strip, sys.stdin) if followed else options.pages:
            status = _say(Path(page), options.slow, quick)
            worst = max(worst, status)
            if followed:
                print(f"{END}{status}", flush=True)
    return worst


def _say(page: Path, slow: bool, quick: Path) -> int:
    """Run a page, print its result, and return 0, 1 or CANNOT."""
    try:
        outcomes = run(page, slow, quick)
    except NotHere as e:
        print(f"{page}: not run: {e}")
        return CANNOT
    for outcome in outcomes:
        verdict = outcome.fault or ("refused, as it should be" if outcome.block.fails else "ok")
        hint = ", mark it slow" if outcome.cpu_s > SLOW_CPU_S and not outcome.block.slow else ""
        print(f"{page}:{outcome.block.line}: {verdict} ({outcome.cpu_s:.1f} s of CPU{hint})")
        if outcome.fault:
            shown = [*outcome.block.text.splitlines(), "output:", *outcome.output.splitlines()[-LAST_LINES:]]
            print("\n".join(f"    {line}" for line in shown))
    return int(any(outcome.fault for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(_main())
