"""Keys of a fleet, derived from one master key that never leaves the server.

HKDF-SHA256 (RFC 5869) without salt. A device's info is `hushmote/v1/<fleet>/<device>`; the announce key's
ends in `/+announce`, which no device id can be.
"""

from __future__ import annotations

import functools
import hmac

from ..errors import HushmoteError
from .topics import check_device, check_fleet

KEY_BYTES = 32
SIGNATURE_BYTES = 16
ENVIRONMENT_VARIABLE = "HUSHMOTE_MASTER_KEY"


class MasterKeyError(HushmoteError):
    """A master key that is missing, malformed or not kept safe; the text says what would be right."""


def device_key(master: bytes, fleet: str, device: str) -> bytes:
    """Return a device's 32-byte key; raises NameRefused for names that do not fit."""
    return _derive(master, f"hushmote/v1/{check_fleet(fleet)}/{check_device(device)}")


def announce_key(master: bytes, fleet: str) -> bytes:
    """Return the 32-byte key that signs a fleet's experiments; raises NameRefused."""
    return _derive(master, f"hushmote/v1/{check_fleet(fleet)}/+announce")


def _derive(master: bytes, info: str) -> bytes:
    # HKDF's two steps by themselves (RFC 5869, 2.2 and 2.3): the second is done for every report, and a
    # library's object that does both takes three times as long.
    return hmac.digest(_extract(master), info.encode() + b"\x01", "sha256")


@functools.lru_cache(maxsize=16)
def _extract(master: bytes) -> bytes:
    if len(master) != KEY_BYTES:
        raise MasterKeyError(f"the master key has {len(master)} bytes; it must have {KEY_BYTES}")
    return hmac.digest(bytes(KEY_BYTES), master, "sha256")


def sign_experiment(announce_key: bytes, topic: str, payload: bytes) -> bytes:
    """Return what is published for a keyed fleet: the JSON, a zero byte, 16 bytes of HMAC-SHA256."""
    signature = hmac.digest(announce_key, topic.encode() + b"\x00" + payload, "sha256")[:SIGNATURE_BYTES]
    return payload + b"\x00" + signature
