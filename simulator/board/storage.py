"""A software board's folder: its flash, and a fixed path for its terminal."""

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from ...server.errors import HushmoteError, refusing

IMAGE = "flash.img"
PORT = "port"


class StorageError(HushmoteError):
    """Raised if a folder cannot hold a board at the moment; the message says why."""


@contextlib.contextmanager
def open_image(folder: Path) -> Iterator[Path]:
    """Yield the path of the flash in `folder`, locked for this process; the folder is created if missing.

    Raises:
        StorageError: If the folder cannot be used, or another process is running its board.
    """
    with refusing(StorageError, f"keep a board in {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        lock = open(folder / "lock", "w")  # noqa: SIM115 - open as long as the board runs
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StorageError(
                f"the board in {folder} is already running; use --storage for another board's folder"
            ) from None
        yield folder / IMAGE


@contextlib.contextmanager
def link_port(folder: Path, terminal: str) -> Iterator[Path]:
    """Yield a path in `folder` that links to a terminal."""
    path = folder / PORT
    with refusing(StorageError, f"write {path}"):
        path.unlink(missing_ok=True)
        path.symlink_to(terminal)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)
