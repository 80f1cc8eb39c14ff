"""Measure what a broker grants and refuses, for the table in docs/your-own-broker.md."""

import time
from collections.abc import Callable
from typing import Any

import paho.mqtt.client as mqtt
from broker_facts import FEW_REPORTS, REPORTS, Reader, publish, reports, retained, topics_of
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
from running_aggregator import WAIT_S

from hushmote.server.ingest.broker_url import BrokerAddress
from hushmote.server.ingest.connection import BrokerConnection
from hushmote.server.ingest.link import Protocol
from hushmote.server.ingest.pacing import Pace
from hushmote.server.wire import topics

LIMIT_S = 7200
_STATUS = topics.status_topic("open", "a")
_QUIET_S = 5.0
ROWS = {
    "versions": "MQTT",
    "session": "session expiry granted when all time is requested",
    "limit": f"the same with a limit of {LIMIT_S // 3600} h in its settings",
    "qos": "QoS granted to `hushmote/v1/+/report/+`",
    "shared": "shared subscription, MQTT 5",
    "retained": "a retained message",
    "queued": f"{REPORTS:,} reports queued for a disconnected session",
    "receive": "Receive Maximum announced",
    "size": "Maximum Packet Size announced",
    "forbidden_311": "forbidden publication at QoS 1, MQTT 3.1.1",
    "forbidden_5": "forbidden publication at QoS 1, MQTT 5",
    "will": "connection with a forbidden last will, MQTT 3.1.1",
    "term": "SIGTERM: queued reports",
    "kill": "SIGKILL: queued, acknowledged reports",
}


class _RefusedError(Exception):
    pass


def _connect(broker: Any, version: Protocol, name: str) -> BrokerConnection:
    link = BrokerConnection(version, name, BrokerAddress("host"), 100, Pace(100, 1.0))
    link.connect(broker.host, broker.port)
    _wait(link, lambda: link.answer is not None)
    if not link.accepted:
        raise _RefusedError
    return link


def _wait(link: BrokerConnection, condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + WAIT_S
    while not condition() and time.monotonic() < end:
        if not link.turn(0.05, 100):
            return False
    return condition()


def _granted(link: BrokerConnection, name: str) -> str:
    link.subscribe_reason = None
    link.subscribe([name])
    if not _wait(link, lambda: link.subscribe_reason is not None):
        return "connection ends"
    return str(link.subscribe_reason).removeprefix("Granted ")


def _duration(properties: Any) -> str:
    seconds = getattr(properties, "SessionExpiryInterval", None)
    if seconds in (None, 0xFFFFFFFF):
        return "all"
    return f"{seconds / 3600:g} h" if seconds else "0 s"


def _greeting(broker: Any) -> dict[str, str]:
    """Return what the broker announces and grants, of MQTT 5 if it has that."""
    supported: list[str] = []
    cells: dict[str, str] = dict.fromkeys(("session", "shared", "receive", "size"), "cannot say")
    for version in ("5", "3.1.1"):
        try:
            link = _connect(broker, version, f"greeting-{version}")
        except _RefusedError:
            continue
        supported.append(version)
        if version == "5":
            properties = link.connack_properties
            cells |= {
                "session": _duration(properties),
                "shared": _granted(link, "$share/group/" + topics.report_filter()),
                "receive": f"{getattr(properties, 'ReceiveMaximum', 'none')}",
                "size": f"{getattr(properties, 'MaximumPacketSize', 'none')}",
            }
            link.close(end_session=True)
            link = _connect(broker, version, f"qos-{version}")
        cells["qos"] = _granted(link, topics.report_filter())
        link.close(end_session=True)
    return {"versions": " and ".join(supported)} | cells


def forbidden(broker: Any, version: Protocol) -> str:
    """Publish to a forbidden topic at QoS 1, then a report, and return what happened."""
    try:
        link = _connect(broker, version, f"forbidden-{version}")
    except _RefusedError:
        return "-"
    answers: list[int] = []
    reasons: list[int] = []
    link.client.on_publish = lambda _c, _d, _mid, reason, _p: answers.append(reason.value)

    def note_end(_client: Any, _data: Any, flags: Any, reason: Any, _properties: Any) -> None:
        if flags.is_disconnect_packet_from_server:
            reasons.append(reason.value)

    link.client.on_disconnect = note_end
    link.publish(_STATUS, b"online")
    end = time.monotonic() + _QUIET_S
    alive = True
    while alive and time.monotonic() < end:
        alive = link.turn(0.05, 100)
    said = f" with 0x{reasons[0]:x}" if reasons else ""
    if answers:
        acknowledged = "acknowledges it" if answers[0] < 0x80 else f"PUBACK with 0x{answers[0]:x}"
        return acknowledged + ("" if alive else f", then closes{said}")
    if not alive:
        return f"closes{said}"
    report = link.client.publish(*reports(1, "next")[0], qos=1)
    _wait(link, report.is_published)
    return "swallows it" if report.is_published() else "hangs"


def _will(broker: Any) -> str:
    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id="dying")
    client.will_set(_STATUS, b"offline", 1, True)
    answers: list[Any] = []
    client.on_connect = lambda _c, _d, _f, reason, _p: answers.append(reason)
    client.connect(broker.host, broker.port)
    end = time.monotonic() + WAIT_S
    while not answers and time.monotonic() < end and client.loop(0.05) == MQTTErrorCode.MQTT_ERR_SUCCESS:
        pass
    client.disconnect()
    return "closes" if not answers else "refused" if answers[0].is_failure else "accepted"


def _queued(broker: Any, prefix: str, count: int, between: Callable[[], None]) -> str:
    """Return the share of reports that a session gets which was away when they were published."""
    Reader(broker, "away").subscribe(topics.report_filter()).leave()
    if not publish(broker, reports(count, prefix)):
        return "not acknowledged"
    between()
    away = Reader(broker, "away")
    received = away.take(topics_of(count, prefix))
    away.leave()
    return "all" if len(received) == count else f"{len(received):,}"


def limits(make: Callable[..., Any]) -> dict[str, str]:
    """Return the cell of each row.

    make: returns a new broker, with `forbidden` topic filters and the limit `session_s`, which a broker that
    lacks these ignores.
    """
    with make() as broker:
        cells = _greeting(broker)
        publish(broker, [(topics.experiment_topic("open", "temp"), b"{}")], retain=True)
        cells |= {
            "retained": retained(broker, "temp"),
            "queued": _queued(broker, "kept", REPORTS, lambda: None),
        }
        cells["term"] = _queued(broker, "term", FEW_REPORTS, broker.restart)

        def kill() -> None:
            broker.kill()
            broker.start()

        cells["kill"] = _queued(broker, "kill", FEW_REPORTS, kill)
    with make(forbidden=("hushmote/v1/+/status/+",), session_s=LIMIT_S) as broker:
        cells["limit"] = _greeting(broker)["session"] if getattr(broker, "has_session_limit", False) else "-"
        has_permissions = getattr(broker, "has_permissions", True)
        for version in ("3.1.1", "5"):
            key = "forbidden_" + version.replace(".", "")
            cells[key] = forbidden(broker, version) if has_permissions else "-"
        cells["will"] = _will(broker) if has_permissions else "-"
    cells |= getattr(broker, "varying", {})
    return {row: cells[row] for row in ROWS}
