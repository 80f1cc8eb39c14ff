"""Where an audit runs: CPython, the MicroPython runtimes that are here, a board; and the run itself."""

import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ...device import ldp_client
from ..mechanisms.own import files_of
from ..provisioning.software_board import interpreters
from ..provisioning.usb import UsbLink
from .audit import AuditError, Subject

CLIENT = Path(ldp_client.__file__)
_SCRIPT = Path(__file__).with_name("audit_board.py")
_ERROR_BYTES = 4096  # of what a failing runtime wrote last


@dataclass(frozen=True)
class Runtime:
    """A Python that an audit can run on: name, and the command that takes a script, run beside ldp_client.py.

    board: the script goes through mpremote and uses the ldp_client that is installed there.
    """

    name: str
    argv: tuple[str, ...]
    board: bool = False


@dataclass(frozen=True)
class Job:
    """A subject and how many draws each of its two inputs gets in the first and in the second half."""

    subject: Subject
    halves: tuple[int, int]


@dataclass(frozen=True)
class Tallies:
    """Counts of a job's codes on a runtime, halves[half][input][code]; what the runtime called itself."""

    runtime: str
    halves: tuple[tuple[dict[int, int], dict[int, int]], tuple[dict[int, int], dict[int, int]]]


# Without site-packages: there is no hushmote that a board file of one's own could find first.
CPYTHON = Runtime("cpython", (sys.executable, "-S"))


def found() -> list[Runtime]:
    """CPython and the MicroPython runtimes here: $HUSHMOTE_MICROPYTHON, .rig/ of a checkout, PATH."""
    runtimes = [CPYTHON, *(Runtime(name, argv) for name, argv in interpreters.commands())]
    rig = interpreters.rig_folder()
    node = shutil.which("node")
    if rig is not None and node and (rig / "wasm" / "run_wasm.mjs").exists():
        runtimes.append(Runtime("wasm", (node, str(rig / "wasm" / "run_wasm.mjs"))))
    return runtimes


def select(name: str) -> list[Runtime]:
    """The runtimes of a name, all for "all", or one for a command line that can be run; raises AuditError."""
    here = found()
    if name == "all":
        return here
    named = [runtime for runtime in here if runtime.name == name]
    if named:
        return named
    try:
        words = tuple(shlex.split(name))
    except ValueError:
        words = ()
    if words and shutil.which(words[0]):
        return [Runtime(Path(words[0]).name, interpreters.absolute(words))]
    names = ", ".join(runtime.name for runtime in here)
    raise AuditError(f"there is no runtime {name!r}: take {names}, all, or a command line that runs a script")


def board(port: str) -> Runtime:
    """The board at a serial port. Raises FlashError where there is none, AuditError without the client."""
    said = UsbLink(port, 60).run(
        "exec", "try:\n import ldp_client\n print('FOUND')\nexcept ImportError:\n print('NONE')"
    )
    if "FOUND" not in said:
        raise AuditError(f"the board at {port} has no ldp_client: `hushmote flash {port} SETTINGS` first")
    there = str(Path(port).absolute()) if Path(port).exists() else port  # mpremote is run in another folder
    return Runtime("board", (sys.executable, "-m", "mpremote", "connect", there), board=True)


def run(
    runtime: Runtime,
    jobs: Sequence[Job],
    *,
    client: Path = CLIENT,
    drawn: Callable[[int], None] = lambda _: None,
    silence_s: float = 120.0,
) -> list[Tallies]:
    """Run all jobs on a runtime, as one process, and return their tallies in the same order.

    client: the randomizer's file (a board has its own). drawn: is told how many more draws were made.
    silence_s: how long a runtime may print nothing (it prints at least every 1,000 draws).
    Raises AuditError where the runtime fails or does not do what was asked.
    """
    with tempfile.TemporaryDirectory(prefix="hushmote-audit-") as name:
        folder = Path(name)
        shutil.copy(client, folder / "ldp_client.py")
        files = dict.fromkeys(path for job in jobs for path in files_of(job.subject.experiment.mechanism))
        for path in files:
            shutil.copy(path, folder)
        modules = [path.stem for path in files]
        script = _SCRIPT.read_text(encoding="utf-8") + f"\n\nload({modules!r})\nrun({_literal(jobs)})\n"
        (folder / "audit_script.py").write_text(script, encoding="utf-8")
        if runtime.board:
            argv = [*runtime.argv, "run", str(folder / "audit_script.py"), "+", "reset"]
        else:
            argv = [*runtime.argv, "audit_script.py"]
        with _process(runtime, argv, folder, silence_s) as lines:
            return _read(runtime, jobs, lines, drawn)


def _literal(jobs: Sequence[Job]) -> str:
    rows = [
        (
            job.subject.payload,
            job.subject.experiment.name,
            job.subject.whole,
            job.subject.readings,
            job.halves,
        )
        for job in jobs
    ]
    return repr(tuple(rows))


@contextmanager
def _process(
    runtime: Runtime, argv: Sequence[str], folder: Path, silence_s: float
) -> Iterator[Iterable[str]]:
    with open(folder / "stderr.txt", "w+b") as errors:
        try:
            process = subprocess.Popen(
                argv, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        except OSError as e:
            raise AuditError(f"{runtime.name} does not run: {e}") from None
        assert process.stdout is not None
        said: list[str] = []
        silent = threading.Event()

        def stop() -> None:
            silent.set()
            process.kill()

        def lines() -> Iterator[str]:
            assert process.stdout is not None
            while True:
                watch = threading.Timer(silence_s, stop)
                watch.start()
                line = process.stdout.readline()
                watch.cancel()
                if not line:
                    return
                said[:] = [*said, line.strip()][-5:]
                yield line

        try:
            yield lines()
        except _Unfinished:
            process.wait()
            if silent.is_set():
                text = f"the audit on {runtime.name} has said nothing for {silence_s:g} s: does it hang?"
                raise AuditError(text) from None
            errors.seek(max(0, errors.tell() - _ERROR_BYTES))
            text = errors.read().decode(errors="replace").strip() or "\n".join(said).strip()
            last = text.splitlines()[-1] if text else "no reason given"
            raise AuditError(f"the audit on {runtime.name} did not finish: {last}") from None
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


class _Unfinished(Exception):
    """The output ended, or a line of it made no sense, before END."""


def _read(
    runtime: Runtime, jobs: Sequence[Job], lines: Iterable[str], drawn: Callable[[int], None]
) -> list[Tallies]:
    label = runtime.name
    halves = [(({}, {}), ({}, {})) for _ in jobs]
    for line in lines:
        kind, *words = line.split() or [""]
        try:
            if kind == "RUNTIME":
                label = runtime.name if words[0] == runtime.name else f"{runtime.name}: {words[0]}"
                label += f" {words[1]}"
            elif kind == "JOB":
                _check_indices(runtime, jobs[int(words[0])].subject, words[1:])
            elif kind == "TALLY":
                number, half, which = map(int, words[:3])
                tally = halves[number][half][which]
                draws = 0
                for word in words[3:]:
                    code, _, count = word.partition(":")
                    tally[int(code)] = tally.get(int(code), 0) + int(count)
                    draws += int(count)
                drawn(draws)
            elif kind == "END":
                return _complete(runtime, jobs, [Tallies(label, both) for both in halves])
        except (IndexError, ValueError) as e:
            raise _Unfinished from e
    raise _Unfinished


def _check_indices(runtime: Runtime, subject: Subject, words: Sequence[str]) -> None:
    if tuple(words) != tuple(map(str, subject.indices)):
        readings = " and ".join(map(repr, subject.readings))
        wanted = " and ".join(map(str, subject.indices))
        text = f"{subject.experiment.name} on {runtime.name}: {readings} fell into {' and '.join(words)}"
        raise AuditError(f"{text}, not into {wanted}: its bucket() is not the shipped one")


def _complete(runtime: Runtime, jobs: Sequence[Job], tallies: list[Tallies]) -> list[Tallies]:
    for job, tally in zip(jobs, tallies, strict=True):
        for half, draws in enumerate(job.halves):
            if any(sum(counts.values()) != draws for counts in tally.halves[half]):
                raise AuditError(f"{runtime.name} lost some of its output: try again")
    return tallies
