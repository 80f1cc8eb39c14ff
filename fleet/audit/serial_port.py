"""Audits the board on a serial port: draws codes from its installed client, and counts them."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...server.mechanisms.custom import files_of
from ..provisioning.board_runtimes import CLIENT, Runtime, RuntimeFault, run_script
from ..provisioning.usb import UsbLink
from .audit import AuditError, Subject

_SCRIPT = Path(__file__).with_name("audit_board.py")


@dataclass(frozen=True)
class Job:
    """A subject, and the number of draws per input in the first and the second half."""

    subject: Subject
    halves: tuple[int, int]


@dataclass(frozen=True)
class Tallies:
    """A job's code counts, halves[half][input][code], and the name that the runtime printed."""

    runtime: str
    halves: tuple[tuple[dict[int, int], dict[int, int]], tuple[dict[int, int], dict[int, int]]]


def connect(port: str) -> Runtime:
    """Connect to the board on a serial port.

    Raises:
        FlashError: If there is no board.
        AuditError: If the board has no client.
    """
    output = UsbLink(port, 60).run(
        "exec", "try:\n import ldp_client\n print('FOUND')\nexcept ImportError:\n print('NONE')"
    )
    if "FOUND" not in output:
        raise AuditError(f"the board at {port} has no ldp_client: run `hushmote flash {port} SETTINGS` first")
    # Make the path absolute, as mpremote runs in another folder.
    address = str(Path(port).absolute()) if Path(port).exists() else port
    return Runtime("board", (sys.executable, "-m", "mpremote", "connect", address), board=True)


def draw(
    runtime: Runtime,
    jobs: Sequence[Job],
    *,
    client: Path = CLIENT,
    on_draws: Callable[[int], None] = lambda _: None,
    silence_s: float = 120.0,
) -> list[Tallies]:
    """Run all jobs on a runtime, in one process, and return their tallies in the same order.

    Args:
        runtime: The runtime.
        jobs: The jobs to run.
        client: The file with the randomizer; a board uses its own.
        on_draws: Called with the number of additional draws.
        silence_s: See run_script().

    Raises:
        RuntimeFault: If the runtime failed.
        AuditError: If the runtime computed wrong indices.
    """
    files = dict.fromkeys(path for job in jobs for path in files_of(job.subject.experiment.mechanism))
    subjects = [job.subject for job in jobs]
    rows = [
        (x.payload, x.experiment.name, x.whole, x.readings, job.halves)
        for x, job in zip(subjects, jobs, strict=True)
    ]
    label = runtime.name
    halves = [(({}, {}), ({}, {})) for _ in jobs]
    for words in run_script(runtime, _SCRIPT, (client, *files), f"run({tuple(rows)!r})", silence_s):
        try:
            if words[0] == "RUNTIME":
                label = runtime.name if words[1] == runtime.name else f"{runtime.name}: {words[1]}"
                label += f" {words[2]}"
            elif words[0] == "JOB":
                _check_indices(runtime, subjects[int(words[1])], words[2:])
            else:
                number, half, index = map(int, words[1:4])
                counts = [tuple(map(int, word.split(":"))) for word in words[4:]]
                tally = halves[number][half][index]
                for code, count in counts:
                    tally[code] = tally.get(code, 0) + count
                on_draws(sum(count for _, count in counts))
        except (IndexError, ValueError):
            raise RuntimeFault(f"{runtime.name} did not finish: {' '.join(words):.100}") from None
    for job, both in zip(jobs, halves, strict=True):
        if any(sum(t.values()) != n for n, half in zip(job.halves, both, strict=True) for t in half):
            raise RuntimeFault(f"{runtime.name} lost some of its output: try again")
    return [Tallies(label, both) for both in halves]


def _check_indices(runtime: Runtime, subject: Subject, words: Sequence[str]) -> None:
    if tuple(words) != tuple(map(str, subject.indices)):
        readings = " and ".join(map(repr, subject.readings))
        expected = " and ".join(map(str, subject.indices))
        text = f"{subject.experiment.name} on {runtime.name}: {readings} fell into {' and '.join(words)}"
        raise AuditError(f"{text}, not {expected}: its bucket() is not the one that Hushmote ships")
