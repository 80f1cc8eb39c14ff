"""Locking and durable writes for a ledger's folder where processes share a disk, as on CPython.

ldp_client.FileStorage uses this module wherever os.fsync exists, which it does not on boards.
"""

import os

try:
    import fcntl
except ImportError:  # on Windows, two clients sharing a ledger are noticed only on the next write
    fcntl = None


class Disk:
    """A folder, locked for the process that created this object for as long as the object exists."""

    def __init__(self, folder: str) -> None:
        """Raise OSError if the folder cannot be opened or another client has locked it."""
        self._folder, self._process = folder, os.getpid()
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
        """Replace a file's content using a new file, as opening the old one for writing would empty it."""
        if os.getpid() != self._process:
            raise OSError("1, a forked process cannot use its parent's client")
        with open(path + ".new", "wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        os.replace(path + ".new", path)
        folder = os.open(self._folder, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
