"""NATS servers as child processes: messages survive crashes, and a failed start is one line."""

import os
import socket
import time

import broker_facts
import pytest
from broker_facts import Reader
from refusals import fails
from running_aggregator import until

from hushmote.simulator.broker import BrokerError, ExternalBroker
from hushmote.simulator.nats_servers import NatsServers, free_ports
from hushmote.simulator.open_broker import open_broker

long = pytest.mark.long

RETAINED = ("hushmote/v1/x/experiment/y", b"z")
REPORTS = [(f"hushmote/v1/x/report/d{i}", bytes([i])) for i in range(50)]


def client(servers, node, name="", *, clean=True):
    return Reader(servers, name, port=servers.nodes[node].mqtt, clean=clean)


def publish(servers, node, messages, *, retain=False):
    """Publish with QoS 1 until each is acknowledged, resending late ones as a board does."""
    where = {"port": servers.nodes[node].mqtt, "retain": retain, "seconds": 10}
    until(lambda: broker_facts.publish(servers, messages, **where), "no acknowledgement")


def got(reader):
    return {(topic, payload) for topic, payload, _, _ in reader.got}


def read(reader):
    """Wait until a client has received REPORTS, in any order and possibly twice, and no others."""
    until(lambda: reader.client.loop(0.05) == 0 and got(reader) >= set(REPORTS), lambda: f"{len(reader.got)}")
    reader.leave()
    assert got(reader) == set(REPORTS)


def is_retained(servers):
    """Return whether a new subscriber gets the message, allowing for a server that has just started."""
    reader = client(servers, 0).subscribe("hushmote/v1/+/experiment/+")
    reader.read(1, 1.0)
    reader.leave()
    return got(reader) == {RETAINED}


def assert_refuses_connections(port):
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=1)


@long
@pytest.mark.parametrize("count", [1, 3])
def test_acknowledged_messages_survive_death_of_all_servers(count, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with NatsServers(count) as servers:
        nodes, last = servers.nodes, count - 1
        assert len({port for n in nodes for port in (n.nats, n.mqtt, n.cluster, n.http)}) == 4 * count
        client(servers, 0, "away", clean=False).subscribe("hushmote/v1/+/report/+").leave()
        publish(servers, last, [RETAINED], retain=True)
        publish(servers, last, REPORTS)
        servers.kill()
        assert_refuses_connections(servers.port)
        servers.start()
        assert servers.nodes == nodes  # clients with the old addresses can reconnect
        read(client(servers, last, "away", clean=False))
        until(lambda: is_retained(servers), "the retained message")
    assert_refuses_connections(servers.port)
    assert list(tmp_path.iterdir()) == []


@long
def test_acknowledgement_needs_two_of_three_servers():
    with NatsServers() as servers:
        reader = client(servers, 2).subscribe("hushmote/v1/+/report/+")
        gone, *others = servers.pids
        assert [gone, *others] == [servers.pid(i) for i in range(3)]
        servers.kill(0)
        assert servers.pid(0) is None
        assert servers.pids == tuple(others)
        with pytest.raises(ProcessLookupError):
            os.kill(gone, 0)
        publish(servers, 1, REPORTS)
        read(reader)

        alone = client(servers, 2)
        servers.terminate(1)
        sent = alone.client.publish(*REPORTS[0], qos=1)
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            alone.client.loop(0.05)
        assert not sent.is_published()
        alone.leave()

        servers.start_node(0)
        servers.start_node(1)
        servers.wait()
        until(lambda: all(servers.healthy(i) for i in range(3)), "health")
        publish(servers, 0, REPORTS[:1])


@long
def test_port_in_use_is_one_line_and_loses_nothing():
    with NatsServers(1) as servers:
        publish(servers, 0, [RETAINED], retain=True)
        servers.terminate()
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.bind((servers.host, servers.port))
            s.listen()
            with fails(r"server 1 did not start: .*already in use", BrokerError):
                servers.start()
        servers.kill()
        servers.start()
        until(lambda: is_retained(servers), "the retained message")


@long
def test_first_start_avoids_a_port_just_taken():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        taken = s.getsockname()[1]
        given = [[taken, *free_ports(3)]]
        with NatsServers(1, ports=lambda count: given.pop() if given else free_ports(count)) as servers:
            assert servers.nodes[0].nats != taken
            until(lambda: servers.healthy(0), "health")


def test_failed_start_leaves_no_files(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with fails(r"server 1 did not start: .*no_such_setting", BrokerError):
        NatsServers(1, settings=("no_such_setting: true",)).start()
    assert list(tmp_path.iterdir()) == []


@long
def test_opens_new_cluster_by_name_or_running_one_by_url():
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
        with open_broker(servers.url) as broker:
            assert isinstance(broker, ExternalBroker)
            assert broker.url == servers.url
            assert (broker.host, broker.port, broker.others) == (
                servers.host,
                servers.port,
                servers.others,
            )
        servers.kill(0, 1)
        with open_broker(servers.url):
            pass
        servers.kill(2)
        with pytest.raises(BrokerError, match=r"none of the NATS servers at .* takes boards by MQTT"):
            open_broker(servers.url).start()
    with pytest.raises(BrokerError, match="write the broker as nats://"):
        open_broker("tls://a,b,c")


@pytest.mark.parametrize(
    ("count", "words"),
    [(1, "a NATS server, child process: "), (3, "3 NATS servers, child processes: ")],
)
def test_description_names_the_servers(count, words):
    assert NatsServers(count).description.startswith(words)
