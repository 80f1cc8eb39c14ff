"""Stores fleets' keys in files that only their owner can read, or in the environment.

A counting file has a master key of 64 hex digits in its first line, and `announce:` with 128 hex digits in
its last. It can check tags and signatures, but not sign. During a rotation, older master keys are between
them. A signing file has the line `signing:` with 64 hex digits. It can sign experiments, but not check tags.
One file can do both, with `signing:` instead of `announce:`. In HUSHMOTE_MASTER_KEY, commas separate the
keys.
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

MAX_MASTERS = 4  # each adds one HMAC when checking a forged report

_HEX = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)
_ANNOUNCE_HEX = re.compile(rf"[0-9a-fA-F]{{{2 * ANNOUNCE_KEY_BYTES}}}", re.ASCII)
_SIGNING = "signing:"
_ANNOUNCE = "announce:"


def create_keys(path: Path, signing_path: Path | None = None) -> FleetKeys:
    """Write a new master key and a new signing key to files that only their owner can read; return them.

    Args:
        path: The master key's file.
        signing_path: The signing key's file; None puts both keys into one file.

    Raises:
        MasterKeyError: If a file exists or cannot be created; then neither is created.
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
    exists = f"{path} exists: new keys would lock out every device; use another path"
    with refusing(MasterKeyError, f"write {path}", exists):
        private_file.create(path, text.encode())


def new_signing_key() -> bytes:
    """Return a random signing key, 32 bytes."""
    while True:
        key = os.urandom(KEY_BYTES)
        try:
            public_key_bytes(key)
        except MasterKeyError:  # about once in 2**32 times, the key exceeds the curve's order
            continue
        return key


def load_keys(
    path: Path | None = None, environ: Mapping[str, str] | None = None, *, signing: Path | None = None
) -> FleetKeys | None:
    """Return the keys from a file or, without a file, from HUSHMOTE_MASTER_KEY; None if neither is given.

    Without a signing key they can only count.

    Args:
        path: The file, or None.
        environ: The environment; os.environ by default.
        signing: The file with the signing key that belongs to them.

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
            f"{where} has only a signing key: give the master key's file, with 64 hex digits"
        )
    if signing is not None:
        signing_key = load_signing_key(signing)
        if parsed.has_announce_key and parsed.announce_key != public_key_bytes(signing_key):
            raise MasterKeyError(
                f"{signing} is not the signing key for {where}: devices would refuse everything it signs"
            )
        return replace(parsed, signing=signing_key, announce=None)
    if not parsed.has_announce_key:
        hint = "`hushmote provision upgrade` creates a signing key"
        if path is None:
            hint = f"put a comma, {_SIGNING} and 64 random hex digits after the master key"
        raise MasterKeyError(
            f"{where} has no announce key or signing key, so devices would refuse every experiment: {hint}"
        )
    return parsed


def load_signing_key(path: Path | None = None, environ: Mapping[str, str] | None = None) -> bytes:
    """Return the signing key from a file or, without one, HUSHMOTE_MASTER_KEY; raises MasterKeyError."""
    text, where = _read(path, environ)
    if text is None:
        raise MasterKeyError("there is no signing key: give its file with --signing-key")
    signing = _parse(text, where).signing
    if signing is None:
        raise MasterKeyError(f"{where} has no signing key: give the file that has the line {_SIGNING}...")
    return signing


def load_unsigned(path: Path) -> tuple[bytes, ...] | None:
    """Return the master keys from a file that predates signing keys, or None if the file has one.

    Raises:
        MasterKeyError: If the file cannot be read, is malformed, or can be read by others.
    """
    text, where = _read(path, None)
    parsed = _parse(text or "", where)
    return None if parsed.has_announce_key else parsed.masters


def without_signing(fleet_keys: FleetKeys) -> FleetKeys:
    """Return the keys for an aggregator, which can count and check signatures, but not sign."""
    return FleetKeys(fleet_keys.masters, announce=fleet_keys.announce_key)


def to_text(fleet_keys: FleetKeys) -> str:
    """Return the content of a file with these keys."""
    lines = [master.hex() for master in fleet_keys.masters]
    if fleet_keys.signing is None:
        return "\n".join([*lines, _ANNOUNCE + fleet_keys.announce_key.hex()]) + "\n"
    return "\n".join(lines) + "\n" + signing_text(fleet_keys)


def signing_text(fleet_keys: FleetKeys) -> str:
    """Return the content of a file that has only the signing key."""
    assert fleet_keys.signing is not None
    return f"{_SIGNING}{fleet_keys.signing.hex()}\n"


def _read(path: Path | None, environ: Mapping[str, str] | None) -> tuple[str | None, str]:
    """Return the text with the keys, and its name for messages."""
    if path is None:
        return (os.environ if environ is None else environ).get(ENVIRONMENT_VARIABLE), ENVIRONMENT_VARIABLE
    try:
        with open(path, encoding="utf-8-sig") as f:
            mode = os.fstat(f.fileno()).st_mode
            text = f.read(1024)
    except UnicodeDecodeError:
        text = ""
    except OSError as e:
        raise MasterKeyError(f"cannot read the master key {path}: {os_reason(e)}") from None
    if not text.isascii() or not text:
        return "", str(path)  # not a key, so its mode does not matter
    if private_file.readable_by_others(path, mode):
        raise MasterKeyError(f"{path} can be read by others; run `chmod 600` on it")
    return text, str(path)


def _parse(text: str, where: str) -> FleetKeys:
    """Parse keys. Error messages never quote the text, because it may be a mistyped key."""
    words = text.replace(",", " ").split()
    signing = announce = None
    if words and words[-1].startswith(_SIGNING):
        signing = _signing_in(words.pop(), where)
    elif words and words[-1].startswith(_ANNOUNCE):
        announce = _announce_in(words.pop(), where)
    if (not words and signing is None) or any(_HEX.fullmatch(word) is None for word in words):
        raise MasterKeyError(f"{where} must have a master key of exactly 64 hex digits")
    masters = tuple(bytes.fromhex(word) for word in words)
    if len(masters) > MAX_MASTERS or len(set(masters)) < len(masters):
        raise MasterKeyError(
            f"{where} must have at most {MAX_MASTERS} different master keys of 64 hex digits"
        )
    return FleetKeys(masters, signing, announce)


def _signing_in(word: str, where: str) -> bytes:
    digits = word.removeprefix(_SIGNING)
    signing = bytes.fromhex(digits) if _HEX.fullmatch(digits) else b""
    try:
        public_key_bytes(signing)
    except MasterKeyError:
        raise MasterKeyError(
            f"{where} must have a P-256 key of exactly 64 hex digits after {_SIGNING}"
        ) from None
    return signing


def _announce_in(word: str, where: str) -> bytes:
    digits = word.removeprefix(_ANNOUNCE)
    if not _ANNOUNCE_HEX.fullmatch(digits):
        raise MasterKeyError(
            f"{where} must have an announce key of exactly {2 * ANNOUNCE_KEY_BYTES} hex digits after "
            f"{_ANNOUNCE}"
        )
    return bytes.fromhex(digits)
