"""A NATS server with exactly the files of `hushmote provision fleet`: admission and rights.

MQTT 3.1.1 acknowledges even refused publications, so the tests check which messages reach a subscriber.
"""

import asyncio
import datetime
import json
import re
import shutil
import socket
import ssl
import subprocess
import urllib.request
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import nats
import nats.errors
import nats.js.errors
import pytest
from fleet_broker import CONNECT, FLEET, LET_IN, Visitor, cannot_resume, context, is_mute_in_plain
from fleet_servers import FleetServers, connect_client, make_nats_fleet, serving
from nats.aio.client import Client
from nats.js.api import ConsumerConfig, StreamConfig
from running_aggregator import HANGS_S, until

from hushmote.fleet.provisioning import authority, rotation
from hushmote.fleet.provisioning import nats as servers_config
from hushmote.fleet.provisioning.fleet_folder import DOOR, FleetFolder, now_utc
from hushmote.server.wire.subjects import STREAM, report_subject

pytestmark = pytest.mark.long

TOPIC = f"hushmote/v1/{FLEET}"


class Site:
    """Running servers and their fleet's client certificates."""

    def __init__(self, folder: FleetFolder, servers: FleetServers) -> None:
        self.folder, self.servers = folder, servers
        self.aggregator = folder.path / "aggregator/aggregator_1.pem"

    def board(self, *devices: str) -> list[Path]:
        """Return boards' certificates, which are issued on first use."""
        certificates = [self.pem(device) for device in devices]
        new = [(device, pem) for device, pem in zip(devices, certificates, strict=True) if not pem.exists()]
        for device, pem in new:
            pem.write_bytes(self.folder.issue_device(device, now_utc()).to_pem())
        if new:
            self.servers.reload()
        return certificates

    def pem(self, name: str) -> Path:
        return self.folder.path / "devices" / f"{name}.pem"

    def arrives(self, aggregator: Visitor, board: Visitor, device: str) -> list[tuple[str, bytes]]:
        """Return the messages that reach the aggregator before a final, allowed report of the board."""
        board.publish(f"{TOPIC}/report/{device}", b"last")
        until(lambda: aggregator.messages[-1:] == [(f"{TOPIC}/report/{device}", b"last")], "the final report")
        return aggregator.messages[:-1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory):
    folder = make_nats_fleet(tmp_path_factory.mktemp("site") / "folder")
    with serving(folder) as servers:
        site = Site(folder, servers)
        site.board("k3f9", "m7q2", "reader")
        yield site


def is_refused(site: Site, pem: Path | None, **options) -> bool:
    """Return whether the server refuses a session over MQTT."""
    try:
        with connect_client(site.folder, pem, **options) as visitor:
            return not visitor.connected()
    except OSError:
        return True


def over_nats(folder: FleetFolder, pem: Path | None, act: Callable[[Client], Awaitable[object]]) -> object:
    """Return the result of an action as a native NATS client, or raise its error."""

    async def run() -> object:
        errors: list[Exception] = []

        async def hear(error: Exception) -> None:
            errors.append(error)

        client = await nats.connect(
            f"tls://{folder.fleet.hosts[0]}:{folder.fleet.nats_port}",
            tls=context(folder, pem),
            allow_reconnect=False,
            error_cb=hear,
            connect_timeout=60,
        )
        try:
            result = await act(client)
            await client.flush()  # errors arrive before its response
            if errors:
                raise errors[0]
            return result
        finally:
            await client.close()

    return asyncio.run(run())


def nats_refuses(folder: FleetFolder, pem: Path | None) -> bool:
    """Return whether the server refuses a connection over NATS."""

    async def nothing(_client: Client) -> None: ...

    try:
        over_nats(folder, pem, nothing)
    except (nats.errors.Error, OSError):
        return True
    return False


def users(folder: FleetFolder) -> str:
    return (folder.path / "broker/1/users.conf").read_text()


class TestAdmission:
    def test_board_uses_mqtt_and_aggregator_mqtt_or_nats(self, site: Site):
        assert not is_refused(site, site.pem("k3f9"))
        assert not is_refused(site, site.aggregator)
        assert not nats_refuses(site.folder, site.aggregator)
        assert nats_refuses(site.folder, site.pem("k3f9"))

    def test_requires_certificate(self, site: Site):
        assert is_refused(site, None)
        assert is_refused(site, None, login=("aggregator_1", ""))
        assert nats_refuses(site.folder, None)

    def test_certificate_needs_no_login_and_login_adds_no_rights(self, site: Site):
        user = re.findall(r'"(urn:hushmote:aggregator_1:\w+)"', users(site.folder))[0]
        assert is_refused(site, site.pem("k3f9"), login=(user, "x"))
        with connect_client(site.folder, site.pem("k3f9"), login=(user, "")) as board:
            assert board.connected()
            assert board.subscribe(f"{TOPIC}/report/+") == "Unspecified error"

    def test_rejects_unlisted_certificates_of_any_signer(self, site: Site, tmp_path: Path):
        """Test certificates of another authority, certificates signed with a stolen key, and a server's."""
        other, signer = authority.new_authority(FLEET, now_utc()), site.folder.signer()
        certificates = [authority.issue_client(other, "k3f9", now_utc(), 1)]
        certificates += [
            authority.issue_client(signer, name, now_utc(), 1) for name in ("k3f9", "aggregator_1")
        ]
        certificates.append(authority.issue_broker(signer, ("localhost",), now_utc(), clustered=True))
        pems = [site.folder.path / "broker/1/broker.pem"]
        for number, issued in enumerate(certificates):
            pems.append(tmp_path / f"{number}.pem")
            pems[-1].write_bytes(issued.to_pem())
        for pem in pems:
            assert is_refused(site, pem)
            assert nats_refuses(site.folder, pem)

    def test_rejects_expired_certificate(self, site: Site):
        folder = replace(site.folder, fleet=replace(site.folder.fleet, device_days=1))
        for name, ago_h in (("ended", 25), ("not-ended", 23)):
            issued = folder.issue_device(name, now_utc() - datetime.timedelta(hours=ago_h))
            site.pem(name).write_bytes(issued.to_pem())
        site.servers.reload()
        assert is_refused(site, site.pem("ended"))
        assert not is_refused(site, site.pem("not-ended"))

    def test_sighup_cuts_every_connection_of_revoked_board_only(self, site: Site):
        (stolen,) = site.board("stolen")
        with (
            connect_client(site.folder, site.pem("k3f9")) as other,
            connect_client(site.folder, site.aggregator) as aggregator,
        ):
            open_ones = [connect_client(site.folder, stolen) for _ in range(5)]
            visitors = [session.__enter__() for session in open_ones]
            assert all(visitor.connected() for visitor in visitors)
            visitors[0].publish(f"{TOPIC}/status/stolen", b"online", retain=True)
            other.publish(f"{TOPIC}/status/k3f9", b"online", retain=True)
            site.folder.revoke(["stolen"], now_utc())
            site.servers.reload()
            until(lambda: all(visitor.ended for visitor in visitors), "its connections end")
            assert is_refused(site, stolen)
            # Its retained messages are gone as well.
            aggregator.subscribe(f"{TOPIC}/status/+")
            until(lambda: aggregator.messages, "a status")
            assert aggregator.messages == [(f"{TOPIC}/status/k3f9", b"online")]
            assert (other.ended, aggregator.ended) == (None, None)
            for session in open_ones:
                session.__exit__(None, None, None)

    @pytest.mark.parametrize(
        "version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["TLS 1.2", "TLS 1.3"]
    )
    def test_revoked_board_cannot_resume_session(self, site: Site, version: ssl.TLSVersion):
        device = f"resumes-{version.value}"
        (pem,) = site.board(device)

        def revoke() -> None:
            site.folder.revoke([device], now_utc())
            site.servers.reload()

        assert cannot_resume(site.folder.fleet.port, context(site.folder, pem), version, revoke)

    def test_does_not_answer_plain_tcp(self, site: Site):
        assert is_mute_in_plain(site.folder.fleet.port)
        # NATS greets first and then requires TLS.
        with socket.create_connection(("127.0.0.1", site.folder.fleet.nats_port), 10) as plain:
            plain.settimeout(10)
            received = plain.recv(4096)
            assert json.loads(received.removeprefix(b"INFO "))["tls_required"]
            plain.sendall(b'CONNECT {"verbose":true}\r\nPING\r\n')
            with pytest.raises((ConnectionError, AssertionError)):
                assert b"PONG" in plain.recv(4096)

    @pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
    @pytest.mark.parametrize("version", ["tls1_1", "tls1_2", "tls1_3"])
    def test_refuses_tls_below_1_2(self, site: Site, tmp_path: Path, version: str, monkeypatch):
        old = "openssl_conf=x\n[x]\nssl_conf=s\n[s]\nsystem_default=d\n[d]\n"
        (tmp_path / "openssl.cnf").write_text(
            old + "MinProtocol = TLSv1\nCipherString = DEFAULT@SECLEVEL=0\n"
        )
        monkeypatch.setenv("OPENSSL_CONF", str(tmp_path / "openssl.cnf"))
        command = ["openssl", "s_client", "-connect", f"127.0.0.1:{site.folder.fleet.port}", f"-{version}"]
        command += ["-cert", str(site.aggregator), "-key", str(site.aggregator), "-cipher", "ALL@SECLEVEL=0"]
        result = subprocess.run(command, input="", capture_output=True, text=True, timeout=HANGS_S)
        assert ("BEGIN CERTIFICATE" in result.stdout) == (version != "tls1_1"), result.stderr


def subscribed(aggregator: Visitor) -> Visitor:
    aggregator.subscribe(f"{TOPIC}/report/+")
    return aggregator


class TestBoardLimits:
    @pytest.mark.parametrize("topic", ["report/k3f9", "status/k3f9"])
    def test_oversized_packet_disconnects_its_sender(self, site: Site, topic: str):
        with (
            connect_client(site.folder, site.aggregator) as aggregator,
            connect_client(site.folder, site.pem("m7q2")) as board,
        ):
            aggregator.subscribe(f"{TOPIC}/report/+")
            with connect_client(site.folder, site.pem("k3f9")) as flood:
                flood.publish(f"{TOPIC}/{topic}", bytes(servers_config.MAX_PACKET_BYTES), retain=True)
                assert flood.ended
            assert site.arrives(aggregator, board, "m7q2") == []

    def test_packet_announced_as_large_is_not_awaited(self, site: Site):
        tls = context(site.folder, site.pem("k3f9"))
        plain = socket.create_connection(("127.0.0.1", site.folder.fleet.port), 10)
        with tls.wrap_socket(plain, server_hostname="localhost") as connection:
            connection.sendall(CONNECT)
            assert connection.recv(4) == LET_IN
            connection.sendall(bytes.fromhex("30ffffff7f") + b"\x00\x1ahushmote/v1/home/report/k3f9")
            with pytest.raises((ConnectionError, ssl.SSLError, AssertionError)):
                assert connection.recv(1) != b""

    def test_abandoned_sessions_expire(self, site: Site):
        with connect_client(site.folder, site.pem("k3f9"), clean=False) as board:
            board.subscribe(f"{TOPIC}/experiment/forgotten")
        url = f"http://127.0.0.1:{site.folder.fleet.monitor_port}/jsz?acc=$G&streams=1&consumers=1&config=1"
        with urllib.request.urlopen(url, timeout=60) as answer:
            (account,) = json.load(answer)["account_details"]
        (stream,) = (s for s in account["stream_detail"] if s["name"] == STREAM)
        filters = "$MQTT.msgs.hushmote.v1.home.experiment.forgotten"
        (config,) = (
            c["config"] for c in stream["consumer_detail"] if c["config"]["filter_subject"] == filters
        )
        assert config["inactive_threshold"] == servers_config.FORGOTTEN_MIN * 60e9
        assert config["mem_storage"]

    def test_qos_2_publish_disconnects_and_subscribe_gets_qos_1(self, site: Site):
        with connect_client(site.folder, site.pem("k3f9")) as board:
            assert board.subscribe(f"{TOPIC}/experiment/+", 2) == "Granted QoS 1"
            board.client.publish(f"{TOPIC}/report/k3f9", b"x", qos=2)
            until(lambda: board.ended, "the server ends it")

    def test_number_of_subscriptions_per_connection(self, site: Site):
        with connect_client(site.folder, site.pem("k3f9")) as board:
            answers = [
                board.subscribe(f"{TOPIC}/experiment/e{i}", 0)
                for i in range(servers_config.MAX_SUBSCRIPTIONS + 5)
            ]
            assert 150 < answers.count("Granted QoS 0") <= servers_config.MAX_SUBSCRIPTIONS
            assert answers[-1] == "Unspecified error"


class TestBoardRights:
    def test_reports_only_under_its_own_name(self, site: Site):
        with (
            connect_client(site.folder, site.aggregator) as aggregator,
            connect_client(site.folder, site.pem("k3f9")) as board,
        ):
            aggregator.subscribe(f"{TOPIC}/report/+")
            board.publish(f"{TOPIC}/report/k3f9", b"own")
            for topic in ("other", "k3f9/x", "aggregator_1"):
                board.publish(f"{TOPIC}/report/{topic}", b"not its own", retain=True)
            board.publish("hushmote/v1/away/report/k3f9", b"another fleet's")
            assert site.arrives(aggregator, board, "k3f9") == [(f"{TOPIC}/report/k3f9", b"own")]
            # MQTT 3.1.1 has no other response.
            assert board.acknowledged == ["Success"] * 6

    def test_last_will_goes_to_its_own_topics_only(self, site: Site):
        wills = [("report/other", b"w"), ("experiment/will", b"w"), ("report/k3f9", b"own")]
        with (
            connect_client(site.folder, site.aggregator) as aggregator,
            connect_client(site.folder, site.pem("m7q2")) as board,
        ):
            aggregator.subscribe(f"{TOPIC}/report/+")
            aggregator.subscribe(f"{TOPIC}/experiment/+")
            for topic, payload in wills:
                with connect_client(
                    site.folder, site.pem("k3f9"), will=(f"{TOPIC}/{topic}", payload)
                ) as dying:
                    assert dying.connected()
                    dying.client.socket().shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]
                    until(lambda dying=dying: dying.ended, "the retained message is cleared")
            until(lambda: (f"{TOPIC}/report/k3f9", b"own") in aggregator.messages, "the allowed message")
            assert site.arrives(aggregator, board, "m7q2") == [(f"{TOPIC}/report/k3f9", b"own")]

    def test_forbidden_retained_messages_are_discarded(self, site: Site):
        names = ("experiment/kept", "proof/kept", "result/kept", "status/m7q2")
        with (
            connect_client(site.folder, site.aggregator) as aggregator,
            connect_client(site.folder, site.pem("k3f9")) as board,
        ):
            for name in names:
                board.publish(f"{TOPIC}/{name}", b"forged", retain=True)
            board.publish("homeassistant/sensor/hushmote_home/kept/config", b"forged", retain=True)
            aggregator.publish(f"{TOPIC}/experiment/true", b"e", retain=True)
            with (
                connect_client(site.folder, site.pem("reader")) as reader,
                connect_client(site.folder, site.aggregator) as later,
            ):
                later.subscribe(f"{TOPIC}/status/+")
                for topic in (
                    f"{TOPIC}/result/+",
                    f"{TOPIC}/proof/+",
                    "homeassistant/sensor/hushmote_home/+/config",
                ):
                    assert reader.subscribe(topic) == "Granted QoS 1"
                reader.subscribe(f"{TOPIC}/experiment/+")
                until(lambda: reader.messages, "the genuine message")
                assert reader.messages == [(f"{TOPIC}/experiment/true", b"e")]
                site.arrives(subscribed(later), board, "k3f9")
                assert b"forged" not in [payload for _, payload in later.messages]
            aggregator.publish(f"{TOPIC}/experiment/true", b"", retain=True)

    def test_subscribes_only_to_experiments_and_results(self, site: Site):
        allowed = ("experiment/+", "experiment/temp", "proof/+", "result/+")
        rejected_topics = (
            "#",
            "$SYS/#",
            "+/+/+/+/+",
            f"{TOPIC}/#",
            f"{TOPIC}/report/+",
            f"{TOPIC}/report/reader",
        )
        rejected_topics += (
            f"{TOPIC}/status/+",
            "hushmote/v1/+/experiment/+",
            "$MQTT/#",
            "$MQTT/sub/#",
            "$MQTT/msgs/#",
        )
        rejected_topics += ("$JS/API/#", "_INBOX/#", "/", "$SYS/ACCOUNT/#")
        with (
            connect_client(site.folder, site.pem("reader")) as reader,
            connect_client(site.folder, site.aggregator) as aggregator,
        ):
            assert {reader.subscribe(f"{TOPIC}/{name}") for name in allowed} == {"Granted QoS 1"}
            assert {name: reader.subscribe(name) for name in rejected_topics} == dict.fromkeys(
                rejected_topics, "Unspecified error"
            )
            with connect_client(site.folder, site.pem("k3f9")) as board:
                board.publish(f"{TOPIC}/report/k3f9", b"private")
                board.publish(f"{TOPIC}/status/k3f9", b"online")
            aggregator.publish(f"{TOPIC}/experiment/temp", b"e", retain=True)
            aggregator.publish(f"{TOPIC}/result/temp", b"r" * 4000, retain=True)
            until(
                lambda: (f"{TOPIC}/result/temp", b"r" * 4000) in reader.messages, "the largest result arrives"
            )
            assert {topic.split("/")[3] for topic, _ in reader.messages} == {"experiment", "result"}
            for name in ("experiment", "result"):
                aggregator.publish(f"{TOPIC}/{name}/temp", b"", retain=True)

    def test_cannot_use_jetstream(self, site: Site):
        with (
            connect_client(site.folder, site.aggregator) as aggregator,
            connect_client(site.folder, site.pem("k3f9")) as board,
        ):
            aggregator.subscribe(f"{TOPIC}/report/+")
            for topic in (
                f"$JS/API/STREAM/DELETE/{STREAM}",
                f"$JS/API/STREAM/PURGE/{STREAM}",
                "$MQTT/msgs/x",
            ):
                board.publish(topic, b"{}")
            assert site.arrives(aggregator, board, "k3f9") == []  # the stream that carries it exists
            assert board.ended is None

    def test_stolen_client_id_grants_none_but_disconnects_owner(self, site: Site):
        """NATS, unlike mosquitto, cannot bind a client id to a certificate."""
        options = {"client_id": "hushmote-aggregator", "clean": False}
        with (
            connect_client(site.folder, site.aggregator, **options) as aggregator,
            connect_client(site.folder, site.pem("m7q2")) as board,
        ):
            assert aggregator.subscribe(f"{TOPIC}/report/+") == "Granted QoS 1"
            with connect_client(site.folder, site.pem("k3f9"), **options) as thief:
                assert thief.connected()
                until(lambda: aggregator.ended, "the other connection ends")
                board.publish(f"{TOPIC}/report/m7q2", b"private")
                thief.publish(f"{TOPIC}/experiment/temp", b"forged", retain=True)
                thief.publish(f"{TOPIC}/report/m7q2", b"forged")
                assert thief.subscribe(f"{TOPIC}/report/m7q2") == "Unspecified error"
                assert thief.messages == []
            # Messages from the meantime are still there for the session's owner.
            with connect_client(site.folder, site.aggregator, **options) as back:
                until(lambda: back.messages, "the messages from the meantime")
                assert site.arrives(back, board, "m7q2") == [(f"{TOPIC}/report/m7q2", b"private")]
                back.client.unsubscribe(f"{TOPIC}/report/+")
                back.publish(f"{TOPIC}/experiment/temp", b"")


DEEDS: dict[str, Callable[[Client], Awaitable[object]]] = {
    "delete the stream": lambda c: c.jetstream().delete_stream(STREAM),
    "purge the stream": lambda c: c.jetstream().purge_stream(STREAM),
    "delete what is retained": lambda c: c.jetstream().delete_stream("$MQTT_rmsgs"),
    "read a session": lambda c: c.jetstream().get_msg("$MQTT_sess", 1),
    "read a message past the consumers": lambda c: c.jetstream().get_msg(STREAM, 1),
    "make a stream": lambda c: c.jetstream().add_stream(StreamConfig("mine", subjects=["hushmote.>"])),
    "a consumer of all": lambda c: c.jetstream().add_consumer(STREAM, ConsumerConfig(durable_name="all")),
    "a consumer of what is asked": lambda c: c.jetstream().add_consumer(
        STREAM,
        ConsumerConfig(durable_name="asked", filter_subject="$MQTT.msgs.hushmote.v1.home.experiment.*"),
    ),
    "a consumer of sessions": lambda c: c.jetstream().add_consumer(
        "$MQTT_sess", ConsumerConfig(durable_name="sessions")
    ),
    "a report": lambda c: c.publish("hushmote.v1.home.report.k3f9", b"made up"),
    "a report in the stream": lambda c: c.publish("$MQTT.msgs.hushmote.v1.home.report.k3f9", b"made up"),
    "listen to all": lambda c: c.subscribe(">"),
    "listen to the servers": lambda c: c.subscribe("$SYS.>"),
    "listen to what waits": lambda c: c.subscribe("$MQTT.msgs.>"),
    "ask the servers": lambda c: c.publish("$SYS.REQ.SERVER.PING", b""),
}


def bounded(deed: Callable[[Client], Awaitable[object]]) -> Callable[[Client], Awaitable[object]]:
    """Return the action with a short timeout, since a refused request gets no response."""

    async def act(client: Client) -> None:
        try:
            await asyncio.wait_for(deed(client), 0.3)
        except (TimeoutError, nats.errors.Error) as e:
            if not isinstance(e, TimeoutError | nats.errors.TimeoutError):
                raise

    return act


class TestDoorRights:
    def test_publishes_for_any_board_and_cannot_read_reports(self, site: Site):
        rotation.put_door(site.folder, now_utc())
        site.servers.reload()
        door_certificate = site.folder.path / DOOR
        assert nats_refuses(site.folder, door_certificate)
        with (
            connect_client(site.folder, site.aggregator) as aggregator,
            connect_client(site.folder, door_certificate) as door,
        ):
            aggregator.subscribe(f"{TOPIC}/report/+")
            aggregator.publish(f"{TOPIC}/experiment/temp", b"{}", retain=True)
            assert door.subscribe(f"{TOPIC}/experiment/+") == "Granted QoS 1"
            assert door.subscribe(f"{TOPIC}/result/+") == "Granted QoS 1"
            for topic in ("#", f"{TOPIC}/report/+", f"{TOPIC}/status/+"):
                assert door.subscribe(topic) == "Unspecified error"
            for topic in ("experiment/temp", "result/temp", "status/k3f9"):
                door.publish(f"{TOPIC}/{topic}", b"forged", retain=True)
            for device in ("k3f9", "m7q2"):
                door.publish(f"{TOPIC}/report/{device}", b"r")
            wanted = [(f"{TOPIC}/report/{device}", b"r") for device in ("k3f9", "m7q2")]
            until(lambda: aggregator.messages == wanted, lambda: aggregator.messages)
            until(lambda: door.messages == [(f"{TOPIC}/experiment/temp", b"{}")], lambda: door.messages)
            aggregator.publish(f"{TOPIC}/experiment/temp", b"", retain=True)
        before = site.pem("door-before")
        shutil.copy(door_certificate, before)
        rotation.put_door(site.folder, now_utc())
        site.servers.reload()
        assert is_refused(site, before)
        assert not is_refused(site, door_certificate)


class TestAggregatorRights:
    def test_are_minimal_over_mqtt(self, site: Site):
        with (
            connect_client(site.folder, site.aggregator) as aggregator,
            connect_client(site.folder, site.pem("k3f9")) as board,
        ):
            for topic in ("#", "$SYS/#", "hushmote/v1/+/report/+", "hushmote/v1/away/report/+"):
                assert aggregator.subscribe(topic) == "Unspecified error"
            for topic in ("report/+", "status/+", "experiment/+"):
                assert aggregator.subscribe(f"{TOPIC}/{topic}") == "Granted QoS 1"
            board.subscribe(f"{TOPIC}/experiment/+")
            aggregator.publish(f"{TOPIC}/report/k3f9", b"made up")
            aggregator.publish(f"{TOPIC}/status/k3f9", b"offline", retain=True)
            aggregator.publish("hushmote/v1/away/experiment/temp", b"another fleet's", retain=True)
            aggregator.publish(f"{TOPIC}/experiment/temp", b"own", retain=True)
            arrived = site.arrives(aggregator, board, "k3f9")
            assert {topic.split("/")[3] for topic, _ in arrived} <= {"experiment", "status"}
            assert (f"{TOPIC}/status/k3f9", b"offline") not in arrived
            until(lambda: (f"{TOPIC}/experiment/temp", b"own") in board.messages, "the experiment arrives")
            # Refused publications have not ended its connection.
            assert aggregator.ended is None
            aggregator.publish(f"{TOPIC}/experiment/temp", b"", retain=True)

    @pytest.mark.parametrize("deed", DEEDS)
    def test_are_minimal_over_nats(self, site: Site, deed: str):
        with pytest.raises((nats.errors.Error, TimeoutError), match=r"(?i)permissions violation|timeout"):
            over_nats(site.folder, site.aggregator, bounded(DEEDS[deed]))

    def test_rotation_ends_old_certificate_only(self, site: Site):
        before = site.pem("aggregator-before")
        shutil.copy(site.aggregator, before)
        with connect_client(site.folder, before) as aggregator:
            aggregator.publish(f"{TOPIC}/experiment/stays", b"e", retain=True)
            rotation.rotate_aggregator(site.folder, now_utc())
            site.servers.reload()
            assert not is_refused(site, site.aggregator)
            assert not is_refused(site, before)
            assert aggregator.ended is None
            rotation.finish_aggregator(site.folder, now_utc())
            site.servers.reload()
            until(lambda: aggregator.ended, "its connection ends")
        assert is_refused(site, before)
        assert nats_refuses(site.folder, before)
        assert not nats_refuses(site.folder, site.aggregator)
        with (
            connect_client(site.folder, site.pem("reader")) as reader,
            connect_client(site.folder, site.aggregator) as aggregator,
        ):
            reader.subscribe(f"{TOPIC}/experiment/+")
            until(lambda: reader.messages == [(f"{TOPIC}/experiment/stays", b"e")], lambda: reader.messages)
            aggregator.publish(f"{TOPIC}/experiment/stays", b"", retain=True)


class TestServers:
    def test_full_store_rejects_new_and_keeps_acknowledged(self, tmp_path: Path):
        """A flood of a few seconds reaches the lowered limit; the aggregator pulls over NATS."""
        folder = make_nats_fleet(tmp_path / "folder")
        conf = folder.path / "broker/1/nats.conf"
        shipped = f"max_file_store: {servers_config.MAX_STORE_BYTES}"
        assert shipped in conf.read_text()
        conf.write_text(conf.read_text().replace(shipped, "max_file_store: 1000000"))
        pem = folder.path / "k3f9.pem"
        pem.write_bytes(folder.issue_device("k3f9", now_utc()).to_pem())
        config = ConsumerConfig("counted", "counted", filter_subject=report_subject(FLEET))

        async def pull(client: Client) -> int:
            acknowledged = await client.jetstream().pull_subscribe_bind("counted", STREAM)
            count = 0
            while waiting := (await acknowledged.consumer_info()).num_pending:
                for message in await acknowledged.fetch(min(waiting, 100), timeout=60):
                    await message.ack_sync(timeout=60)
                    count += 1
            return count

        with serving(folder):
            aggregator = folder.path / "aggregator/aggregator_1.pem"
            with connect_client(folder, aggregator) as first:  # the first MQTT client creates the stream
                assert first.connected()
            over_nats(folder, aggregator, lambda client: client.jetstream().add_consumer(STREAM, config))
            with connect_client(folder, pem) as board:
                while not board.ended:
                    board.publish(f"{TOPIC}/report/k3f9", bytes(3000))
                    assert len(board.acknowledged) < 1000
                acknowledged = len(board.acknowledged)
                assert acknowledged > 100
            assert over_nats(folder, aggregator, pull) in (acknowledged, acknowledged + 1)
            assert over_nats(folder, aggregator, lambda c: c.jetstream().delete_consumer(STREAM, "counted"))
            with connect_client(folder, pem) as board:
                board.publish(f"{TOPIC}/report/k3f9", b"again")
                assert board.acknowledged == ["Success"]

    def test_log_names_refused_client(self, site: Site):
        """NATS, unlike mosquitto, has no setting against it."""
        (gone,) = site.board("gone")
        site.folder.revoke(["gone"], now_utc())
        site.servers.reload()
        assert is_refused(site, gone, client_id="the-client-id-of-gone")
        log = site.servers.log(1)
        assert re.search(
            r"127\.0\.0\.1:\d+ - mid:\d+ - \"the-client-id-of-gone\" - authentication error", log
        )
