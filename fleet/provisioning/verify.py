"""Read a board's files back and compare them with a release's, or a firmware image with a manifest.

Nothing on the board is changed. Its settings and its ledger are secrets: they are listed, but not read. The
experiments that it keeps are public, and a board runs them without a proof, so they are looked up in the log.
"""

import base64
import contextlib
import hashlib
import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from ...server.errors import refusing
from ...server.log.copy import LogCopy
from ...server.log.entry import Entry
from ...server.log.note import PublicKey, valid_signatures
from ...server.wire import board_files
from ...server.words.numbers import counted
from .flash import OPTIONAL, Load, is_needed
from .release_files import release_files
from .usb import (
    GARBLED,
    LEDGER,
    OLDEST_READABLE,
    FlashError,
    NoAnswer,
    UsbLink,
    compile_mpy,
    old_firmware_warning,
)

_BOARD_FOLDER = "board/"  # a board's files, in a release
_UMQTT = "umqtt/simple"
_LINE = re.compile(r"([0-9a-f]{64}) [ *](.+)")
_WHEEL = re.compile(r"hushmote-([^-/]+)-py3-none-any\.whl")
_SECURE_BOOT = "only secure boot proves what it runs."
_ESP32_MAGIC, _ESP32_HEADER_BYTES = 0xE9, 24
_KINDS = {"/experiments/": "kept experiments", "/settings.json": "settings", f"{LEDGER}/": "ledger"}

# The files of code as base64, with the board's own SHA-256 to detect errors of the line. MicroPython prefers
# /hashlib.py to its own hashlib, so only the firmware is searched, and what boot.py imported is forgotten.
_READ = """
import sys
folders = list(sys.path)
sys.path[:] = ['.frozen']
for n in ('os', 'json', 'hashlib', 'binascii', 'vfs', 'micropython'): sys.modules.pop(n, None)
import os, json, hashlib, binascii, micropython
out, seen = sys.stdout.write, set()
def read(p):
    h = hashlib.sha256()
    try:
        with open(p, 'rb') as f:
            while True:
                b = f.read(600)
                if not b: break
                h.update(b)
                out(binascii.b2a_base64(b).decode().strip())
    except OSError: return None
    return binascii.hexlify(h.digest()).decode()
def walk(d):
    for e in os.ilistdir(d or '/'):
        p = d + '/' + e[0]
        if e[1] & 0x4000: walk(p)
        elif p not in seen:
            out((', ' if seen else '') + json.dumps(p) + ': ')
            seen.add(p)
            if p.lower().endswith(('.py', '.mpy')) or '/experiments/' in p and p[-4:] != '.yes':
                out('["')
                sha = read(p)
                out('", ' + json.dumps(sha) + ']')
            else: out('null')
def frozen(n):
    n = n.replace('/', '.')
    sys.modules.pop(n, None)
    try: __import__(n)
    except ImportError as e:  # without the module, or of what it imports itself
        missing = str(e).split("'")[1:2]
        return not (n + '.').startswith(missing[0] + '.') if missing else 'not found' not in str(e)
    except Exception: pass
    return True
def starts(n):  # a module that is there needs memory before it runs, and gets none
    sys.modules.pop(n, None)
    micropython.heap_lock()
    try: __import__(n)
    except MemoryError: return True
    except ImportError: return False
    finally: micropython.heap_unlock()
    return True
i = sys.implementation
r = {'version': list(i.version[:3]) if i.name == 'micropython' else [], 'mpy': getattr(i, '_mpy', 0)}
r['name'] = getattr(i, '_machine', sys.platform)
out('HUSHMOTE:{"files": {')
if r['version']:
    walk('')
    try:
        import vfs
        folders += [m[1] for m in vfs.mount()]
    except Exception: pass
    for d in folders:
        try:
            if d[:1] == '/' and d != '/': walk(d)
        except OSError: pass
    try:
        import network
        r['network'] = True
    except ImportError: r['network'] = False
    r['frozen'] = [n for n in NAMES if frozen(n)]
    sys.path[:] = ('.frozen',)
    r['frozen'] += [n for n in ('main', 'boot') if starts(n)]  # MicroPython prefers its own /main.py
print('}, "board": ' + json.dumps(r) + '}')
"""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The hashes of a release's files.

    Attributes:
        files: SHA-256 in hex by path in the release.
        sha256: The manifest's own SHA-256, in hex.
    """

    files: Mapping[str, str]
    sha256: str

    @property
    def release(self) -> str:
        """The release's name."""
        wheels = (match[1] for match in map(_WHEEL.fullmatch, self.files) if match)
        return f"Hushmote {next(wheels, f'with the manifest {self.sha256[:16]}')}"

    def board_files(self) -> dict[str, str]:
        """Return the hashes of a board's files by path on the board; raise FlashError if there are none."""
        names = (name for name in self.files if name.startswith(_BOARD_FOLDER))
        files = {"/" + name.removeprefix(_BOARD_FOLDER): self.files[name] for name in names}
        if not files:
            raise FlashError(
                f"the manifest lists no files of boards, such as {_BOARD_FOLDER}main.py: use SHA256SUMS of a "
                "release that does"
            )
        return files


def read_manifest(path: Path) -> Manifest:
    """Return the manifest in a file such as SHA256SUMS; raise FlashError if it is not one."""
    with refusing(FlashError, f"read {path}"):
        content = path.read_bytes()
    files: dict[str, str] = {}
    for number, line in enumerate(content.decode(errors="replace").splitlines(), 1):
        match = _LINE.fullmatch(line)
        if match is None or files.setdefault(match[2], match[1]) != match[1]:
            raise FlashError(
                f"{path} is not a manifest: line {number} must be a SHA-256 and the name of a file, as "
                "`sha256sum` and `make release` write them, and each name only once"
            )
    if not files:
        raise FlashError(f"{path} is not a manifest: it is empty")
    return Manifest(files, hashlib.sha256(content).hexdigest())


@dataclass(frozen=True, slots=True)
class LoggedManifest:
    """The result of looking a manifest up in a log.

    Attributes:
        origin: The log's name.
        size: The number of its entries.
        entry: The entry that is this manifest; None if there is none.
        release: The version under which it is listed.
        others: The entries that list other manifests under this version.
        signed_by: The witnesses named by the caller that have signed the log.
        not_signed_by: Those that have not.
    """

    origin: str
    size: int
    entry: int | None
    release: str | None
    others: tuple[int, ...]
    signed_by: tuple[str, ...]
    not_signed_by: tuple[str, ...]

    @property
    def matches(self) -> bool:
        """Whether the log has the manifest and no other one of this version, and every witness has signed."""
        return self.entry is not None and not self.others and not self.not_signed_by

    def __str__(self) -> str:
        if self.entry is None:
            text = (
                f"The log {self.origin} does not have this manifest among its {counted(self.size, 'entry')}."
            )
        else:
            text = f"The log {self.origin} has this manifest as release {self.release}, entry {self.entry:,}."
        if self.others:
            numbers = ", ".join(f"{number:,}" for number in self.others)
            manifests = counted(len(self.others), "other manifest")
            entries = "entry" if len(self.others) == 1 else "entries"
            text += f" It has {manifests} of this release, which others may have: {entries} {numbers}."
        if self.signed_by:
            text += f" Signed by {', '.join(self.signed_by)}."
        if self.not_signed_by:
            text += f" Not signed by {', '.join(self.not_signed_by)}."
        if not (self.signed_by or self.not_signed_by):
            text += " It may show others something else: name its witnesses with --witness."
        return text


def look_up(manifest: Manifest, copy: LogCopy, witnesses: Iterable[PublicKey] = ()) -> LoggedManifest:
    """Look for a manifest among a log's releases.

    Args:
        manifest: The manifest.
        copy: The log.
        witnesses: The public keys of witnesses that must have signed its checkpoint.

    Raises:
        NoteRefused: If a witness's signature is wrong.
    """
    keys = tuple(witnesses)
    signed = valid_signatures(copy.checkpoint, keys)
    releases = [(number, entry) for number, entry in enumerate(copy.entries) if entry.release]
    digests = {number: hashlib.sha256(entry.content).hexdigest() for number, entry in releases}
    listed = [(number, entry.release) for number, entry in releases if digests[number] == manifest.sha256]
    number, release = listed[0] if listed else (None, None)
    versions = {release for _, release in listed}
    return LoggedManifest(
        copy.checkpoint.origin,
        copy.checkpoint.size,
        number,
        release,
        tuple(n for n, each in releases if each.release in versions and digests[n] != manifest.sha256),
        tuple(key.name for key in keys if key in signed),
        tuple(key.name for key in keys if key not in signed),
    )


@dataclass(frozen=True, slots=True)
class Verification:
    """A board's files, compared with a release's.

    Attributes:
        board: The board's name.
        firmware: MicroPython's version.
        release: The release that the files were compared with.
        manifest_sha256: The manifest's SHA-256 in hex; None if the installed package took its place.
        same: Paths of the files that are the release's.
        changed: Paths of files that are not the release's.
        missing: Paths of files that the board needs and lacks.
        unknown: Paths of further .py and .mpy files, which the board could run.
        frozen: Modules that the board runs from its firmware instead of from its files.
        unlogged: Paths of kept experiments that the log does not have; empty without a log.
        not_compared: Other files, each with its kind: settings, ledger, kept experiments, comments or data.
    """

    board: str
    firmware: str
    release: str
    manifest_sha256: str | None
    same: tuple[str, ...]
    changed: tuple[str, ...]
    missing: tuple[str, ...]
    unknown: tuple[str, ...]
    frozen: tuple[str, ...]
    unlogged: tuple[str, ...]
    not_compared: Mapping[str, str]

    @property
    def matches(self) -> bool:
        """Whether nothing differs."""
        return self._is_release and not self.unlogged

    @property
    def _is_release(self) -> bool:
        return not (self.changed or self.missing or self.unknown or self.frozen)

    @property
    def warning(self) -> str:
        """Why the board's MicroPython must be replaced, or ""."""
        return old_firmware_warning(tuple(map(int, self.firmware.split("."))))

    @property
    def proof(self) -> str:
        """The sentence that says what the comparison proves."""
        return (
            f"The files that the board returned are {'' if self._is_release else 'not '}those of "
            f"{self.release}."
        )

    @property
    def limit(self) -> str:
        """The sentence that says what the comparison does not prove."""
        return (
            "A board with a changed interpreter or boot.py can return files that it does not run; "
            + _SECURE_BOOT
        )


@dataclass(frozen=True, slots=True)
class _Answer:
    """The files and properties of a board.

    Attributes:
        frozen: The release's modules that the firmware contains, such as umqtt/simple.
        files: Content of .py and .mpy files, and None for others, by path.
    """

    name: str
    firmware: str
    mpy: int
    has_network: bool
    frozen: frozenset[str]
    files: Mapping[str, bytes | None]


def verify_board(
    port: str,
    manifest: Manifest | None,
    load: Load,
    *,
    logged: Iterable[Entry] = (),
    timeout_s: float = 120.0,
) -> Verification:
    """Compare the files of the board at port with a release's, and restart the board.

    Args:
        port: The serial port, in mpremote's notation, such as /dev/ttyACM0 or COM3.
        manifest: The release's manifest; None for the installed package's files, compiled as by flash().
        load: `main` and `further`, the application and the further files that the board should have.
        logged: The entries of the log of questions, in which kept experiments are looked up; if it has no
            question, they are not compared.
        timeout_s: The timeout for reading the files.

    Raises:
        FlashError: If the files cannot be read or compared.
    """
    expected = _hashes(release_files()) if manifest is None else manifest.board_files()
    release = f"Hushmote {version('hushmote')} as installed here" if manifest is None else manifest.release
    further = load.modules()
    own = _own_sources(load, further, expected)
    board = _read_board(UsbLink(port, timeout_s), _modules([*expected, *own]))
    expected |= _hashes(own) | _hashes(_compiled(own, board.mpy))
    read = {path: content for path, content in board.files.items() if content is not None}
    code = {path: content for path, content in read.items() if path.lower().endswith((".py", ".mpy"))}
    questions = {(name[1], entry.content) for entry in logged if (name := entry.experiment)}
    kept = {path: content for path, content in read.items() if path not in code and questions}
    not_compared = {path: _kind(path) for path in board.files if path not in (*code, *kept)}
    if "/boot.py" not in expected and _is_comment(code.get("/boot.py", b"code")):
        del code["/boot.py"]
        not_compared["/boot.py"] = "comments"
    same = {path for path, digest in _hashes(code).items() if expected.get(path) == digest}
    application = own.get("/main.py", code.get("/main.py", b""))
    required = {m for m in _modules(expected) if m not in _optional() or is_needed(m, application)}
    required |= {*further, *([_UMQTT] if board.has_network else ())}
    suffix = ".py" if "/lib/ldp_client.py" in code else ".mpy"
    missing = {f"/lib/{m}{suffix}" for m in required - board.frozen - _modules(code)} | {"/main.py"} - set(
        code
    )
    words = [*([load.main.name] if load.main else ()), *load.further]
    return Verification(
        board=board.name,
        firmware=board.firmware,
        release=", with ".join([release, *([", ".join(words)] if words else ())]),
        manifest_sha256=None if manifest is None else manifest.sha256,
        same=tuple(sorted(same)),
        changed=tuple(sorted(path for path in code if path in expected and path not in same)),
        missing=tuple(sorted(missing)),
        unknown=tuple(sorted(path for path in code if path not in expected)),
        frozen=tuple(sorted(board.frozen - {_UMQTT})),
        unlogged=tuple(sorted(path for path, data in kept.items() if not _is_logged(path, data, questions))),
        not_compared=dict(sorted(not_compared.items())),
    )


def _own_sources(load: Load, further: Mapping[str, bytes], expected: Iterable[str]) -> dict[str, bytes]:
    """Return the source, by path on the board, of the files that replace or extend a release's."""
    own = {f"/lib/{name}.py": source for name, source in further.items() if name not in _modules(expected)}
    for path, file in (("/main.py", load.main), (f"/lib/{_UMQTT}.py", load.umqtt)):
        if file is not None:
            with refusing(FlashError, f"read {file}"):
                own[path] = file.read_bytes()
    return own


def _compiled(sources: Mapping[str, bytes], mpy: int) -> dict[str, bytes]:
    """Return the modules in /lib, compiled for a board, by path."""
    names = {name: sources[f"/lib/{name}.py"] for name in _modules(sources)}
    return {f"/lib/{name}.mpy": compile_mpy(source, mpy, f"{name}.py") for name, source in names.items()}


def _hashes(files: Mapping[str, bytes]) -> dict[str, str]:
    return {path: hashlib.sha256(content).hexdigest() for path, content in files.items()}


def _modules(paths: Iterable[str]) -> set[str]:
    """Return the names of the modules in /lib, such as umqtt/simple."""
    return {path.removeprefix("/lib/").rpartition(".")[0] for path in paths if path.startswith("/lib/")}


def _optional() -> set[str]:
    """Return the modules that not every board needs."""
    return {*OPTIONAL, _UMQTT, *(path.stem for path in board_files.shipped_files().values())}


def _kind(path: str) -> str:
    return next((kind for part, kind in _KINDS.items() if part in path), "data")


def _is_logged(path: str, data: bytes, questions: Container[tuple[str, bytes]]) -> bool:
    """Return whether a kept experiment is in the log, or is no question.

    device/kept_experiments.py describes the file. The index and the log's identity follow the experiment if
    the board's policy has a log.
    """
    name, dot, _ = path.rpartition("/")[2].partition(".")  # NAME.ask has no serial
    payload = data[0 if dot else 4 : -4]
    return payload[:1] in (b"", b"\0") or any((name, each) in questions for each in (payload, payload[:-12]))


def _is_comment(source: bytes) -> bool:
    return all(line.strip()[:1] in (b"", b"#") for line in source.splitlines())


def _read_board(link: UsbLink, modules: Iterable[str]) -> _Answer:
    """Read a board's files, and restart it."""
    try:
        answer = link.ask(_READ, NAMES=sorted(modules))
    except NoAnswer as e:
        raise FlashError(f"{e}; if its firmware is in C, compare the image with --image") from None
    except FlashError:
        with contextlib.suppress(FlashError):  # it may have stopped its application
            link.run("reset")
        raise
    link.run("reset", failure="the files were read, but the board did not restart: press its reset button")
    try:
        files = {path: _content(value) for path, value in answer["files"].items()}
        board = answer["board"]
        name, release, mpy = str(board["name"]), tuple(map(int, board["version"])), int(board["mpy"])
        frozen = frozenset(map(str, board.get("frozen", ())))
        has_network = bool(board.get("network"))
    except (KeyError, TypeError, ValueError, AttributeError):
        raise FlashError(GARBLED) from None
    if release < OLDEST_READABLE:
        oldest = ".".join(map(str, OLDEST_READABLE[:2]))
        raise FlashError(f"the board does not run MicroPython {oldest} or later, which Hushmote needs")
    return _Answer(name, ".".join(map(str, release)), mpy, has_network, frozen, files)


def _content(value: tuple[str, str | None] | None) -> bytes | None:
    if value is None:
        return None
    encoded, digest = value
    if digest is None:  # the board cannot read all of it
        return b"unreadable"
    content = base64.b64decode(encoded, validate=True)
    if hashlib.sha256(content).hexdigest() != digest:
        raise ValueError
    return content


@dataclass(frozen=True, slots=True)
class ImageVerification:
    """A firmware image, compared with a manifest.

    Attributes:
        sha256: The image's SHA-256 in hex, without what follows the image in the dump.
        name: The name of the manifest's file that is this image, or None.
        manifest_sha256: The manifest's SHA-256 in hex.
    """

    sha256: str
    name: str | None
    manifest_sha256: str

    @property
    def matches(self) -> bool:
        """Whether the manifest lists the image."""
        return self.name is not None

    @property
    def proof(self) -> str:
        """The sentence that says what the comparison proves."""
        return (
            f"The image is {'not in the manifest' if self.name is None else f'{self.name} of the manifest'}."
        )

    @property
    def not_compared(self) -> tuple[str, ...]:
        """What a board keeps beside its image."""
        return tuple(sorted(_KINDS.values()))

    @property
    def limit(self) -> str:
        """The sentence that says what the comparison does not prove."""
        return "A board with changed firmware can return an image that it does not run; " + _SECURE_BOOT


def verify_image(path: Path, manifest: Manifest) -> ImageVerification:
    """Compare a dump of a board's flash, which may continue after the image, with a manifest.

    Args:
        path: The dump: an image for ESP32, or any other that is followed at most by erased flash.
        manifest: The manifest of the firmware's files.

    Raises:
        FlashError: If the dump cannot be read, or is damaged.
    """
    with refusing(FlashError, f"read {path}"):
        dump = path.read_bytes()
    names = {digest: name for name, digest in manifest.files.items()}
    image = _esp32_image(dump) or dump.rstrip(b"\xff")
    digests = [hashlib.sha256(content).hexdigest() for content in (image, dump)]
    digest = next((digest for digest in digests if digest in names), digests[0])
    return ImageVerification(digest, names.get(digest), manifest.sha256)


def _esp32_image(dump: bytes) -> bytes | None:
    """Return the image for ESP32 at the start of a dump, or None if there is none.

    It has a header of 24 bytes, segments with a header of 8 bytes each, a checksum that ends at a multiple of
    16 bytes and, if the header says so, the SHA-256 of all that.
    """
    if len(dump) < _ESP32_HEADER_BYTES or dump[0] != _ESP32_MAGIC:
        return None
    end = _ESP32_HEADER_BYTES
    for _ in range(dump[1]):
        end += 8 + int.from_bytes(dump[end + 4 : end + 8], "little")
    end = (end // 16 + 1) * 16
    if dump[_ESP32_HEADER_BYTES - 1] != 1:
        return dump[:end]
    if hashlib.sha256(dump[:end]).digest() != dump[end : end + 32]:
        raise FlashError("the image's own SHA-256 does not match: read all of it from the board again")
    return dump[: end + 32]
