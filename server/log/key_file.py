"""Keys of a log or a witness: files with secret keys, and public keys as people type them."""

from __future__ import annotations

import contextlib
from pathlib import Path

from .. import private_file
from ..errors import UsageError, os_reason, refusing
from .note import NoteRefused, PublicKey, SecretKey


def load_key(file: Path) -> SecretKey:
    """Read a key file.

    Raises:
        NoteRefused: If it cannot be read, others may read it, or it is malformed.
    """
    public = NoteRefused(
        "a public key cannot sign: give the key file that `hushmote log key --origin` or `hushmote witness "
        "--create-key` created"
    )
    if _parsed(str(file)):
        raise public
    with refusing(NoteRefused, f"read {file}"):
        mode = file.stat().st_mode
        text = file.read_text("utf-8", "replace")
    if _parsed(text.strip()):
        raise public
    if private_file.readable_by_others(file, mode):
        raise NoteRefused(f"{file} can be read by other users, who could sign with it: chmod 600 {file}")
    try:
        return SecretKey.parse(text)
    except NoteRefused as e:
        raise NoteRefused(f"{file}: {e}") from None


def public_key(option: str, text: str) -> PublicKey:
    """Return the public key that an option names: the key itself, or a file that has nothing else.

    Raises:
        UsageError: If it is neither, or a file with a secret key, which must not leave its place.
    """
    if key := _parsed(text):
        return key
    wrong = UsageError(
        f"{option} must be a public key of the form NAME+ID+BASE64, or a file with one, not {text!r}"
    )
    try:
        content = Path(text).read_text("utf-8")
    except (OSError, ValueError):
        raise wrong from None
    if key := _parsed(content.strip()):
        return key
    with contextlib.suppress(NoteRefused):
        SecretKey.parse(content)
        raise UsageError(
            f"{option}: {text} is a secret key: keep it where it is, and give the public key that `hushmote "
            "log key` or `hushmote witness --create-key` printed"
        )
    raise wrong


def _parsed(text: str) -> PublicKey | None:
    with contextlib.suppress(NoteRefused):
        return PublicKey.parse(text)
    return None


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
