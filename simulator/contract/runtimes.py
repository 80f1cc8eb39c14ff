"""Check that CPython and MicroPython turn the same draws into the same codes by running the same files."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from ...fleet.provisioning import interpreters
from ...fleet.provisioning.board_runtimes import CLIENT, CPYTHON, Runtime, RuntimeFault, run_script
from ...server.mechanisms.custom import files_of
from .cases import Case, ContractError
from .channel import PropertyBroken

CODES_PER_EXPERIMENT = 300
_SCRIPT = Path(__file__).with_name("codes_board.py")


def find(path: str | None) -> Runtime | None:
    """Return the MicroPython at a path or command line; for None, an installed one, if any.

    Raises:
        ContractError: If the path is not a MicroPython executable.
    """
    given = [] if path is None else [("named", interpreters.absolute(shlex.split(path) or [""]))]
    for name, argv in given or interpreters.commands():
        answer = interpreters.ask(name, argv)
        if answer is not None:
            version = ".".join(map(str, answer.version))
            integers = ", integers of 31 bits" if "int31" in answer.features else ""
            return Runtime(f"MicroPython {version}{integers}", argv)
    if path is not None:
        raise ContractError(f"{path} is not MicroPython or cannot be run")
    return None


def same_codes(word: str, cases: Sequence[Case], micropython: Runtime) -> str:
    """Compare the codes of CPython and MicroPython; return a summary.

    Raises:
        PropertyBroken: If a code differs, or one of them fails.
    """
    call = f"codes({[case.published for case in cases]!r}, {CODES_PER_EXPERIMENT})"
    try:
        outputs = [
            [code for _, code in run_script(runtime, _SCRIPT, (CLIENT, *files_of(word)), call)]
            for runtime in (CPYTHON, micropython)
        ]
    except RuntimeFault as e:
        raise PropertyBroken(str(e)) from None
    for number, (cpython, other) in enumerate(zip(*outputs, strict=False)):
        if cpython != other:
            case, draw = cases[number // CODES_PER_EXPERIMENT], number % CODES_PER_EXPERIMENT
            index = draw % (case.experiment.domain + 1)
            raise PropertyBroken(
                f"{case.label}, index {index}: code {cpython} on CPython, {other} on MicroPython"
            )
    if not len(outputs[0]) == len(outputs[1]) == CODES_PER_EXPERIMENT * len(cases):
        raise PropertyBroken(f"CPython drew {len(outputs[0])} codes, MicroPython {len(outputs[1])}")
    return f"{len(outputs[0]):,} codes, {micropython.name}"
