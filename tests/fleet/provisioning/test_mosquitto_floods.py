"""Others' reports are still counted if one client floods the provisioned broker.

The limits are lowered in proportion, so a flood of a few seconds reaches them.
"""

import contextlib
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from boards import ask_fleet, experiment
from fleet_broker import FLEET, FleetBroker, context, make_fleet, visit
from fleet_broker import running as running_broker
from running_aggregator import running, until

from hushmote.fleet.provisioning import mosquitto as broker_config
from hushmote.fleet.provisioning.fleet_folder import FleetFolder, now_utc
from hushmote.server.aggregator import Aggregator
from hushmote.server.store import Store
from hushmote.server.wire import report, topics

SCALE = 60  # the factor by which the shipped limits are lowered
MEMORY = broker_config.MEMORY_BYTES // SCALE


@pytest.fixture
def folder(tmp_path: Path) -> FleetFolder:
    folder = make_fleet(tmp_path / "folder", passwords=True)
    conf = folder.path / "broker/mosquitto.conf"
    text = conf.read_text()
    for name in ("max_queued_messages", "max_queued_bytes", "memory_limit"):
        text = re.sub(
            rf"^{name} (\d+)$", lambda m: f"{m[0].split()[0]} {int(m[1]) // SCALE}", text, flags=re.M
        )
    conf.write_text(text)
    return folder


@pytest.fixture
def broker(folder: FleetFolder) -> Iterator[FleetBroker]:
    with running_broker(folder) as broker:
        yield broker


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path}/store.sqlite") as store:
        ask_fleet(store, FLEET, experiment())
        yield store


def board(folder: FleetFolder, name: str, **options):
    """Connect a client with a board's certificate."""
    pem = folder.path / f"{name}.pem"
    if not pem.exists():
        pem.write_bytes(folder.issue_device(name, now_utc()).to_pem())
    return visit(folder.fleet.port, context(folder, pem), **options)


@contextlib.contextmanager
def counting(folder: FleetFolder, broker: FleetBroker, store: Store) -> Iterator[Aggregator]:
    tls = context(folder, folder.path / "aggregator/aggregator_1.pem")
    broker.host, broker.port = "localhost", folder.fleet.aggregator_port or 0
    with running(store, broker, tls=tls, client_id="aggregator_1", fleets=[FLEET]) as aggregator:
        yield aggregator


def send(folder: FleetFolder, names: range) -> None:
    """Send one report from each honest board and wait for its acknowledgment."""
    for i in names:
        with board(folder, f"honest{i}") as honest:
            honest.publish(topics.report_topic(FLEET, f"honest{i}"), report.encode(experiment(), 1, 0))


def memory(broker: FleetBroker) -> int:
    match = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{broker.pid}/status").read_text())
    assert match is not None
    return int(match[1]) << 10


def flood(folder: FleetFolder, count: int, payload: bytes, *, retain: bool = False) -> int:
    """Publish at QoS 1 to topics that a board may use; return the number of acknowledged messages."""
    wanted = [topics.report_topic(FLEET, "flood"), f"hushmote/v1/{FLEET}/status/flood"]
    with board(folder, "flood") as flooding:
        for i in range(count):
            flooding.client.publish(wanted[i % 2 if retain else 0], payload, qos=1, retain=retain)
            if i % 500 == 499:
                until(lambda i=i: len(flooding.acknowledged) > i - 500 or flooding.ended, "acknowledgements")
        until(lambda: len(flooding.acknowledged) == count or flooding.ended, "all messages are answered")
        return len(flooding.acknowledged)


def test_reports_before_a_flood_wait_and_are_counted(folder, broker, store):
    with counting(folder, broker, store):
        pass
    send(folder, range(3))
    count = MEMORY * 5 // 4 // 1800
    assert flood(folder, count, bytes(1800)) == count
    assert memory(broker) < MEMORY
    send(folder, range(3, 4))  # dropped: the queue is full
    with counting(folder, broker, store) as aggregator:
        until(lambda: aggregator.counters.rejected.get("malformed", 0) > count / 10, aggregator.counters)
        until(lambda: aggregator.counters.accepted >= 3, aggregator.counters)
        send(folder, range(4, 6))
        until(lambda: aggregator.counters.accepted == 5, aggregator.counters)
        # The loss is visible: messages were acknowledged but did not arrive.
        assert aggregator.counters.rejected["malformed"] < count


def test_floods_and_deep_subscriptions_block_no_client(folder, broker, store):
    with (
        counting(folder, broker, store) as aggregator,
        board(folder, "curious", protocol=paho.MQTTv311) as curious,
    ):
        deep = "/".join(100 * ["x"])
        for i in range(100):
            curious.subscribe(f"{i}/{deep}")
        curious.subscribe("#")
        assert flood(folder, 2500, bytes(1800)) == 2500
        assert flood(folder, 2500, bytes(1800), retain=True) == 2500
        send(folder, range(3))
        until(lambda: aggregator.counters.accepted == 3, aggregator.counters)
        # Only one retained message per topic remains.
        assert memory(broker) < MEMORY
        until(lambda: aggregator.counters.rejected.get("malformed", 0) >= 3750, aggregator.counters)
        assert not [m for m in curious.messages if "/report/" in m[0]]


def test_connection_crowd_displaces_no_client(folder, store):
    conf = folder.path / "broker/mosquitto.conf"
    conf.write_text(
        conf.read_text().replace(f"max_connections {broker_config.MAX_CONNECTIONS}", "max_connections 40")
    )
    with running_broker(folder) as broker, board(folder, "inside") as inside:
        assert inside.connected()
        strangers = [socket.create_connection(("127.0.0.1", folder.fleet.port)) for _ in range(200)]
        with counting(folder, broker, store) as aggregator:
            inside.publish(topics.report_topic(FLEET, "inside"), report.encode(experiment(), 1, 0))
            until(lambda: aggregator.counters.accepted == 1, aggregator.counters)
        for s in strangers:
            s.close()
        send(folder, range(2))


def test_queue_limits_leave_memory_for_the_rest():
    waiting = broker_config.QUEUE_BYTES + 400 * broker_config.MAX_QUEUED
    assert waiting < 0.75 * broker_config.MEMORY_BYTES
