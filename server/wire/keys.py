"""A server's keys: device keys, derived from a master key, and the key that signs experiments.

A device key is HKDF-SHA256 (RFC 5869) of the master key without salt, with the info
`hushmote/v1/<fleet>/<device>`. The signing key is a separate ECDSA P-256 key, so a new master key does not
change it, and an aggregator can count without it. Boards store its public half, the announce key.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...device import ldp_p256
from ..errors import HushmoteError
from .topics import check_device, check_fleet

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

KEY_BYTES = 32  # the length of master keys, device keys and the signing key
SERIAL_BYTES = 4
SIGNATURE_BYTES = 64
ANNOUNCE_KEY_BYTES = 64
ENVIRONMENT_VARIABLE = "HUSHMOTE_MASTER_KEY"

_p256: Any = ldp_p256  # board files have no type annotations
P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551  # the order of P-256


class MasterKeyError(HushmoteError):
    """Raised for a missing, malformed or unsafe master or signing key; the message says what was expected."""


@dataclass(frozen=True, slots=True)
class FleetKeys:
    """The secrets of a server's keyed fleets.

    Attributes:
        masters: The 32-byte master keys, the current one first. Tags from the others, which precede a
            rotation, are also accepted.
        signing: The 32-byte key that signs experiments; None if they are signed on another machine.
        announce: The signing key's public half if `signing` is None.
    """

    masters: tuple[bytes, ...] = field(repr=False)
    signing: bytes | None = field(default=None, repr=False)
    announce: bytes | None = None

    @property
    def has_announce_key(self) -> bool:
        """Whether either half of the signing key is available."""
        return self.signing is not None or self.announce is not None

    @property
    def announce_key(self) -> bytes:
        """The signing key's public half, 64 bytes.

        Raises:
            MasterKeyError: If neither half is available.
        """
        if self.signing is not None:
            return public_key_bytes(self.signing)
        if self.announce is None:
            raise MasterKeyError("the server has neither a signing key nor an announce key")
        return self.announce


@dataclass(frozen=True, slots=True)
class Signatures:
    """The signatures of a version's announcement with a serial and of its withdrawal with the next serial.

    With both, anyone can publish and withdraw the version, but cannot sign anything else.
    """

    serial: int
    announcement: bytes
    withdrawal: bytes


def device_key(master: bytes, fleet: str, device: str) -> bytes:
    """Return a device's 32-byte key.

    Raises:
        NameRefused: If the fleet or device name is invalid.
        MasterKeyError: If the master key does not have 32 bytes.
    """
    info = f"hushmote/v1/{check_fleet(fleet)}/{check_device(device)}"
    # These are the two steps of HKDF (RFC 5869, 2.2 and 2.3). The second runs for every report, and a
    # library's HKDF object, which runs both, is three times as slow.
    return hmac.digest(_extract(master), info.encode() + b"\x01", "sha256")


def master_check(master: bytes, fleet: str) -> str:
    """Return 16 hex digits that identify a fleet's master key and reveal nothing else about it."""
    # This is not a valid device id.
    info = f"hushmote/v1/{check_fleet(fleet)}/+check"
    return hmac.digest(_extract(master), info.encode() + b"\x01", "sha256")[:8].hex()


def check_masters(fleet_keys: FleetKeys | None, fleet: str, check: str | None) -> None:
    """Check that one of the master keys has the check value that is stored for a fleet.

    Args:
        fleet_keys: The available keys; None skips the check.
        fleet: The fleet's name.
        check: The stored result of master_check(); None skips the check.

    Raises:
        MasterKeyError: If no master key has this check value.
    """
    if fleet_keys and check is not None and check not in [master_check(m, fleet) for m in fleet_keys.masters]:
        raise MasterKeyError(
            f"this is not the master key of fleet {fleet}, so all its reports would be rejected; "
            "use the key with which its devices were provisioned"
        )


def erased_mark(master: bytes, fleet: str, experiment: str, device: str) -> str:
    """Return 32 hex digits that represent an erased device and an experiment to which it reported.

    Without the master key, no one can identify the device or see that two marks belong to the same device.

    Args:
        master: The fleet's master key.
        fleet: The fleet's name.
        experiment: The experiment's name; "" for a device that is revoked from all experiments.
        device: The device's id.
    """
    info = f"hushmote/v1/{fleet}/+erased/{experiment}/{device}"
    return hmac.digest(_extract(master), info.encode() + b"\x01", "sha256")[:16].hex()


@functools.lru_cache(maxsize=16)
def _extract(master: bytes) -> bytes:
    if len(master) != KEY_BYTES:
        raise MasterKeyError(f"the master key has {len(master)} bytes; it must have {KEY_BYTES}")
    return hmac.digest(bytes(KEY_BYTES), master, "sha256")


def public_key_bytes(signing_key: bytes) -> bytes:
    """Return a 32-byte signing key's announce key: x and y, 64 bytes, big-endian.

    Raises:
        MasterKeyError: If the bytes are not a P-256 key.
    """
    point = _private(signing_key).public_key().public_numbers()
    return point.x.to_bytes(32, "big") + point.y.to_bytes(32, "big")


def sign_experiment(signing_key: bytes, topic: str, body: bytes, serial: int) -> bytes:
    """Return the payload to retain for a keyed fleet: the JSON, a zero byte, the serial, the signature.

    The signature covers SHA-256 of topic + zero byte + everything before it, and consists of r and s, 64
    bytes. All numbers are big-endian. The same arguments always give the same bytes (RFC 6979). s is in the
    lower half of its range, which rules out a second valid signature.

    Args:
        signing_key: The 32-byte signing key.
        topic: The experiment's MQTT topic.
        body: The experiment's JSON; empty to withdraw it.
        serial: The serial, 0 to 2**32 - 1, encoded in 4 bytes.

    Raises:
        MasterKeyError: If the signing key is invalid.
    """
    # Imported lazily, because it takes a tenth of a second to load and few commands sign.
    from cryptography.hazmat.primitives.asymmetric import ec, utils
    from cryptography.hazmat.primitives.hashes import SHA256

    signed_part = body + _serial(serial)
    scheme = ec.ECDSA(SHA256(), deterministic_signing=True)
    der = _private(signing_key).sign(topic.encode() + b"\x00" + signed_part, scheme)
    r, s = utils.decode_dss_signature(der)
    return signed_part + r.to_bytes(32, "big") + min(s, P256_ORDER - s).to_bytes(32, "big")


def sign_version(signing_key: bytes, topic: str, body: bytes, serial: int) -> Signatures:
    """Sign a version's announcement with a serial and its withdrawal with the next serial.

    Raises:
        MasterKeyError: If the signing key is invalid.
    """
    announcement = sign_experiment(signing_key, topic, body, serial)[-SIGNATURE_BYTES:]
    withdrawal = sign_experiment(signing_key, topic, b"", serial + 1)[-SIGNATURE_BYTES:]
    return Signatures(serial, announcement, withdrawal)


@functools.lru_cache(maxsize=1024)
def signed_messages(
    announce_key: bytes, topic: str, body: bytes, signatures: Signatures
) -> tuple[bytes, bytes] | None:
    """Return a version's announcement and withdrawal, or None unless this key has signed both."""
    announcement = body + _serial(signatures.serial) + signatures.announcement
    withdrawal = _serial(signatures.serial + 1) + signatures.withdrawal
    both = announcement, withdrawal
    return both if all(_is_signed(announce_key, topic, message) for message in both) else None


def _is_signed(announce_key: bytes, topic: str, message: bytes) -> bool:
    digest = hashlib.sha256(topic.encode() + b"\x00" + message[:-SIGNATURE_BYTES]).digest()
    return bool(_p256.verify(announce_key, digest, message[-SIGNATURE_BYTES:]))


def sign_document(signing_key: bytes, topic: str, document: object) -> bytes:
    """Return the 64-byte signature of a JSON document for a topic.

    Raises:
        MasterKeyError: If the signing key is invalid.
    """
    return sign_experiment(signing_key, topic, _canonical(document), 0)[-SIGNATURE_BYTES:]


def is_document_signed(announce_key: bytes, topic: str, document: object, signature: bytes) -> bool:
    """Return whether this key signed a JSON document for a topic."""
    return _is_signed(announce_key, topic, _canonical(document) + _serial(0) + signature)


def _canonical(document: object) -> bytes:
    """Encode a document for signing as ASCII JSON with sorted names and without white space."""
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode("ascii")


def _serial(serial: int) -> bytes:
    return b"\x00" + serial.to_bytes(SERIAL_BYTES, "big")


def is_withdrawal(payload: bytes) -> bool:
    """Return whether a message on an experiment's topic is a withdrawal: empty, or signed without JSON."""
    return payload[:1] in (b"", b"\0")


def signed_serial(payload: bytes) -> int | None:
    """Return the serial of a signed message on an experiment's topic, or None if it is not signed."""
    body, zero, rest = payload.partition(b"\0")
    return int.from_bytes(rest[:SERIAL_BYTES], "big") if zero and body else None


def is_experiment_signed(signing_key: bytes, topic: str, payload: bytes) -> bool:
    """Return whether a message on an experiment's topic was signed with this signing key."""
    return _is_signed(public_key_bytes(signing_key), topic, payload)


@functools.lru_cache(maxsize=16)
def _private(signing_key: bytes) -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    number = int.from_bytes(signing_key, "big")
    if len(signing_key) != KEY_BYTES or not 0 < number < P256_ORDER:
        raise MasterKeyError(
            "the signing key must be 32 bytes that encode a number from 1 to P-256's order minus 1"
        )
    return ec.derive_private_key(number, ec.SECP256R1())
