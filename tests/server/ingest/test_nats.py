"""The parts of a NATS connection: URL, requests, received bytes and TLS."""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from boards import experiment
from certificates import Authority
from running_aggregator import running, until
from serve_process import served
from traffic import counted_reports, crowd, publish

from hushmote.server.aggregator import Aggregator
from hushmote.server.ingest.broker_url import BrokerUrlError, is_nats, parse_nats_url
from hushmote.server.ingest.nats.client import BatchNatsClient
from hushmote.server.ingest.nats.connection import NatsConnection
from hushmote.server.ingest.nats.consumer import ACK_WAIT_S
from hushmote.server.ingest.nats.pull import Pull
from hushmote.server.ingest.nats.source import NatsSource
from hushmote.server.ingest.pacing import Pace
from hushmote.server.ingest.session import BrokerRefused, Session
from hushmote.server.ingest.status import Status
from hushmote.server.ingest.tls import client_context
from hushmote.simulator.broker import free_port
from hushmote.simulator.nats_servers import NatsServers


class TestUrl:
    def test_names_servers_with_nats_and_mqtt_ports(self):
        address = parse_nats_url("nats://ann:p%40ss@a,b:4333,[::1]?mqtt=1,2,3")
        assert address.servers == (("a", 4222, 1), ("b", 4333, 2), ("::1", 4222, 3))
        assert (address.username, address.password, address.tls) == ("ann", "p@ss", False)
        assert "p@ss" not in f"{address} {address!r}"
        assert str(address) == "the NATS servers at a:4222,b:4333,[::1]:4222"
        assert parse_nats_url("nats://a").servers == (("a", 4222, 1883),)
        tls = parse_nats_url("tls://a,b?mqtt=9")
        assert (tls.servers, tls.tls, tls.username) == ((("a", 4222, 9), ("b", 4222, 9)), True, None)
        assert is_nats("tls://a")
        assert not is_nats("mqtts://a")
        for url in (
            "nats://",
            "nats://a,,b",
            "nats://a:0x1",
            "nats://a:99999",
            "nats://a/x",
            "nats://a?mqtt=",
            "nats://a?mqtt=1,2",
            "nats://a?mqtt=70000",
            "nats://a:0",
            "nats://a?mqt=1",
            "nats://ann:secret@a?x",
            "mqtt://a",
        ):
            with pytest.raises(BrokerUrlError, match="NATS servers are written nats://") as caught:
                parse_nats_url(url)
            assert "secret" not in str(caught.value)


class TestPull:
    def test_requests_no_more_than_it_may_hold(self):
        pull = Pull(100, "inbox")
        arrivals = [(b"ack", ("topic", b"%d" % i)) for i in range(30)]
        assert pull.request(0, 1.0) is not None
        assert pull.request(0, 1.0) is None  # all of them are on their way
        for arrival in arrivals[:20]:
            pull.note_arrival(arrival, 1.0)
        assert pull.request(0, 1.0) is None  # it waits its turn
        assert pull.take_over(15) + pull.take_over(-1) + pull.take_over(15) == arrivals[:20]
        assert pull.request(20, 1.0) is None  # held without acknowledgement
        assert pull.request(0, 1.0) is None  # 80 are on their way, and 20 are too few for a request
        for arrival in arrivals[20:]:
            pull.note_arrival(arrival, 1.0)
        pull.take_over(100)
        second = pull.request(0, 1.0)
        assert second is not None
        assert b'"batch": 30,' in second[1]
        assert pull.note_answer(b"inbox.1", b"NATS/1.0 408 Request Timeout\r\n\r\n", 2.0) == ""
        third = pull.request(0, 2.0)  # the messages of the first request
        assert third is not None
        assert b'"batch": 70,' in third[1]
        assert third[0] == "inbox.3"

    def test_notices_a_lost_leader(self):
        pull = Pull(100, "inbox")
        pull.note_turn(0.0)
        assert not pull.is_silent(100.0)  # nothing was requested
        pull.request(0, 100.0)
        assert pull.note_answer(b"inbox.1", b"NATS/1.0 100 Idle Heartbeat\r\n\r\n", 103.0) == ""
        pull.note_turn(104.0)
        pull.note_turn(104.5)
        assert not pull.is_silent(106.9)
        assert pull.is_silent(108.1)
        pull.note_turn(120.0)  # after a long commit, later messages are still unread
        assert not pull.is_silent(120.1)
        assert (
            pull.note_answer(b"inbox.1", b"NATS/1.0 409 Consumer Deleted\r\n\r\n", 121.0)
            == "consumer deleted"
        )
        assert pull.note_answer(b"inbox.1", b"NATS/1.0 503\r\n\r\n", 121.0) == "nobody leads the consumer"


def stream(count):
    """Return a server's bytes, with messages of subscription 7 among other lines, and those messages."""
    sent, messages = b"", []
    for i in range(count):
        headers, payload = b"NATS/1.0\r\nNmqtt-Pub:1\r\n\r\n", b"\r\nHMSG %d" % i
        subject, reply = b"a.b%d" % i, b"$JS.ACK.%d" % i
        size = len(headers), len(headers) + len(payload)
        sent += b"HMSG %s 7 %s %d %d\r\n%s%s\r\n" % (subject, reply, *size, headers, payload)
        messages.append((subject, reply, headers, payload))
        if i % 3 == 0:
            other = b"HMSG other 8 reply %d %d\r\n%s\r\n" % (len(headers), len(headers), headers)
            sent += b"PING\r\nMSG other 8 2\r\nhi\r\n+OK\r\n" + other
    return sent, messages


class TestParser:
    @pytest.mark.parametrize("piece", [1, 7, 100, 1 << 16])
    def test_keeps_order_however_bytes_arrive(self, piece):
        received_messages, pings = [], []
        sent, messages = stream(40)

        async def feed():
            client = BatchNatsClient(lambda *message: received_messages.append(message), lambda _text: None)
            client.report_sid = 7

            async def ping():
                pings.append(len(received_messages))

            client._process_ping = ping
            for at in range(0, len(sent), piece):
                await client._ps.parse(sent[at : at + piece])

        asyncio.run(feed())
        assert received_messages == messages
        assert pings == [i + 1 for i in range(40) if i % 3 == 0]


class TlsServers(NatsServers):
    """Servers that accept only TLS on both ports; tls is the content of their configuration block."""

    def __init__(self, tls):
        super().__init__(1, settings=(f"tls {{ {tls} }}",))
        self._tls = tls

    def _lines(self, number):
        return super()._lines(number).replace("mqtt {", f"mqtt {{ tls {{ {self._tls} }}, ")

    @property
    def url(self):
        return super().url.replace("nats://", "tls://").replace(self.host, "localhost")


class trying:
    """Run an aggregator that tries to connect in a thread."""

    def __init__(self, store, address, tls):
        self._aggregator = Aggregator(store, address, tls=tls)
        self._thread = threading.Thread(target=self._aggregator.run)

    def __enter__(self):
        self._thread.start()

    def __exit__(self, *_):
        self._aggregator.stop()
        self._thread.join()


@pytest.fixture(scope="module")
def server():
    with NatsServers(1) as servers:
        yield servers


class TestSource:
    @contextlib.contextmanager
    def connected(self, server: NatsServers, **options: Any) -> Iterator[tuple[NatsSource, NatsConnection]]:
        """Connect a source to a real server, without waiting for its answers."""
        address = parse_nats_url(server.url)
        session = Session(address.mqtt, options.pop("name", "agg"), **options)
        source = NatsSource(address, session, Status(), lambda: Pace(40, 0.2))
        connection = source.connect()
        assert connection is not None
        with contextlib.closing(connection):
            yield source, connection

    @contextlib.contextmanager
    def subscribed(self, server: NatsServers, **options: Any) -> Iterator[NatsConnection]:
        """Connect a source to a real server, and wait until reports start to arrive."""
        with self.connected(server, **options) as (source, connection):

            def is_greeted() -> bool:
                connection.turn(0.1, 40)
                return source.greet(connection, 0.0)

            until(is_greeted, lambda: connection.error)
            yield connection

    def test_unacknowledged_reports_come_again(self, server: NatsServers):
        messages = crowd(30)[0]
        with self.subscribed(server) as first:
            assert first.existing_consumer is None
            publish(server, messages)
            until(lambda: first.turn(0.1, 40) and len(first.messages) == 30, lambda: first.error)
        with self.subscribed(server) as second:
            assert second.existing_consumer is not None
            start = time.monotonic()
            until(lambda: second.turn(0.1, 40) and len(second.messages) == 30, lambda: second.error)
            assert time.monotonic() - start < ACK_WAIT_S / 4
            assert sorted(second.messages) == sorted(messages)
            second.acknowledge()
            until(lambda: second.pending_count() == 0, second.pending_count)

    def test_closes_before_the_server_answers(self, server: NatsServers):
        with self.connected(server) as (_, connection):
            assert not connection.subscribed

    def test_consumer_belongs_to_the_same_fleets_in_any_order(self, server: NatsServers):
        for fleets in (["open", "away"], ["away", "open"]):
            with self.subscribed(server, name="both", fleets=fleets):
                pass
        with (
            pytest.raises(BrokerRefused, match=r"the consumer both is for other fleets, .*use another"),
            self.subscribed(server, name="both", fleets=["open"]),
        ):
            pass

    def test_closes_every_failed_attempt(self, monkeypatch: pytest.MonkeyPatch):
        closed, close = [], NatsConnection.close
        monkeypatch.setattr(NatsConnection, "close", lambda self: closed.append(self) or close(self))
        hosts = ",".join(f"127.0.0.1:{free_port()}" for _ in range(3))
        address = parse_nats_url(f"nats://{hosts}")
        source = NatsSource(address, Session(address.mqtt, "agg"), Status(), lambda: Pace(40, 0.2))
        assert source.connect() is None
        assert len(set(closed)) == 3


@pytest.mark.long
class TestServers:
    def test_counts_over_tls_and_explains_distrust(self, store, tmp_path, caplog):
        ca = Authority(tmp_path)
        mine = ca.sign("aggregator")
        certificate, key = ca.sign("server", "localhost", "127.0.0.1")
        blocks = f'cert_file: "{certificate}", key_file: "{key}", ca_file: "{ca.file}", verify: true'
        messages, counts = crowd(50)
        with TlsServers(blocks) as servers:
            arguments = ("--store", f"sqlite:///{store.where}", "--broker", servers.url, "--batch", "0.1s")
            login = {"CA": ca.file, "CERT": mine[0], "CERT_KEY": mine[1]}
            environment = {f"HUSHMOTE_BROKER_{name}": str(file) for name, file in login.items()}
            with served(*arguments, environment=environment) as process:
                process.ready()
                tls = client_context(ca.file, *mine)
                publish(servers, messages, set_up=lambda client: client.tls_set_context(tls))
                until(lambda: counted_reports(store) == 50, process.log)
                assert process.end() == 0
            stranger = Authority(tmp_path, "stranger")
            for context, url, words in [
                (client_context(stranger.file, *mine), servers.url, "the CA of its certificate is not trust"),
                (client_context(ca.file), servers.url, "client certificate"),
                (
                    None,
                    servers.url.replace("tls://", "nats://"),
                    "it requires TLS: write the servers as tls://",
                ),
            ]:
                with trying(store, parse_nats_url(url), context):
                    until(lambda: words in caplog.text, words)  # noqa: B023
        assert list(store.histogram("open", experiment().digest)) == counts
        with NatsServers(1) as servers, trying(store, parse_nats_url(servers.url), client_context(ca.file)):
            until(lambda: "it does not use TLS on this port" in caplog.text, caplog.text)

    def test_waits_for_servers(self, store, caplog):
        caplog.set_level(logging.INFO, "hushmote")
        with NatsServers(1) as servers:
            servers.kill()
            with trying(store, parse_nats_url(servers.url), None):
                until(lambda: "no NATS server at 127.0.0.1:" in caplog.text, "the log line")
                servers.start_node(0)
                until(lambda: "with the consumer hushmote-aggregator" in caplog.text, caplog.text)
            with running(store, servers):
                pass
