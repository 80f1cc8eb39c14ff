"""Map between MQTT topics and NATS subjects as NATS servers do; pure functions.

A topic's "/" becomes "." in the subject, a "." becomes "//", and an empty level is written as "/." (NATS
documentation, "MQTT configuration").
"""

import re

from .topics import report_filter

# The servers' internal stream for MQTT messages with QoS 1, in the connecting user's account.
STREAM = "$MQTT_msgs"
_PREFIX = "$MQTT.msgs."
_ESCAPE = re.compile(rb"/(.?)|\.", re.DOTALL)


def report_subject(fleet: str | None = None) -> str:
    """Return the subject for all reports from a fleet, or from all fleets.

    Raises:
        NameRefused: If the fleet's name is invalid.
    """
    return _PREFIX + report_filter(fleet).replace("/", ".").replace("+", "*")


def topic_of(subject: bytes) -> str:
    """Return the MQTT topic of a message in the stream, or "" if it is not UTF-8."""
    name = subject.removeprefix(_PREFIX.encode())
    name = _ESCAPE.sub(_level, name) if b"/" in name else name.replace(b".", b"/")
    try:
        return name.decode()
    except UnicodeDecodeError:
        return ""


def _level(match: re.Match[bytes]) -> bytes:
    if match[0] == b".":
        return b"/"
    return {b".": b"/", b"/": b"."}.get(match[1], match[1])
