"""Keys of a server's fleets: boards' keys, derived from a master key, and the key that signs experiments.

Boards' keys are HKDF-SHA256 (RFC 5869) of the master key without salt, with the info
`hushmote/v1/<fleet>/<device>`. The signing key is an ECDSA P-256 key of its own, so that a new master key
leaves it alone. Neither leaves the server; boards hold the signing key's public half, their announce key.
"""

from __future__ import annotations

import functools
import hmac
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..errors import HushmoteError
from .topics import check_device, check_fleet

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

KEY_BYTES = 32  # of a master key, of a device's key, and of the signing key (a number)
SERIAL_BYTES = 4
ENVIRONMENT_VARIABLE = "HUSHMOTE_MASTER_KEY"

_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551  # of P-256's points


class MasterKeyError(HushmoteError):
    """A master or signing key is missing, malformed or not kept safe; the text says what is right."""


@dataclass(frozen=True, slots=True)
class FleetKeys:
    """The secrets of a server's keyed fleets.

    masters: 32-byte master keys, the one in use first; tags under the others, from before a
    rotation, count as well. signing: the 32-byte key that signs experiments.
    """

    masters: tuple[bytes, ...] = field(repr=False)
    signing: bytes = field(repr=False)


def device_key(master: bytes, fleet: str, device: str) -> bytes:
    """Return a device's 32-byte key; raises NameRefused for invalid names."""
    info = f"hushmote/v1/{check_fleet(fleet)}/{check_device(device)}"
    # HKDF's two steps, written out (RFC 5869, 2.2 and 2.3): the second runs for every report, and a
    # library's object that does both takes three times as long.
    return hmac.digest(_extract(master), info.encode() + b"\x01", "sha256")


def master_check(master: bytes, fleet: str) -> str:
    """Return 16 hex digits that tell a fleet's master key from another, and reveal nothing else of it."""
    # No device can have this id.
    info = f"hushmote/v1/{check_fleet(fleet)}/+check"
    return hmac.digest(_extract(master), info.encode() + b"\x01", "sha256")[:8].hex()


def check_masters(given: FleetKeys | None, fleet: str, check: str | None) -> None:
    """Raise MasterKeyError where no master key of those given has the check value that a fleet may have."""
    if given and check is not None and check not in [master_check(m, fleet) for m in given.masters]:
        raise MasterKeyError(
            f"this is not the master key of fleet {fleet}, whose reports would all be refused: "
            "give the one that its devices were provisioned with"
        )


def erased_mark(master: bytes, fleet: str, experiment: str, device: str) -> str:
    """Return 32 hex digits that stand for an erased device and an experiment it reported to; "" for any.

    Without the master key nobody can tell the device from them or see that two are of one device.
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

    Raises MasterKeyError if those bytes are not a P-256 key.
    """
    point = _private(signing_key).public_key().public_numbers()
    return point.x.to_bytes(32, "big") + point.y.to_bytes(32, "big")


def sign_experiment(signing_key: bytes, topic: str, body: bytes, serial: int) -> bytes:
    """Return the payload to retain for a keyed fleet: the JSON, a zero byte, the serial, the signature.

    body: the JSON, empty to withdraw the experiment. serial: 0 to 2**32 - 1, 4 bytes. The signature, of
    SHA-256 of topic + zero byte + all before it, is r and s, 64 bytes. All numbers are big-endian. The same
    arguments always give the same bytes (RFC 6979), and s is in the lower half of its range, so that there
    is no second signature. Raises MasterKeyError.
    """
    # Imported here: few commands sign, and this takes a tenth of a second to load.
    from cryptography.hazmat.primitives.asymmetric import ec, utils
    from cryptography.hazmat.primitives.hashes import SHA256

    signed = body + b"\x00" + serial.to_bytes(SERIAL_BYTES, "big")
    scheme = ec.ECDSA(SHA256(), deterministic_signing=True)
    der = _private(signing_key).sign(topic.encode() + b"\x00" + signed, scheme)
    r, s = utils.decode_dss_signature(der)
    return signed + r.to_bytes(32, "big") + min(s, _ORDER - s).to_bytes(32, "big")


def is_withdrawal(payload: bytes) -> bool:
    """Return whether a message on an experiment's topic has no JSON: it is empty, or signed without one."""
    return payload[:1] in (b"", b"\0")


@functools.lru_cache(maxsize=16)
def _private(signing_key: bytes) -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    number = int.from_bytes(signing_key, "big")
    if len(signing_key) != KEY_BYTES or not 0 < number < _ORDER:
        raise MasterKeyError("the signing key must be 32 bytes, a number from 1 to the order of P-256 less 1")
    return ec.derive_private_key(number, ec.SECP256R1())
