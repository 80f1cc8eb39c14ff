"""The aggregator on real NATS servers: it loses nothing and counts nothing twice, whatever fails."""

import asyncio
import dataclasses
import signal
import socket
import subprocess
import sys
import time
from typing import Any

import nats
import pytest
from boards import experiment
from nats.js.api import AckPolicy, ConsumerConfig
from nats.js.errors import NotFoundError
from running_aggregator import WAIT_S, running, until
from traffic import counted_reports, crowd, forget, full_disk, publish, total

from hushmote.server.aggregator import Aggregator, BrokerRefused, Counting
from hushmote.server.ingest.broker_url import parse_nats_url
from hushmote.server.ingest.nats import consumer as nats_consumer
from hushmote.server.wire import topics
from hushmote.server.wire.subjects import STREAM, report_subject
from hushmote.simulator.nats_servers import NatsServers

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def server():
    with NatsServers(1) as servers:
        yield servers


@pytest.fixture
def clean_server(server):
    """Return a server without messages from earlier tests."""
    yield server
    forget(server)


@pytest.fixture
def three():
    with NatsServers(3) as servers:
        yield servers


def ask(servers, question):
    """Return a JetStream context's answer to question(context)."""

    async def answer():
        urls = [f"nats://{servers.host}:{node.nats}" for node in servers.nodes]
        async with await nats.connect(urls) as client:
            return await question(client.jetstream())

    return asyncio.run(answer())


def consumer(servers, name):
    """Return the servers' information about a consumer."""
    return ask(servers, lambda stream: stream.consumer_info(STREAM, name))


def retire(store, servers, name, **options):
    counting = Counting(client_id=name, retire=True, **options)
    aggregator = Aggregator(store, parse_nats_url(servers.url), counting)
    aggregator.run()
    return aggregator.counters


KILLED_BEFORE_ACKNOWLEDGING = """
import os, signal, sys
from hushmote.server.aggregator import Aggregator, Counting
from hushmote.server.ingest.broker_url import parse_nats_url
from hushmote.server.store import Store

Aggregator(
    Store(sys.argv[1]), parse_nats_url(sys.argv[2]), Counting(client_id="killed", batch_s=0.05),
    on_commit=lambda *_: os.kill(os.getpid(), signal.SIGKILL),
).run()
"""


class TestCrash:
    def test_survives_death_of_all_servers_and_the_leader(self, store, three, caplog):
        messages, counts = crowd(1000)
        with running(store, three, client_id="agg") as aggregator:
            publish(three, messages[:300])
            until(lambda: total(aggregator) == 300, lambda: aggregator.counters)
        publish(three, messages[300:700])
        three.kill()
        for number in range(3):
            three.start_node(number)
        three.wait()
        with running(store, three, client_id="agg") as aggregator:
            until(lambda: counted_reports(store) == 700, lambda: (aggregator.counters, aggregator.condition))
            leader = int(consumer(three, "agg").cluster.leader.removeprefix("n")) - 1
            three.kill(leader)
            # The loss is noticed, wherever this aggregator was connected, and another server leads soon.
            until(lambda: "lost the NATS servers" in caplog.text, lambda: aggregator.condition)
            until(aggregator.ready.is_set, lambda: aggregator.condition)
            publish(three, messages[700:], port=three.nodes[leader - 1].mqtt)
            until(lambda: counted_reports(store) == 1000, lambda: (aggregator.counters, aggregator.condition))
        assert list(store.histogram("open", experiment().digest)) == counts

    def test_committed_but_unacknowledged_report_is_a_duplicate(self, store, clean_server, monkeypatch):
        monkeypatch.setattr(nats_consumer, "ACK_WAIT_S", 2.0)
        messages, counts = crowd(200)
        with running(store, clean_server, client_id="killed"):
            pass
        publish(clean_server, messages)
        program = [
            sys.executable,
            "-c",
            KILLED_BEFORE_ACKNOWLEDGING,
            f"sqlite:///{store.where}",
            clean_server.url,
        ]
        assert subprocess.run(program, check=False, timeout=WAIT_S).returncode == -signal.SIGKILL
        assert counted_reports(store) > 0
        with running(store, clean_server, client_id="killed") as aggregator:
            # Committed messages may come more than once on a slow machine.
            until(
                lambda: total(aggregator) >= 200 and counted_reports(store) == 200,
                lambda: aggregator.counters,
            )
            assert set(aggregator.counters.rejected) == {"duplicate"}
        assert list(store.histogram("open", experiment().digest)) == counts

    def test_failing_store_keeps_reports_at_the_servers(self, store, clean_server, monkeypatch, caplog):
        # Held messages exceed ACK_WAIT_S but are not sent again, since no client requests more.
        monkeypatch.setattr(nats_consumer, "ACK_WAIT_S", 1.0)
        messages, counts = crowd(900)
        limit = full_disk(store)
        with running(store, clean_server, client_id="failing", batch_reports=300) as aggregator:
            publish(clean_server, messages)
            until(lambda: "the disk is full" in caplog.text, "a full disk")
            before = aggregator.counters.accepted  # small batches may still have fitted
            until(lambda: aggregator.condition.uncommitted >= 300, lambda: aggregator.condition)
            tries = aggregator.counters.failures
            until(lambda: aggregator.counters.failures >= tries + 3, lambda: aggregator.counters)
            assert aggregator.counters.accepted == before < 900
            assert aggregator.condition.uncommitted <= 600
            limit["pages"] = 1 << 30
            until(lambda: aggregator.counters.accepted == 900, lambda: aggregator.counters)
            assert set(aggregator.counters.rejected) <= {"duplicate"}
        assert list(store.histogram("open", experiment().digest)) == counts


class TestConsumer:
    def test_retiring_counts_the_rest_and_deletes_it(self, store, clean_server, caplog):
        caplog.set_level("INFO", "hushmote")
        messages, counts = crowd(300)
        busy = pytest.raises(BrokerRefused, match=r"other aggregators count for leaving .* before --retire")
        with running(store, clean_server, client_id="leaving"), busy:
            until(lambda: consumer(clean_server, "leaving").num_waiting, "it requests reports")
            retire(store, clean_server, "leaving")
        publish(clean_server, messages)
        assert retire(store, clean_server, "leaving").accepted == 300
        assert "retired: nothing is left for leaving" in caplog.text
        with pytest.raises(NotFoundError):
            consumer(clean_server, "leaving")
        with pytest.raises(BrokerRefused, match="have no consumer leaving"):
            retire(store, clean_server, "leaving")
        with pytest.raises(NotFoundError):
            consumer(clean_server, "leaving")
        assert list(store.histogram("open", experiment().digest)) == counts

    def test_is_recreated_with_a_warning_after_deletion(self, store, clean_server, caplog):
        with running(store, clean_server, client_id="deleted") as aggregator:
            ask(clean_server, lambda stream: stream.delete_consumer(STREAM, "deleted"))
            until(lambda: "someone deleted the consumer deleted" in caplog.text, "the log line")
            until(aggregator.ready.is_set, lambda: aggregator.condition)
            publish(clean_server, crowd(5)[0])
            until(lambda: total(aggregator) == 5, lambda: aggregator.counters)

    def test_lossy_consumer_is_rejected(self, store, clean_server):
        odd: list[dict[str, Any]] = [
            {"headers_only": True},
            {"inactive_threshold": 60.0},
            {"mem_storage": True},
        ]
        odd.append({"max_deliver": 3})
        usual: dict[str, Any] = {"ack_policy": AckPolicy.EXPLICIT, "filter_subject": report_subject()}
        with running(store, clean_server, client_id="first"):  # MQTT creates the servers' own stream
            for i, options in enumerate(odd):
                config = ConsumerConfig(durable_name=f"odd{i}", **usual | options)
                ask(clean_server, lambda stream, config=config: stream.add_consumer(STREAM, config))
        for i in range(len(odd)):
            with pytest.raises(BrokerRefused, match=f"the consumer odd{i} was not created by hushmote"):
                Aggregator(store, parse_nats_url(clean_server.url), Counting(client_id=f"odd{i}")).run()


class TestCounting:
    def test_counts_once_and_keeps_reports_while_offline(self, store, clean_server):
        messages, counts = crowd(300)
        with running(store, clean_server, client_id="kept") as aggregator:
            start = time.monotonic()
            publish(clean_server, messages[:100] + messages[:50])
            until(lambda: total(aggregator) == 150, lambda: aggregator.counters)
            assert aggregator.counters.rejected == {"duplicate": 50}
            # No batch is full: each is 0.2 s old.
            assert aggregator.counters.batches <= (time.monotonic() - start) / 0.2 + 2
        publish(clean_server, messages[100:])
        with running(store, clean_server, client_id="kept") as aggregator:
            until(lambda: total(aggregator) == 200, lambda: aggregator.counters)
        assert list(store.histogram("open", experiment().digest)) == counts
        assert store.rejects() == {"open": {"duplicate": 50}}

    def test_two_aggregators_divide_the_reports(self, store, three):
        messages, counts = crowd(3000)
        options = {"client_id": "divided", "batch_reports": 150}
        with running(store, three, **options) as a, running(store, three, **options) as b:
            start = time.monotonic()
            publish(three, messages, port=three.nodes[1].mqtt)
            until(lambda: total(a) + total(b) == 3000, lambda: (a.counters, b.counters))
            assert min(a.counters.accepted, b.counters.accepted) > 300
            for counters in (a.counters, b.counters):
                assert counters.rejected == {}
                # Each batch is full or 0.2 s old.
                assert counters.batches <= counters.accepted / 150 + (time.monotonic() - start) / 0.2 + 2
        assert list(store.histogram("open", experiment().digest)) == counts

    def test_counts_only_the_selected_fleet(self, store, clean_server):
        store.add_fleet("away", keyed=False)
        messages, _ = crowd(10)
        others = [(topic.replace("open", "away"), payload) for topic, payload in messages]
        with running(store, clean_server, client_id="some", fleets=["open"]) as aggregator:
            publish(clean_server, others + messages)
            until(lambda: total(aggregator) == 10, lambda: aggregator.counters)
            assert aggregator.counters.rejected == {}
        address = parse_nats_url(clean_server.url)
        with pytest.raises(BrokerRefused, match=r"the consumer some is for other fleets, .*open.*client_id"):
            Aggregator(store, address, Counting(client_id="some")).run()
        with running(store, clean_server, client_id="both", fleets=["open", "away"]) as aggregator:
            publish(clean_server, others)
            until(lambda: total(aggregator) == 10, lambda: aggregator.counters)
        with running(store, clean_server, client_id="both", fleets=["away", "open"]):
            pass

    def test_rejects_malformed_reports_on_every_topic(self, store, clean_server):
        rubbish = [
            ("hushmote/v1/open/report/a", b""),
            ("hushmote/v1/open/report/a", bytes(500_000)),
            ("hushmote/v1/open/report/A", b"x"),
            ("hushmote/v1/open/report/a.b", b"x"),
            ("hushmote/v1/open/report/", b"x"),
            ("hushmote/v1/open/report/\U0001f600", b"x"),
            ("hushmote/v1/away/report/a", b"x"),
            ("hushmote/v1/" + "x" * 500 + "/report/a", b"x"),
        ]
        with running(store, clean_server, client_id="rubbish") as aggregator:
            # Messages that no MQTT client could send, published to the servers' own subjects.
            with socket.create_connection((clean_server.host, clean_server.nodes[0].nats)) as client:
                client.sendall(
                    b"CONNECT {}\r\nPUB $MQTT.msgs.hushmote.v1.open.report.\xff 1\r\nx\r\nPING\r\n"
                )
                while b"PONG" not in client.recv(10_000):
                    pass
            publish(clean_server, rubbish + crowd(1)[0])
            until(lambda: total(aggregator) == 10, lambda: aggregator.counters)
            assert aggregator.counters.rejected == {"malformed": 2, "unknown device": 4, "unknown fleet": 3}
            assert aggregator.counters.accepted == 1

    def test_returns_unprocessed_messages_when_it_stops(self, store, clean_server):
        messages, counts = crowd(400)
        limit = full_disk(store)
        with running(store, clean_server, client_id="returned", batch_s=1000.0) as first:
            publish(clean_server, messages)
            until(lambda: first.condition.uncommitted == 400, lambda: first.condition)
        assert first.counters.failures == 1
        assert counted_reports(store) == 0
        limit["pages"] = 1 << 30
        with running(store, clean_server, client_id="returned") as second:
            until(lambda: total(second) == 400, lambda: second.counters)
            assert second.counters.rejected == {}
        assert list(store.histogram("open", experiment().digest)) == counts


class TestRetained:
    def test_cleared_experiment_is_published_again(self, store, clean_server, caplog):
        topic = topics.experiment_topic("open", "temp")
        with running(store, clean_server, client_id="announcing"):
            publish(clean_server, [(topic, b"")], retain=True)
            until(lambda: f"another client changed {topic}" in caplog.text, "the log line")


PASSWORDS = (
    "authorization { users: [ { user: agg, password: right },"
    ' { user: blind, password: right, permissions: { publish: "hushmote.>", subscribe: "hushmote.>" } } ] }',
)


class TestErrors:
    def test_rejected_login_or_permission_is_one_line(self, store):
        with NatsServers(1, settings=PASSWORDS) as servers:
            address = parse_nats_url(servers.url)
            for options, reason in [
                ({"username": "agg", "password": "wrong"}, "refuse the login: authorization violation"),
                ({}, "refuse the login: authorization violation"),
                ({"username": "blind", "password": "right"}, "refuse: permissions violation"),
            ]:
                with pytest.raises(BrokerRefused, match=reason):
                    Aggregator(store, dataclasses.replace(address, **options)).run()
            with running(store, servers, username="agg", password="right") as aggregator:
                publish(servers, crowd(3)[0], set_up=lambda client: client.username_pw_set("agg", "right"))
                until(lambda: total(aggregator) == 3, lambda: aggregator.counters)
