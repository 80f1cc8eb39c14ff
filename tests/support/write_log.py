"""Record a process's writes and replay them with losses, as a disk might after a power cut.

A process runs with write_log.c loaded, which records every change that it makes to the files in one folder:
writes, new sizes, created and removed names, and syncs. Until a file is synced, the disk may have any part of
the data written since the last sync, or none; until the folder is synced, the same holds for its names. Real
file systems guarantee more, but this model assumes only orderings that were requested.

Data outside a write never changes, an assumption that SQLite makes as well ("powersafe overwrite").
"""

import enum
import functools
import itertools
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

SECTOR_BYTES = 512
ACKNOWLEDGED = "acknowledged"  # the file in which a process records its acknowledgements
_VOLATILE = "-shm"  # SQLite's log index: shared memory, rebuilt after a power cut
_SOURCE = Path(__file__).with_suffix(".c")
_HEAD = struct.Struct("=5Q")


class Kind(enum.IntEnum):
    CREATED = 1
    WRITTEN = 2
    TRUNCATED = 3
    SYNCED = 4
    FOLDER_SYNCED = 5
    UNLINKED = 6
    LINKED = 7
    RENAMED = 8


class Loss(enum.Enum):
    """The fate of unsynced data in a power cut."""

    ALL = "all of it is lost"
    NONE = "all of it is there"
    LAST = "the last of it is lost, a write torn"
    FILES = "that of some files is lost"
    SECTORS = "sectors of it are lost, zero or rubbish"


@dataclass(frozen=True)
class Operation:
    """One change to a file (by inode) at an offset or in size, or to one or two names."""

    kind: Kind
    inode: int
    at: int
    data: bytes
    names: tuple[str, ...]


@dataclass(frozen=True)
class Recording:
    """A folder's initial files (name -> inode, content) and the changes a process made, in order."""

    before: Mapping[str, tuple[int, bytes]]
    operations: Sequence[Operation]


@dataclass(frozen=True)
class PowerCut:
    """A folder after a power cut: the number of operations done, the acknowledgements, and the files."""

    after: int
    acknowledged: str
    loss: Loss
    files: Mapping[str, bytes]

    def put(self, folder: Path) -> None:
        """Replace a folder's files with these."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name, content in self.files.items():
            (folder / name).write_bytes(content)

    def __str__(self) -> str:
        return f"after operation {self.after}, acknowledged {self.acknowledged!r}, {self.loss.value}"


@functools.cache
def _library() -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        what = "no C compiler is installed" if compiler is None else "LD_PRELOAD is Linux's"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(what)
    library = Path(tempfile.mkdtemp(prefix="hushmote-write-log-")) / "write_log.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", library, _SOURCE, "-lpthread"]
    subprocess.run(command, check=True)
    return library


def record(folder: Path, *arguments: str) -> Recording:
    """Run Python and record its changes to a folder; raise AssertionError if the recording is incomplete."""
    before = _snapshot(folder)
    log = folder.with_name(folder.name + ".log")
    environment = os.environ | {
        "LD_PRELOAD": str(_library()),
        "WRITE_LOG": str(log),
        "WRITE_LOG_FOLDER": str(folder),
        "PYTHONPATH": str(_SOURCE.parent),
    }
    run = subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    recording = Recording(before, tuple(_read(log.read_bytes())))
    disk = Disk(recording.before)
    for operation in recording.operations:
        disk.do(operation)
    after = {name: content for name, (_, content) in _snapshot(folder).items()}
    assert disk.after(Loss.NONE, np.random.default_rng(0)) == after, "the log is incomplete"
    return recording


def _snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    files = [path for path in folder.rglob("*") if path.is_file() and not _is_apart(path.name)]
    return {str(path.relative_to(folder)): (path.stat().st_ino, path.read_bytes()) for path in files}


def _is_apart(name: str) -> bool:
    return name.endswith(_VOLATILE) or name == ACKNOWLEDGED


def _read(log: bytes) -> Iterator[Operation]:
    at = 0
    while at < len(log):
        kind, inode, offset, size, first = _HEAD.unpack_from(log, at)
        at += _HEAD.size
        data = log[at : at + size]
        at += size
        named = kind in (Kind.CREATED, Kind.UNLINKED, Kind.LINKED, Kind.RENAMED)
        names = tuple(part.decode() for part in (data[:first], data[first:]) if part) if named else ()
        yield Operation(Kind(kind), inode, offset, b"" if named else data, names)


@dataclass
class _File:
    """A file's synced content, and the (index, operation) pairs since."""

    synced: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, Operation]] = field(default_factory=list)

    def sync(self) -> None:
        for _, operation in self.pending:
            _apply(self.synced, operation)
        self.pending.clear()


def _apply(content: bytearray, operation: Operation) -> None:
    if operation.kind is Kind.TRUNCATED:
        content[operation.at :] = bytes(max(0, operation.at - len(content)))
    else:
        _write(content, operation.at, operation.data)


def _write(content: bytearray, at: int, data: bytes) -> None:
    if at > len(content):
        content.extend(bytes(at - len(content)))
    content[at : at + len(data)] = data


class Disk:
    """A folder's synced and unsynced state while operations are applied."""

    def __init__(self, before: Mapping[str, tuple[int, bytes]]) -> None:
        self.done = 0
        self.acknowledged = ""
        # Files have their own ids, since an inode is reused once its file is gone.
        self._files = {i: _File(bytearray(content)) for i, (_, content) in enumerate(before.values())}
        self._of_inode = {inode: i for i, (inode, _) in enumerate(before.values())}
        self._names: dict[str, int | None] = {name: i for i, name in enumerate(before)}
        self._synced_names = dict(self._names)
        self._pending_names: list[tuple[int, dict[str, int | None]]] = []

    def do(self, operation: Operation) -> None:
        """Apply an operation."""
        self.done += 1
        names = operation.names
        if operation.kind is Kind.CREATED:
            if self._names.get(names[0]) is None:
                self._of_inode[operation.inode] = file = len(self._files)
                self._files[file] = _File()
                self._rename({names[0]: file})
        elif operation.kind is Kind.UNLINKED:
            self._rename({names[0]: None})
        elif operation.kind is Kind.LINKED:
            self._rename({names[1]: self._names[names[0]]})
        elif operation.kind is Kind.RENAMED:
            self._rename({names[1]: self._names[names[0]], names[0]: None})
        elif operation.kind is Kind.FOLDER_SYNCED:
            self._synced_names = dict(self._names)
            self._pending_names.clear()
        elif operation.kind is Kind.SYNCED:
            self._files[self._of_inode[operation.inode]].sync()
        else:
            file = self._of_inode[operation.inode]
            if self._names.get(ACKNOWLEDGED) == file:
                self.acknowledged = operation.data.decode()
            else:
                self._files[file].pending.append((self.done, operation))

    def _rename(self, change: dict[str, int | None]) -> None:
        self._names |= change
        self._pending_names.append((self.done, change))

    def after(self, loss: Loss, rng: np.random.Generator) -> dict[str, bytes]:
        """Return name -> content after a power cut now, without volatile files."""
        pending = [n for file in self._files.values() for n, _ in file.pending]
        pending += [n for n, _ in self._pending_names]
        last = int(rng.choice(pending)) if pending else 0
        names = dict(self._synced_names)
        for n, change in self._pending_names:
            if loss is Loss.LAST:
                is_kept = n <= last
            else:
                is_kept = loss is Loss.NONE or (loss is not Loss.ALL and rng.random() < 0.5)
            if is_kept:
                names |= change
        content = {}
        for name, number in names.items():
            if number is not None and not _is_apart(name):
                content[name] = bytes(_remains(self._files[number], loss, last, rng))
        if loss is Loss.SECTORS and rng.random() < 0.5:
            content |= {
                name + _VOLATILE: rng.bytes(32768) for name in list(content) if name + "-wal" in content
            }
        return content


def _remains(file: _File, loss: Loss, last: int, rng: np.random.Generator) -> bytearray:
    content = bytearray(file.synced)
    all_of_it = loss is Loss.NONE or (loss is Loss.FILES and rng.random() < 0.5)
    for n, operation in file.pending:
        if all_of_it or (loss is Loss.LAST and n < last):
            _apply(content, operation)
        elif loss is Loss.LAST and n == last and operation.kind is Kind.WRITTEN:
            _write(content, operation.at, operation.data[: rng.integers(len(operation.data) + 1)])
        elif loss is Loss.SECTORS:
            _apply_sectors(content, operation, rng)
    return content


def _apply_sectors(content: bytearray, operation: Operation, rng: np.random.Generator) -> None:
    if operation.kind is Kind.TRUNCATED:
        if rng.random() < 0.5:
            _apply(content, operation)
        return
    start, end = operation.at, operation.at + len(operation.data)
    edges = [start, *range((start // SECTOR_BYTES + 1) * SECTOR_BYTES, end, SECTOR_BYTES), end]
    for a, b in itertools.pairwise(edges):
        fate = rng.random()
        if fate < 0.4:
            _write(content, a, operation.data[a - start : b - start])
        elif fate < 0.5:
            _write(content, a, bytes(b - a))
        elif fate < 0.6:
            _write(content, a, rng.bytes(b - a))


def power_cuts(recording: Recording, rng: np.random.Generator, draws: int, more: float) -> Iterator[PowerCut]:
    """Yield each distinct state of the disk after a power cut.

    Cuts come before each sync, when most data is unsynced, after each acknowledgement, and before a share
    `more` of all other operations. Each cut keeps all or none of the unsynced data, and is repeated `draws`
    times for each other kind of loss.
    """
    disk = Disk(recording.before)
    seen: set[int] = set()
    for operation in recording.operations:
        is_sync = operation.kind in (Kind.SYNCED, Kind.FOLDER_SYNCED)
        if is_sync or rng.random() < more:
            yield from _states(disk, rng, draws, seen)
        acknowledged = disk.acknowledged
        disk.do(operation)
        if disk.acknowledged != acknowledged:
            yield from _states(disk, rng, draws, seen)
    yield from _states(disk, rng, draws, seen)


def _states(disk: Disk, rng: np.random.Generator, draws: int, seen: set[int]) -> Iterator[PowerCut]:
    for loss in Loss:
        for _ in range(1 if loss in (Loss.ALL, Loss.NONE) else draws):
            files = disk.after(loss, rng)
            state = hash((disk.acknowledged, *sorted(files.items())))
            if state not in seen:
                seen.add(state)
                yield PowerCut(disk.done, disk.acknowledged, loss, files)
