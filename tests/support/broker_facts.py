"""Measure which messages a broker keeps and which it loses, for the table in docs/survives.md.

facts() tests every broker in the same way: reports at QoS 1 while no reader is connected, SIGTERM, SIGKILL
and a group of two readers. tests/server/ingest/test_brokers.py compares the results with the page, which
make_brokers.py writes.
"""

import time
from contextlib import suppress
from typing import Any

import paho.mqtt.client as mqtt
from boards import experiment
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from running_aggregator import WAIT_S

from hushmote.server.wire import report, topics

REPORTS = 1500
FEW_REPORTS = 100
QUIET_S = 4.0  # a message that has not arrived after this time never will
_STATUS = "hushmote/v1/open/status/+"
_AGAIN_S = 60.0  # NATS resends unacknowledged MQTT messages after 30 s by its own clock
ROWS = {
    "mqtt": "MQTT",
    "early": "reports published before anyone subscribed",
    "kept": f"{REPORTS:,} reports queued for a disconnected session",
    "ahead": "unacknowledged messages in flight, MQTT 3.1.1",
    "again": "reports not acknowledged when the connection broke",
    "retained": "a retained message",
    "will": "a last will, retained",
    "large": "a message of 2 MiB",
    "term_reports": "SIGTERM: queued reports",
    "term_retained": "SIGTERM: a retained message",
    "kill_reports": "SIGKILL: acknowledged, queued reports",
    "kill_retained": "SIGKILL: a retained message, acknowledged",
    "group": "a group that shares the reports",
    "group_term": "SIGTERM: reports until a group member reconnects",
    "group_dead": "unacknowledged reports of a member that died",
    "node": "one machine dies",
    "majority": "only one of three machines is left",
}


class Reader:
    """An MQTT client with manual acknowledgement that retries until the broker accepts it.

    port: the port to connect to instead of the broker's first. version: the MQTT version. clean: whether the
    session ends with the connection.
    """

    def __init__(
        self, broker, name, *, port=None, version=MQTTProtocolVersion.MQTTv311, clean=False, will=False
    ):
        self.got = []  # (topic, payload, packet id, retained)
        self._subscribed = 0
        end = time.monotonic() + WAIT_S
        while True:
            options: dict[str, Any] = {"client_id": name, "protocol": version, "manual_ack": True}
            start: dict[str, Any] = {}
            if version == MQTTProtocolVersion.MQTTv5:
                properties = Properties(PacketTypes.CONNECT)
                properties.SessionExpiryInterval = 3600
                properties.ReceiveMaximum = 1000
                start = {"clean_start": clean, "properties": properties}
            else:
                options["clean_session"] = clean
            self.client = mqtt.Client(CallbackAPIVersion.VERSION2, **options)
            self.client.max_inflight_messages_set(200)
            self.client.on_message = self._take
            self.client.on_subscribe = self._granted
            if will:
                self.client.will_set(f"hushmote/v1/open/status/{name}", b"offline", 1, True)
            with suppress(OSError):
                self.client.connect(broker.host, port or broker.port, **start)
                while time.monotonic() < end and self.client.loop(0.05) == MQTTErrorCode.MQTT_ERR_SUCCESS:
                    if self.client.is_connected():
                        return
            assert time.monotonic() < end, f"{broker.name} accepts no client"
            time.sleep(0.1)

    def _take(self, _client, _data, message):
        self.got.append((message.topic, message.payload, message.mid, message.retain))

    def _granted(self, *_):
        self._subscribed += 1

    def subscribe(self, topic):
        before, end = self._subscribed, time.monotonic() + WAIT_S
        self.client.subscribe(topic, 1)
        while self._subscribed == before and time.monotonic() < end:
            self.client.loop(0.05)
        return self

    def read(self, wanted, quiet_s=QUIET_S):
        """Read without acknowledging until `wanted` messages arrived or none follow; return the count."""
        # The clock runs on while suspended, turns do not.
        last, turns = (
            time.monotonic(),
            0,
        )
        while len(self.got) < wanted and (turns < quiet_s / 0.05 or time.monotonic() - last < quiet_s):
            before = len(self.got)
            self.client.loop(0.05)
            turns += 1
            if len(self.got) > before:
                last, turns = time.monotonic(), 0
        return len(self.got)

    def take(self, wanted, quiet_s=QUIET_S):
        """Read and acknowledge until these topics arrived or no more do; return those received."""
        seen = set()
        while not wanted <= seen and self.read(1, quiet_s):
            seen |= self.acknowledge()
        return wanted & seen

    def acknowledge(self):
        """Acknowledge all received messages and return their distinct topics."""
        for _topic, _payload, mid, _retained in self.got:
            self.client.ack(mid, 1)
        received = {topic for topic, *_ in self.got}
        self.got.clear()
        return received

    def leave(self):
        """Disconnect once everything is written or the broker is gone."""
        while self.client.want_write() and self.client.loop(0.01) == MQTTErrorCode.MQTT_ERR_SUCCESS:
            pass
        self.client.disconnect()
        self.client.loop(0.1)

    def vanish(self):
        """Drop the connection without a DISCONNECT."""
        self.client.socket().close()  # pyright: ignore[reportOptionalMemberAccess]


def publish(broker, pairs, *, port=None, retain=False, seconds=WAIT_S):
    """Publish (topic, payload) pairs at QoS 1; return whether all were acknowledged in time."""
    publisher = Reader(broker, "", port=port, clean=True)
    sent = [publisher.client.publish(topic, payload, 1, retain) for topic, payload in pairs]
    end = time.monotonic() + seconds
    while time.monotonic() < end and not all(is_acknowledged(info) for info in sent):
        if publisher.client.loop(0.05) != MQTTErrorCode.MQTT_ERR_SUCCESS:
            break
    publisher.leave()
    return all(is_acknowledged(info) for info in sent)


def is_acknowledged(sent):
    """Return whether the broker acknowledged the message, even if the connection is gone."""
    try:
        return sent.is_published()
    except RuntimeError:
        return False


def reports(count, prefix):
    """Return one report from each of `count` boards."""
    payload = report.encode(experiment(), 1, 0)
    return [(topics.report_topic("open", f"{prefix}-{i}"), payload) for i in range(count)]


def topics_of(count, prefix):
    """Return the topics of these reports."""
    return {topic for topic, _ in reports(count, prefix)}


def format_share(received, wanted):
    """Format a cell that states how many of the wanted messages arrived."""
    return "all" if received == wanted else "next to none" if received <= wanted / 50 else "some"


def facts(broker, group, nodes):
    """Return the cell of each row for a running broker.

    group: a GroupByShare or GroupByPull. nodes: the servers' ports.
    """
    cells = {"mqtt": versions(broker)}
    cells |= alone(broker)
    cells |= group.facts(broker)
    cells |= stopped(broker, group)
    cells |= killed(broker)
    cells |= machines(broker, nodes)
    return {row: cells[row] for row in ROWS}


def versions(broker):
    """Return the MQTT versions that the broker supports."""
    supported = []
    for version in (MQTTProtocolVersion.MQTTv5, MQTTProtocolVersion.MQTTv311):
        client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=version)
        answers = []
        client.on_connect = lambda _c, _d, _f, reason, _p, answers=answers: answers.append(
            not reason.is_failure
        )
        client.connect(broker.host, broker.port)
        # amqtt never answers an MQTT 5 client.
        silent = broker.protocol != "auto" and version == MQTTProtocolVersion.MQTTv5
        end = time.monotonic() + (5 if silent else WAIT_S)
        while not answers and time.monotonic() < end and client.loop(0.05) == MQTTErrorCode.MQTT_ERR_SUCCESS:
            pass
        supported.append(answers == [True])
        client.disconnect()
    return {(True, True): "5 and 3.1.1", (False, True): "3.1.1"}[tuple(supported)]


def alone(broker):
    """Test one session, one retained message, one will and one large message."""
    publish(broker, reports(FEW_REPORTS, "early"))
    away = Reader(broker, "away").subscribe(topics.report_filter())
    early = "kept" if away.read(FEW_REPORTS) else "gone"
    away.leave()
    publish(broker, reports(REPORTS, "kept"))
    away = Reader(broker, "away")
    kept_share = format_share(len(away.take(topics_of(REPORTS, "kept"))), REPORTS)
    away.leave()
    window = Reader(broker, "window", clean=True).subscribe(topics.report_filter())
    publish(broker, reports(REPORTS, "ahead"))
    ahead = window.read(REPORTS)
    window.leave()
    away = Reader(broker, "away").subscribe(topics.report_filter())
    away.take(topics_of(REPORTS, "ahead"))
    publish(broker, reports(5, "again"))
    assert away.read(5) == 5
    away.vanish()
    away = Reader(broker, "away")
    broken = time.monotonic()
    redelivered = format_share(
        len(away.take(topics_of(5, "again"), _AGAIN_S if broker.name == "nats" else QUIET_S)), 5
    )
    redelivered += ", half a minute later" if time.monotonic() - broken > 15 else ""
    away.leave()

    publish(broker, [(topics.experiment_topic("open", "temp"), b"{}")], retain=True)
    dying = Reader(broker, "dying", clean=True, will=True)
    live = Reader(broker, "", clean=True).subscribe(_STATUS)
    dying.vanish()
    will = "published" if live.read(1, 5.0) else "lost"
    live.leave()
    late = Reader(broker, "", clean=True).subscribe(_STATUS)
    will += ", kept" if late.read(1) else ", not kept"
    late.leave()
    is_accepted = publish(broker, [(topics.report_topic("open", "large"), bytes(2 << 20))], seconds=5)
    return {
        "early": early,
        "kept": kept_share,
        "ahead": "no limit" if ahead == REPORTS else f"{ahead:,}",
        "again": redelivered,
        "retained": retained(broker, "temp"),
        "will": will,
        "large": "taken" if is_accepted else "refused",
    }


def retained(broker, name):
    """Return "kept" if either of two new subscribers gets the retained message, else "gone".

    The page explains why one subscriber is not enough on NATS.
    """
    for _ in range(2):
        late = Reader(broker, "", clean=True).subscribe(topics.experiment_topic("open", name))
        has_message = late.read(1)
        late.leave()
        if has_message:
            return "kept"
    return "gone"


def stopped(broker, group):
    """Restart the broker with SIGTERM while reports are queued."""
    publish(broker, reports(FEW_REPORTS, "term"))
    broker.terminate()
    broker.start()
    cells = {"term_retained": retained(broker, "temp"), "group_term": group.after_restart(broker)}
    away = Reader(broker, "away")
    received = away.take(topics_of(FEW_REPORTS, "term"))
    away.leave()
    return cells | {"term_reports": format_share(len(received), FEW_REPORTS)}


def killed(broker):
    """Kill the broker with SIGKILL right after the last acknowledgement.

    mosquitto saves every two seconds; if it saved after the first message, the test is repeated.
    """
    Reader(broker, "away").subscribe(topics.report_filter()).leave()
    if broker.name == "mosquitto":
        broker.restart()  # the session is on disk
    i, unsaved = 0, False
    while not unsaved and i < 20:
        i, saved = i + 1, getattr(broker, "saved_ns", 0)
        publish(broker, [(topics.experiment_topic("open", f"kill-{i}"), b"{}")], retain=True)
        publish(broker, reports(FEW_REPORTS, f"kill{i}"))
        broker.kill()
        unsaved = getattr(broker, "saved_ns", 0) == saved
        broker.start()
    away = Reader(broker, "away")
    received = away.take(topics_of(FEW_REPORTS, f"kill{i}"))
    away.leave()
    kept_message = retained(broker, f"kill-{i}")
    return {"kill_reports": "all" if len(received) == FEW_REPORTS else "lost", "kill_retained": kept_message}


def machines(broker, nodes):
    """Kill one of the broker's servers with SIGKILL, then another."""
    if len(nodes) < 3:
        broker.kill()
        with suppress(ConnectionRefusedError):
            mqtt.Client(CallbackAPIVersion.VERSION2).connect(broker.host, broker.port)
            raise AssertionError(f"{broker.name} survived SIGKILL")
        return {"node": "stops", "majority": "-"}
    away = Reader(broker, "nodes", port=nodes[2]).subscribe(topics.report_filter())
    broker.kill(0)
    publish(broker, reports(FEW_REPORTS, "node"), port=nodes[1])
    received = away.take(topics_of(FEW_REPORTS, "node"))
    publisher = Reader(broker, "", port=nodes[2], clean=True)
    broker.kill(1)
    sent = publisher.client.publish(*reports(1, "majority")[0], qos=1)
    end = time.monotonic() + 3
    while time.monotonic() < end:
        publisher.client.loop(0.05)
    return {
        "node": "continues, all kept" if len(received) == FEW_REPORTS else "loses reports",
        "majority": "acknowledges, and may lose" if is_acknowledged(sent) else "acknowledges nothing",
    }
