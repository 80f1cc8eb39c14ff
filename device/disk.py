"""A ledger's folder where processes share a disk, as on CPython: a lock, and durable writes.

ldp_client.FileStorage uses it wherever there is os.fsync, which boards lack.
"""

import os

try:
    import fcntl
except ImportError:  # Windows, where two clients on one ledger are noticed only at the next write
    fcntl = None


class Disk:
    """A folder, locked for the process that made this object, as long as the object exists."""

    def __init__(self, folder: str) -> None:
        """Raise OSError if the folder cannot be opened, or another client has it."""
        self._folder, self._process = folder, os.getpid()
        self._lock = None
        if fcntl and os.path.isdir(folder):  # a missing one has no ledger, and makes no report
            self._lock = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise OSError("11, another client uses this ledger") from None

    def __del__(self) -> None:
        if self._lock is not None:
            os.close(self._lock)

    def replace(self, path: str, data: bytes) -> None:
        """Replace a file's bytes, by way of a new file: opening the old one for writing would empty it."""
        if os.getpid() != self._process:
            raise OSError("1, a forked process has no client")
        with open(path + ".new", "wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        os.replace(path + ".new", path)
        folder = os.open(self._folder, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
