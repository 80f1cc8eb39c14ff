"""Where the keys of a server's fleets are kept: a file that only its owner can read, or the environment.

A file has a master key in its first line, 64 hex digits, and `signing:` with 64 more in its last. During a
rotation older master keys stand between them. HUSHMOTE_MASTER_KEY has commas between them.
"""

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from .. import private_file
from ..errors import os_reason, refusing
from ..wire.keys import ENVIRONMENT_VARIABLE, KEY_BYTES, FleetKeys, MasterKeyError, public_key_bytes

MOST_MASTERS = 4  # each costs a forged report one more HMAC

_HEX = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)
_SIGNING = "signing:"


def create_keys(path: Path) -> FleetKeys:
    """Write a new master key and a new signing key to a file that only its owner can read; return them.

    Raises MasterKeyError if the file exists or cannot be made.
    """
    made = FleetKeys((os.urandom(KEY_BYTES),), new_signing_key())
    exists = f"{path} exists: new keys would lock out every device; take another path"
    with refusing(MasterKeyError, f"write {path}", exists):
        private_file.create(path, to_text(made).encode())
    return made


def new_signing_key() -> bytes:
    """Return a random signing key, 32 bytes."""
    while True:
        made = os.urandom(KEY_BYTES)
        try:
            public_key_bytes(made)
        except MasterKeyError:  # about once in 2**32 times: above the order of the curve
            continue
        return made


def load_keys(path: Path | None = None, environ: Mapping[str, str] | None = None) -> FleetKeys | None:
    """Return the keys of a file, else of HUSHMOTE_MASTER_KEY, else None.

    Raises MasterKeyError if one is missing or malformed, or if others can read the file.
    """
    text, where = _read(path, environ)
    if text is None:
        return None
    masters, signing = _parse(text, where)
    if signing is None:
        add = "`hushmote provision upgrade` makes one"
        if path is None:
            add = f"put a comma, {_SIGNING} and 64 random hex digits after the master key"
        raise MasterKeyError(f"{where} holds no signing key, so devices would refuse every experiment: {add}")
    return FleetKeys(masters, signing)


def load_unsigned(path: Path) -> tuple[bytes, ...] | None:
    """Return the master keys of a file from before signing keys existed, None if it has one.

    Raises MasterKeyError if the file cannot be read, is malformed, or can be read by others.
    """
    text, where = _read(path, None)
    masters, signing = _parse(text or "", where)
    return masters if signing is None else None


def to_text(fleet_keys: FleetKeys) -> str:
    """Return these keys as a file's content."""
    lines = [master.hex() for master in fleet_keys.masters]
    return "\n".join([*lines, _SIGNING + fleet_keys.signing.hex()]) + "\n"


def _read(path: Path | None, environ: Mapping[str, str] | None) -> tuple[str | None, str]:
    """Return the text that holds the keys, and its name for messages."""
    if path is None:
        return (os.environ if environ is None else environ).get(ENVIRONMENT_VARIABLE), ENVIRONMENT_VARIABLE
    try:
        with open(path, encoding="ascii") as f:
            mode = os.fstat(f.fileno()).st_mode
            text = f.read(1024)
    except UnicodeDecodeError:
        text, mode = "", 0
    except OSError as e:
        raise MasterKeyError(f"cannot read the master key {path}: {os_reason(e)}") from None
    if readable_by_others(path, mode):
        raise MasterKeyError(f"{path} can be read by others: chmod 600 it")
    return text, str(path)


def readable_by_others(path: Path, mode: int) -> bool:
    """Return whether others than its owner can read a secret file of this mode, as far as one can tell."""
    credentials = os.environ.get("CREDENTIALS_DIRECTORY")
    if credentials and path.parent == Path(credentials):
        # systemd's own: only the service can enter the folder, and the access list that lets the service's
        # user read the file shows as the group's bits.
        return False
    return os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO) != 0


def _parse(text: str, where: str) -> tuple[tuple[bytes, ...], bytes | None]:
    """Return master keys and signing key; no message quotes the text, which may be nearly a real key."""
    words = text.replace(",", " ").split()
    signing = None
    if words and words[-1].startswith(_SIGNING):
        word = words.pop().removeprefix(_SIGNING)
        signing = bytes.fromhex(word) if _HEX.fullmatch(word) else b""
        try:
            public_key_bytes(signing)
        except MasterKeyError:
            raise MasterKeyError(
                f"{where} must hold a P-256 key of exactly 64 hex digits after {_SIGNING}"
            ) from None
    if not words or any(_HEX.fullmatch(word) is None for word in words):
        raise MasterKeyError(f"{where} must hold a master key of exactly 64 hex digits")
    masters = tuple(bytes.fromhex(word) for word in words)
    if len(masters) > MOST_MASTERS or len(set(masters)) < len(masters):
        raise MasterKeyError(
            f"{where} must hold at most {MOST_MASTERS} master keys of 64 hex digits, no two alike"
        )
    return masters, signing
