"""The contract of every broker connection with the aggregator's loop, whatever its protocol.

A new kind of connection must pass it first, as another parameter of the fixture `reporting`.
"""

import time

import pytest
from boards import experiment
from running_aggregator import WAIT_S
from traffic import crowd, publish

from hushmote.server.ingest.broker_url import BrokerAddress, parse_nats_url
from hushmote.server.ingest.connection import BrokerConnection
from hushmote.server.ingest.mqtt_source import MqttSource
from hushmote.server.ingest.nats import consumer as nats_consumer
from hushmote.server.ingest.nats.connection import NatsConnection
from hushmote.server.ingest.nats.source import NatsSource
from hushmote.server.ingest.pacing import Pace
from hushmote.server.ingest.session import Session
from hushmote.server.ingest.status import Status
from hushmote.server.wire import topics
from hushmote.simulator.broker import MosquittoBroker
from hushmote.simulator.nats_servers import NatsServers

BATCH = 40


def pace():
    return Pace(BATCH, 0.2)


class Reporting:
    """A report source, its broker, and an aggregator's loop run step by step."""

    def __init__(self, broker, make):
        self.broker = broker
        self._make = make
        self.source = make()

    def open(self):
        """Return a connection that delivers reports."""
        connection = self.source.connect()
        assert connection is not None
        self.turn_until(connection, lambda: connection.subscribed)
        assert connection.accepted
        return connection

    def turn_until(self, connection, condition, max_messages=BATCH):
        end = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < end, len(connection.messages)
            assert connection.turn(0.02, max_messages)
            self.source.greet(connection, time.monotonic())

    def kept(self):
        """Return the number of messages that the broker would deliver to another process."""
        self.start_again()
        connection = self.open()
        if isinstance(connection, NatsConnection):
            count = connection.pending_count()
        else:
            marker = topics.report_topic("open", "marker"), b"1"
            publish(self.broker, [marker])
            self.turn_until(connection, lambda: marker in connection.messages)
            count = len(connection.messages) - 1
        connection.close()
        return count

    def start_again(self):
        """Connect again, as another process with the same name would."""
        self.source = self._make()


@pytest.fixture(params=["mqtt", "nats"])
def reporting(request, monkeypatch):
    # Messages are delivered again because they were returned, not because time has passed.
    monkeypatch.setattr(nats_consumer, "ACK_WAIT_S", 3600.0)

    def session(address):
        return Session(address, "agg")

    if request.param == "mqtt":
        with MosquittoBroker() as broker:
            yield Reporting(
                broker,
                lambda: MqttSource(
                    session(BrokerAddress(broker.host, broker.port)),
                    Status(),
                    "5",
                    lambda version: BrokerConnection(
                        version, "agg", BrokerAddress("host"), 2 * BATCH, pace()
                    ),
                ),
            )
    else:
        with NatsServers(1) as broker:
            address = parse_nats_url(broker.url)
            yield Reporting(broker, lambda: NatsSource(address, session(address.mqtt), Status(), pace))


class TestEveryConnection:
    def test_delivers_each_message_once_until_acknowledged(self, reporting):
        """Repeat it ten times, since a broker drops unread acknowledgements when the next CONNECT arrives."""
        messages, _ = crowd(30)
        for _ in range(10):
            connection = reporting.open()
            publish(reporting.broker, messages)
            reporting.turn_until(connection, lambda c=connection: len(c.messages) >= 30)
            assert sorted(connection.messages) == sorted(messages)
            connection.acknowledge()
            assert connection.messages == []
            connection.close()
        assert reporting.kept() == 0

    def test_redelivers_unacknowledged_messages_to_another_process(self, reporting):
        messages, _ = crowd(20)
        connection = reporting.open()
        publish(reporting.broker, messages)
        reporting.turn_until(connection, lambda: len(connection.messages) == 10, 10)
        connection.close()
        reporting.start_again()
        connection = reporting.open()
        reporting.turn_until(connection, lambda: len(connection.messages) >= 20)
        assert sorted(set(connection.messages)) == sorted(messages)
        connection.acknowledge()
        connection.close()

    def test_keeps_messages_published_while_disconnected(self, reporting):
        reporting.open().close()
        messages, _ = crowd(20)  # mosquitto sends this many queued messages before the first acknowledgement
        publish(reporting.broker, messages)
        connection = reporting.open()
        reporting.turn_until(connection, lambda: len(connection.messages) == 20)
        connection.close()

    def test_holds_no_more_than_its_limit(self, reporting):
        connection = reporting.open()
        publish(reporting.broker, crowd(3 * BATCH)[0])
        reporting.turn_until(connection, lambda: len(connection.messages) == BATCH)
        for _ in range(20):
            assert connection.turn(0.01, BATCH)
        assert len(connection.messages) == BATCH
        seen = 0
        while seen < 3 * BATCH:
            reporting.turn_until(connection, lambda: connection.messages)
            seen += len(connection.messages)
            connection.acknowledge()
        assert seen == 3 * BATCH
        connection.close()

    def test_cuts_payloads_longer_than_any_report(self, reporting):
        connection = reporting.open()
        publish(reporting.broker, [(topics.report_topic("open", "a"), bytes(4000))])
        reporting.turn_until(connection, lambda: connection.messages)
        assert len(connection.messages[0][1]) < 100
        connection.close()

    def test_publishes_and_receives_retained_messages(self, reporting):
        topic = topics.experiment_topic("open", experiment().name)
        connection = reporting.open()
        info = connection.publish(topic, b"one")
        reporting.turn_until(connection, info.is_published)
        connection.close()
        reporting.start_again()
        connection = reporting.open()
        assert connection.experiments == {topic: b"one"}  # before any report can arrive
        connection.experiments.clear()
        publish(reporting.broker, [(topic, b"two")], retain=True)
        reporting.turn_until(connection, lambda: connection.experiments)
        assert connection.experiments == {topic: b"two"}
        assert connection.messages == []
        connection.close()

    def test_survives_broker_death_as_lost_connection(self, reporting):
        connection = reporting.open()
        messages, _ = crowd(10)
        publish(reporting.broker, messages)
        reporting.turn_until(connection, lambda: len(connection.messages) == 10)
        reporting.broker.stop()
        end = time.monotonic() + WAIT_S
        while connection.turn(0.02, BATCH):
            assert time.monotonic() < end
        assert sorted(connection.messages) == sorted(messages)
        connection.acknowledge()
        connection.close()
        reporting.source.explain_loss(connection)
        assert reporting.source.connect() is None
