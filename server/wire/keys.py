"""Keys of a server's fleets: device keys, derived from a master key, and the key that signs experiments.

A device key is HKDF-SHA256 (RFC 5869) of the master key without salt, with the info
`hushmote/v1/<fleet>/<device>`. The signing key is a separate ECDSA P-256 key, so that a new master key does
not change it and an aggregator can count without it. Boards store its public half, the announce key.
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

KEY_BYTES = 32  # of a master key, of a device's key, and of the signing key (a number)
SERIAL_BYTES = 4
SIGNATURE_BYTES = 64
ANNOUNCE_KEY_BYTES = 64
ENVIRONMENT_VARIABLE = "HUSHMOTE_MASTER_KEY"

_p256: Any = ldp_p256  # boards' files have no types
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551  # of P-256's points


class MasterKeyError(HushmoteError):
    """Raised for a missing, malformed or unsafe master or signing key; the text says what is right."""


@dataclass(frozen=True, slots=True)
class FleetKeys:
    """The secrets of a server's keyed fleets.

    Attributes:
        masters: 32-byte master keys, the current one first. Tags under the others, from before a rotation,
            are accepted as well.
        signing: The 32-byte key that signs experiments; None if they are signed on another machine.
        announce: The public half of the signing key if `signing` is None.
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
        """The public half of the signing key, 64 bytes.

        Raises:
            MasterKeyError: If neither half is available.
        """
        if self.signing is not None:
            return public_key_bytes(self.signing)
        if self.announce is None:
            raise MasterKeyError("there is neither a signing key nor an announce key")
        return self.announce


@dataclass(frozen=True, slots=True)
class Signatures:
    """The signatures of a version's announcement under a serial and of its withdrawal under the next.

    With both, anyone can publish the version and withdraw it, but sign nothing else.
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
    # The two steps of HKDF (RFC 5869, 2.2 and 2.3): the second runs for every report, and a
    # library's object that does both takes three times as long.
    return hmac.digest(_extract(master), info.encode() + b"\x01", "sha256")


def master_check(master: bytes, fleet: str) -> str:
    """Return 16 hex digits that identify a fleet's master key and reveal nothing else about it."""
    # This is not a valid device id.
    info = f"hushmote/v1/{check_fleet(fleet)}/+check"
    return hmac.digest(_extract(master), info.encode() + b"\x01", "sha256")[:8].hex()


def check_masters(fleet_keys: FleetKeys | None, fleet: str, check: str | None) -> None:
    """Check that one of the master keys has the check value that the store keeps for a fleet.

    Args:
        fleet_keys: The available keys; None skips the check.
        fleet: The fleet's name.
        check: The stored value, as master_check() returns it; None skips the check.

    Raises:
        MasterKeyError: If no master key has this check value.
    """
    if fleet_keys and check is not None and check not in [master_check(m, fleet) for m in fleet_keys.masters]:
        raise MasterKeyError(
            f"this is not the master key of fleet {fleet}, whose reports would all be refused: "
            "give the one that its devices were provisioned with"
        )


def erased_mark(master: bytes, fleet: str, experiment: str, device: str) -> str:
    """Return 32 hex digits that stand for an erased device and an experiment to which it reported.

    Without the master key nobody can find the device or see that two marks belong to the same device.

    Args:
        master: The fleet's master key.
        fleet: The fleet's name.
        experiment: The experiment's name; "" for a device that is revoked for all experiments.
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
    """Return the announce key of a 32-byte signing key: x and y, 64 bytes, big-endian.

    Raises:
        MasterKeyError: If the bytes are not a P-256 key.
    """
    point = _private(signing_key).public_key().public_numbers()
    return point.x.to_bytes(32, "big") + point.y.to_bytes(32, "big")


def sign_experiment(signing_key: bytes, topic: str, body: bytes, serial: int) -> bytes:
    """Return the payload to retain for a keyed fleet: the JSON, a zero byte, the serial, the signature.

    The signature covers SHA-256 of topic + zero byte + everything before it. It is r and s, 64 bytes. All
    numbers are big-endian. The same arguments always give the same bytes (RFC 6979). s is in the lower half
    of its range, so that there is no second valid signature.

    Args:
        signing_key: 32 bytes.
        topic: The MQTT topic of the experiment.
        body: The experiment's JSON; empty to withdraw it.
        serial: 0 to 2**32 - 1; it takes 4 bytes.

    Raises:
        MasterKeyError: If the signing key is invalid.
    """
    # Imported here, because few commands sign and it takes a tenth of a second to load.
    from cryptography.hazmat.primitives.asymmetric import ec, utils
    from cryptography.hazmat.primitives.hashes import SHA256

    signed_part = body + _serial(serial)
    scheme = ec.ECDSA(SHA256(), deterministic_signing=True)
    der = _private(signing_key).sign(topic.encode() + b"\x00" + signed_part, scheme)
    r, s = utils.decode_dss_signature(der)
    return signed_part + r.to_bytes(32, "big") + min(s, _ORDER - s).to_bytes(32, "big")


def sign_version(signing_key: bytes, topic: str, body: bytes, serial: int) -> Signatures:
    """Return the signatures of a version's announcement under a serial and of its withdrawal under the next.

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
    """Return whether this key made the signature of a JSON document for a topic."""
    return _is_signed(announce_key, topic, _canonical(document) + _serial(0) + signature)


def _canonical(document: object) -> bytes:
    """Encode a document for signing: ASCII JSON, sorted names, no white space."""
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode("ascii")


def _serial(serial: int) -> bytes:
    return b"\x00" + serial.to_bytes(SERIAL_BYTES, "big")


def is_withdrawal(payload: bytes) -> bool:
    """Return whether a message on an experiment's topic is a withdrawal: empty, or signed without JSON."""
    return payload[:1] in (b"", b"\0")


@functools.lru_cache(maxsize=16)
def _private(signing_key: bytes) -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    number = int.from_bytes(signing_key, "big")
    if len(signing_key) != KEY_BYTES or not 0 < number < _ORDER:
        raise MasterKeyError("the signing key must be 32 bytes, a number from 1 to the order of P-256 less 1")
    return ec.derive_private_key(number, ec.SECP256R1())
