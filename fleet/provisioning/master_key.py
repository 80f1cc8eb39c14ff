"""Stores the keys of a server's fleets: in files that only their owner can read, or in the environment.

A counting file has a master key in its first line, 64 hex digits, and `announce:` with 128 in its last: it
checks tags and signatures, and cannot sign. During a rotation older master keys stand between them. A signing
file has the line `signing:` with 64 hex digits: it signs experiments, and cannot check tags. One file may do
both, with `signing:` in the place of `announce:`. HUSHMOTE_MASTER_KEY has commas between them.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ...server import private_file
from ...server.errors import os_reason, refusing
from ...server.wire.keys import (
    ANNOUNCE_KEY_BYTES,
    ENVIRONMENT_VARIABLE,
    KEY_BYTES,
    FleetKeys,
    MasterKeyError,
    public_key_bytes,
)

MOST_MASTERS = 4  # each costs a forged report one more HMAC

_HEX = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)
_ANNOUNCE_HEX = re.compile(rf"[0-9a-fA-F]{{{2 * ANNOUNCE_KEY_BYTES}}}", re.ASCII)
_SIGNING = "signing:"
_ANNOUNCE = "announce:"


def create_keys(path: Path, signing_path: Path | None = None) -> FleetKeys:
    """Write a new master key and a new signing key to files that only their owner can read; return them.

    Args:
        path: The master key's file.
        signing_path: The signing key's file; None puts both into one.

    Raises:
        MasterKeyError: If a file exists or cannot be made; then neither is made.
    """
    fleet_keys = FleetKeys((os.urandom(KEY_BYTES),), new_signing_key())
    if signing_path is None:
        _create(path, to_text(fleet_keys))
        return fleet_keys
    _create(path, to_text(without_signing(fleet_keys)))
    try:
        _create(signing_path, signing_text(fleet_keys))
    except MasterKeyError:
        path.unlink()
        raise
    return fleet_keys


def _create(path: Path, text: str) -> None:
    exists = f"{path} exists: new keys would lock out every device; take another path"
    with refusing(MasterKeyError, f"write {path}", exists):
        private_file.create(path, text.encode())


def new_signing_key() -> bytes:
    """Return a random signing key, 32 bytes."""
    while True:
        key = os.urandom(KEY_BYTES)
        try:
            public_key_bytes(key)
        except MasterKeyError:  # about once in 2**32 times: above the order of the curve
            continue
        return key


def load_keys(
    path: Path | None = None, environ: Mapping[str, str] | None = None, *, signing: Path | None = None
) -> FleetKeys | None:
    """Return the keys of a file, else of HUSHMOTE_MASTER_KEY, else None.

    Without a signing key they can only count.

    Args:
        path: The file, or None.
        environ: The environment; os.environ by default.
        signing: The file of the signing key that belongs to them.

    Raises:
        MasterKeyError: If a key is missing or malformed, if others can read a file, or if the two keys do not
            belong together.
    """
    text, where = _read(path, environ)
    if text is None:
        return None
    parsed = _parse(text, where)
    if not parsed.masters:
        raise MasterKeyError(
            f"{where} holds a signing key alone: give the file of the master key, 64 hex digits"
        )
    if signing is not None:
        own = load_signing_key(signing)
        if parsed.has_announce_key and parsed.announce_key != public_key_bytes(own):
            raise MasterKeyError(
                f"{signing} is not the signing key that belongs to {where}: devices would refuse all it signs"
            )
        return replace(parsed, signing=own, announce=None)
    if not parsed.has_announce_key:
        add = "`hushmote provision upgrade` makes a signing key"
        if path is None:
            add = f"put a comma, {_SIGNING} and 64 random hex digits after the master key"
        raise MasterKeyError(
            f"{where} holds no announce key or signing key, so devices would refuse every experiment: {add}"
        )
    return parsed


def load_signing_key(path: Path | None = None, environ: Mapping[str, str] | None = None) -> bytes:
    """Return the signing key of a file, else of HUSHMOTE_MASTER_KEY; raises MasterKeyError."""
    text, where = _read(path, environ)
    if text is None:
        raise MasterKeyError("there is no signing key: give its file with --signing-key")
    signing = _parse(text, where).signing
    if signing is None:
        raise MasterKeyError(f"{where} holds no signing key: give the file that has the line {_SIGNING}...")
    return signing


def load_unsigned(path: Path) -> tuple[bytes, ...] | None:
    """Return the master keys of a file from before signing keys existed, None if it has one.

    Raises:
        MasterKeyError: If the file cannot be read, is malformed, or can be read by others.
    """
    text, where = _read(path, None)
    parsed = _parse(text or "", where)
    return None if parsed.has_announce_key else parsed.masters


def without_signing(fleet_keys: FleetKeys) -> FleetKeys:
    """Return the keys of an aggregator, which counts and checks signatures, but cannot sign."""
    return FleetKeys(fleet_keys.masters, announce=fleet_keys.announce_key)


def to_text(fleet_keys: FleetKeys) -> str:
    """Return the content of a file with these keys."""
    lines = [master.hex() for master in fleet_keys.masters]
    if fleet_keys.signing is None:
        return "\n".join([*lines, _ANNOUNCE + fleet_keys.announce_key.hex()]) + "\n"
    return "\n".join(lines) + "\n" + signing_text(fleet_keys)


def signing_text(fleet_keys: FleetKeys) -> str:
    """Return the content of a file that has the signing key alone."""
    assert fleet_keys.signing is not None
    return f"{_SIGNING}{fleet_keys.signing.hex()}\n"


def _read(path: Path | None, environ: Mapping[str, str] | None) -> tuple[str | None, str]:
    """Return the text with the keys, and its name for messages."""
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
    if private_file.readable_by_others(path, mode):
        raise MasterKeyError(f"{path} can be read by others: chmod 600 it")
    return text, str(path)


def _parse(text: str, where: str) -> FleetKeys:
    """Return the keys in a text; no message quotes the text, which may be nearly a real key."""
    words = text.replace(",", " ").split()
    signing = announce = None
    if words and words[-1].startswith(_SIGNING):
        signing = _signing_in(words.pop(), where)
    elif words and words[-1].startswith(_ANNOUNCE):
        announce = _announce_in(words.pop(), where)
    if (not words and signing is None) or any(_HEX.fullmatch(word) is None for word in words):
        raise MasterKeyError(f"{where} must hold a master key of exactly 64 hex digits")
    masters = tuple(bytes.fromhex(word) for word in words)
    if len(masters) > MOST_MASTERS or len(set(masters)) < len(masters):
        raise MasterKeyError(
            f"{where} must hold at most {MOST_MASTERS} master keys of 64 hex digits, no two alike"
        )
    return FleetKeys(masters, signing, announce)


def _signing_in(word: str, where: str) -> bytes:
    digits = word.removeprefix(_SIGNING)
    signing = bytes.fromhex(digits) if _HEX.fullmatch(digits) else b""
    try:
        public_key_bytes(signing)
    except MasterKeyError:
        raise MasterKeyError(
            f"{where} must hold a P-256 key of exactly 64 hex digits after {_SIGNING}"
        ) from None
    return signing


def _announce_in(word: str, where: str) -> bytes:
    digits = word.removeprefix(_ANNOUNCE)
    if not _ANNOUNCE_HEX.fullmatch(digits):
        raise MasterKeyError(
            f"{where} must hold an announce key of exactly {2 * ANNOUNCE_KEY_BYTES} hex digits after "
            f"{_ANNOUNCE}"
        )
    return bytes.fromhex(digits)
