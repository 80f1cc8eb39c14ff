"""The same draws give the same codes on CPython and on a MicroPython: the board's files run on both."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from ...fleet.provisioning import interpreters
from ...fleet.provisioning.board_runtimes import CLIENT, CPYTHON, Runtime, RuntimeFault, printed
from ...server.mechanisms.own import files_of
from .cases import Case, ContractError
from .channel import Broken

DRAWN = 300  # codes of each experiment
_SCRIPT = Path(__file__).with_name("codes_board.py")


def find(path: str | None) -> Runtime | None:
    """The MicroPython of a path or command line; where that is None one of this machine's, or None.

    Raises ContractError if the one named is not a MicroPython.
    """
    named = [] if path is None else [("named", interpreters.absolute(shlex.split(path) or [""]))]
    for name, argv in named or interpreters.commands():
        answer = interpreters.ask(name, argv)
        if answer is not None:
            version = ".".join(map(str, answer.version))
            small = ", integers of 31 bits" if "int31" in answer.features else ""
            return Runtime(f"MicroPython {version}{small}", argv)
    if path is not None:
        raise ContractError(f"{path} is not MicroPython, or does not run")
    return None


def same_codes(word: str, cases: Sequence[Case], micropython: Runtime) -> str:
    """Raise Broken where the two disagree: at the first code that differs, or where one of them fails."""
    call = f"codes({[case.published for case in cases]!r}, {DRAWN})"
    try:
        said = [
            [code for _, code in printed(runtime, _SCRIPT, (CLIENT, *files_of(word)), call)]
            for runtime in (CPYTHON, micropython)
        ]
    except RuntimeFault as e:
        raise Broken(str(e)) from None
    for number, (one, other) in enumerate(zip(*said, strict=False)):
        if one != other:
            case, draw = cases[number // DRAWN], number % DRAWN
            index = draw % (case.experiment.domain + 1)
            raise Broken(f"{case.where}, index {index}: code {one} on CPython, {other} on MicroPython")
    if not len(said[0]) == len(said[1]) == DRAWN * len(cases):
        raise Broken(f"CPython drew {len(said[0])} codes, MicroPython {len(said[1])}")
    return f"{len(said[0]):,} codes, {micropython.name}"
