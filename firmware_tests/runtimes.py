"""Real MicroPython runtimes: find the installed ones and their features, and install the others.

python firmware_tests/runtimes.py             list what is installed
python firmware_tests/runtimes.py --install   install what is missing into .rig/ of this checkout
python firmware_tests/runtimes.py --pico      build the emulated Pico as well (a few minutes)

env       $HUSHMOTE_MICROPYTHON, a command line
unix32f   the unix port built like a board's: 32 bits, 31-bit small integers, single floats
mp32      Debian's 32-bit build: double floats, TLS; needs neither a compiler nor root
path      micropython on PATH
wasm      the WebAssembly port in Node.js
oldest    the same port of MicroPython 1.23, the oldest version that boards of an earlier release may have
pico      MicroPython's own firmware on an emulated Raspberry Pi Pico
board     a board over mpremote (--port)
"""

import argparse
import fcntl
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from emulation import debian, wasm
from emulation.pico import board as pico_board
from emulation.pico import build as pico_build

from hushmote.fleet.provisioning.interpreters import PROBE, VARIABLE

ROOT = Path(__file__).resolve().parent.parent
RIG = ROOT / ".rig"
TIMEOUT_S = pico_board.TIMEOUT_S  # reached only by a program that hangs

# Run on a board afterwards, to remove the copied files.
_LEAVE = """
import os
here = os.getcwd()
os.chdir("/")
def remove(path):
    for name in os.listdir(path):
        try: os.remove(path + "/" + name)
        except OSError: remove(path + "/" + name)
    os.rmdir(path)
remove(here)
"""


@dataclass(frozen=True)
class Runtime:
    """A working runtime, with the command that runs a script, its version and its features."""

    name: str
    argv: tuple[str, ...]
    version: str
    features: frozenset[str]

    def command(self, folder: Path, script: str, heap: str | None = None) -> list[str]:
        """Return the command that runs a folder's script in that folder; `heap` is a size such as "64k"."""
        if self.name == "board":
            # Copy the folder instead of mounting it: a mounted folder is read over the wire during the test.
            target = "/" + folder.name
            enter = f"import os, sys; os.chdir({target!r}); sys.path.insert(0, {target!r})"
            copy = ["fs", "cp", "-r", str(folder), ":/"]
            return [
                *self.argv,
                *copy,
                "+",
                "exec",
                enter,
                "+",
                "run",
                str(folder / script),
                "+",
                "exec",
                _LEAVE,
            ]
        return [*self.argv, *(("-X", f"heapsize={heap}") if heap else ()), script]


@dataclass(frozen=True)
class Missing:
    """An unavailable runtime, with the reason and the command that would install it."""

    name: str
    reason: str
    command: str


def _probe(name: str, argv: tuple[str, ...]) -> Runtime | Missing:
    runtime = Runtime(name, argv, "", frozenset())
    command_line = shlex.join(argv)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "probe.py").write_text(PROBE)
        try:
            words = _ask(runtime, Path(folder), None)
        except (OSError, subprocess.TimeoutExpired) as e:
            return Missing(name, f"{command_line} does not run: {e}", f"run {command_line} by hand")
        if len(words) < 4 or words[2] != "micropython":
            return Missing(
                name, f"{command_line} is not MicroPython, or does not answer", f"run {command_line} by hand"
            )
        features = set(words[4:])
        if name != "pico":
            features.add("fast")
        if name not in ("board", "wasm", "oldest", "pico"):
            small = _ask(runtime, Path(folder), "100k")
            if len(small) > 1 and int(small[1]) < 110_000:
                features.add("heap")
    return Runtime(name, argv, words[3], frozenset(features))


def _ask(runtime: Runtime, folder: Path, heap: str | None) -> list[str]:
    command = runtime.command(folder, "probe.py", heap)
    result = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    lines = [line for line in result.stdout.splitlines() if line.startswith("PROBE ")]
    return lines[0].split() if lines else []


@contextmanager
def _lock() -> Iterator[None]:
    """Let only one run install at a time."""
    RIG.mkdir(exist_ok=True)
    with open(RIG / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("another run is installing runtimes: waiting", file=sys.stderr, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


_OWN: dict[str, tuple[str, Callable[[Path], None]]] = {
    "unix32f": ("unix32f/micropython", debian.install_unix32f),
    "mp32": ("mp32/micropython", debian.install_mp32),
    "wasm": ("wasm/run_wasm.mjs", wasm.install),
    "oldest": ("oldest/run_wasm.mjs", wasm.install_oldest),
    "pico": ("pico/firmware.bin", pico_build.install),
}


def _own(name: str, install: bool) -> Runtime | Missing:
    """Return a runtime from the .rig folder, installing it if requested."""
    file, get = _OWN[name]
    path = RIG / file
    if not path.exists() and install:
        try:
            with _lock():
                if not path.exists():
                    print(f"installing {name} into {RIG.name}/ ...", file=sys.stderr, flush=True)
                    get(RIG)
        except debian.CannotInstall as e:
            return Missing(name, str(e), e.command)
    if not path.exists():
        command = "make pico" if name == "pico" else "python firmware_tests/runtimes.py --install"
        return Missing(name, "not installed", command)
    if name == "pico":
        return _probe(name, (sys.executable, pico_board.__file__))
    if name not in ("wasm", "oldest"):
        return _probe(name, (str(path),))
    node = shutil.which("node")
    if node is None:
        return Missing(name, "Node.js is missing", "apt-get install nodejs npm")
    if path.read_bytes() != wasm.LAUNCHER.read_bytes():
        shutil.copy(wasm.LAUNCHER, path)
    return _probe(name, (node, str(path)))


def find(
    install: bool = False, port: str | None = None, pico: bool = False
) -> tuple[list[Runtime], list[Missing]]:
    """Return the working runtimes, and those that are not available.

    Args:
        install: Install missing ones, except for the emulated Pico.
        port: A board's serial port; then only the board is checked.
        pico: Also look for the emulated Pico, whose probe takes seconds.
    """
    candidates: list[Runtime | Missing] = []
    if port is not None:
        argv = (sys.executable, "-m", "mpremote", "connect", port)
        candidates.append(_probe("board", argv))
    else:
        if os.environ.get(VARIABLE):
            candidates.append(_probe("env", tuple(shlex.split(os.environ[VARIABLE]))))
        candidates += [_own("unix32f", install), _own("mp32", install)]
        if shutil.which("micropython"):
            candidates.append(_probe("path", ("micropython",)))
        else:
            candidates.append(
                Missing("path", "no micropython on PATH", "apt-get install micropython (Debian 13)")
            )
        candidates += [_own("wasm", install), _own("oldest", install)]
        if pico:
            candidates.append(_own("pico", False))
    runtimes = [c for c in candidates if isinstance(c, Runtime)]
    return runtimes, [c for c in candidates if isinstance(c, Missing)]


def main() -> None:
    parser = argparse.ArgumentParser(description="List the installed MicroPython runtimes.")
    parser.add_argument("--install", action="store_true", help="install missing runtimes into .rig/")
    parser.add_argument("--pico", action="store_true", help="also build the emulated Pico")
    parser.add_argument("--port", help="a board's serial port, for mpremote")
    arguments = parser.parse_args()
    if arguments.pico:
        _own("pico", True)
    runtimes, missing = find(arguments.install or arguments.pico, arguments.port, pico=True)
    for runtime in runtimes:
        print(f"{runtime.name:8} {runtime.version:8} {' '.join(sorted(runtime.features))}")
    for m in missing:
        print(f"{m.name:8} missing: {m.reason}; get it with: {m.command}")
    if arguments.pico and any(runtime.name == "pico" for runtime in runtimes):
        print("freezing the modules of device/manifest.py ...")
        pico_build.freeze(RIG, ROOT / "device")


if __name__ == "__main__":
    main()
