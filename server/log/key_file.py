"""Files with the key of a log or of a witness."""

from __future__ import annotations

from pathlib import Path

from .. import private_file
from ..errors import os_reason, refusing
from .note import NoteRefused, SecretKey


def load_key(file: Path) -> SecretKey:
    """Read a key file.

    Raises:
        NoteRefused: If it cannot be read, others may read it, or it is malformed.
    """
    with refusing(NoteRefused, f"read {file}"):
        mode = file.stat().st_mode
        text = file.read_text("utf-8", "replace")
    if private_file.readable_by_others(file, mode):
        raise NoteRefused(f"{file} can be read by other users, who could sign with it: chmod 600 {file}")
    try:
        return SecretKey.parse(text)
    except NoteRefused as e:
        raise NoteRefused(f"{file}: {e}") from None


def create_key(file: Path, name: str) -> SecretKey:
    """Write a new key to a file that only its owner can read, and return it.

    Raises:
        NoteRefused: If the file exists or cannot be written, or the name is invalid.
    """
    key = SecretKey.generate(name)
    try:
        private_file.create(file, str(key).encode())
    except FileExistsError:
        raise NoteRefused(f"{file} already exists: others know its key, so it is never replaced") from None
    except OSError as e:
        raise NoteRefused(f"cannot write {file}: {os_reason(e)}") from None
    return key
