"""NATS subjects of MQTT messages from devices, as NATS servers map them; pure.

A level's "/" is "." in a subject, a "." in a topic is "//", and an empty level is written with "/." (NATS
documentation, "MQTT configuration").
"""

import re

from .topics import report_filter

# The servers' own stream of MQTT messages with QoS 1, in the account of the user that connects.
STREAM = "$MQTT_msgs"
_PREFIX = "$MQTT.msgs."
_ODD = re.compile(rb"/(.?)|\.", re.DOTALL)


def report_subject(fleet: str | None = None) -> str:
    """Return the subject of all reports of a fleet, or of all fleets.

    Raises:
        NameRefused: If the fleet's name is invalid.
    """
    return _PREFIX + report_filter(fleet).replace("/", ".").replace("+", "*")


def topic_of(subject: bytes) -> str:
    """Return the MQTT topic of a message in the stream, or "" if it has none."""
    name = subject.removeprefix(_PREFIX.encode())
    name = _ODD.sub(_level, name) if b"/" in name else name.replace(b".", b"/")
    try:
        return name.decode()
    except UnicodeDecodeError:
        return ""


def _level(match: re.Match[bytes]) -> bytes:
    if match[0] == b".":
        return b"/"
    return {b".": b"/", b"/": b"."}.get(match[1], match[1])
