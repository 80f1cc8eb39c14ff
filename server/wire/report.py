"""Encode and decode a report's payload and tag.

The payload is big-endian and consists of 1 byte for format and flags, a 4-byte experiment digest, a 4-byte
report number, the index of the open group in 1 byte if the experiment has one, a code of 1 to 3 bytes, and an
8-byte tag if the report is authenticated. This module does not depend on mechanisms, stores or brokers.
"""

import hmac
import struct
from typing import NamedTuple

from ...device.ldp_client import Experiment

FORMAT = 1
AUTHENTICATED = 1  # flag
GROUPED = 2  # flag
TAG_BYTES = 8
MAX_PAYLOAD_BYTES = 1 + 4 + 4 + 1 + 3 + TAG_BYTES

_HEAD = struct.Struct(">B4sI")  # format and flags, digest, number


class MalformedReport(ValueError):
    """Raised for a payload that cannot be a report for any experiment; the message says why."""


class Report(NamedTuple):
    """A report as it was sent.

    Attributes:
        digest: The first 4 bytes of the experiment's SHA-256.
        number: The report number: 1, 2, 3, ... (0 can be encoded, but is never valid).
        code: The code, 1 to 3 bytes, big-endian.
        tag: The 8-byte tag; None if the report is not authenticated.
        signed_bytes: The part of the payload that the tag covers.
        group: The index of the open group's value, in the clear; None if the report does not contain one.
    """

    digest: bytes
    number: int
    code: bytes
    tag: bytes | None
    signed_bytes: bytes
    group: int | None = None

    def has_layout_of(self, experiment: Experiment) -> bool:
        """Return whether the group and the code's width are those of the experiment's reports."""
        if experiment.group:
            has_group = self.group is not None and self.group <= len(experiment.groups)
        else:
            has_group = self.group is None
        return has_group and len(self.code) == experiment.code_bytes


def decode(payload: bytes) -> Report:
    """Return the report in a payload.

    Raises:
        MalformedReport: If the payload is not a report.
    """
    if not payload:
        raise MalformedReport("empty")
    head = payload[0]
    if head & ~(AUTHENTICATED | GROUPED) != FORMAT << 4:
        if head >> 4 != FORMAT:
            raise MalformedReport(f"format version {head >> 4}, not {FORMAT}")
        raise MalformedReport(f"unknown flags {head & 15:#x}")
    start = _HEAD.size + (1 if head & GROUPED else 0)
    end = len(payload) - (TAG_BYTES if head & AUTHENTICATED else 0)
    if not 1 <= end - start <= 3:
        raise MalformedReport(f"{len(payload)} bytes do not contain a code of 1 to 3 bytes")
    _, digest, number = _HEAD.unpack_from(payload)
    tag = payload[end:] if head & AUTHENTICATED else None
    group = payload[_HEAD.size] if head & GROUPED else None
    return Report(digest, number, payload[start:end], tag, payload[:end], group)


def encode(
    experiment: Experiment,
    number: int,
    code: int,
    device: str = "",
    key: bytes | None = None,
    group: int | None = None,
) -> bytes:
    """Return the payload that a device would send.

    Args:
        experiment: The experiment.
        number: The report number, 1 to 2**32 - 1.
        code: The code, in range(experiment.code_count).
        device: The device's id, needed only with a key.
        key: The 32-byte device key; None for an unauthenticated report.
        group: The index of the open group's value; None for "other", the last.

    Raises:
        ValueError: If number, code or group is out of range.
    """
    if not (0 < number < 1 << 32 and 0 <= code < experiment.code_count):
        raise ValueError("number must be 1 to 4294967295 and code in range(experiment.code_count)")
    group = len(experiment.groups) if group is None else group
    if not 0 <= group <= len(experiment.groups):
        raise ValueError(f"group must be from 0 to {len(experiment.groups)}, not {group}")
    head = FORMAT << 4 | (0 if key is None else AUTHENTICATED) | (GROUPED if experiment.group else 0)
    signed_bytes = bytes((head,)) + experiment.digest + number.to_bytes(4, "big")
    signed_bytes += bytes((group,)) if experiment.group else b""
    signed_bytes += code.to_bytes(experiment.code_bytes, "big")
    return signed_bytes if key is None else signed_bytes + tag(key, device, experiment.sha256, signed_bytes)


def tag(key: bytes, device: str, sha256: bytes, signed_bytes: bytes) -> bytes:
    """Return a report's 8-byte tag under the device's key and the experiment's full SHA-256."""
    return hmac.digest(key, device.encode() + b"\x00" + sha256 + signed_bytes, "sha256")[:TAG_BYTES]


def verify(report: Report, key: bytes, device: str, sha256: bytes) -> bool:
    """Return whether a report has a valid tag; the comparison takes constant time."""
    if report.tag is None:
        return False
    return hmac.compare_digest(report.tag, tag(key, device, sha256, report.signed_bytes))
