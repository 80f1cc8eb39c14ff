"""Where a board's files run: CPython, the MicroPython runtimes that are here, a board; and an audit's run."""

import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...device import ldp_client
from ...server.mechanisms.own import files_of
from ..provisioning import interpreters
from ..provisioning.usb import UsbLink
from .audit import AuditError, Subject

CLIENT = Path(ldp_client.__file__)
_SCRIPT = Path(__file__).with_name("audit_board.py")
_ERROR_BYTES = 4096  # of what a failing runtime wrote last
_KINDS = ("RUNTIME ", "JOB ", "TALLY ", "CODE ")


@dataclass(frozen=True)
class Runtime:
    """A Python for boards' files: its name, and the command that takes a script, run beside ldp_client.py.

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
    silence_s: as of printed(). Raises AuditError where the runtime fails or does not do what was asked.
    """
    files = dict.fromkeys(path for job in jobs for path in files_of(job.subject.experiment.mechanism))
    subjects = [job.subject for job in jobs]
    rows = [
        (x.payload, x.experiment.name, x.whole, x.readings, job.halves)
        for x, job in zip(subjects, jobs, strict=True)
    ]
    label = runtime.name
    halves = [(({}, {}), ({}, {})) for _ in jobs]
    for words in printed(runtime, (client, *files), f"run({tuple(rows)!r})", silence_s):
        try:
            if words[0] == "RUNTIME":
                label = runtime.name if words[1] == runtime.name else f"{runtime.name}: {words[1]}"
                label += f" {words[2]}"
            elif words[0] == "JOB":
                _check_indices(runtime, subjects[int(words[1])], words[2:])
            else:
                number, half, which = map(int, words[1:4])
                counts = [tuple(map(int, word.split(":"))) for word in words[4:]]
                tally = halves[number][half][which]
                for code, count in counts:
                    tally[code] = tally.get(code, 0) + count
                drawn(sum(count for _, count in counts))
        except (IndexError, ValueError):
            raise AuditError(f"{runtime.name} did not finish: {' '.join(words):.100}") from None
    for job, both in zip(jobs, halves, strict=True):
        if any(sum(t.values()) != n for n, half in zip(job.halves, both, strict=True) for t in half):
            raise AuditError(f"{runtime.name} lost some of its output: try again")
    return [Tallies(label, both) for both in halves]


def _check_indices(runtime: Runtime, subject: Subject, words: Sequence[str]) -> None:
    if tuple(words) != tuple(map(str, subject.indices)):
        readings = " and ".join(map(repr, subject.readings))
        wanted = " and ".join(map(str, subject.indices))
        text = f"{subject.experiment.name} on {runtime.name}: {readings} fell into {' and '.join(words)}"
        raise AuditError(f"{text}, not into {wanted}: its bucket() is not the shipped one")


def printed(
    runtime: Runtime, files: Sequence[Path], call: str, silence_s: float = 120.0
) -> Iterator[list[str]]:
    """Yield the words of each line that audit_board.py prints before END, where its last line is this call.

    files: the client's first, and what lies beside it, which is imported before the call; a board has its
    own. silence_s: how long it may print nothing. Raises AuditError where it fails, hangs, or prints
    something else.
    """
    with tempfile.TemporaryDirectory(prefix="hushmote-board-") as name:
        folder = Path(name)
        client, *further = files
        shutil.copy(client, folder / "ldp_client.py")
        for path in further:
            shutil.copy(path, folder)
        modules = [path.stem for path in further]
        calls = f"load({modules!r}, {not runtime.board})\n{call}\n"
        script = folder / "audit_script.py"
        script.write_text(f"{_SCRIPT.read_text(encoding='utf-8')}\n\n{calls}", encoding="utf-8")
        end = ("run", str(script), "+", "reset") if runtime.board else (script.name,)
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
            raise AuditError(f"{name} does not run: {e}") from None
        silent, said = threading.Event(), ""

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
                        raise AuditError(f"{name} has said nothing for {silence_s:g} s: does it hang?")
                    elif not line:
                        break
                    said = line.strip() or said
            finally:
                process.kill()
        errors.seek(max(0, errors.tell() - _ERROR_BYTES))
        text = errors.read().decode(errors="replace").strip() or said
        raise AuditError(f"{name} did not finish: {text.splitlines()[-1] if text else 'no reason given'}")
