"""Locking and durable writes where processes share a disk, as on CPython.

ldp_client.FileStorage and KeptExperiments use this module wherever os.fsync exists, which it does not on
boards.
"""

import os

try:
    import fcntl
except ImportError:  # on Windows, two clients sharing a ledger are noticed only on the next write
    fcntl = None


def _sync_parent(path: str) -> None:
    folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def mkdir(path: str) -> None:
    """Create a folder, unless it exists, so that it survives a power cut."""
    try:
        os.mkdir(path)
    except FileExistsError:
        pass  # an earlier call may have created it, but failed to sync its parent
    _sync_parent(path)


def replace(path: str, data: bytes) -> None:
    """Replace a file's content using a new file, as opening the old one for writing would empty it."""
    with open(path + ".new", "wb") as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())
    os.replace(path + ".new", path)
    _sync_parent(path)


def remove(path: str) -> None:
    """Remove a file if it exists, so that it stays removed after a power cut."""
    try:
        os.remove(path)
    except FileNotFoundError:
        pass  # an earlier call may have removed it, but failed to sync the folder
    _sync_parent(path)


class Disk:
    """A folder, locked for the process that created this object for as long as the object exists."""

    def __init__(self, folder: str) -> None:
        """Raise OSError if the folder cannot be opened or another client has locked it."""
        self._process = os.getpid()
        self._lock = None
        if fcntl and os.path.isdir(folder):  # a missing folder has no ledger, so no reports can be made
            self._lock = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise OSError("11, another client uses this ledger") from None

    def __del__(self) -> None:
        if self._lock is not None:
            os.close(self._lock)

    def replace(self, path: str, data: bytes) -> None:
        """Replace a file's content; raise OSError in a forked process."""
        if os.getpid() != self._process:
            raise OSError("1, a forked process cannot use its parent's client")
        replace(path, data)
