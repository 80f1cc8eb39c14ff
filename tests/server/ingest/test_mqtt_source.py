"""Subscribing a session and retiring it, without a broker."""

from typing import Any

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode

from hushmote.server.ingest.broker_url import BrokerAddress
from hushmote.server.ingest.mqtt_source import MqttSource
from hushmote.server.ingest.session import BrokerRefused, Session
from hushmote.server.ingest.status import Status

ALL = "hushmote/v1/+/report/+"
CREW = f"$share/crew/{ALL}"
EXPERIMENTS = "hushmote/v1/+/experiment/+"


class FakeConnection:
    """What is asked of a connection that the broker has accepted, and what the broker has answered."""

    protocol = "5"
    answer = ReasonCode(PacketTypes.CONNACK, identifier=0)

    def __init__(self, session_present=True):
        self.session_present = session_present
        self.granted: Any = None
        self.unsubscribed = self.watched = None
        self.messages = []
        self.asked = []

    @property
    def subscribed(self):
        return not self.granted.is_failure

    def watch(self, filters):
        self.asked.append(("watch", *filters))

    def subscribe(self, filters):
        self.asked.append(("subscribe", *filters))

    def unsubscribe(self, filters):
        self.asked.append(("unsubscribe", *filters))

    def close(self, *, end_session):
        self.asked.append(("close", end_session))


Connection: Any = FakeConnection


def opened(connection, now=0.0, **options) -> tuple[MqttSource, Status]:
    """A source that has greeted a connection."""
    status = Status()
    source = MqttSource(Session(BrokerAddress("host"), "agg", **options), status, "5", Connection)
    assert not source.greet(connection, now)
    return source, status


def granted(value):
    return ReasonCode(PacketTypes.SUBACK, identifier=value)


def unsubscribed(value):
    return ReasonCode(PacketTypes.UNSUBACK, identifier=value)


class TestSubscribe:
    def test_group_member_unsubscribes_alone_first(self):
        for group, asked in [
            (None, [("watch", EXPERIMENTS), ("subscribe", ALL)]),
            ("crew", [("unsubscribe", ALL), ("watch", EXPERIMENTS), ("subscribe", CREW)]),
        ]:
            connection = Connection()
            opened(connection, group=group)
            assert connection.asked == asked
        names = Session(BrokerAddress("host"), "agg", fleets=["a", "b"])
        assert names.filters(None) == ["hushmote/v1/a/report/+", "hushmote/v1/b/report/+"]
        assert names.experiment_filters() == ["hushmote/v1/a/experiment/+", "hushmote/v1/b/experiment/+"]

    def test_hides_the_group_and_ends_on_refusal(self):
        connection = Connection()
        source, status = opened(connection, group="crew")
        connection.granted = granted(1)
        assert source.greet(connection, 1.0)
        assert not source.greet(connection, 2.0)  # it was said
        assert status.text == "subscribed at host:1883 with MQTT 5, sharing the reports with others"
        assert not source.is_over(connection, 1e9)
        connection.granted = granted(135)
        with pytest.raises(BrokerRefused, match="refuses the subscription"):
            source.greet(connection, 3.0)

    def test_hidden_experiments_are_only_a_warning(self):
        connection = Connection()
        source, status = opened(connection)
        connection.granted, connection.watched = granted(1), granted(135)
        assert source.greet(connection, 1.0)
        assert "shows no experiments (not authorized)" in status.text


class TestRetire:
    def test_ends_once_unsubscribed_drained_and_quiet(self):
        connection = Connection()
        source, status = opened(connection, 100.0, group="crew", retire=True)
        assert connection.asked == [("unsubscribe", CREW)]
        assert not source.is_over(connection, 200.0)  # not unsubscribed yet
        connection.unsubscribed = unsubscribed(0)
        assert not source.is_over(connection, 102.9)  # more may come
        connection.messages = [("topic", b"")]
        source.holds_messages(110.0)
        assert not source.is_over(connection, 120.0)  # not counted yet
        connection.messages = []
        assert not source.is_over(connection, 112.9)
        assert not source.is_over(connection, 113.1)  # it may not have read the acknowledgements yet
        assert not source.is_over(connection, 120.0)
        source.holds_messages(120.1)  # one more, and then the answer
        connection.unsubscribed = unsubscribed(17)
        assert not source.is_over(connection, 120.2)
        assert not source.is_over(connection, 123.2)
        connection.unsubscribed = unsubscribed(17)
        assert source.is_over(connection, 123.3)
        assert connection.asked[1:] == [("unsubscribe", "hushmote/v1/none")] * 2 + [("close", True)]
        assert status.text.startswith("retired: nothing is left for agg")

    def test_rejects_a_missing_or_different_session(self):
        with pytest.raises(BrokerRefused, match="keeps nothing for a client with the id agg"):
            opened(Connection(session_present=False), retire=True)
        connection = Connection()
        source, _ = opened(connection, retire=True)
        connection.unsubscribed = unsubscribed(17)
        with pytest.raises(BrokerRefused, match="correct share"):
            source.is_over(connection, 10.0)
