"""A report on the wire: topics, payload, tag.

Payload, big-endian: 1 byte format and flags, 4 bytes experiment digest, 4 bytes report number, 1 to 3 bytes
code, 8 bytes tag where the report is authenticated. Nothing here knows of mechanisms, stores or brokers.
"""

from __future__ import annotations

import hmac
import re
import struct
from typing import NamedTuple

from ...device.ldp_client import Experiment
from ..errors import HushmoteError

FORMAT = 1
AUTHENTICATED = 1  # flag
TAG_BYTES = 8
MAX_PAYLOAD_BYTES = 1 + 4 + 4 + 3 + TAG_BYTES

_HEAD = struct.Struct(">B4sI")  # format and flags, digest, number
_TAGGED = FORMAT << 4 | AUTHENTICATED
_PREFIX = "hushmote/v1"
_FLEET = re.compile(r"[a-z0-9_-]{1,32}", re.ASCII)
_DEVICE = re.compile(r"[a-z0-9-]{1,32}", re.ASCII)
_TOPIC = re.compile(rf"{_PREFIX}/({_FLEET.pattern})/report/({_DEVICE.pattern})", re.ASCII)


class MalformedReport(ValueError):
    """A payload that is not a report, whatever the experiment; the text says why."""


class NameRefused(HushmoteError):
    """A fleet, experiment or device id that a topic cannot carry; the text says what would be right."""


class TopicRefused(ValueError):
    """A topic that no report comes on; `part` is "fleet", "device" or "topic": what is wrong with it."""

    def __init__(self, part: str) -> None:
        super().__init__(f"not a report's topic: its {part} is wrong")
        self.part = part


class Report(NamedTuple):
    """One report as it was sent.

    digest: first 4 bytes of the experiment's SHA-256. number: 1, 2, 3, ... (0 is possible here and never
    right). code: 1 to 3 bytes, big-endian. tag: 8 bytes, or None where not authenticated. signed: the bytes
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
    """Return the payload that a board would send: authenticated where a 32-byte device key is given.

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
    """Whether the report's tag is right, compared in constant time; False where there is none."""
    if report.tag is None:
        return False
    return hmac.compare_digest(report.tag, tag(key, device, sha256, report.signed))


def is_fleet(name: str) -> bool:
    """Whether a fleet or experiment can be called so."""
    return _FLEET.fullmatch(name) is not None


def is_device(device: str) -> bool:
    """Whether a device can be called so: no MQTT wildcard can hide in such an id."""
    return _DEVICE.fullmatch(device) is not None


def check_fleet(name: str) -> str:
    """Return the name of a fleet or experiment; raises NameRefused where it does not fit."""
    if not is_fleet(name):
        raise NameRefused(f"{name!r} must be 1 to 32 of a-z, 0-9, _ and -")
    return name


def check_device(device: str) -> str:
    """Return a device id; raises NameRefused where it does not fit."""
    if not is_device(device):
        raise NameRefused(f"device id {device!r} must be 1 to 32 of a-z, 0-9 and -")
    return device


def report_topic(fleet: str, device: str) -> str:
    """Return the topic that a device's reports go to; raises NameRefused."""
    return f"{_PREFIX}/{check_fleet(fleet)}/report/{check_device(device)}"


def experiment_topic(fleet: str, name: str) -> str:
    """Return the topic that an experiment is retained on; raises NameRefused."""
    return f"{_PREFIX}/{check_fleet(fleet)}/experiment/{check_fleet(name)}"


def report_filter(fleet: str | None = None, share: str | None = None) -> str:
    """Return the MQTT topic filter of all reports of a fleet, or of all fleets; raises NameRefused.

    share: name of a group of subscribers, written as a fleet's, among whom the broker divides the reports.
    """
    shared = "" if share is None else f"$share/{check_fleet(share)}/"
    return f"{shared}{_PREFIX}/{'+' if fleet is None else check_fleet(fleet)}/report/+"


def parse_topic(topic: str) -> tuple[str, str]:
    """Return (fleet, device) of a report's topic; raises TopicRefused, which says what part is wrong."""
    if found := _TOPIC.fullmatch(topic):
        return found[1], found[2]
    parts = topic.split("/")
    if len(parts) != 5 or parts[0] != "hushmote" or parts[1] != "v1" or parts[3] != "report":
        raise TopicRefused("topic")
    if not is_fleet(parts[2]):
        raise TopicRefused("fleet")
    raise TopicRefused("device")
