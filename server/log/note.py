"""Signed notes and checkpoints (C2SP signed-note, tlog-checkpoint and tlog-cosignature), and their keys.

A log signs each checkpoint twice: with Ed25519, which the public ecosystem of witnesses verifies, and with
ECDSA on P-256 (type 0x02), which boards verify. A witness adds an Ed25519 cosignature, which includes the
time, and a P-256 signature of the same text as the log's.
"""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, utils
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_public_key

from ...device import ldp_p256
from ..errors import HushmoteError
from ..wire import keys

ED25519, ECDSA, COSIGNATURE = 0x01, 0x02, 0x04  # types of signatures
MAX_SIZE = 2**32 - 1  # of a tree: boards read sizes from 4 bytes
_NAME = re.compile(r"[!-*,-~]{1,255}")  # printable ASCII without spaces and plus
_LINE = re.compile(r"— (\S+) ([A-Za-z0-9+/]+={0,2})\n")
_MAX_SIGNATURES = 64
_TIME_BYTES = 8

_p256: Any = ldp_p256  # board files have no type annotations


class NoteRefused(HushmoteError):
    """Raised for a note, checkpoint or key that is malformed or that nobody trusted has signed."""


@dataclass(frozen=True, slots=True)
class Signature:
    """One signature line of a note.

    Attributes:
        name: The key's name.
        key_id: The 4 bytes that tell the keys of one name apart.
        value: What follows, whose form depends on the key's type.
    """

    name: str
    key_id: bytes
    value: bytes

    def __str__(self) -> str:
        return f"— {self.name} {base64.b64encode(self.key_id + self.value).decode()}\n"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A tree's head with its signatures, valid or not.

    Attributes:
        origin: The log's name.
        size: The number of entries, at most MAX_SIZE.
        root: The tree's root, 32 bytes.
        signatures: The lines below the text.
    """

    origin: str
    size: int
    root: bytes
    signatures: tuple[Signature, ...] = ()

    @property
    def text(self) -> str:
        """The signed text: three lines."""
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.root).decode()}\n"

    def __str__(self) -> str:
        return f"{self.text}\n{''.join(map(str, self.signatures))}"

    @classmethod
    def parse(cls, note: str) -> Checkpoint:
        """Read a signed checkpoint; extension lines, which boards do not support, are refused.

        Raises:
            NoteRefused: If it is malformed.
        """
        text, blank, lines = note.rpartition("\n\n")
        parts = text.split("\n")
        if not blank or len(parts) != 3:
            raise NoteRefused("a checkpoint has three lines, an empty line and signatures")
        origin, size, root = parts
        try:
            hashed = base64.b64decode(root, validate=True)
        except binascii.Error:
            hashed = b""
        if not is_name(origin) or not re.fullmatch("0|[1-9][0-9]{0,9}", size) or int(size) > MAX_SIZE:
            raise NoteRefused(
                f"a checkpoint has an origin and a size below 2^32, not {origin!r} and {size!r}"
            )
        if len(hashed) != 32 or base64.b64encode(hashed).decode() != root:
            raise NoteRefused(f"a checkpoint's third line has 32 bytes in base64, not {root!r}")
        return cls(origin, int(size), hashed, parse_signatures(lines))


def parse_signatures(lines: str) -> tuple[Signature, ...]:
    """Read signature lines, each with its newline.

    Raises:
        NoteRefused: If a line is malformed.
    """
    signatures = []
    for line in lines.splitlines(keepends=True):
        match = _LINE.fullmatch(line)
        try:
            value = base64.b64decode(match[2], validate=True) if match else b""
        except binascii.Error:
            value = b""
        if match is None or len(value) <= 4 or len(signatures) == _MAX_SIGNATURES:
            raise NoteRefused(
                f"a note's signature is a line of the form '— name base64', not {line.strip()!r}"
            )
        signatures.append(Signature(match[1], value[:4], value[4:]))
    return tuple(signatures)


def is_name(text: str) -> bool:
    """Return whether a log or key can have this name: printable ASCII without spaces and plus signs."""
    return _NAME.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key that verifies one type of signatures.

    Attributes:
        name: Its name; for a log, the origin.
        kind: ED25519, ECDSA or COSIGNATURE.
        value: 32 bytes, or x and y of a point on P-256, 64 bytes.
    """

    name: str
    kind: int
    value: bytes

    @property
    def key_id(self) -> bytes:
        """The 4 bytes that signature lines have."""
        return _key_id(self)

    def __str__(self) -> str:
        """Return the key as text (a vkey), which parse() reads."""
        return f"{self.name}+{self.key_id.hex()}+{base64.b64encode(self.encoded_with_kind()).decode()}"

    @classmethod
    def parse(cls, text: str) -> PublicKey:
        """Read a key written as NAME+ID+BASE64.

        Raises:
            NoteRefused: If it is malformed or of an unknown type.
        """
        refused = NoteRefused(f"a log's or witness's public key has the form NAME+ID+BASE64, not {text!r}")
        name, _, rest = text.partition("+")
        key_id, _, encoded = rest.partition("+")
        try:
            data = base64.b64decode(encoded, validate=True)
            value = _point(data[1:]) if data[:1] == bytes([ECDSA]) else data[1:]
            key = cls(name, data[0], value)
            if key.kind != ECDSA:
                ed25519.Ed25519PublicKey.from_public_bytes(value)
        except (ValueError, IndexError):  # binascii.Error is a ValueError
            raise refused from None
        if key.kind not in (ED25519, ECDSA, COSIGNATURE) or not is_name(name) or key.key_id.hex() != key_id:
            raise refused
        return key

    def verify(self, text: str, signature: Signature) -> bool:
        """Return whether a line is this key's valid signature of a checkpoint's text."""
        return self.made(signature) and self._is_valid(text, signature.value)

    def made(self, signature: Signature) -> bool:
        """Return whether a line says that it is by this key."""
        return (signature.name, signature.key_id) == (self.name, self.key_id)

    def _is_valid(self, text: str, value: bytes) -> bool:
        if self.kind == ECDSA:
            digest = hashlib.sha256(text.encode()).digest()
            return bool(_p256.verify(self.value, digest, board_signature(value)))
        message = text.encode()
        if self.kind == COSIGNATURE:
            time_s, value = int.from_bytes(value[:_TIME_BYTES], "big"), value[_TIME_BYTES:]
            message = _cosigned(text, time_s)
        try:
            ed25519.Ed25519PublicKey.from_public_bytes(self.value).verify(value, message)
        except InvalidSignature:
            return False
        return True

    def encoded(self) -> bytes:
        """Return the value as it is hashed and written."""
        if self.kind != ECDSA:
            return self.value
        point = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), b"\4" + self.value)
        return point.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)

    def encoded_with_kind(self) -> bytes:
        """Return the value after a byte with the type."""
        return bytes([self.kind]) + self.encoded()


@functools.lru_cache(maxsize=256)  # each line of each checkpoint is compared with it
def _key_id(key: PublicKey) -> bytes:
    if key.kind == ECDSA:
        return hashlib.sha256(key.encoded()).digest()[:4]
    return hashlib.sha256(key.name.encode() + b"\n" + key.encoded_with_kind()).digest()[:4]


def board_signature(value: bytes) -> bytes:
    """Return r and s of an ECDSA signature in DER, 64 bytes, as boards read them; nothing if malformed."""
    try:
        r, s = utils.decode_dss_signature(value)
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")
    except (ValueError, OverflowError):
        return b""


@dataclass(frozen=True, slots=True)
class SecretKey:
    """The two private keys of a log or of a witness, each 32 bytes.

    Attributes:
        name: The log's origin or the witness's name.
        ed25519: For the public ecosystem.
        p256: For boards.
    """

    name: str
    ed25519: bytes = field(repr=False)
    p256: bytes = field(repr=False)

    @classmethod
    def generate(cls, name: str) -> SecretKey:
        """Return a new key.

        Raises:
            NoteRefused: If no log or witness can have this name.
        """
        if not is_name(name):
            raise NoteRefused(
                f"a log's or witness's name is printable ASCII without spaces and +, not {name!r}"
            )
        p256 = ec.generate_private_key(ec.SECP256R1()).private_numbers().private_value
        return cls(name, os.urandom(keys.KEY_BYTES), p256.to_bytes(keys.KEY_BYTES, "big"))

    @classmethod
    def parse(cls, text: str) -> SecretKey:
        """Read the JSON of str(key).

        Raises:
            NoteRefused: If it is malformed.
        """
        try:
            data = json.loads(text)
            key = cls(data["name"], bytes.fromhex(data["ed25519"]), bytes.fromhex(data["p256"]))
            keys.public_key_bytes(key.p256)
            is_good = is_name(key.name) and len(key.ed25519) == keys.KEY_BYTES
        except (ValueError, KeyError, TypeError, keys.MasterKeyError):
            is_good = False
        if not is_good:
            raise NoteRefused("a log's or witness's key file is JSON with name, ed25519 and p256, in hex")
        return key

    def __str__(self) -> str:
        values = {"name": self.name, "ed25519": self.ed25519.hex(), "p256": self.p256.hex()}
        return json.dumps(values, indent=1) + "\n"

    def public(self, kind: int) -> PublicKey:
        """Return the public half for signatures of a type."""
        if kind == ECDSA:
            return PublicKey(self.name, kind, keys.public_key_bytes(self.p256))
        secret = ed25519.Ed25519PrivateKey.from_private_bytes(self.ed25519)
        return PublicKey(self.name, kind, secret.public_key().public_bytes_raw())

    def sign_tree(self, size: int, root: bytes) -> Checkpoint:
        """Return a log's checkpoint of a tree, with its two signatures."""
        unsigned = Checkpoint(self.name, size, root)
        return replace(unsigned, signatures=self.sign(unsigned.text))

    def sign(self, text: str) -> tuple[Signature, Signature]:
        """Return a log's two signatures of a checkpoint's text."""
        secret = ed25519.Ed25519PrivateKey.from_private_bytes(self.ed25519)
        line = Signature(self.name, self.public(ED25519).key_id, secret.sign(text.encode()))
        return line, self._sign_for_boards(text)

    def cosign(self, text: str, time_s: int) -> tuple[Signature, Signature]:
        """Return a witness's two signatures of a checkpoint's text; the first includes the time."""
        secret = ed25519.Ed25519PrivateKey.from_private_bytes(self.ed25519)
        value = time_s.to_bytes(_TIME_BYTES, "big") + secret.sign(_cosigned(text, time_s))
        return Signature(self.name, self.public(COSIGNATURE).key_id, value), self._sign_for_boards(text)

    def _sign_for_boards(self, text: str) -> Signature:
        number = int.from_bytes(self.p256, "big")
        secret = ec.derive_private_key(number, ec.SECP256R1())
        r, s = utils.decode_dss_signature(
            secret.sign(text.encode(), ec.ECDSA(SHA256(), deterministic_signing=True))
        )
        # Boards accept only the lower half of s.
        value = utils.encode_dss_signature(r, min(s, keys.P256_ORDER - s))
        return Signature(self.name, self.public(ECDSA).key_id, value)


def valid_signatures(checkpoint: Checkpoint, trusted: Iterable[PublicKey]) -> dict[PublicKey, Signature]:
    """Return the trusted keys that signed a checkpoint, each with its signature.

    Raises:
        NoteRefused: If a line claims to be by a trusted key and is not.
    """
    signatures = {}
    for key in trusted:
        for line in checkpoint.signatures:
            if key.made(line):
                if not key.verify(checkpoint.text, line):
                    raise NoteRefused(f"the signature of {key.name} under size {checkpoint.size} is wrong")
                signatures[key] = line
    return signatures


def board_keys(public_keys: Sequence[PublicKey]) -> list[str]:
    """Return P-256 keys as a board's policy lists them: 128 hex digits each."""
    return [key.value.hex() for key in public_keys]


def _cosigned(text: str, time_s: int) -> bytes:
    return f"cosignature/v1\ntime {time_s}\n{text}".encode()


def _point(der: bytes) -> bytes:
    """Return x and y of a P-256 key in SPKI form."""
    key = load_der_public_key(der)
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ValueError("not P-256")
    point = key.public_numbers()
    return point.x.to_bytes(32, "big") + point.y.to_bytes(32, "big")
