"""Write files with secrets: readable only by their owner, and flushed to disk when the call returns."""

import contextlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path


def create(path: Path, content: bytes) -> None:
    """Write a new file with mode 0600.

    Raises:
        FileExistsError: If the file already exists.
        OSError: If it cannot be written.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "wb") as f:
        f.write(content)
        f.flush()
        os.fsync(f.fileno())
    sync(path.parent)


def replace(path: Path, content: bytes) -> None:
    """Replace a file atomically, or create it with mode 0600.

    The new file keeps the old one's owner and mode, so that everyone who could read it, such as the broker's
    user, still can.

    Raises:
        OSError: If it cannot be written.
    """
    replace_all({path: content})


def replace_all(contents: Mapping[Path, bytes]) -> None:
    """Replace several files, each atomically as in replace(); they are on disk when this returns.

    They are replaced in the given order. This is faster than one call for each file.

    Raises:
        OSError: If one cannot be written; others may be replaced already.
    """
    new = {path: path.with_name(path.name + ".new") for path in contents}
    for path, content in contents.items():
        with contextlib.suppress(FileNotFoundError):
            new[path].unlink()
        fd = os.open(new[path], os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "wb") as f:
            f.write(content)
    for path in new.values():
        sync(path)
    for path in contents:
        if os.name == "posix":
            with contextlib.suppress(FileNotFoundError):
                before = path.stat()
                os.chown(new[path], before.st_uid, before.st_gid)
                os.chmod(new[path], stat.S_IMODE(before.st_mode))
        os.replace(new[path], path)
    for folder in {path.parent for path in contents}:
        sync(folder)


def sync(path: Path) -> None:
    """Flush a file, or a folder's entries, to disk if the system supports it.

    Raises:
        OSError: If the system call failed.
    """
    if os.name == "posix":
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


@contextlib.contextmanager
def locked(folder: Path, *, wait: bool) -> Iterator[None]:
    """Hold a folder's lock; on Windows, do nothing.

    Raises:
        BlockingIOError: If another process holds it and `wait` is false.
        OSError: If the folder cannot be opened.
    """
    with contextlib.ExitStack() as opened:
        if os.name == "posix":
            import fcntl

            opened.callback(os.close, fd := os.open(folder, os.O_RDONLY))
            fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield


def readable_by_others(path: Path, mode: int) -> bool:
    """Return whether anyone but the owner can read a secret file, judging by its mode.

    Args:
        path: The file.
        mode: The file's mode, as os.stat() returns it.
    """
    credentials = os.environ.get("CREDENTIALS_DIRECTORY")
    if credentials and path.parent == Path(credentials):
        # Created by systemd: only the service can enter the folder, and the access list that lets its
        # user read the file appears as the group's bits.
        return False
    return os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO) != 0
