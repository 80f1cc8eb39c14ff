"""Files with secrets: for their owner's eyes alone, and on disk when the call returns."""

import contextlib
import os
import stat
from pathlib import Path


def create(path: Path, content: bytes) -> None:
    """Write a new file of mode 0600; raises FileExistsError where there is one, OSError where it fails."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "wb") as f:
        f.write(content)
        f.flush()
        os.fsync(f.fileno())
    sync(path.parent)


def replace(path: Path, content: bytes) -> None:
    """Write a file in the place of another, whole or not at all; raises OSError.

    It has the other's owner and mode, so that who could read that can read it: a broker's files are the
    broker's user's. Where there is no other it has mode 0600.
    """
    new = path.with_name(path.name + ".new")
    with contextlib.suppress(FileNotFoundError):
        new.unlink()
    create(new, content)
    if os.name == "posix":
        with contextlib.suppress(FileNotFoundError):
            before = path.stat()
            os.chown(new, before.st_uid, before.st_gid)
            os.chmod(new, stat.S_IMODE(before.st_mode))
    os.replace(new, path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Put a file, or the names in a folder, on disk, where the system has such a thing; raises OSError."""
    if os.name == "posix":
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def readable_by_others(path: Path, mode: int) -> bool:
    """Return whether others than its owner can read a secret file of this mode, as far as one can tell."""
    credentials = os.environ.get("CREDENTIALS_DIRECTORY")
    if credentials and path.parent == Path(credentials):
        # systemd's own: only the service can enter the folder, and the access list that lets the service's
        # user read the file shows as the group's bits.
        return False
    return os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO) != 0
