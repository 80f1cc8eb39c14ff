"""The door's way to the broker: exactly once into a store, and brokers that are away, hang or refuse."""

import contextlib
import logging
import os
import signal
import subprocess
import threading

import pytest
from boards import experiment, payload_of, reports
from doors import opened
from fleet_broker import visit
from paho.mqtt.client import MQTTv311
from running import WAIT_S, running, until
from traffic import counted, crowd, publish

from hushmote.fleet.door.publisher import ReportPublisher
from hushmote.server.ingest.broker_url import BrokerAddress
from hushmote.server.ingest.pacing import Backoff
from hushmote.server.ingest.session import BrokerRefused
from hushmote.simulator.broker import EmbeddedBroker, MosquittoBroker, free_port

EXPERIMENT = experiment()
REPORTS = reports("d1", EXPERIMENT, 4)


def accept(door, device, payload):
    """Send a report as a client does: the same bytes until they were received; returns the refusals."""
    refused = []

    def received():
        told = door.report(device, payload)
        if told.status != 204:
            assert told.status == 503
            assert int(told.headers["retry-after"]) > 0
            assert "send the same bytes again later" in told.text
            refused.append(told.text)
        return told.status == 204

    until(received, "the door has taken it")
    return refused


def test_counts_resent_report_once_through_failures(store):
    with MosquittoBroker(port=free_port()) as broker, running(store, broker) as aggregator:
        with opened(broker) as door:
            for _ in range(3):
                assert door.report("d1", REPORTS[0]).status == 204
            broker.kill()
            until(lambda: not door.publisher.ready.is_set(), "the door knows that the broker is gone")
            told = door.report("d1", REPORTS[1])
            assert (told.status, "the broker is away" in told.text) == (503, True)
            health = door.ask("GET", "/healthz")
            assert (health.status, health.json["reason"]) == (503, "not connected to the broker")
            assert door.ask("GET", "/v1/open/experiment").json == ["temp"]  # what is known stays known
            broker.start()
            # SIGKILL loses what mosquitto had not saved, the aggregator's session among it.
            until(lambda: aggregator.condition.subscribed, "the aggregator is back")
            accept(door, "d1", REPORTS[1])
            accept(door, "d1", REPORTS[0])
        with opened(broker) as door:  # a door that was restarted knows nothing, and need not
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


def test_counts_concurrent_clients_once_through_broker_restarts(store):
    messages, counts = crowd(60)
    with MosquittoBroker(port=free_port()) as broker, running(store, broker) as aggregator:
        with opened(broker) as door:
            parts = [messages[i::6] for i in range(6)]
            clients = [threading.Thread(target=send_all, args=(door, part)) for part in parts]
            for client in clients:
                client.start()
            for parts_taken in (10, 25, 40):
                until(lambda n=parts_taken: door.door.answers["POST", 204] >= n, "reports are taken")
                broker.restart()
            for client in clients:
                client.join(WAIT_S)
                assert not client.is_alive()
        until(lambda: aggregator.counters.accepted == 60, "all are counted")
        assert store.histogram("open", EXPERIMENT.digest).tolist() == counts


def send_all(door, messages):
    for topic, payload in messages:
        accept(door, topic.rpartition("/")[2], payload)


def test_remembers_fleet_after_broker_loses_its_experiment():
    with MosquittoBroker(port=free_port(), settings=("persistence false",)) as broker:
        publish(broker, [("hushmote/v1/open/experiment/temp", payload_of(EXPERIMENT))], retain=True)
        with opened(broker) as door:
            assert door.ask("GET", "/v1/open/experiment").json == ["temp"]
            broker.kill()
            until(lambda: not door.publisher.ready.is_set(), "the door knows that the broker is gone")
            broker.start()
            until(door.publisher.ready.is_set, "the door is back")
            assert door.ask("GET", "/v1/open/experiment").json == []
            assert door.report("d1", REPORTS[0]).status == 503  # not 404: nobody has subscribed yet


@pytest.mark.parametrize("share", [None, "group"])
def test_accepts_reports_while_aggregator_is_away(store, share):
    with MosquittoBroker() as broker:
        with running(store, broker, client_id="agg", share=share), opened(broker) as door:
            accept(door, "d1", REPORTS[0])
        with opened(broker) as door:
            assert door.report("d1", REPORTS[1]).status == 204
        with running(store, broker, client_id="agg", share=share) as aggregator:
            until(lambda: aggregator.counters.accepted >= 1, "what waited is counted")
        assert counted(store) == 2


def test_a_report_that_no_aggregator_would_ever_get_is_not_taken():
    with MosquittoBroker() as broker, opened(broker, fleets=["open"], protocol="5") as door:
        told = door.report("d1", REPORTS[0])
        assert (told.status, "no aggregator has ever subscribed" in told.text) == (503, True)
        with visit(broker.port, None, host="127.0.0.1") as visitor:
            visitor.subscribe("hushmote/v1/open/report/+")
            assert door.report("d1", REPORTS[0]).status == 204


def test_rejects_report_denied_by_broker_access_list(tmp_path, caplog):
    acl = tmp_path / "acl"
    acl.write_text("topic read hushmote/v1/+/experiment/+\ntopic write hushmote/v1/open/report/+\n")
    options = {"fleets": ["open", "other"], "protocol": "5"}
    with MosquittoBroker(settings=(f"acl_file {acl}",)) as broker, opened(broker, **options) as door:
        told = door.report("d1", REPORTS[0], fleet="other")
        assert (told.status, "does not let the door publish" in told.text) == (503, True)
        assert "refuses reports (not authorized): allow this user to publish" in caplog.text
        assert "d1" not in caplog.text


def test_with_mqtt_3_1_1_alone_it_works_as_well():
    # amqtt answers MQTT 5 with nothing at all, and the door falls back.
    with (
        EmbeddedBroker() as broker,
        opened(broker, fleets=["open"]) as door,
        visit(broker.port, None, host="127.0.0.1", protocol=MQTTv311, client_id="v") as visitor,
    ):
        assert visitor.connected()
        visitor.subscribe("hushmote/v1/open/report/+")
        assert door.report("d1", REPORTS[0]).status == 204
        until(lambda: visitor.messages == [("hushmote/v1/open/report/d1", REPORTS[0])], "it has come")


def test_reports_refused_login_and_recovers_after_fix(tmp_path, caplog):
    passwords = tmp_path / "passwords"
    add = ["mosquitto_passwd", "-b", "-c", str(passwords)]
    subprocess.run([*add, "door", "right"], check=True)
    with MosquittoBroker(password_file=passwords) as broker:
        wrong = ReportPublisher(BrokerAddress("127.0.0.1", broker.port, "door", "wrong"), fleets=["open"])
        with wrong:
            until(lambda: wrong.refusal is not None, "it is refused")
            assert isinstance(wrong.refusal, BrokerRefused)
            subprocess.run([*add, "door", "wrong"], check=True)
            broker.restart()
            until(wrong.ready.is_set, "it is taken")
            assert wrong.refusal is None
    assert "refuses the connection: not authorized" in caplog.text
    assert "wrong" not in caplog.text


@contextlib.contextmanager
def hanging(broker):
    """Stop the broker's process: what is sent to it arrives, and nothing is answered."""
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(broker.pid, signal.SIGCONT)


def test_gives_up_a_broker_that_acknowledges_nothing(store):
    # It is full before it is given up.
    patience = {"puback_s": 0.3, "hung_s": 5.0, "most_in_flight": 5}
    with (
        MosquittoBroker() as broker,
        running(store, broker) as aggregator,
        opened(broker, **patience) as door,
    ):
        with hanging(broker):
            told = door.report("d1", REPORTS[0])
            assert (told.status, "did not acknowledge the report in time" in told.text) == (503, True)
            texts = [told.text]
            clients = [
                threading.Thread(target=lambda i=i: texts.append(door.report(f"c{i}", REPORTS[0]).text))
                for i in range(30)
            ]
            for client in clients:
                client.start()
            for client in clients:
                client.join(WAIT_S)
            assert any("too many reports are under way" in text for text in texts)
            assert door.publisher.in_flight <= 5
            until(lambda: not door.publisher.ready.is_set(), "the connection is given up")
        accept(door, "d1", REPORTS[0])
        assert door.publisher.in_flight == 0
        until(lambda: aggregator.counters.accepted >= 1, "it is counted")


def test_settles_requests_in_flight_at_shutdown():
    answers = []
    with MosquittoBroker() as broker, opened(broker, fleets=["open"]) as door, hanging(broker):
        client = threading.Thread(target=lambda: answers.append(door.report("d1", REPORTS[0]).status))
        client.start()
        until(lambda: door.publisher.in_flight == 1, "it is under way")
        door.publisher.stop()
        client.join(WAIT_S)
        assert answers == [503]
        assert door.report("d1", REPORTS[0]).status == 503


def test_without_a_broker_it_says_so_once_and_answers(caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    waits, next_s = [], Backoff.next_s
    monkeypatch.setattr(Backoff, "next_s", lambda backoff: waits.append(next_s(backoff)) or waits[-1])

    class Nobody:
        port = free_port()

    with opened(Nobody, fleets=["open"], ready=False) as door:
        assert door.report("d1", REPORTS[0]).status == 503
        assert door.report("d1", REPORTS[0], fleet="unknown").status == 503  # nobody knows that yet
        assert door.ask("GET", "/v1/unknown/experiment").status == 503
        until(lambda: len(waits) >= 3, "it has tried three times")
    assert [r.getMessage() for r in caplog.records if "no broker at" in r.getMessage()] == [
        f"no broker at 127.0.0.1:{Nobody.port} (Connection refused): trying again"
    ]
