"""Files of a log's or a witness's key."""

import secrets
from pathlib import Path

from ...server import private_file
from ...server.errors import UsageError, os_reason, refusing
from ...server.log.note import NoteRefused, SecretKey, is_name
from ...server.wire import keys


def load_log_key(file: Path) -> SecretKey:
    """Read a key file.

    Raises:
        UsageError: If it cannot be read, others may read it, or it is malformed.
    """
    with refusing(UsageError, f"read {file}"):
        mode = file.stat().st_mode
        text = file.read_text("utf-8", "replace")
    if private_file.readable_by_others(file, mode):
        raise UsageError(f"{file} can be read by other users, who could sign with it: chmod 600 {file}")
    try:
        return SecretKey.parse(text)
    except NoteRefused as e:
        raise UsageError(f"{file}: {e}") from None


def create_key(file: Path, name: str) -> SecretKey:
    """Write a new key file, and return the key.

    Raises:
        UsageError: If the file exists or cannot be written, or the name is invalid.
    """
    if not is_name(name):
        raise UsageError(
            f"a log's name is text without spaces and +, such as example.org/questions, not {name!r}"
        )
    key = SecretKey(name, secrets.token_bytes(keys.KEY_BYTES), _scalar())
    try:
        private_file.create(file, str(key).encode())
    except FileExistsError:
        raise UsageError(
            f"{file} already exists: boards and witnesses know its key, so it is never replaced"
        ) from None
    except OSError as e:
        raise UsageError(f"cannot write {file}: {os_reason(e)}") from None
    return key


def _scalar() -> bytes:
    return (1 + secrets.randbelow(keys.P256_ORDER - 1)).to_bytes(keys.KEY_BYTES, "big")
