"""Three NATS servers with exactly the files of `hushmote provision fleet`: joining, rotation and crashes."""

import asyncio
import json
import shutil
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

import nats
import nats.errors
import pytest
from fleet_broker import FLEET, context
from fleet_servers import THREE, FleetServers, connect_client, make_nats_fleet, serving
from nats.js.api import ConsumerConfig
from running_aggregator import WAIT_S, until

from hushmote.fleet.provisioning import authority, rotation
from hushmote.fleet.provisioning.fleet_folder import FleetFolder, now_utc
from hushmote.server.wire.subjects import STREAM, report_subject
from hushmote.simulator.nats_servers import find_nats_server

pytestmark = pytest.mark.long

TOPIC = f"hushmote/v1/{FLEET}"
BOARDS = "boards.example"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory):
    folder = make_nats_fleet(tmp_path_factory.mktemp("three") / "folder", THREE, board_host=BOARDS)
    for device in ("k3f9", "m7q2"):
        issue(folder, device)
    with serving(folder) as servers:
        yield servers


def issue(folder: FleetFolder, device: str) -> Path:
    pem = folder.path / f"devices/{device}.pem"
    pem.write_bytes(folder.issue_device(device, now_utc()).to_pem())
    return pem


def aggregator(folder: FleetFolder) -> Path:
    return folder.path / "aggregator/aggregator_1.pem"


def passes(folder: FleetFolder, pem: Path, there: int, here: int, device: str = "k3f9") -> bool:
    """Return whether an aggregator at one server receives a report from a board at another."""
    with (
        connect_client(folder, aggregator(folder), server=here) as listener,
        connect_client(folder, pem, server=there) as board,
    ):
        if not (listener.connected() and board.connected()):
            return False
        listener.subscribe(f"{TOPIC}/report/+")

        def is_received() -> bool:
            """Publish repeatedly, since a restarted server may not know the subscription yet."""
            board.publish(f"{TOPIC}/report/{device}", b"r")
            return (f"{TOPIC}/report/{device}", b"r") in listener.messages

        def cut_off() -> bool:
            return bool(listener.ended or board.ended)

        # A stream that briefly has no leader ends a publishing connection; a board then reconnects.
        until(lambda: is_received() or cut_off(), lambda: (listener.messages, listener.ended, board.ended))
        return not cut_off()


def passes_again(folder: FleetFolder, pem: Path, there: int, here: int, device: str = "k3f9") -> None:
    """Wait for it, since restarted servers may refuse for some seconds while boards retry."""
    until(lambda: passes(folder, pem, there, here, device), "a report arrives")


def joined(folder: FleetFolder, number: int) -> set[str]:
    """Return the names of the servers to which this server has routes."""
    url = f"http://{folder.fleet.hosts[number - 1]}:{folder.fleet.monitor_port}/routez"
    with urllib.request.urlopen(url, timeout=60) as answer:
        return {route["remote_name"] for route in json.load(answer)["routes"]}


class TestServers:
    def test_each_has_its_own_name_and_the_shared_name(self, servers: FleetServers):
        names = [authority.host_names(c) for c in servers.folder.broker_certificates()]
        assert names == [[host, BOARDS] for host in THREE]
        for number in (1, 2, 3):
            tls = context(servers.folder, servers.folder.path / "devices/k3f9.pem")
            address = (THREE[number - 1], servers.folder.fleet.port)
            with (
                socket.create_connection(address, 10) as plain,
                tls.wrap_socket(plain, server_hostname=BOARDS),
            ):
                pass

    @pytest.mark.parametrize("certificate", ["aggregator", "another authority", "nothing"])
    def test_outsider_cannot_join(self, servers: FleetServers, tmp_path: Path, certificate: str):
        """The outsider is a fourth server with the same configuration and a client's certificate."""
        program, folder = find_nats_server(), servers.folder
        assert program is not None
        shutil.copytree(
            folder.path / "broker/1", tmp_path / "4", ignore=shutil.ignore_patterns("data", "log")
        )
        text = (tmp_path / "4/nats.conf").read_text().replace(f"{folder.path}/broker/1", f"{tmp_path}/4")
        text = text.replace('"home_1"', '"home_4"').replace('listen: "127.0.0.1', 'listen: "127.0.0.4')
        text = text.replace('http: "127.0.0.1', 'http: "127.0.0.4')
        pem = tmp_path / "4/broker.pem"
        if certificate == "aggregator":
            shutil.copy(aggregator(folder), pem)
        elif certificate == "another authority":
            other = authority.new_authority(FLEET, now_utc())
            pem.write_bytes(authority.issue_broker(other, ["127.0.0.4"], now_utc(), clustered=True).to_pem())
        else:
            begin = text.index("  tls {", text.index("cluster {"))
            text = text[:begin] + text[text.index("  }\n", begin) + 4 :]
        (tmp_path / "4/nats.conf").write_text(text)
        log = tmp_path / "4/log"
        with open(log, "wb") as output:
            process = subprocess.Popen([program, "-c", str(tmp_path / "4/nats.conf")], stderr=output)
        try:
            before = servers.log(1).count("Router connection closed")
            until(lambda: servers.log(1).count("Router connection closed") >= before + 3, log.read_text)
            for number in (1, 2, 3):
                assert joined(folder, number) == {"home_1", "home_2", "home_3"} - {f"home_{number}"}
        finally:
            process.kill()
            process.wait()

    def test_restarted_member_joins_again(self, servers: FleetServers):
        """Show that the test above would detect a server that joins."""
        servers.kill(3)
        until(lambda: joined(servers.folder, 1) == {"home_2"}, "the third server stops")
        servers.start(3)
        until(lambda: joined(servers.folder, 1) == {"home_2", "home_3"}, "the third server restarts")

    def test_get_new_certificates_while_running(self, servers: FleetServers):
        folder = servers.folder
        before = [c.serial_number for c in folder.broker_certificates()]
        passes_again(folder, folder.path / "devices/k3f9.pem", 2, 1)
        with connect_client(folder, folder.path / "devices/k3f9.pem", server=2) as other:
            assert other.connected()
            rotation.rotate_broker(folder, (), now_utc())
            servers.reload()
            passes_again(folder, folder.path / "devices/m7q2.pem", 1, 3, "m7q2")
            assert other.ended is None
        after = [c.serial_number for c in folder.broker_certificates()]
        assert not set(before) & set(after)
        with pytest.raises(rotation.FolderError, match="3 NATS servers"):
            rotation.rotate_broker(folder, ("a.example",), now_utc())

    def test_change_to_new_authority_while_running(self, servers: FleetServers):
        folder = servers.folder
        old_board, old_aggregator = folder.path / "devices/k3f9.pem", folder.path / "old.pem"
        shutil.copy(aggregator(folder), old_aggregator)
        with connect_client(folder, old_aggregator) as last:
            last.publish(f"{TOPIC}/experiment/stays", b"e", retain=True)
        rotation.rotate_ca(folder, now_utc())
        servers.reload()
        new_board = issue(folder, "m7q2")
        servers.reload()
        passes_again(folder, old_board, 1, 2)
        passes_again(folder, new_board, 3, 2, "m7q2")
        with connect_client(folder, old_aggregator) as known:
            assert known.connected()
        servers.kill(2)
        servers.start(2)  # it joins with the others' current certificates
        passes_again(folder, old_board, 2, 1)
        rotation.finish_ca(folder, now_utc(), cut_off=True)
        servers.reload()
        for pem in (old_board, old_aggregator):
            with pytest.raises((OSError, AssertionError)), connect_client(folder, pem) as client:
                assert client.connected()
        passes_again(folder, new_board, 1, 2, "m7q2")
        assert servers.retained_messages(new_board, f"{TOPIC}/experiment/+", 3) == {
            f"{TOPIC}/experiment/stays": b"e"
        }


class TestClients:
    def test_sighup_admits_new_board_without_disconnects(
        self,
        servers: FleetServers,
    ):
        folder = servers.folder
        with connect_client(folder, folder.path / "devices/k3f9.pem", server=2) as other:
            assert other.connected()
            new = issue(folder, "new")
            servers.reload()
            for number in (1, 2, 3):
                passes_again(folder, new, number, 1 + number % 3, "new")
            assert other.ended is None
            folder.revoke(["new"], now_utc())
            servers.reload()
            for number in (1, 2, 3):
                with connect_client(folder, new, server=number) as client:
                    assert not client.connected()
            assert other.ended is None

    def test_acknowledged_reports_survive_sigkill_of_all_servers(self, servers: FleetServers):
        folder, count = servers.folder, 200
        config = ConsumerConfig("counted", "counted", filter_subject=report_subject(FLEET), ack_wait=10)

        async def ask(host: str, wanted: int) -> set[int]:
            """Return this many reports; recently restarted servers may not answer requests."""
            url, routes, end = f"tls://{host}:{folder.fleet.nats_port}", set(), time.monotonic() + WAIT_S
            while time.monotonic() < end:
                client = await nats.connect(url, tls=context(folder, aggregator(folder)), connect_timeout=10)
                try:
                    await client.jsm(timeout=5).add_consumer(STREAM, config)
                    consumer = await client.jetstream().pull_subscribe_bind("counted", STREAM)
                    while len(routes) < wanted:
                        for message in await consumer.fetch(wanted - len(routes), timeout=5):
                            routes.add(int(message.data))
                            await message.ack()
                    return routes
                except (nats.errors.Error, TimeoutError):
                    continue
                finally:
                    await client.close()
            return routes

        assert asyncio.run(ask(THREE[0], 0)) == set()
        pem = issue(folder, "m7q2")
        servers.reload()
        with connect_client(folder, pem, server=2) as board:
            for i in range(count):
                board.client.publish(f"{TOPIC}/report/m7q2", b"%d" % i, qos=1)
            until(lambda: len(board.acknowledged) == count, "all messages are accepted")
            servers.kill()
        servers.start()
        assert asyncio.run(ask(THREE[2], count)) == set(range(count))
