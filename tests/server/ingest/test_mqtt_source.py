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
GROUP = f"$share/group/{ALL}"
EXPERIMENTS = "hushmote/v1/+/experiment/+"


class FakeConnection:
    """A connection that the broker has accepted; it records the calls."""

    protocol = "5"
    answer = ReasonCode(PacketTypes.CONNACK, identifier=0)
    connack_properties = None

    def __init__(self, session_present=True):
        self.session_present = session_present
        self.subscribe_reason: Any = None
        self.unsubscribe_reason = self.watch_reason = None
        self.messages = []
        self.calls = []

    @property
    def subscribed(self):
        return not self.subscribe_reason.is_failure

    def watch(self, filters):
        self.calls.append(("watch", *filters))

    def subscribe(self, filters):
        self.calls.append(("subscribe", *filters))

    def unsubscribe(self, filters):
        self.calls.append(("unsubscribe", *filters))

    def close(self, *, end_session):
        self.calls.append(("close", end_session))


Connection: Any = FakeConnection


def opened(connection, now=0.0, **options) -> tuple[MqttSource, Status]:
    """Return a source that has greeted a connection."""
    status = Status()
    source = MqttSource(Session(BrokerAddress("host"), "agg", **options), status, "5", Connection)
    assert not source.greet(connection, now)
    return source, status


def suback(value):
    return ReasonCode(PacketTypes.SUBACK, identifier=value)


def unsuback(value):
    return ReasonCode(PacketTypes.UNSUBACK, identifier=value)


class TestSubscribe:
    def test_group_member_unsubscribes_alone_first(self):
        for group, calls in [
            (None, [("watch", EXPERIMENTS), ("subscribe", ALL)]),
            ("group", [("unsubscribe", ALL), ("watch", EXPERIMENTS), ("subscribe", GROUP)]),
        ]:
            connection = Connection()
            opened(connection, group=group)
            assert connection.calls == calls
        names = Session(BrokerAddress("host"), "agg", fleets=["a", "b"])
        assert names.filters(None) == ["hushmote/v1/a/report/+", "hushmote/v1/b/report/+"]
        assert names.announcement_filters() == ["hushmote/v1/a/experiment/+", "hushmote/v1/b/experiment/+"]

    def test_watches_proofs_only_with_a_log(self):
        connection = Connection()
        source, status = opened(connection, has_log=True)
        assert connection.calls[0] == ("watch", EXPERIMENTS, "hushmote/v1/+/proof/+")
        connection.subscribe_reason, connection.watch_reason = suback(1), suback(135)
        assert source.greet(connection, 1.0)
        assert "does not let this user read experiments or their proofs" in status.text

    def test_hides_the_group_and_ends_on_refusal(self):
        connection = Connection()
        source, status = opened(connection, group="group")
        connection.subscribe_reason = suback(1)
        assert source.greet(connection, 1.0)
        assert not source.greet(connection, 2.0)  # already greeted
        assert status.text == "subscribed at host:1883 with MQTT 5, sharing the reports with others"
        assert not source.is_over(connection, 1e9)
        connection.subscribe_reason = suback(135)
        with pytest.raises(BrokerRefused, match="refuses the subscription"):
            source.greet(connection, 3.0)

    def test_hidden_experiments_are_only_a_warning(self):
        connection = Connection()
        source, status = opened(connection)
        connection.subscribe_reason, connection.watch_reason = suback(1), suback(135)
        assert source.greet(connection, 1.0)
        assert "does not let this user read experiments (not authorized)" in status.text


class TestRetire:
    def test_ends_once_unsubscribed_drained_and_quiet(self):
        connection = Connection()
        source, status = opened(connection, 100.0, group="group", retire=True)
        assert connection.calls == [("unsubscribe", GROUP)]
        assert not source.is_over(connection, 200.0)  # not unsubscribed yet
        connection.unsubscribe_reason = unsuback(0)
        assert not source.is_over(connection, 102.9)  # more may come
        connection.messages = [("topic", b"")]
        source.note_messages(110.0)
        assert not source.is_over(connection, 120.0)  # not counted yet
        connection.messages = []
        assert not source.is_over(connection, 112.9)
        assert not source.is_over(connection, 113.1)  # it may not have read the acknowledgements yet
        assert not source.is_over(connection, 120.0)
        source.note_messages(120.1)  # one more message, and then the answer
        connection.unsubscribe_reason = unsuback(17)
        assert not source.is_over(connection, 120.2)
        assert not source.is_over(connection, 123.2)
        connection.unsubscribe_reason = unsuback(17)
        assert source.is_over(connection, 123.3)
        assert connection.calls[1:] == [("unsubscribe", "hushmote/v1/none")] * 2 + [("close", True)]
        assert status.text.startswith("retired: nothing is left for agg")

    def test_rejects_a_missing_or_different_session(self):
        with pytest.raises(BrokerRefused, match="keeps nothing for a client with the id agg"):
            opened(Connection(session_present=False), retire=True)
        connection = Connection()
        source, _ = opened(connection, retire=True)
        connection.unsubscribe_reason = unsuback(17)
        with pytest.raises(BrokerRefused, match="correct share"):
            source.is_over(connection, 10.0)
