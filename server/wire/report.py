"""A report on the wire: payload and tag.

Payload, big-endian: 1 byte format and flags, 4 bytes experiment digest, 4 bytes report number, 1 to 3 bytes
code, 8 bytes tag if the report is authenticated. This module knows no mechanisms, stores or brokers.
"""

import hmac
import struct
from typing import NamedTuple

from ...device.ldp_client import Experiment

FORMAT = 1
AUTHENTICATED = 1  # flag
TAG_BYTES = 8
MAX_PAYLOAD_BYTES = 1 + 4 + 4 + 3 + TAG_BYTES

_HEAD = struct.Struct(">B4sI")  # format and flags, digest, number
_TAGGED = FORMAT << 4 | AUTHENTICATED


class MalformedReport(ValueError):
    """A payload is not a report, whatever the experiment; the text says why."""


class Report(NamedTuple):
    """One report as it was sent.

    digest: first 4 bytes of the experiment's SHA-256. number: 1, 2, 3, ... (0 can be encoded, but is never
    right). code: 1 to 3 bytes, big-endian. tag: 8 bytes, or None if not authenticated. signed: the bytes
    of the payload that the tag covers.
    """

    digest: bytes
    number: int
    code: bytes
    tag: bytes | None
    signed: bytes


def decode(payload: bytes) -> Report:
    """Return the Report in a payload; raises MalformedReport with the reason."""
    if not payload:
        raise MalformedReport("empty")
    head = payload[0]
    if head & ~AUTHENTICATED != FORMAT << 4:
        if head >> 4 != FORMAT:
            raise MalformedReport(f"format version {head >> 4}, not {FORMAT}")
        raise MalformedReport(f"unknown flags {head & 15:#x}")
    end = len(payload) - (TAG_BYTES if head == _TAGGED else 0)
    if not 1 <= end - _HEAD.size <= 3:
        raise MalformedReport(f"{len(payload)} bytes do not hold a code of 1 to 3 bytes")
    _, digest, number = _HEAD.unpack_from(payload)
    tag = payload[end:] if head == _TAGGED else None
    return Report(digest, number, payload[_HEAD.size : end], tag, payload[:end])


def encode(
    experiment: Experiment, number: int, code: int, device: str = "", key: bytes | None = None
) -> bytes:
    """Return the payload that a device would send: authenticated if a 32-byte device key is given.

    number 1 to 2**32 - 1, code in range(experiment.code_count); raises ValueError outside these.
    """
    if not (0 < number < 1 << 32 and 0 <= code < experiment.code_count):
        raise ValueError("number must be 1 to 4294967295 and code in range(experiment.code_count)")
    head = FORMAT << 4 | (0 if key is None else AUTHENTICATED)
    signed = bytes((head,)) + experiment.digest + number.to_bytes(4, "big")
    signed += code.to_bytes(experiment.code_bytes, "big")
    return signed if key is None else signed + tag(key, device, experiment.sha256, signed)


def tag(key: bytes, device: str, sha256: bytes, signed: bytes) -> bytes:
    """Return a report's 8-byte tag under the device's key and the experiment's full SHA-256."""
    return hmac.digest(key, device.encode() + b"\x00" + sha256 + signed, "sha256")[:TAG_BYTES]


def verify(report: Report, key: bytes, device: str, sha256: bytes) -> bool:
    """Return whether the report's tag is right, compared in constant time; False if there is none."""
    if report.tag is None:
        return False
    return hmac.compare_digest(report.tag, tag(key, device, sha256, report.signed))
