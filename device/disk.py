"""A ledger's folder where processes share a disk, as on CPython: a lock, and writes that last.

ldp_client.FileStorage uses it wherever there is os.fsync, which no board has.
"""

import os

try:
    import fcntl
except ImportError:  # Windows: there two clients on one ledger are noticed, but not at the same instant
    fcntl = None


class Disk:
    """A folder that is locked until this object is gone, for the process that made it."""

    def __init__(self, folder: str) -> None:
        """Raise OSError if the folder cannot be opened, or another client has it."""
        self._folder, self._process = folder, os.getpid()
        self._lock = None
        if fcntl and os.path.isdir(folder):  # one that is missing has no ledger, and gives no report
            self._lock = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise OSError("11, another client uses this ledger") from None

    def __del__(self) -> None:
        if self._lock is not None:
            os.close(self._lock)

    def replace(self, path: str, data: bytes) -> None:
        """Replace a file's bytes: a file is empty once it is opened, so a new one takes its place."""
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
