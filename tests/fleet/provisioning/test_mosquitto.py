"""mosquitto with exactly the files of `hushmote provision fleet`: admission and rights.

MQTT 3.1.1 acknowledges even refused publications, so the tests check which messages reach a subscriber.
"""

import datetime
import re
import shutil
import ssl
import subprocess
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from fleet_broker import (
    FLEET,
    FleetBroker,
    Visitor,
    cannot_resume,
    context,
    is_mute_in_plain,
    make_fleet,
    running,
    visit,
)
from refusals import fails
from running_aggregator import HANGS_S, until

from hushmote.fleet.provisioning import authority
from hushmote.fleet.provisioning import mosquitto as broker_config
from hushmote.fleet.provisioning.fleet_folder import FleetFolder, FleetSpec, now_utc
from hushmote.fleet.provisioning.forget import clear_status
from hushmote.server.errors import ProvisionError
from hushmote.server.ingest.broker_url import BrokerAddress
from hushmote.server.ingest.device_health import BrokerUnreachable, read
from hushmote.server.wire.topics import NameRefused

TOPIC = f"hushmote/v1/{FLEET}"
HOSTS = ("localhost",)
PLAN = FleetSpec(FLEET, HOSTS, 8883, 8884, "/etc/mosquitto/hushmote", aggregator_port=8882)


class Site:
    """A running broker and its fleet's client certificates."""

    def __init__(self, folder: FleetFolder, broker: FleetBroker) -> None:
        self.folder = folder
        self.broker = broker
        self.port = folder.fleet.port
        assert folder.fleet.password_port is not None
        self.password_port = folder.fleet.password_port
        assert folder.fleet.aggregator_port is not None
        self.aggregator_port = folder.fleet.aggregator_port

    def board(self, device: str) -> ssl.SSLContext:
        """Return a board's TLS context, with a certificate that is issued only once."""
        if not self.pem(device).exists():
            self.pem(device).write_bytes(self.folder.issue_device(device, now_utc()).to_pem())
        return context(self.folder, self.pem(device))

    def pem(self, name: str) -> Path:
        return self.folder.path / "devices" / f"{name}.pem"

    def named(self, name: str, until: datetime.datetime | None = None) -> ssl.SSLContext:
        """Return a client's TLS context with a certificate for any name from the fleet's authority."""
        now = now_utc() if until is None else until - datetime.timedelta(days=1)
        issued = authority.issue_client(self.folder.signer(), name, now, 1)
        self.pem(name).write_bytes(issued.to_pem())
        return context(self.folder, self.pem(name))

    def aggregator(self) -> ssl.SSLContext:
        return context(self.folder, self.folder.path / "aggregator/aggregator_1.pem")

    def arrives(self, aggregator: Visitor, board: Visitor, device: str) -> list[tuple[str, bytes]]:
        """Return the reports and status that reach the aggregator before a final, allowed report."""
        board.publish(f"{TOPIC}/report/{device}", b"last")
        until(lambda: aggregator.messages[-1:] == [(f"{TOPIC}/report/{device}", b"last")], "the final report")
        return [m for m in aggregator.messages[:-1] if "/experiment/" not in m[0]]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory):
    folder = make_fleet(tmp_path_factory.mktemp("site") / "folder", passwords=True)
    with running(folder) as broker:
        yield Site(folder, broker)


def is_refused(site: Site, port: int, tls: ssl.SSLContext | None, **options) -> bool:
    """Return whether the broker refuses a session: before or in the handshake, or in its response."""
    try:
        with visit(port, tls, **options) as visitor:
            return not visitor.connected()
    except OSError:
        return True


# On the client side, OpenSSL 3 no longer offers it by default either.
_OLD = """openssl_conf = x
[x]
ssl_conf = s
[s]
system_default = d
[d]
MinProtocol = TLSv1
CipherString = DEFAULT@SECLEVEL=0
"""


class TestAdmission:
    @pytest.mark.parametrize("protocol", [paho.MQTTv5, paho.MQTTv311], ids=["MQTT 5", "MQTT 3.1.1"])
    @pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
    def test_accepts_board_certificate_at_every_broker_name(self, site: Site, protocol, host: str):
        assert not is_refused(site, site.port, site.board("k3f9"), protocol=protocol, host=host)

    def test_requires_certificate_on_both_ports(self, site: Site):
        for port in (site.port, site.aggregator_port):
            assert is_refused(site, port, context(site.folder))
            assert not is_refused(site, port, site.aggregator())

    def test_rejects_foreign_certificates_and_broker_certificate(self, site: Site, tmp_path: Path):
        other = authority.new_authority(FLEET, now_utc())
        pem = tmp_path / "other.pem"
        pem.write_bytes(authority.issue_client(other, "k3f9", now_utc(), 1).to_pem())
        for certificate in (pem, site.folder.path / "broker/broker.pem"):
            assert is_refused(site, site.port, context(site.folder, certificate))

    def test_rejects_expired_certificate(self, site: Site):
        ended = now_utc() - datetime.timedelta(seconds=5)
        assert is_refused(site, site.port, site.named("ended", until=ended))
        assert not is_refused(
            site, site.port, site.named("not-ended", until=now_utc() + datetime.timedelta(hours=1))
        )

    def test_clearing_ends_connection_and_status(self, site: Site):
        topics = [f"{TOPIC}/status/{device}" for device in ("clears", "keeps")]
        with (
            visit(site.port, site.board("keeps")) as keeps,
            visit(site.port, site.board("clears")) as clears,
            visit(site.aggregator_port, site.aggregator()) as aggregator,
        ):
            for board, topic in zip((clears, keeps), topics, strict=True):
                assert board.connected()
                board.publish(topic, b"online", retain=True)
            aggregator.subscribe(f"{TOPIC}/status/+")
            until(lambda: len(aggregator.messages) == 2, "both statuses")
            clear_status(site.folder, "clears", now_utc())
            until(lambda: clears.ended, "the end of the board's connection")
            until(lambda: (topics[0], b"") in aggregator.messages, "the cleared status")
            assert keeps.ended is None
        with visit(site.aggregator_port, site.aggregator()) as aggregator:
            aggregator.subscribe(f"{TOPIC}/status/+")
            until(lambda: aggregator.messages, "the other board's status")
            assert dict(aggregator.messages) == {topics[1]: b"online"}
            clear_status(site.folder, "keeps", now_utc())  # the broker is shared

    def test_refuses_only_revoked_board_after_sighup(self, site: Site):
        stolen, other = site.board("stolen"), site.board("k3f9")
        assert not is_refused(site, site.port, stolen)
        assert not is_refused(site, site.aggregator_port, stolen)
        site.folder.revoke(["stolen"], now_utc())
        site.broker.reload()
        assert is_refused(site, site.port, stolen)
        assert is_refused(site, site.aggregator_port, stolen)
        assert not is_refused(site, site.port, other)

    @pytest.mark.parametrize(
        "version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["TLS 1.2", "TLS 1.3"]
    )
    def test_revoked_board_cannot_resume_session(self, site: Site, version: ssl.TLSVersion):
        device = f"resumes-{version.value}"

        def revoke() -> None:
            site.folder.revoke([device], now_utc())
            site.broker.reload()

        assert cannot_resume(site.port, site.board(device), version, revoke)

    def test_does_not_answer_plain_tcp(self, site: Site):
        for port in (site.port, site.aggregator_port, site.password_port):
            assert is_refused(site, port, None)
            assert is_mute_in_plain(port)

    @pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
    def test_refuses_tls_below_1_2_despite_system_policy(self, tmp_path: Path, monkeypatch):
        (tmp_path / "openssl.cnf").write_text(_OLD)
        monkeypatch.setenv("OPENSSL_CONF", str(tmp_path / "openssl.cnf"))
        folder = make_fleet(tmp_path / "folder")
        certificate = folder.path / "aggregator/aggregator_1.pem"

        def agreed(version: str) -> bool:
            command = ["openssl", "s_client", "-connect", f"127.0.0.1:{folder.fleet.port}", f"-{version}"]
            command += ["-cert", str(certificate), "-key", str(certificate), "-cipher", "ALL@SECLEVEL=0"]
            result = subprocess.run(
                command, input="", capture_output=True, text=True, timeout=HANGS_S, check=False
            )
            return re.search(r"Cipher is (?!\(NONE\))\S+", result.stdout) is not None

        versions = ("tls1_1", "tls1_2", "tls1_3")
        with running(folder) as broker:
            assert [agreed(version) for version in versions] == [False, True, True]
            # Without our two lines, this OpenSSL does use TLS 1.1, so the test above is meaningful.
            text = broker.config.read_text().replace("tls_version tlsv1.2", "tls_version tlsv1.1")
            broker.config.write_text(re.sub("ciphers .*", "ciphers ALL@SECLEVEL=0", text))
            broker.stop()
            broker.start()
            assert [agreed(version) for version in versions] == [True, True, True]


class TestLogin:
    def test_works_after_sighup_with_its_password_only(self, site: Site):
        password = site.folder.issue_login("plain1")
        site.broker.reload()
        tls = context(site.folder)
        assert not is_refused(site, site.password_port, tls, login=("plain1", password))
        assert is_refused(site, site.password_port, tls, login=("plain1", password[:-1]))
        assert is_refused(site, site.password_port, tls, login=("plain1", ""))
        assert is_refused(site, site.password_port, tls, login=("plain2", password))
        assert is_refused(site, site.password_port, tls)
        # A login is useless where certificates are required.
        assert is_refused(site, site.port, tls, login=("plain1", password))

    def test_never_has_rights_of_an_aggregator(self, site: Site):
        for password in ("", "x"):
            assert is_refused(
                site, site.password_port, context(site.folder), login=("aggregator_1", password)
            )
        with pytest.raises(NameRefused):
            site.folder.issue_login("aggregator_1")
        with pytest.raises(NameRefused):
            site.folder.issue_device("aggregator_1", now_utc())

    def test_certificate_does_not_replace_password(self, site: Site):
        assert is_refused(site, site.password_port, site.board("k3f9"))

    def test_is_refused_once_revoked(self, site: Site):
        login = ("plain3", site.folder.issue_login("plain3"))
        site.broker.reload()
        assert not is_refused(site, site.password_port, context(site.folder), login=login)
        site.folder.revoke(["plain3"], now_utc())
        site.broker.reload()
        assert is_refused(site, site.password_port, context(site.folder), login=login)

    @pytest.mark.skipif(shutil.which("mosquitto_passwd") is None, reason="mosquitto_passwd is not installed")
    def test_password_line_matches_mosquitto_passwd(self, tmp_path: Path):
        path = tmp_path / "passwords"
        subprocess.run(
            ["mosquitto_passwd", "-b", "-c", str(path), "k3f9", "secret"], check=True, timeout=HANGS_S
        )
        theirs, ours = path.read_text().strip(), broker_config.password_line("k3f9", "secret")
        assert [len(x) for x in theirs.split("$")] == [len(x) for x in ours.split("$")]
        assert theirs.split("$")[:3] == ours.split("$")[:3]


class TestBoardRights:
    @pytest.mark.parametrize("protocol", [paho.MQTTv5, paho.MQTTv311], ids=["MQTT 5", "MQTT 3.1.1"])
    def test_reports_only_under_its_own_name(self, site: Site, protocol):
        with visit(site.port, site.aggregator()) as aggregator:
            aggregator.subscribe(f"{TOPIC}/report/+")
            with visit(site.port, site.board("k3f9"), protocol=protocol) as board:
                board.publish(f"{TOPIC}/report/k3f9", b"own")
                board.publish(f"{TOPIC}/report/other", b"another board's")
                board.publish(f"{TOPIC}/report/k3f9/x", b"below its own")
                board.publish(f"{TOPIC}/report/aggregator_1", b"the aggregator's")
                board.publish("hushmote/v1/away/report/k3f9", b"another fleet's")
                if protocol == paho.MQTTv5:
                    assert board.acknowledged == ["Success", *4 * ["Not authorized"]]
                assert site.arrives(aggregator, board, "k3f9") == [(f"{TOPIC}/report/k3f9", b"own")]

    def test_last_will_goes_to_its_own_topics_only(self, site: Site):
        wills = [
            (f"{TOPIC}/report/other", b"w"),
            (f"{TOPIC}/experiment/will", b"w"),
            (f"{TOPIC}/report/will", b"own"),
        ]
        with visit(site.port, site.aggregator()) as aggregator:
            aggregator.subscribe("#")
            for will in wills:
                with visit(site.port, site.board("will"), will=will) as board:
                    if board.connected():  # mosquitto checks a will when it is due
                        sock = board.client.socket()
                        assert sock is not None
                        board.client.loop_stop()
                        sock.close()  # without DISCONNECT, so the will is due
            until(lambda: wills[2] in aggregator.messages, "the will on its own topic")
            assert not {m[0] for m in aggregator.messages} & {wills[0][0], wills[1][0]}

    def test_can_neither_publish_nor_clear_an_experiment(self, site: Site):
        topic = f"{TOPIC}/experiment/temp"
        with visit(site.port, site.aggregator()) as aggregator:
            aggregator.publish(topic, b"signed", retain=True)
            with visit(site.port, site.board("k3f9")) as board:
                board.publish(topic, b"forged", retain=True)
                board.publish(topic, b"", retain=True)
            with visit(site.port, site.board("reader")) as reader:
                reader.subscribe(topic)
                until(lambda: reader.messages, "the experiment arrives")
                assert reader.messages == [(topic, b"signed")]

    def test_reads_only_experiments(self, site: Site):
        names = (
            "#",
            "$SYS/#",
            "+/+/+/+/+",
            f"{TOPIC}/report/+",
            f"{TOPIC}/status/+",
            f"{TOPIC}/experiment/+",
        )
        with visit(site.port, site.board("spy")) as spy, visit(site.port, site.aggregator()) as aggregator:
            for name in names:
                spy.subscribe(name)
            with visit(site.port, site.board("k3f9")) as board:
                board.publish(f"{TOPIC}/report/k3f9", b"private")
                board.publish(f"{TOPIC}/status/k3f9", b"online", retain=True)
                aggregator.publish(f"{TOPIC}/experiment/last", b"e", retain=True)
                until(lambda: (f"{TOPIC}/experiment/last", b"e") in spy.messages, "an experiment arrives")
        assert {topic.split("/")[3] for topic, _ in spy.messages} == {"experiment"}

    @pytest.mark.parametrize("name", ["+", "#", "k3f9/+", "+/report/k3f9"])
    def test_wildcard_certificate_grants_nothing(self, site: Site, name: str):
        """Such certificates are never issued; this shows how mosquitto would treat one."""
        with pytest.raises(NameRefused):
            site.folder.issue_device(name, now_utc())
        with pytest.raises(authority.AuthorityError):
            authority.issue_client(site.folder.signer(), name, now_utc(), 1)
        authority._NAME, strict = re.compile(".*"), authority._NAME
        try:
            pem = site.folder.path / "wild.pem"
            pem.write_bytes(authority.issue_client(site.folder.signer(), name, now_utc(), 1).to_pem())
        finally:
            authority._NAME = strict
        with visit(site.port, site.aggregator()) as aggregator, visit(site.port, site.board("k3f9")) as board:
            aggregator.subscribe("#")
            with visit(site.port, context(site.folder, pem)) as wild:
                wild.subscribe("#")
                for topic in (f"{TOPIC}/report/k3f9", f"{TOPIC}/report/x", f"{TOPIC}/report/k3f9/x"):
                    if wild.ended is None:
                        wild.publish(topic, b"forged")
                assert not [m for m in site.arrives(aggregator, board, "k3f9") if "/status/" not in m[0]]
                assert not [m for m in wild.messages if "/report/" in m[0]]

    @pytest.mark.parametrize("protocol", [paho.MQTTv5, paho.MQTTv311], ids=["MQTT 5", "MQTT 3.1.1"])
    def test_oversized_packet_disconnects_its_sender(self, site: Site, protocol):
        with visit(site.port, site.aggregator()) as aggregator, visit(site.port, site.board("k3f9")) as board:
            aggregator.subscribe(f"{TOPIC}/report/+")
            with visit(site.port, site.board("flood"), protocol=protocol) as flood:
                flood.publish(f"{TOPIC}/report/flood", bytes(broker_config.MAX_PACKET_BYTES))
                assert flood.ended
            assert site.arrives(aggregator, board, "k3f9") == []
            experiment = (f"{TOPIC}/experiment/" + "n" * 32, bytes([65]) * (1024 + 1 + 4 + 64))
            aggregator.publish(*experiment, retain=True)
            board.subscribe(experiment[0])
            until(lambda: experiment in board.messages, "the largest experiment arrives")


class TestAggregatorRights:
    def test_only_aggregator_writes_results_that_everyone_reads(self, site: Site):
        topics = (f"{TOPIC}/result/temp", f"homeassistant/sensor/hushmote_{FLEET}/temp-mean/config")
        topics += tuple(
            f"homeassistant/{name}/hushmote_{FLEET}/alerts/config" for name in broker_config.DISCOVERED[1:]
        )
        topics += (f"{TOPIC}/alert/event", f"{TOPIC}/proof/temp")
        others = (f"homeassistant/sensor/hushmote_{FLEET}x/temp-mean/config", "homeassistant/switch/x/config")
        with (
            visit(site.port, site.board("reader")) as reader,
            visit(site.port, site.aggregator()) as aggregator,
        ):
            reader.subscribe(f"{TOPIC}/result/+")
            reader.subscribe(f"{TOPIC}/alert/+")
            reader.subscribe(f"{TOPIC}/proof/+")
            reader.subscribe("homeassistant/#")
            for topic in (*others, *topics):
                aggregator.publish(topic, b"learned" * 500, retain=True)
            until(lambda: len(reader.messages) == len(topics), lambda: reader.messages)
            assert reader.messages == [(topic, b"learned" * 500) for topic in topics]
            for topic in topics:
                reader.publish(topic, b"forged", retain=True)
            with visit(site.port, site.board("later")) as later:
                later.subscribe(f"{TOPIC}/result/+")
                until(lambda: later.messages, "the result arrives")
                assert later.messages == [(topics[0], b"learned" * 500)]
            for topic in topics:
                aggregator.publish(topic, b"", retain=True)

    def test_are_minimal(self, site: Site):
        with visit(site.port, site.aggregator()) as aggregator, visit(site.port, site.board("k3f9")) as board:
            aggregator.subscribe("#")
            board.subscribe("#")
            aggregator.publish(f"{TOPIC}/report/k3f9", b"made up")
            aggregator.publish("hushmote/v1/away/experiment/temp", b"another fleet's", retain=True)
            aggregator.publish(f"{TOPIC}/status/k3f9", b"offline", retain=True)
            board.publish(f"{TOPIC}/status/k3f9", b"online", retain=True)
            aggregator.publish(f"{TOPIC}/experiment/temp", b"own", retain=True)
            # The board's status is retained, so it may be from earlier.
            assert set(site.arrives(aggregator, board, "k3f9")) == {(f"{TOPIC}/status/k3f9", b"online")}
            assert (f"{TOPIC}/experiment/temp", b"own") in board.messages
            # Refused publications did not end its connection.
            assert aggregator.ended is None

    def test_board_cannot_take_over_session(self, site: Site):
        with visit(site.port, site.aggregator(), client_id="hushmote-aggregator") as aggregator:
            aggregator.subscribe(f"{TOPIC}/report/+")
            for name in ("hushmote-aggregator", "aggregator_1"):
                with visit(site.port, site.board("k3f9"), client_id=name) as board:
                    assert board.connected()
                    site.arrives(aggregator, board, "k3f9")
            assert aggregator.ended is None

    def test_share_name_is_secret_because_members_take_reports(self, site: Site):
        secret = site.folder.share()
        assert re.fullmatch(r"[0-9a-f]{32}", secret)

        def arrived(thief_joins: str) -> int:
            """Return how many of 20 reports reach the aggregator while a board has joined a share."""
            with (
                visit(site.port, site.aggregator()) as aggregator,
                visit(site.port, site.board("thief")) as thief,
                visit(site.port, site.board("k3f9")) as board,
            ):
                aggregator.subscribe(f"$share/{secret}/{TOPIC}/report/+")
                thief.subscribe(f"$share/{thief_joins}/{TOPIC}/report/+")
                for i in range(20):
                    board.publish(f"{TOPIC}/report/k3f9", b"%d" % i)
                aggregator.subscribe(f"{TOPIC}/experiment/end")
                aggregator.publish(f"{TOPIC}/experiment/end")
                until(lambda: aggregator.messages[-1][0].endswith("/end"), "the final message")
                assert thief.messages == []
                return len(aggregator.messages) - 1

        assert arrived(secret) == 10  # the thief is sent every second report but may not read it
        assert arrived("guess") == 20


class TestBroker:
    def test_queued_messages_survive_restart(self, tmp_path: Path):
        folder = make_fleet(tmp_path / "a folder")  # with a space, which mosquitto.conf cannot quote
        aggregator = context(folder, folder.path / "aggregator/aggregator_1.pem")
        pem = folder.path / "k3f9.pem"
        pem.write_bytes(folder.issue_device("k3f9", now_utc()).to_pem())
        count = 2500  # more than the 1,000 that mosquitto keeps by default
        with running(folder) as broker:
            with visit(folder.fleet.port, aggregator, protocol=paho.MQTTv311, clean=False) as first:
                first.subscribe(f"{TOPIC}/report/+")
                first.publish(f"{TOPIC}/experiment/temp", b"e", retain=True)
            with visit(folder.fleet.port, context(folder, pem)) as board:
                for i in range(count):
                    board.client.publish(f"{TOPIC}/report/k3f9", b"%d" % i, qos=1)
                until(lambda: len(board.acknowledged) == count, "all messages are accepted")
            broker.stop()
            broker.start()
            with visit(folder.fleet.port, aggregator, protocol=paho.MQTTv311, clean=False) as second:
                until(lambda: len(second.messages) == count, "all messages arrive")
                assert [int(payload) for _, payload in second.messages] == list(range(count))
            with visit(folder.fleet.port, context(folder, pem)) as board:
                board.subscribe(f"{TOPIC}/experiment/+")
                until(
                    lambda: board.messages == [(f"{TOPIC}/experiment/temp", b"e")], "the experiment arrives"
                )

    def test_reading_status_keeps_an_aggregators_queue(self, site: Site):
        aggregator = context(site.folder, site.folder.path / "aggregator/aggregator_1.pem")
        with visit(site.aggregator_port, aggregator, protocol=paho.MQTTv311, clean=False) as first:
            first.subscribe(f"{TOPIC}/report/+")
        with visit(site.port, site.board("k3f9")) as board:
            board.publish(f"{TOPIC}/report/k3f9", b"1")
        address = BrokerAddress("localhost", site.aggregator_port, tls=True)
        with fails("keeps the reports of an aggregator with this login", BrokerUnreachable):
            read(address, [FLEET], aggregator)
        with visit(site.aggregator_port, aggregator, protocol=paho.MQTTv311, clean=False) as second:
            until(lambda: second.messages == [(f"{TOPIC}/report/k3f9", b"1")], "the report arrives")

    def test_log_names_no_client_or_address(self, site: Site):
        with visit(site.port, site.board("k3f9")) as board:
            board.publish(f"{TOPIC}/report/other", b"refused")
            board.publish(f"{TOPIC}/report/k3f9", bytes(3000))
        assert is_refused(site, site.port, context(site.folder))
        log = site.broker.log()
        assert "Warning" in log  # it does warn
        assert "k3f9" not in log
        assert "127.0.0.1" not in log


class TestConfiguration:
    def test_every_listener_requires_tls_and_authentication(self):
        text = broker_config.mosquitto_conf(PLAN)
        settings = [line for line in text.splitlines() if line and not line.startswith("#")]
        assert "allow_anonymous false" in settings
        parts = "\n".join(settings).split("listener ")[1:]
        assert [part.split("\n")[0] for part in parts] == ["8883", "8882", "8884"]
        for part in parts:
            for name in (
                "cafile",
                "certfile",
                "keyfile",
                "tls_version tlsv1.2",
                "use_username_as_clientid true",
            ):
                assert name in part
        for part in parts[:2]:
            assert "require_certificate true" in part
            assert "crlfile" in part
        assert "psk" not in text
        conf = broker_config.mosquitto_conf(FleetSpec(FLEET, HOSTS, broker_folder="/x"))
        assert "password_file" not in conf
        assert conf.count("\nlistener ") == 1

    @pytest.mark.parametrize("folder", ["/x\nlistener 1883", "/x\x00"], ids=["newline", "null byte"])
    def test_folder_name_cannot_add_settings(self, folder: str):
        plan = FleetSpec(FLEET, HOSTS, broker_folder=folder)
        with fails("one line", ProvisionError):
            broker_config.mosquitto_conf(plan)

    def test_aggregator_names_must_not_be_possible_board_names(self):
        text = broker_config.acl(FLEET, ["aggregator_1", "aggregator_2"])
        # Reports and boards' health; experiments and their proofs.
        assert text.count("topic read ") == text.count("topic readwrite ") == 4
        for name in ("k3f9", "aggregator-1", "aggregator_1\ntopic #", ""):
            with pytest.raises(ValueError, match="aggregator_1"):
                broker_config.acl(FLEET, [name])
        with pytest.raises(NameRefused):
            broker_config.acl("home/#", [])
