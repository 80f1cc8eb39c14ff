"""A software board's folder: its flash, and a name for its terminal that stays the same."""

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from ...server.errors import HushmoteError, refusing

IMAGE = "flash.img"
PORT = "port"


class StorageError(HushmoteError):
    """A folder cannot hold a board now; the text says why."""


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[Path]:
    """The path of the flash in folder, which is made where it is missing; nobody else has it meanwhile.

    Raises StorageError.
    """
    with refusing(StorageError, f"keep a board in {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        lock = open(folder / "lock", "w")  # noqa: SIM115 - as long as the board
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StorageError(
                f"the board in {folder} is switched on already: --storage gives another one its own folder"
            ) from None
        yield folder / IMAGE


@contextlib.contextmanager
def port_named(folder: Path, terminal: str) -> Iterator[Path]:
    """Yield a path in folder that leads to a terminal."""
    path = folder / PORT
    with refusing(StorageError, f"write {path}"):
        path.unlink(missing_ok=True)
        path.symlink_to(terminal)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)
