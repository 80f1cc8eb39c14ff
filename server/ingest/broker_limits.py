"""Explain a broker's answers: what it grants, and why it ends a connection. None of this needs a connection.

A broker that was not set up for Hushmote may grant less than a client asks for; only the properties of its
answers show this.
"""

from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from ..plain_text import one_line, shorten

SESSION_S = 0xFFFFFFFF
"""MQTT 5: the session never expires."""
_LONG_SESSION_S = 31 * 86_400  # no aggregator is away for longer without an operator
_EXPERIMENT_BYTES = 1_250  # the largest signed experiment, with its topic and header
_MAX_REFERENCE = 100

SESSION_TAKEN_OVER = 0x8E
_USE_ANOTHER_SERVER = (0x9C, 0x9D)
_ENDINGS = {
    0x80: "it gives no reason",
    0x81: "it received a malformed packet",
    0x82: "it detected a protocol error",
    0x83: "it gives no details; see its log",
    0x87: "this user is not authorized: let it read reports and write experiments",
    0x88: "it is unavailable",
    0x89: "it is busy",
    0x8B: "it is shutting down",
    0x8D: "it received nothing for too long: this machine or the network may be overloaded",
    0x8F: "it rejects a topic filter",
    0x90: "it rejects a topic",
    0x93: "it received more unacknowledged messages than it allows",
    0x95: "a message was larger than it accepts: raise its maximum packet size",
    0x96: "it received messages too fast: raise its rate limit for this user",
    0x97: "a quota was exceeded: raise its limits for this user",
    0x98: "its operator or one of its rules ended the connection",
    0x9A: "it does not support retained messages",
    0x9B: "it does not support QoS 1",
    0x9C: "use another server for now",
    0x9D: "it has moved to another server: correct the address",
    0x9E: "it does not support shared subscriptions",
    0x9F: "there were too many connections in a short time: raise its rate limit",
    0xA0: "the connection reached its time limit",
    0xA2: "it does not allow wildcards in topic filters",
}
LOGIN_IN_USE = (
    "it uses the login's name as the client id, and keeps the reports of an aggregator with this login, "
    "which would be lost: use a separate login, such as a certificate from `hushmote provision rotate`"
)
"""Why a client without a session of its own must not connect."""
_WITHOUT_RETAINED = (
    "it does not support retained messages, in which boards find experiments: use a broker that does"
)
_WITHOUT_QOS_1 = "it supports only QoS 0, at which reports are lost without notice: allow QoS 1"
_WITHOUT_WILDCARDS = "it does not allow wildcards in topic filters, which stand for the boards: allow them"
_WITHOUT_GROUPS = "it does not support shared subscriptions: omit share, and run one aggregator"
_IMPOSSIBLE = {
    0x9A: _WITHOUT_RETAINED,
    0x9B: _WITHOUT_QOS_1,
    0x9E: _WITHOUT_GROUPS,
    0xA2: _WITHOUT_WILDCARDS,
}


def impossibility(properties: Properties | None, *, counts: bool, in_group: bool) -> str:
    """Return why nothing can work with what the broker grants, and what to do, or "".

    Args:
        properties: The CONNACK's properties; None before MQTT 5.
        counts: Whether the client subscribes to reports and publishes experiments.
        in_group: Whether the client shares its subscription with others.
    """
    if getattr(properties, "MaximumQoS", 1) == 0:
        return _WITHOUT_QOS_1
    if counts and getattr(properties, "WildcardSubscriptionAvailable", 1) == 0:
        return _WITHOUT_WILDCARDS
    if counts and getattr(properties, "RetainAvailable", 1) == 0:
        return _WITHOUT_RETAINED
    if in_group and getattr(properties, "SharedSubscriptionAvailable", 1) == 0:
        return _WITHOUT_GROUPS
    return ""


def refused_qos(reason: ReasonCode) -> str:
    """Return why a subscription to reports cannot work although it was granted, or ""."""
    return "" if reason.is_failure or reason.value else _WITHOUT_QOS_1


def loss_warnings(properties: Properties | None) -> tuple[str, ...]:
    """Return sentences on how the broker can lose reports or experiments with what it grants.

    They contain no names or addresses.
    """
    warnings = []
    kept_s = getattr(properties, "SessionExpiryInterval", SESSION_S)
    if kept_s == 0:
        warnings.append(
            "the broker keeps no reports while this aggregator is disconnected, not even for a second: let "
            "it keep sessions"
        )
    elif kept_s < _LONG_SESSION_S:
        warnings.append(
            f"the broker discards this aggregator's session {_duration(kept_s)} after it disconnects, with "
            "the reports that wait in it: raise its session expiry"
        )
    most_bytes = getattr(properties, "MaximumPacketSize", None)
    if most_bytes is not None and most_bytes < _EXPERIMENT_BYTES:
        warnings.append(
            f"the broker accepts messages of at most {most_bytes:,} bytes, and an experiment may need "
            f"{_EXPERIMENT_BYTES:,}: raise its maximum packet size"
        )
    return tuple(warnings)


def ending(reason: ReasonCode, properties: Properties | None, client_id: str) -> tuple[str, bool]:
    """Return why the broker ended or refused a connection, and whether another attempt can help.

    Args:
        reason: The reason in its DISCONNECT or CONNACK.
        properties: The packet's properties.
        client_id: The id of this client.
    """
    if reason.value in _IMPOSSIBLE:
        return _IMPOSSIBLE[reason.value], False
    if reason.value == SESSION_TAKEN_OVER:
        return f"another client with the id {client_id}, or with its login, has connected", True
    words = _ENDINGS.get(reason.value, str(reason).lower())
    server = getattr(properties, "ServerReference", None)
    if reason.value in _USE_ANOTHER_SERVER and server:
        words += f" ({shorten(one_line(server), _MAX_REFERENCE)})"
    return words, True


def _duration(seconds: int) -> str:
    for unit, size in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size or (unit != "days" and seconds >= size):
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds} s"
