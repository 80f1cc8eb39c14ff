"""The door's broker connection: reports count once, even if brokers are offline, hang or refuse."""

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import threading
import time

import pytest
from boards import experiment, payload_of, reports
from doors import open_door
from fleet_broker import visit
from paho.mqtt.client import MQTTv311
from running_aggregator import WAIT_S, running, until
from traffic import counted_reports, crowd, publish

from hushmote.fleet.door import publisher as module
from hushmote.fleet.door.publisher import Outcome, ReportPublisher
from hushmote.server.ingest.broker_url import BrokerAddress
from hushmote.server.ingest.connector import SHORT_S
from hushmote.server.ingest.pacing import FIRST_WAIT_S, Backoff
from hushmote.server.ingest.session import BrokerRefused
from hushmote.simulator.broker import EmbeddedBroker, MosquittoBroker, free_port

EXPERIMENT = experiment()
REPORTS = reports("d1", EXPERIMENT, 4)


def accept(door, device, payload):
    """Send a report as a client does, repeating it until it is accepted; return the refusals."""
    rejected = []

    def received():
        response = door.report(device, payload)
        if response.status != 204:
            assert response.status == 503
            assert int(response.headers["retry-after"]) > 0
            assert "send the same bytes again later" in response.text
            rejected.append(response.text)
        return response.status == 204

    until(received, "the door accepts it")
    return rejected


def send_all(door, messages):
    for topic, payload in messages:
        accept(door, topic.rpartition("/")[2], payload)


class TestAggregatorAway:
    @pytest.mark.parametrize("share", [None, "group"])
    def test_accepts_reports(self, store, share):
        with MosquittoBroker() as broker:
            with running(store, broker, client_id="agg", share=share), open_door(broker) as door:
                accept(door, "d1", REPORTS[0])
            with open_door(broker) as door:
                assert door.report("d1", REPORTS[1]).status == 204
            with running(store, broker, client_id="agg", share=share) as aggregator:
                until(lambda: aggregator.counters.accepted >= 1, "the queued report is counted")
            assert counted_reports(store) == 2

    def test_refuses_report_if_none_ever_subscribed(self):
        with MosquittoBroker() as broker, open_door(broker, fleets=["open"], protocol="5") as door:
            response = door.report("d1", REPORTS[0])
            assert (response.status, "no aggregator has ever subscribed" in response.text) == (503, True)
            with visit(broker.port, None, host="127.0.0.1") as visitor:
                visitor.subscribe("hushmote/v1/open/report/+")
                assert door.report("d1", REPORTS[0]).status == 204


@contextlib.contextmanager
def hanging(broker):
    """Stop the broker's process; packets still arrive but get no response."""
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(broker.pid, signal.SIGCONT)


class TestExactlyOnce:
    def test_counts_resent_report_once_through_failures(self, store):
        with MosquittoBroker(port=free_port()) as broker, running(store, broker) as aggregator:
            with open_door(broker) as door:
                for _ in range(3):
                    assert door.report("d1", REPORTS[0]).status == 204
                broker.kill()
                until(lambda: not door.publisher.ready.is_set(), "the door notices the broker's loss")
                response = door.report("d1", REPORTS[1])
                assert (response.status, "the broker is unreachable" in response.text) == (503, True)
                health = door.ask("GET", "/healthz")
                assert (health.status, health.json["reason"]) == (503, "not connected to the broker")
                assert door.ask("GET", "/v1/open/experiment").json == ["temp"]  # known experiments stay known
                broker.start()
                # SIGKILL loses mosquitto's unsaved state, including the aggregator's session.
                until(lambda: aggregator.condition.subscribed, "the aggregator reconnects")
                accept(door, "d1", REPORTS[1])
                accept(door, "d1", REPORTS[0])
            with open_door(broker) as door:  # a restarted door knows nothing and does not need to
                for payload in REPORTS:
                    accept(door, "d1", payload)
                messages, counts = crowd(40, prefix="c")
                for topic, payload in messages:
                    accept(door, topic.rpartition("/")[2], payload)
            until(lambda: aggregator.counters.accepted == 44, "all are counted")
            for payload in REPORTS:
                counts[payload[-1]] += 1
            assert store.histogram("open", EXPERIMENT.digest).tolist() == counts
            assert set(aggregator.counters.rejected) == {"duplicate"}

    def test_counts_concurrent_clients_through_broker_restarts(self, store):
        messages, counts = crowd(60)
        with MosquittoBroker(port=free_port()) as broker, running(store, broker) as aggregator:
            with open_door(broker) as door:
                parts = [messages[i::6] for i in range(6)]
                clients = [threading.Thread(target=send_all, args=(door, part)) for part in parts]
                for client in clients:
                    client.start()
                for parts_taken in (10, 25, 40):
                    until(lambda n=parts_taken: door.door.answers["POST", 204] >= n, "reports are accepted")
                    broker.restart()
                for client in clients:
                    client.join(WAIT_S)
                    assert not client.is_alive()
            until(lambda: aggregator.counters.accepted == 60, "all are counted")
            assert store.histogram("open", EXPERIMENT.digest).tolist() == counts

    def test_settles_requests_in_flight_at_shutdown(self):
        answers = []
        with MosquittoBroker() as broker, open_door(broker, fleets=["open"]) as door, hanging(broker):
            client = threading.Thread(target=lambda: answers.append(door.report("d1", REPORTS[0]).status))
            client.start()
            until(lambda: door.publisher.in_flight == 1, "the report is in flight")
            door.publisher.stop()
            client.join(WAIT_S)
            assert answers == [503]
            assert door.report("d1", REPORTS[0]).status == 503


class Clock:
    """A clock for the publisher that can be advanced and counts its reads."""

    def __init__(self):
        self.passed_s = 0.0
        self.reads = 0

    def monotonic(self):
        self.reads += 1
        return time.monotonic() + self.passed_s


@pytest.fixture
def clock(monkeypatch):
    """Inject a clock into the publisher, whose turns are short."""
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(module, "_TURN_S", 0.02)
    return clock


@pytest.fixture
def waits(monkeypatch):
    """Return the list of delays before each reconnection."""
    waits, next_s = [], Backoff.next_s
    monkeypatch.setattr(Backoff, "next_s", lambda backoff: waits.append(next_s(backoff)) or waits[-1])
    return waits


class TestSharedLogin:
    def test_keeps_the_aggregators_queue(self, store):
        """The broker replaces client ids with the login's name, as in provisioned fleets."""
        messages, counts = crowd(40)
        with MosquittoBroker(settings=("use_username_as_clientid true",)) as broker:

            def address(name):
                return BrokerAddress(broker.host, broker.port, name)

            with running(store, broker, username="agg"):
                pass
            publish(broker, messages, set_up=lambda c: c.username_pw_set("boards"))
            for _ in range(2):
                with ReportPublisher(address("agg")) as publisher:
                    until(lambda p=publisher: p.refusal is not None, "the door refuses the login")
                    assert "keeps the reports of an aggregator with this login" in str(publisher.refusal)
            for _ in range(2):  # it leaves no session
                with ReportPublisher(address("door")) as publisher:
                    until(publisher.ready.is_set, lambda p=publisher: str(p.refusal))
            with running(store, broker, username="agg"):
                until(lambda: counted_reports(store) == 40, lambda: f"{counted_reports(store)} reports")
        assert list(store.histogram("open", experiment().digest)) == counts


class TestBroker:
    def test_fleet_is_remembered_after_its_experiment_is_lost(self):
        with MosquittoBroker(port=free_port(), settings=("persistence false",)) as broker:
            publish(broker, [("hushmote/v1/open/experiment/temp", payload_of(EXPERIMENT))], retain=True)
            with open_door(broker) as door:
                assert door.ask("GET", "/v1/open/experiment").json == ["temp"]
                broker.kill()
                until(lambda: not door.publisher.ready.is_set(), "the door notices the broker's loss")
                broker.start()
                until(door.publisher.ready.is_set, "the door reconnects")
                assert door.ask("GET", "/v1/open/experiment").json == []
                assert door.report("d1", REPORTS[0]).status == 503  # not 404 before it subscribes

    def test_access_list_can_deny_a_report(self, tmp_path, caplog):
        acl = tmp_path / "acl"
        acl.write_text("topic read hushmote/v1/+/experiment/+\ntopic write hushmote/v1/open/report/+\n")
        options = {"fleets": ["open", "other"], "protocol": "5"}
        with MosquittoBroker(settings=(f"acl_file {acl}",)) as broker, open_door(broker, **options) as door:
            response = door.report("d1", REPORTS[0], fleet="other")
            assert (response.status, "does not let the door publish" in response.text) == (503, True)
            assert "refuses reports (not authorized): allow this user to publish" in caplog.text
            assert "d1" not in caplog.text

    def test_may_support_only_mqtt_3_1_1(self):
        # amqtt does not respond to MQTT 5, so the door falls back.
        with (
            EmbeddedBroker() as broker,
            open_door(broker, fleets=["open"]) as door,
            visit(broker.port, None, host="127.0.0.1", protocol=MQTTv311, client_id="v") as visitor,
        ):
            assert visitor.connected()
            visitor.subscribe("hushmote/v1/open/report/+")
            assert door.report("d1", REPORTS[0]).status == 204
            until(
                lambda: visitor.messages == [("hushmote/v1/open/report/d1", REPORTS[0])],
                "the message arrives",
            )

    def test_refused_login_recovers_after_fix(self, tmp_path, caplog):
        passwords = tmp_path / "passwords"
        add = ["mosquitto_passwd", "-b", "-c", str(passwords)]
        subprocess.run([*add, "door", "right"], check=True)
        with MosquittoBroker(password_file=passwords) as broker:
            publisher = ReportPublisher(
                BrokerAddress("127.0.0.1", broker.port, "door", "wrong"), fleets=["open"]
            )
            with publisher:
                until(lambda: publisher.refusal is not None, "the login is refused")
                assert isinstance(publisher.refusal, BrokerRefused)
                subprocess.run([*add, "door", "wrong"], check=True)
                broker.restart()
                until(publisher.ready.is_set, "the report is accepted")
                assert publisher.refusal is None
        assert "refuses the connection: not authorized" in caplog.text
        assert "wrong" not in caplog.text

    def test_is_given_up_if_it_acknowledges_nothing(self, store):
        # It is full before the report is given up.
        patience = {"puback_s": 0.3, "hung_s": 5.0, "most_in_flight": 5}
        with (
            MosquittoBroker() as broker,
            running(store, broker) as aggregator,
            open_door(broker, **patience) as door,
        ):
            with hanging(broker):
                response = door.report("d1", REPORTS[0])
                assert (response.status, "did not acknowledge the report in time" in response.text) == (
                    503,
                    True,
                )
                texts = [response.text]
                clients = [
                    threading.Thread(target=lambda i=i: texts.append(door.report(f"c{i}", REPORTS[0]).text))
                    for i in range(30)
                ]
                for client in clients:
                    client.start()
                for client in clients:
                    client.join(WAIT_S)
                assert any("too many reports are in flight" in text for text in texts)
                assert door.publisher.in_flight <= 5
                until(lambda: not door.publisher.ready.is_set(), "the connection is given up")
            accept(door, "d1", REPORTS[0])
            assert door.publisher.in_flight == 0
            until(lambda: aggregator.counters.accepted >= 1, "it is counted")

    def test_loss_settles_reports_sent_and_queued(self):
        """The broker allows only two unacknowledged reports."""

        async def lose_twice(publisher, broker):
            for _ in range(2):
                while not publisher.ready.is_set():
                    await asyncio.sleep(0.01)
                os.kill(broker.pid, signal.SIGSTOP)
                publications = [
                    asyncio.create_task(publisher.publish(f"hushmote/v1/open/report/d{n}", REPORTS[0]))
                    for n in range(5)
                ]
                while len(publisher._under_way) < 2:
                    await asyncio.sleep(0.01)
                assert (publisher.in_flight, len(publisher._queue)) == (5, 3)
                broker.kill()
                assert await asyncio.gather(*publications) == [Outcome.AWAY] * 5
                assert publisher.in_flight == 0
                broker.start()

        with MosquittoBroker(port=free_port(), settings=("max_inflight_messages 2",)) as broker:
            address = BrokerAddress("127.0.0.1", broker.port)
            options = {"fleets": ["open"], "protocol": "5", "puback_s": WAIT_S, "hung_s": WAIT_S}
            with ReportPublisher(address, **options) as publisher:
                asyncio.run(asyncio.wait_for(lose_twice(publisher, broker), 20))

    def test_is_given_up_after_8_seconds_of_silence(self, clock):
        async def reached(condition):
            while not condition():
                await asyncio.sleep(0.01)

        async def hang_twice(publisher, broker):
            for _ in range(2):
                clock.passed_s = 0.0
                await reached(publisher.ready.is_set)
                with hanging(broker):
                    report = asyncio.create_task(publisher.publish("hushmote/v1/open/report/d1", REPORTS[0]))
                    clock.passed_s = 7.0
                    turns = clock.reads + 5
                    await reached(lambda turns=turns: clock.reads >= turns)
                    assert publisher.ready.is_set(), "it is given up too early"
                    clock.passed_s = 8.1
                    assert await report is Outcome.AWAY
                assert publisher.in_flight == 0

        with MosquittoBroker() as broker:
            address = BrokerAddress("127.0.0.1", broker.port)
            with ReportPublisher(address, fleets=["open"], puback_s=WAIT_S) as publisher:
                asyncio.run(asyncio.wait_for(hang_twice(publisher, broker), 20))

    def test_absence_is_logged_once_and_requests_are_answered(self, caplog, waits):
        caplog.set_level(logging.INFO)

        class UnusedPort:
            port = free_port()

        with open_door(UnusedPort, fleets=["open"], ready=False) as door:
            assert door.report("d1", REPORTS[0]).status == 503
            assert door.report("d1", REPORTS[0], fleet="unknown").status == 503  # not known yet
            assert door.ask("GET", "/v1/unknown/experiment").status == 503
            until(lambda: len(waits) >= 3, "three attempts")
        assert [r.getMessage() for r in caplog.records if "no broker at" in r.getMessage()] == [
            f"no broker at 127.0.0.1:{UnusedPort.port} (Connection refused): trying again"
        ]

    def test_backoff_starts_again_after_a_lasting_connection(self, clock, waits):
        with MosquittoBroker(port=free_port()) as broker:
            publisher = ReportPublisher(BrokerAddress("127.0.0.1", broker.port), fleets=["open"])
            broker.kill()
            with publisher:
                for outage in (1, 2):
                    until(lambda n=outage: len(waits) >= 3 * n, "three attempts")
                    broker.start()
                    until(publisher.ready.is_set, "the door reconnects")
                    tries, clock.passed_s = len(waits), clock.passed_s + SHORT_S + 1
                    broker.kill()
                    until(lambda n=tries: len(waits) > n, "another attempt")
                    assert waits[tries] == FIRST_WAIT_S
