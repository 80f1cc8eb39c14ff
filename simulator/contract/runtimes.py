"""The same draws give the same codes on CPython and on a MicroPython: the board's files run on both."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...device import ldp_client
from ...server.mechanisms.own import files_of
from ...server.provisioning.software_board import interpreters
from .cases import Case, ContractError
from .channel import Broken

DRAWN = 300  # codes of each experiment
_SCRIPT = Path(__file__).with_name("contract_board.py")
_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Micropython:
    """A MicroPython that answers: its command, and what it calls itself."""

    argv: tuple[str, ...]
    words: str


def find(path: str | None) -> Micropython | None:
    """The MicroPython of a path or command line; where that is None one of this machine's, or None.

    Raises ContractError where the one that was named is none.
    """
    named = [] if path is None else [("named", interpreters.absolute(shlex.split(path) or [""]))]
    for name, argv in named or interpreters.commands():
        answer = interpreters.ask(name, argv)
        if answer is not None:
            version = ".".join(map(str, answer.version))
            small = ", integers of 31 bits" if "int31" in answer.features else ""
            return Micropython(argv, f"MicroPython {version}{small}")
    if path is not None:
        raise ContractError(f"{path} is not MicroPython, or does not run")
    return None


def same_codes(word: str, cases: Sequence[Case], micropython: Micropython) -> str:
    """Raise Broken where the two disagree: at the first code that differs, or where MicroPython fails."""
    jobs = json.dumps([case.published.decode() for case in cases])
    with tempfile.TemporaryDirectory(prefix="hushmote-contract-") as name:
        folder = Path(name)
        files = files_of(word)
        for file in (Path(ldp_client.__file__), *files, _SCRIPT):
            shutil.copy(file, folder)
        (folder / "jobs.json").write_text(jobs, encoding="ascii")
        modules = ",".join(file.stem for file in files)
        said = []
        # Without site-packages: there is no hushmote that a board file of one's own could find first.
        for argv in ((sys.executable, "-I", "-S"), micropython.argv):
            try:
                done = subprocess.run(
                    [*argv, _SCRIPT.name, modules, str(DRAWN)],
                    cwd=folder,
                    capture_output=True,
                    text=True,
                    errors="replace",
                    timeout=_TIMEOUT_S,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                raise Broken(f"{Path(argv[0]).name} drew nothing for {_TIMEOUT_S:g} s") from None
            if done.returncode:
                lines = (done.stderr.strip() or done.stdout.strip() or "no reason given").splitlines()
                raise Broken(f"{Path(argv[0]).name} fails: {lines[-1]}")
            said.append(done.stdout.split())
    for number, (one, other) in enumerate(zip(*said, strict=False)):
        if one != other:
            case, draw = cases[number // DRAWN], number % DRAWN
            index = draw % (case.experiment.domain + 1)
            raise Broken(f"{case.where}, index {index}: code {one} on CPython, {other} on MicroPython")
    if not len(said[0]) == len(said[1]) == DRAWN * len(cases):
        raise Broken(f"CPython drew {len(said[0])} codes, MicroPython {len(said[1])}")
    return f"{len(said[0]):,} codes, {micropython.words}"
