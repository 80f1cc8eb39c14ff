"""Install Hushmote on a board over USB: check, copy, read back, install, and create a missing ledger.

Everything goes through mpremote. New files are first copied to a separate folder, read back from flash and
imported there; only then do they replace the board's files. So a failed flash leaves the board as it was.
The ledger in /ldp is never copied, overwritten or removed: the board creates it, once.
"""

import ast
import contextlib
import hashlib
import re
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...server.errors import refusing
from . import settings as provision
from . import umqtt as umqtt_simple
from .extra_modules import further_files
from .settings import DeviceSettings
from .usb import LEDGER, Board, FlashError, UsbLink, check_board, compile_mpy, probe

LOG = ("ldp_log", "ldp_log_client", "ldp_log_policy")
"""The modules that a board gets only if its policy has "log"."""

OPTIONAL = ("async_reporter", "export", "health", *LOG)
"""The modules that a board gets only if its application needs them, because they need memory."""

MODULES = ("ldp_client", "ldp_p256", "consent", "preview", "gap", "kept_experiments", "reporter_base")
MODULES += ("mqtt_reporter", "settings", "station", "memory", "reporter_status", *OPTIONAL)

EXAMPLE = Path(__file__).resolve().parents[2] / "device" / "main.py"
"""A board's default application."""

_NEVER_HIDDEN = (
    "sys",
    "gc",
    "micropython",
    "_thread",
)  # MicroPython does not look for files with these names
_STAGE = "/hushmote.new"
_HAS_LOG = re.compile(rb"""["']log["']|\blog *=""")  # in a policy; other uses cost the board a few kilobytes

_CLEAN = """
import os
try:
    for n in os.listdir(STAGE): os.remove(STAGE + '/' + n)
    os.rmdir(STAGE)
except OSError: pass
"""

_VERIFY = """
import sys, hashlib, binascii, json, gc
def entries():
    import ldp_client
    return list(ldp_client.MECHANISMS.values()) + list(ldp_client.TYPES.values())
def sha(p):
    h = hashlib.sha256()
    with open(p, 'rb') as f:
        while True:
            b = f.read(512)
            if not b: return binascii.hexlify(h.digest()).decode()
            h.update(b)
r = {'sha': {n: sha(STAGE + '/' + n) for n in NAMES}, 'error': None}
if r['sha'] == NAMES:
    gc.collect()
    sys.path.insert(0, STAGE)
    try:
        for n in IMPORTS:
            before = entries() if n in FURTHER else None
            __import__(n)
            if n in FURTHER and entries() == before:
                raise ValueError(n + '.py adds nothing to ldp_client.MECHANISMS or TYPES')
        if 'main.py' in NAMES:
            with open(STAGE + '/main.py') as f: compile(f.read(), 'main.py', 'exec')
    except Exception as e: r['error'] = type(e).__name__ + ': ' + str(e)
print('HUSHMOTE:' + json.dumps(r))
"""

_PLACE = """
import os, sys, json
def place(n, p):
    d = ''
    for part in p.split('/')[1:-1]:
        d += '/' + part
        try: os.mkdir(d)
        except OSError: pass
    os.rename(STAGE + '/' + n, p)
def drop(p):
    try: os.remove(p)
    except OSError: pass
"""

_INSTALL = """
r = {'shadow': None}
for n, p in FILES: place(n, p)
for p in STALE: drop(p)
for m, p in LOADED:
    f = getattr(__import__(m), '__file__', p)
    if f != p: r['shadow'] = [m, f]
print('HUSHMOTE:' + json.dumps(r))
"""

# While its radio is off, an ESP32 has a plain generator instead of a random source.
_FINISH = """
r = {'ledger': 'kept', 'error': None}
if PROVISION:
    import ldp_client
    if sys.platform == 'esp32':
        import network
        network.WLAN(network.STA_IF).active(True)
    try:
        ldp_client.provision(LEDGER, REPLACE, CONSENT)
        r['ledger'] = 'made'
    except Exception as e: r['error'] = type(e).__name__ + ': ' + str(e)
if not r['error']:
    for n, p in FILES: place(n, p)
print('HUSHMOTE:' + json.dumps(r))
"""


@dataclass(frozen=True, slots=True)
class FlashResult:
    """The result of flashing a board.

    Attributes:
        copied, unchanged: Paths on the board.
        ledger: "made", "made again" or "kept".
    """

    device_id: str
    board: str
    firmware: str
    copied: tuple[str, ...]
    unchanged: tuple[str, ...]
    copied_bytes: int
    ledger: str
    seconds: float


@dataclass(frozen=True, slots=True)
class _File:
    path: str  # on the board
    content: bytes

    @property
    def name(self) -> str:
        return self.path.rsplit("/", 1)[1]

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


@dataclass(frozen=True, slots=True)
class Load:
    """The files to flash, and the options.

    Attributes:
        source: Copy .py instead of .mpy files.
        provision_again: Replace an old ledger with a new, empty one; this restarts the privacy bound and
            needs settings that no board has used.
        main: The application to use instead of the example.
        further: Files with mechanisms and types, which the board's settings then list: short names of those
            in device/ (sw), paths, or package.module:Class; or a umqtt/simple.py to copy instead of the
            bundled one if the firmware has none.
        yes: Someone at the board has consented, which a new ledger then records.
        spare_bytes: Space that must remain free on the board's file system, as littlefs needs blocks for
            folders, and for a file while it replaces another.
    """

    source: bool = False
    provision_again: bool = False
    main: Path | None = None
    further: Sequence[str] = ()
    yes: bool = False
    spare_bytes: int = 32 * 1024

    @property
    def umqtt(self) -> Path | None:
        """The last umqtt/simple.py in `further`."""
        return next((Path(word) for word in reversed(self.further) if _is_umqtt(word)), None)

    def modules(self) -> dict[str, bytes]:
        """Return the other further files' source by module name; raise FlashError."""
        return further_files([word for word in self.further if not _is_umqtt(word)], MODULES)


def _is_umqtt(word: str) -> bool:
    return Path(word).as_posix().endswith("umqtt/simple.py")


def flash(
    port: str,
    settings_path: Path,
    load: Load = Load(),
    *,
    reset: bool = True,
    ask: Callable[[], bool] = lambda: False,
    timeout_s: float = 60.0,
    say: Callable[[str], None] = print,
) -> FlashResult:
    """Put Hushmote and one board's settings on the board at port, and create its ledger if it has none.

    If an error is raised, the board's content is unchanged unless the message says otherwise.

    Args:
        port: The serial port, in mpremote's notation, such as /dev/ttyACM0 or COM3.
        settings_path: A file that `hushmote provision` wrote.
        load: The files and options.
        reset: Start the application afterwards.
        ask: Called before the board creates a ledger; returns whether someone at the board opts in.
        timeout_s: The timeout for each of about five steps.
        say: Called with a line for each completed step.

    Raises:
        FlashError: If the board could not be flashed.
        ProvisionError: If the settings cannot be used.
    """
    started_s = time.monotonic()
    settings = provision.load_settings(settings_path)
    provision.check_complete(settings, settings_path)
    more = load.modules()
    link = UsbLink(port, timeout_s)
    paths = ["/main.py", "/settings.json"]
    paths += [f"/lib/{m}.{x}" for m in (*MODULES, *more, "umqtt/simple") for x in ("py", "mpy")]
    board = probe(link, paths, firmware_modules())
    firmware = ".".join(map(str, board.version))
    say(f"{board.name}, MicroPython {firmware}")
    check_board(board, wifi=load.main is None)
    make_ledger = check_ledger(board, settings, load.provision_again)
    consent = True if make_ledger and (settings.consent_given or load.yes or ask()) else None
    files = _files_for(board, settings, load, more)
    changed = [f for f in files if board.files.get(f.path) != f.sha256]
    unchanged = tuple(f.path for f in files if f not in changed)
    size = sum(len(f.content) for f in changed)
    if board.free_bytes is not None and changed and board.free_bytes < size + load.spare_bytes:
        raise FlashError(
            f"the board's file system has {board.free_bytes // 1024} KB free, but "
            f"{(size + load.spare_bytes) // 1024} KB are needed: remove files from it (mpremote fs rm)"
        )
    try:
        _stage(link, changed, tuple(more))
        if changed:
            say("copied and read back: " + ", ".join(f"{f.path} ({len(f.content):,} bytes)" for f in changed))
        _install_modules(link, changed, "py" if load.source else "mpy", (*MODULES, *more))
        ledger = {"PROVISION": make_ledger, "REPLACE": load.provision_again, "CONSENT": consent}
        _finish(link, changed, settings_path, settings, ledger)
    except FlashError:
        with contextlib.suppress(FlashError):  # if the board does not answer, the next flash cleans up
            link.run("exec", f"STAGE={_STAGE!r}\n" + _CLEAN)
        raise
    ledger_change = ("made again" if board.ledger or board.device_id else "made") if make_ledger else "kept"
    if unchanged:
        say("already there: " + ", ".join(unchanged))
    say(_LEDGER_LINES[ledger_change])
    if load.yes and not make_ledger:
        say("--yes applies only to a new ledger: this board keeps its answer")
    if make_ledger and not consent:
        say(
            "silent until someone at the board says yes: hold its button for 3 s, or type yes() at its prompt"
        )
    if board.fat:
        say("note: on this FAT file system, a power cut may lock the board; littlefs does not have this risk")
    if reset:
        link.run(
            "reset", failure="everything is in place, but the board did not restart: press its reset button"
        )
        say("restarted")
    copied, took_s = tuple(f.path for f in changed), time.monotonic() - started_s
    return FlashResult(
        settings.device_id, board.name, firmware, copied, unchanged, size, ledger_change, took_s
    )


_LEDGER_LINES = {
    "made": "ledger: made, empty",
    "made again": "ledger: made again; the privacy bound of the people it measures starts from zero",
    "kept": "ledger: kept as it was",
}


def check_ledger(board: Board, settings: DeviceSettings, provision_again: bool) -> bool:
    """Return whether to create a ledger; raise FlashError if these settings do not match this board."""
    fresh = "make new settings with `hushmote provision`"
    if provision_again:
        if settings.ledger_made or settings.device_id == board.device_id:
            raise FlashError(f"provisioning again needs settings with a new device id: {fresh}")
        return True
    if board.ledger:
        if board.device_id not in (None, settings.device_id):
            raise FlashError(
                f"this board is {board.device_id} and the settings are {settings.device_id}'s: use "
                "its own, or --provision-again, which restarts its privacy bound"
            )
        return False
    if board.device_id is not None:
        raise FlashError(
            f"this board was {board.device_id} and its ledger is gone, so it remains silent: {fresh}, then "
            "--provision-again, which restarts its privacy bound"
        )
    if settings.ledger_made:
        raise FlashError(
            f"a ledger was already created with the settings of {settings.device_id}, or may have been when "
            f"a flash was interrupted: {fresh}"
        )
    return True


def sources(application: bytes, further: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the source by module name for a board's /lib, except umqtt; raise FlashError."""
    modules = [m for m in MODULES if m not in OPTIONAL or is_needed(m, application)]
    return {m: _read(EXAMPLE.with_name(f"{m}.py")) for m in modules} | dict(further)


def firmware_modules() -> set[str]:
    """Return the names of the modules that Hushmote's files need from a board's firmware."""
    names = set[str]()
    for module in (*MODULES, EXAMPLE.stem):
        for node in ast.walk(ast.parse(_read(EXAMPLE.with_name(f"{module}.py")))):
            if isinstance(node, ast.Import):
                names.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.partition(".")[0])
    return names.difference(MODULES, _NEVER_HIDDEN, {"umqtt"})


def is_needed(module: str, application: bytes) -> bool:
    """Return whether an application's source imports a module, or its policy has a log that needs it."""
    name = module.encode()
    if module in LOG and _HAS_LOG.search(application):
        return True
    return re.search(rb"\b(?:import|from) +%b\b|[\"']%b[\"']" % (name, name), application) is not None


def _files_for(
    board: Board, settings: DeviceSettings, load: Load, further: Mapping[str, bytes]
) -> list[_File]:
    application = _read(load.main or EXAMPLE)
    parts = sources(application, further)
    ours = any(board.files[f"/lib/umqtt/simple.{x}"] for x in ("py", "mpy"))
    if ours or (not board.umqtt and (board.network or load.umqtt)):  # it needs sockets
        parts["umqtt/simple"] = _read(load.umqtt) if load.umqtt else umqtt_simple.bundled()
    files = []
    for module, content in parts.items():
        if not load.source:
            content = compile_mpy(content, board.mpy, f"{module}.py")
        files.append(_File(f"/lib/{module}.{'py' if load.source else 'mpy'}", content))
    files.append(_File("/settings.json", settings.board_json(tuple(further))))
    files.append(_File("/main.py", application))
    return files


def _read(path: Path) -> bytes:
    with refusing(FlashError, f"read {path}"):
        return path.read_bytes()


def _stage(link: UsbLink, files: Sequence[_File], further: Sequence[str]) -> None:
    """Copy files to the staging folder, and have the board read them back and import them."""
    if not files:
        return
    unchanged = "; the board's files are unchanged"
    commands = ["exec", f"STAGE={_STAGE!r}\n" + _CLEAN + "os.mkdir(STAGE)\n"]
    with tempfile.TemporaryDirectory() as folder:
        for file in files:
            path = Path(folder) / file.name
            path.write_bytes(file.content)
            commands += ["+", "fs", "cp", str(path), f":{_STAGE}/{file.name}"]
        try:
            verdict = link.ask(
                _VERIFY,
                first=commands,
                STAGE=_STAGE,
                NAMES={f.name: f.sha256 for f in files},
                IMPORTS=[f.name.rsplit(".", 1)[0] for f in files if f.path.startswith("/lib/")],
                FURTHER=list(further),
            )
        except FlashError as e:
            raise FlashError(f"copying failed: {e}{unchanged}") from None
    for file in files:
        if verdict["sha"][file.name] != file.sha256:
            raise FlashError(
                f"{file.name} reads back differently: try another cable; the flash may be worn" + unchanged
            )
    if verdict["error"]:
        raise FlashError(f"the board cannot use the new files ({verdict['error']}){unchanged}")


_HALF_DONE = "the modules are new, the application and settings may be the old ones; flash again"


def _install_modules(link: UsbLink, changed: Sequence[_File], extension: str, modules: Sequence[str]) -> None:
    """Move staged modules into place, and check that the board loads these and no others."""
    other = "mpy" if extension == "py" else "py"
    verdict = link.ask(
        _PLACE + _INSTALL,
        failure=_HALF_DONE,
        STAGE=_STAGE,
        FILES=[(f.name, f.path) for f in changed if f.path.startswith("/lib/")],
        STALE=[
            f"{folder}/{m}.{x}" for m in modules for folder, x in (("/lib", other), ("", "py"), ("", "mpy"))
        ]
        + [f"{f.path.rsplit('.', 1)[0]}.{other}" for f in changed if f.path.startswith("/lib/umqtt/")],
        LOADED=[(m, f"/lib/{m}.{extension}") for m in modules if m not in OPTIONAL],
    )
    if verdict["shadow"]:
        module, where = verdict["shadow"]
        raise FlashError(
            f"the board loads {module} from {where} instead of /lib: it is frozen into the firmware; "
            "install stock MicroPython, or freeze this version"
        )


def _finish(
    link: UsbLink,
    changed: Sequence[_File],
    path: Path,
    settings: DeviceSettings,
    ledger: Mapping[str, Any],
) -> None:
    """Create the ledger if requested, then move settings and application into place.

    The settings file is marked before the board creates a ledger. If the cable is pulled in between, this
    costs a new device id, but one id never gets two ledgers.
    """
    marked = provision.mark_ledger(path, settings, True)
    verdict = link.ask(
        # Move the application last: a board that loses power in between starts the old one, or none.
        _PLACE + _FINISH + _CLEAN,
        failure=_HALF_DONE,
        STAGE=_STAGE,
        LEDGER=LEDGER,
        FILES=[(f.name, f.path) for f in changed if not f.path.startswith("/lib/")],
        **ledger,
    )
    if verdict["error"]:
        provision.mark_ledger(path, marked, settings.ledger_made)
        raise FlashError(f"the board could not create its ledger ({verdict['error']}); {_HALF_DONE}")
