"""The master key of a fleet where it is kept: a file that only its owner can read, or the environment."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from .. import private_file
from ..errors import refusing
from ..wire.keys import ENVIRONMENT_VARIABLE, KEY_BYTES, MasterKeyError

MOST_MASTERS = 4  # each costs a forged report one more HMAC

_HEX = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)


def create_master_key(path: Path) -> bytes:
    """Write a new random master key to a file that only its owner can read, and return it.

    Raises MasterKeyError where the file exists or cannot be made.
    """
    master = os.urandom(KEY_BYTES)
    exists = f"{path} exists: a new key would lock out every board; take another path"
    with refusing(MasterKeyError, f"write {path}", exists):
        private_file.create(path, master.hex().encode() + b"\n")
    return master


def load_master_key(path: Path | None = None, environ: Mapping[str, str] | None = None) -> bytes | None:
    """Return the first 32-byte master key of a file, else of HUSHMOTE_MASTER_KEY, else None.

    It is what new boards' keys come from and what signs experiments. Raises what load_master_keys does.
    """
    return next(iter(load_master_keys(path, environ)), None)


def load_master_keys(path: Path | None = None, environ: Mapping[str, str] | None = None) -> tuple[bytes, ...]:
    """Return the 32-byte master keys of a file, else of HUSHMOTE_MASTER_KEY, else none.

    Both hold 64 hex digits, or during a rotation several such keys, one a line or with commas between: the
    first is in force, the tags of the others still count. Raises MasterKeyError where they do not, or where
    others can read the file.
    """
    if path is None:
        text = (os.environ if environ is None else environ).get(ENVIRONMENT_VARIABLE)
        return () if text is None else _parse(text, ENVIRONMENT_VARIABLE)
    try:
        with open(path, encoding="ascii") as f:
            mode = os.fstat(f.fileno()).st_mode
            text = f.read(1024)
    except UnicodeDecodeError:
        text, mode = "", 0
    except OSError as e:
        raise MasterKeyError(f"cannot read the master key {path}: {e.strerror}") from None
    if readable_by_others(path, mode):
        raise MasterKeyError(f"{path} can be read by others: chmod 600 it")
    return _parse(text, str(path))


def readable_by_others(path: Path, mode: int) -> bool:
    """Whether a secret's file of that mode is open to more than its owner, as far as the system can tell."""
    credentials = os.environ.get("CREDENTIALS_DIRECTORY")
    if credentials and path.parent == Path(credentials):
        # systemd's own: the folder is the service's alone, and the access list that lets the service's user
        # read the file shows as the group's bits.
        return False
    return os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO) != 0


def _parse(text: str, where: str) -> tuple[bytes, ...]:
    words = text.replace(",", " ").split()
    # The text is never part of the message: it may be all but one digit of a real key.
    if not words or any(_HEX.fullmatch(word) is None for word in words):
        raise MasterKeyError(f"{where} must hold a master key of exactly 64 hex digits")
    masters = tuple(bytes.fromhex(word) for word in words)
    if len(masters) > MOST_MASTERS or len(set(masters)) < len(masters):
        raise MasterKeyError(
            f"{where} must hold at most {MOST_MASTERS} master keys of 64 hex digits, no two alike"
        )
    return masters
