"""MQTT commands accept a URL of NATS servers, and survive a server's death."""

import json
from pathlib import Path

import pytest
from command_line import DOOR, hushmote
from refusals import fails
from running_aggregator import WAIT_S, running, until
from traffic import publish

from hushmote.cli.broker import connection
from hushmote.fleet.door.publisher import ReportPublisher
from hushmote.server.ingest.broker_url import BrokerUrlError
from hushmote.server.store import Store
from hushmote.simulator.nats_servers import NatsServers


def test_url_gives_servers_mqtt_ports():
    address, tls = connection("nats://ann@a,b:4333,c")
    assert address.servers == (("a", 1883), ("b", 1883), ("c", 1883))
    assert (address.username, tls) == ("ann", None)
    address, _ = connection("nats://a,b?mqtt=1884,1885")
    assert address.servers == (("a", 1884), ("b", 1885))
    assert connection("tls://a,b")[0].servers == (("a", 8883), ("b", 8883))
    with fails("NATS servers are written nats://", BrokerUrlError):
        connection("nats://a,,b")


@pytest.mark.long
def test_every_command_survives_a_server_death(tmp_path: Path):
    (tmp_path / "door.toml").write_text(DOOR)
    store_url = f"sqlite:///{tmp_path / 'hushmote.sqlite'}"
    with NatsServers(3) as servers:
        hushmote("experiment", "add", "door.toml", "--fleet", "home", "--open", cwd=tmp_path)
        address, _ = connection(servers.url)
        with Store(store_url) as store, running(store, servers):
            with ReportPublisher(address, protocol="3.1.1") as publisher:  # connected to the first server
                assert publisher.ready.wait(WAIT_S)
                locked = ("hushmote/v1/home/status/k3f9", b"online locked")
                publish(servers, [locked], retain=True, port=servers.nodes[2].mqtt)
                servers.kill(0)
                until(lambda: not publisher.ready.is_set(), "the door notices the loss")
                until(publisher.ready.is_set, "the door connects to another server")
                servers.start_node(0)
                servers.wait()
            servers.kill(0)
            status = hushmote("status", "--broker", servers.url, "--json", cwd=tmp_path)
            assert [(b["device"], b["locked"]) for b in json.loads(status)["devices"]] == [("k3f9", True)]
