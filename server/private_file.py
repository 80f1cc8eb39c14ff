"""Files with secrets: for their owner's eyes alone, and on disk when the call returns."""

from __future__ import annotations

import contextlib
import os
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
    """Write a file of mode 0600 in the place of another, whole or not at all; raises OSError."""
    new = path.with_name(path.name + ".new")
    with contextlib.suppress(FileNotFoundError):
        new.unlink()
    create(new, content)
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
