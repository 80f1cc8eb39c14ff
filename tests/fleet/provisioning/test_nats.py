"""A NATS server on exactly what `hushmote provision fleet` wrote: whom it lets in, and what each may do.

MQTT 3.1.1 answers a publication that is refused as it answers any: what counts is what reaches a subscriber.
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
from fleet_servers import FleetServers, at, make_nats_fleet, serving
from nats.aio.client import Client
from nats.js.api import ConsumerConfig, StreamConfig
from running import HANGS_S, until

from hushmote.fleet.provisioning import authority, rotation
from hushmote.fleet.provisioning import nats as servers_config
from hushmote.fleet.provisioning.fleet_folder import DOOR, FleetFolder, now_utc
from hushmote.server.wire.subjects import STREAM, report_subject

pytestmark = pytest.mark.long

TOPIC = f"hushmote/v1/{FLEET}"


class Site:
    """Servers that run, and certificates of clients of their fleet."""

    def __init__(self, folder: FleetFolder, servers: FleetServers) -> None:
        self.folder, self.servers = folder, servers
        self.aggregator = folder.path / "aggregator/aggregator_1.pem"

    def board(self, *devices: str) -> list[Path]:
        """Boards of the fleet, each with the certificate that it gets the first time it is asked for."""
        made = [self.pem(device) for device in devices]
        new = [(device, pem) for device, pem in zip(devices, made, strict=True) if not pem.exists()]
        for device, pem in new:
            pem.write_bytes(self.folder.issue_device(device, now_utc()).to_pem())
        if new:
            self.servers.reload()
        return made

    def pem(self, name: str) -> Path:
        return self.folder.path / "devices" / f"{name}.pem"

    def arrives(self, aggregator: Visitor, board: Visitor, device: str) -> list[tuple[str, bytes]]:
        """Return what the aggregator got up to a last, allowed report of the board."""
        board.publish(f"{TOPIC}/report/{device}", b"last")
        until(lambda: aggregator.messages[-1:] == [(f"{TOPIC}/report/{device}", b"last")], "a last report")
        return aggregator.messages[:-1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory):
    folder = make_nats_fleet(tmp_path_factory.mktemp("site") / "folder")
    with serving(folder) as servers:
        site = Site(folder, servers)
        site.board("k3f9", "m7q2", "reader")
        yield site


def refused(site: Site, pem: Path | None, **options) -> bool:
    """Whether no session comes of it over MQTT."""
    try:
        with at(site.folder, pem, **options) as visitor:
            return not visitor.connected()
    except OSError:
        return True


def over_nats(folder: FleetFolder, pem: Path | None, act: Callable[[Client], Awaitable[object]]) -> object:
    """Return the result of an act as a client of NATS itself, or raise its error."""

    async def run() -> object:
        said: list[Exception] = []

        async def hear(error: Exception) -> None:
            said.append(error)

        client = await nats.connect(
            f"tls://{folder.fleet.hosts[0]}:{folder.fleet.nats_port}",
            tls=context(folder, pem),
            allow_reconnect=False,
            error_cb=hear,
            connect_timeout=60,
        )
        try:
            done = await act(client)
            await client.flush()  # what was refused is said before its answer
            if said:
                raise said[0]
            return done
        finally:
            await client.close()

    return asyncio.run(run())


def nats_refuses(folder: FleetFolder, pem: Path | None) -> bool:
    """Whether nothing comes of a connection over NATS."""

    async def nothing(_client: Client) -> None: ...

    try:
        over_nats(folder, pem, nothing)
    except (nats.errors.Error, OSError):
        return True
    return False


# --- Who is let in ------------------------------------------------------------------------------------


def test_board_uses_mqtt_and_aggregator_mqtt_or_nats(site: Site):
    assert not refused(site, site.pem("k3f9"))
    assert not refused(site, site.aggregator)
    assert not nats_refuses(site.folder, site.aggregator)
    assert nats_refuses(site.folder, site.pem("k3f9"))


def test_nobody_is_let_in_without_a_certificate(site: Site):
    assert refused(site, None)
    assert refused(site, None, login=("aggregator_1", ""))
    assert nats_refuses(site.folder, None)


def test_certificate_needs_no_login_and_login_adds_no_rights(site: Site):
    user = re.findall(r'"(urn:hushmote:aggregator_1:\w+)"', users(site.folder))[0]
    assert refused(site, site.pem("k3f9"), login=(user, "x"))
    with at(site.folder, site.pem("k3f9"), login=(user, "")) as board:
        assert board.connected()
        assert board.subscribe(f"{TOPIC}/report/+") == "Unspecified error"


def users(folder: FleetFolder) -> str:
    return (folder.path / "broker/1/users.conf").read_text()


def test_rejects_unlisted_certificates_of_any_signer(site: Site, tmp_path: Path):
    """Of another authority; of the fleet's own, as a stolen copy of it would make them; a server's own."""
    other, own = authority.new_authority(FLEET, now_utc()), site.folder.signer()
    made = [authority.issue_client(other, "k3f9", now_utc(), 1)]
    made += [authority.issue_client(own, name, now_utc(), 1) for name in ("k3f9", "aggregator_1")]
    made.append(authority.issue_broker(own, ("localhost",), now_utc(), clustered=True))
    pems = [site.folder.path / "broker/1/broker.pem"]
    for number, issued in enumerate(made):
        pems.append(tmp_path / f"{number}.pem")
        pems[-1].write_bytes(issued.to_pem())
    for pem in pems:
        assert refused(site, pem)
        assert nats_refuses(site.folder, pem)


def test_nobody_is_let_in_with_a_certificate_that_has_ended(site: Site):
    folder = replace(site.folder, fleet=replace(site.folder.fleet, device_days=1))
    for name, ago_h in (("ended", 25), ("not-ended", 23)):
        issued = folder.issue_device(name, now_utc() - datetime.timedelta(hours=ago_h))
        site.pem(name).write_bytes(issued.to_pem())
    site.servers.reload()
    assert refused(site, site.pem("ended"))
    assert not refused(site, site.pem("not-ended"))


def test_sighup_cuts_every_connection_of_revoked_board_only(site: Site):
    (stolen,) = site.board("stolen")
    with at(site.folder, site.pem("k3f9")) as other, at(site.folder, site.aggregator) as aggregator:
        open_ones = [at(site.folder, stolen) for _ in range(5)]
        visitors = [one.__enter__() for one in open_ones]
        assert all(visitor.connected() for visitor in visitors)
        visitors[0].publish(f"{TOPIC}/status/stolen", b"online", retain=True)
        other.publish(f"{TOPIC}/status/k3f9", b"online", retain=True)
        site.folder.revoke(["stolen"], now_utc())
        site.servers.reload()
        until(lambda: all(visitor.ended for visitor in visitors), "its connections end")
        assert refused(site, stolen)
        # What it had retained is gone as well.
        aggregator.subscribe(f"{TOPIC}/status/+")
        until(lambda: aggregator.messages, "a status")
        assert aggregator.messages == [(f"{TOPIC}/status/k3f9", b"online")]
        assert (other.ended, aggregator.ended) == (None, None)
        for one in open_ones:
            one.__exit__(None, None, None)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_revoked_board_cannot_resume_session(site: Site, version: ssl.TLSVersion):
    device = f"resumes-{version.value}"
    (pem,) = site.board(device)

    def revoke() -> None:
        site.folder.revoke([device], now_utc())
        site.servers.reload()

    assert cannot_resume(site.folder.fleet.port, context(site.folder, pem), version, revoke)


def test_plain_tcp_is_not_answered(site: Site):
    assert is_mute_in_plain(site.folder.fleet.port)
    # NATS greets, and then wants TLS.
    with socket.create_connection(("127.0.0.1", site.folder.fleet.nats_port), 10) as plain:
        plain.settimeout(10)
        heard = plain.recv(4096)
        assert json.loads(heard.removeprefix(b"INFO "))["tls_required"]
        plain.sendall(b'CONNECT {"verbose":true}\r\nPING\r\n')
        with pytest.raises((ConnectionError, AssertionError)):
            assert b"PONG" in plain.recv(4096)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
@pytest.mark.parametrize("version", ["tls1_1", "tls1_2", "tls1_3"])
def test_tls_before_1_2_is_refused(site: Site, tmp_path: Path, version: str, monkeypatch):
    old = "openssl_conf=x\n[x]\nssl_conf=s\n[s]\nsystem_default=d\n[d]\n"
    (tmp_path / "openssl.cnf").write_text(old + "MinProtocol = TLSv1\nCipherString = DEFAULT@SECLEVEL=0\n")
    monkeypatch.setenv("OPENSSL_CONF", str(tmp_path / "openssl.cnf"))
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{site.folder.fleet.port}", f"-{version}"]
    command += ["-cert", str(site.aggregator), "-key", str(site.aggregator), "-cipher", "ALL@SECLEVEL=0"]
    done = subprocess.run(command, input="", capture_output=True, text=True, timeout=HANGS_S)
    assert ("BEGIN CERTIFICATE" in done.stdout) == (version != "tls1_1"), done.stderr


# --- What each may do ---------------------------------------------------------------------------------


def test_a_board_reports_under_its_own_name_and_no_other(site: Site):
    with at(site.folder, site.aggregator) as aggregator, at(site.folder, site.pem("k3f9")) as board:
        aggregator.subscribe(f"{TOPIC}/report/+")
        board.publish(f"{TOPIC}/report/k3f9", b"own")
        for topic in ("other", "k3f9/x", "aggregator_1"):
            board.publish(f"{TOPIC}/report/{topic}", b"not its own", retain=True)
        board.publish("hushmote/v1/away/report/k3f9", b"another fleet's")
        assert site.arrives(aggregator, board, "k3f9") == [(f"{TOPIC}/report/k3f9", b"own")]
        # MQTT 3.1.1 knows no other answer.
        assert board.acknowledged == ["Success"] * 6


def test_a_boards_last_will_goes_to_its_own_topics_only(site: Site):
    wills = [("report/other", b"w"), ("experiment/will", b"w"), ("report/k3f9", b"own")]
    with at(site.folder, site.aggregator) as aggregator, at(site.folder, site.pem("m7q2")) as board:
        aggregator.subscribe(f"{TOPIC}/report/+")
        aggregator.subscribe(f"{TOPIC}/experiment/+")
        for topic, payload in wills:
            with at(site.folder, site.pem("k3f9"), will=(f"{TOPIC}/{topic}", payload)) as dying:
                assert dying.connected()
                dying.client.socket().shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]
                until(lambda dying=dying: dying.ended, "it is gone")
        until(lambda: (f"{TOPIC}/report/k3f9", b"own") in aggregator.messages, "the one that is allowed")
        assert site.arrives(aggregator, board, "m7q2") == [(f"{TOPIC}/report/k3f9", b"own")]


def test_discards_forbidden_retained_messages(site: Site):
    names = ("experiment/kept", "result/kept", "status/m7q2")
    with at(site.folder, site.aggregator) as aggregator, at(site.folder, site.pem("k3f9")) as board:
        for name in names:
            board.publish(f"{TOPIC}/{name}", b"forged", retain=True)
        board.publish("homeassistant/sensor/hushmote_home/kept/config", b"forged", retain=True)
        aggregator.publish(f"{TOPIC}/experiment/true", b"e", retain=True)
        with at(site.folder, site.pem("reader")) as reader, at(site.folder, site.aggregator) as later:
            later.subscribe(f"{TOPIC}/status/+")
            for topic in (f"{TOPIC}/result/+", "homeassistant/sensor/hushmote_home/+/config"):
                assert reader.subscribe(topic) == "Granted QoS 1"
            reader.subscribe(f"{TOPIC}/experiment/+")
            until(lambda: reader.messages, "the true one")
            assert reader.messages == [(f"{TOPIC}/experiment/true", b"e")]
            site.arrives(subscribed(later), board, "k3f9")
            assert b"forged" not in [payload for _, payload in later.messages]
        aggregator.publish(f"{TOPIC}/experiment/true", b"", retain=True)


def subscribed(aggregator: Visitor) -> Visitor:
    aggregator.subscribe(f"{TOPIC}/report/+")
    return aggregator


def test_board_subscribes_only_to_experiments_and_results(site: Site):
    allowed = ("experiment/+", "experiment/temp", "result/+")
    refused = ("#", "$SYS/#", "+/+/+/+/+", f"{TOPIC}/#", f"{TOPIC}/report/+", f"{TOPIC}/report/reader")
    refused += (f"{TOPIC}/status/+", "hushmote/v1/+/experiment/+", "$MQTT/#", "$MQTT/sub/#", "$MQTT/msgs/#")
    refused += ("$JS/API/#", "_INBOX/#", "/", "$SYS/ACCOUNT/#")
    with at(site.folder, site.pem("reader")) as reader, at(site.folder, site.aggregator) as aggregator:
        assert {reader.subscribe(f"{TOPIC}/{name}") for name in allowed} == {"Granted QoS 1"}
        assert {name: reader.subscribe(name) for name in refused} == dict.fromkeys(
            refused, "Unspecified error"
        )
        with at(site.folder, site.pem("k3f9")) as board:
            board.publish(f"{TOPIC}/report/k3f9", b"private")
            board.publish(f"{TOPIC}/status/k3f9", b"online")
        aggregator.publish(f"{TOPIC}/experiment/temp", b"e", retain=True)
        aggregator.publish(f"{TOPIC}/result/temp", b"r" * 4000, retain=True)
        until(lambda: (f"{TOPIC}/result/temp", b"r" * 4000) in reader.messages, "the largest result arrives")
        assert {topic.split("/")[3] for topic, _ in reader.messages} == {"experiment", "result"}
        for name in ("experiment", "result"):
            aggregator.publish(f"{TOPIC}/{name}/temp", b"", retain=True)


def test_a_board_has_no_part_in_jetstream(site: Site):
    with at(site.folder, site.aggregator) as aggregator, at(site.folder, site.pem("k3f9")) as board:
        aggregator.subscribe(f"{TOPIC}/report/+")
        for topic in (f"$JS/API/STREAM/DELETE/{STREAM}", f"$JS/API/STREAM/PURGE/{STREAM}", "$MQTT/msgs/x"):
            board.publish(topic, b"{}")
        assert site.arrives(aggregator, board, "k3f9") == []  # the stream that carries it is there
        assert board.ended is None


@pytest.mark.parametrize("topic", ["report/k3f9", "status/k3f9"])
def test_drops_oversized_packet_with_its_sender(site: Site, topic: str):
    with at(site.folder, site.aggregator) as aggregator, at(site.folder, site.pem("m7q2")) as board:
        aggregator.subscribe(f"{TOPIC}/report/+")
        with at(site.folder, site.pem("k3f9")) as flood:
            flood.publish(f"{TOPIC}/{topic}", bytes(servers_config.MOST_PACKET_BYTES), retain=True)
            assert flood.ended
        assert site.arrives(aggregator, board, "m7q2") == []


def test_a_packet_that_says_it_will_be_large_is_not_waited_for(site: Site):
    tls = context(site.folder, site.pem("k3f9"))
    plain = socket.create_connection(("127.0.0.1", site.folder.fleet.port), 10)
    with tls.wrap_socket(plain, server_hostname="localhost") as made:
        made.sendall(CONNECT)
        assert made.recv(4) == LET_IN
        made.sendall(bytes.fromhex("30ffffff7f") + b"\x00\x1ahushmote/v1/home/report/k3f9")
        with pytest.raises((ConnectionError, ssl.SSLError, AssertionError)):
            assert made.recv(1) != b""


def test_abandoned_board_sessions_expire(site: Site):
    with at(site.folder, site.pem("k3f9"), clean=False) as board:
        board.subscribe(f"{TOPIC}/experiment/forgotten")
    url = f"http://127.0.0.1:{site.folder.fleet.monitor_port}/jsz?acc=$G&streams=1&consumers=1&config=1"
    with urllib.request.urlopen(url, timeout=60) as answer:
        (account,) = json.load(answer)["account_details"]
    (stream,) = (s for s in account["stream_detail"] if s["name"] == STREAM)
    filters = "$MQTT.msgs.hushmote.v1.home.experiment.forgotten"
    (kept,) = (c["config"] for c in stream["consumer_detail"] if c["config"]["filter_subject"] == filters)
    assert kept["inactive_threshold"] == servers_config.FORGOTTEN_MIN * 60e9
    assert kept["mem_storage"]


def test_qos_2_publish_disconnects_and_subscribe_gets_qos_1(site: Site):
    with at(site.folder, site.pem("k3f9")) as board:
        assert board.subscribe(f"{TOPIC}/experiment/+", 2) == "Granted QoS 1"
        board.client.publish(f"{TOPIC}/report/k3f9", b"x", qos=2)
        until(lambda: board.ended, "the server ends it")


def test_a_connection_has_a_most_of_subscriptions(site: Site):
    with at(site.folder, site.pem("k3f9")) as board:
        answers = [
            board.subscribe(f"{TOPIC}/experiment/e{i}", 0)
            for i in range(servers_config.MOST_SUBSCRIPTIONS + 5)
        ]
        assert 150 < answers.count("Granted QoS 0") <= servers_config.MOST_SUBSCRIPTIONS
        assert answers[-1] == "Unspecified error"


def test_stolen_client_id_disconnects_owner_but_grants_no_rights(site: Site):
    """NATS has nothing that binds a client id to a certificate; mosquitto does."""
    options = {"client_id": "hushmote-aggregator", "clean": False}
    with (
        at(site.folder, site.aggregator, **options) as aggregator,
        at(site.folder, site.pem("m7q2")) as board,
    ):
        assert aggregator.subscribe(f"{TOPIC}/report/+") == "Granted QoS 1"
        with at(site.folder, site.pem("k3f9"), **options) as thief:
            assert thief.connected()
            until(lambda: aggregator.ended, "the other one ends")
            board.publish(f"{TOPIC}/report/m7q2", b"private")
            thief.publish(f"{TOPIC}/experiment/temp", b"forged", retain=True)
            thief.publish(f"{TOPIC}/report/m7q2", b"forged")
            assert thief.subscribe(f"{TOPIC}/report/m7q2") == "Unspecified error"
            assert thief.messages == []
        # And what came meanwhile is still there for him whose session it is.
        with at(site.folder, site.aggregator, **options) as back:
            until(lambda: back.messages, "what came meanwhile")
            assert site.arrives(back, board, "m7q2") == [(f"{TOPIC}/report/m7q2", b"private")]
            back.client.unsubscribe(f"{TOPIC}/report/+")
            back.publish(f"{TOPIC}/experiment/temp", b"")


def test_aggregator_rights_over_mqtt_are_minimal(site: Site):
    with at(site.folder, site.aggregator) as aggregator, at(site.folder, site.pem("k3f9")) as board:
        for topic in ("#", "$SYS/#", "hushmote/v1/+/report/+", "hushmote/v1/away/report/+"):
            assert aggregator.subscribe(topic) == "Unspecified error"
        for topic in ("report/+", "status/+", "experiment/+"):
            assert aggregator.subscribe(f"{TOPIC}/{topic}") == "Granted QoS 1"
        board.subscribe(f"{TOPIC}/experiment/+")
        aggregator.publish(f"{TOPIC}/report/k3f9", b"made up")
        aggregator.publish(f"{TOPIC}/status/k3f9", b"offline", retain=True)
        aggregator.publish("hushmote/v1/away/experiment/temp", b"another fleet's", retain=True)
        aggregator.publish(f"{TOPIC}/experiment/temp", b"own", retain=True)
        came = site.arrives(aggregator, board, "k3f9")
        assert {topic.split("/")[3] for topic, _ in came} <= {"experiment", "status"}
        assert (f"{TOPIC}/status/k3f9", b"offline") not in came
        until(lambda: (f"{TOPIC}/experiment/temp", b"own") in board.messages, "the experiment arrives")
        # Refused publications have not ended its connection.
        assert aggregator.ended is None
        aggregator.publish(f"{TOPIC}/experiment/temp", b"", retain=True)


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


@pytest.mark.parametrize("deed", DEEDS)
def test_an_aggregator_may_do_nothing_else_over_nats(site: Site, deed: str):
    with pytest.raises((nats.errors.Error, TimeoutError), match=r"(?i)permissions violation|timeout"):
        over_nats(site.folder, site.aggregator, bounded(DEEDS[deed]))


def bounded(deed: Callable[[Client], Awaitable[object]]) -> Callable[[Client], Awaitable[object]]:
    """Run the deed with a time limit: a request that is refused is never answered."""

    async def act(client: Client) -> None:
        try:
            await asyncio.wait_for(deed(client), 0.3)
        except (TimeoutError, nats.errors.Error) as e:
            if not isinstance(e, TimeoutError | nats.errors.TimeoutError):
                raise

    return act


def test_door_publishes_for_any_board_and_cannot_read_reports(site: Site):
    rotation.put_door(site.folder, now_utc())
    site.servers.reload()
    own = site.folder.path / DOOR
    assert nats_refuses(site.folder, own)
    with at(site.folder, site.aggregator) as aggregator, at(site.folder, own) as door:
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
    shutil.copy(own, before)
    rotation.put_door(site.folder, now_utc())
    site.servers.reload()
    assert refused(site, before)
    assert not refused(site, own)


def test_rotation_ends_old_aggregator_certificate_only(site: Site):
    before = site.pem("aggregator-before")
    shutil.copy(site.aggregator, before)
    with at(site.folder, before) as aggregator:
        aggregator.publish(f"{TOPIC}/experiment/stays", b"e", retain=True)
        rotation.rotate_aggregator(site.folder, now_utc())
        site.servers.reload()
        assert not refused(site, site.aggregator)
        assert not refused(site, before)
        assert aggregator.ended is None
        rotation.finish_aggregator(site.folder, now_utc())
        site.servers.reload()
        until(lambda: aggregator.ended, "its connection ends")
    assert refused(site, before)
    assert nats_refuses(site.folder, before)
    assert not nats_refuses(site.folder, site.aggregator)
    with at(site.folder, site.pem("reader")) as reader, at(site.folder, site.aggregator) as aggregator:
        reader.subscribe(f"{TOPIC}/experiment/+")
        until(lambda: reader.messages == [(f"{TOPIC}/experiment/stays", b"e")], lambda: reader.messages)
        aggregator.publish(f"{TOPIC}/experiment/stays", b"", retain=True)


def test_full_store_rejects_report_and_keeps_acknowledged_ones(tmp_path: Path):
    """The limit is lowered, so that a flood of seconds reaches it. An aggregator pulls over NATS."""
    folder = make_nats_fleet(tmp_path / "folder")
    conf = folder.path / "broker/1/nats.conf"
    shipped = f"max_file_store: {servers_config.MOST_STORE_BYTES}"
    assert shipped in conf.read_text()
    conf.write_text(conf.read_text().replace(shipped, "max_file_store: 1000000"))
    pem = folder.path / "k3f9.pem"
    pem.write_bytes(folder.issue_device("k3f9", now_utc()).to_pem())
    config = ConsumerConfig("counted", "counted", filter_subject=report_subject(FLEET))

    async def pull(client: Client) -> int:
        taken = await client.jetstream().pull_subscribe_bind("counted", STREAM)
        count = 0
        while waiting := (await taken.consumer_info()).num_pending:
            for message in await taken.fetch(min(waiting, 100), timeout=60):
                await message.ack_sync(timeout=60)
                count += 1
        return count

    with serving(folder):
        aggregator = folder.path / "aggregator/aggregator_1.pem"
        with at(folder, aggregator) as first:  # the first over MQTT makes the stream
            assert first.connected()
        over_nats(folder, aggregator, lambda client: client.jetstream().add_consumer(STREAM, config))
        with at(folder, pem) as board:
            while not board.ended:
                board.publish(f"{TOPIC}/report/k3f9", bytes(3000))
                assert len(board.acknowledged) < 1000
            taken = len(board.acknowledged)
            assert taken > 100
        assert over_nats(folder, aggregator, pull) in (taken, taken + 1)
        assert over_nats(folder, aggregator, lambda c: c.jetstream().delete_consumer(STREAM, "counted"))
        with at(folder, pem) as board:
            board.publish(f"{TOPIC}/report/k3f9", b"again")
            assert board.acknowledged == ["Success"]


def test_the_log_names_who_is_refused(site: Site):
    """NATS has no setting against it; mosquitto has."""
    (gone,) = site.board("gone")
    site.folder.revoke(["gone"], now_utc())
    site.servers.reload()
    assert refused(site, gone, client_id="the-client-id-of-gone")
    log = site.servers.log(1)
    assert re.search(r"127\.0\.0\.1:\d+ - mid:\d+ - \"the-client-id-of-gone\" - authentication error", log)
