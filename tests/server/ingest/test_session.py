"""Subscribing a session and retiring it, without a broker."""

from typing import Any

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode

from hushmote.server.ingest.session import BrokerRefused, Retirement, Session, Subscription
from hushmote.server.ingest.status import Status

ALL = "hushmote/v1/+/report/+"
CREW = f"$share/crew/{ALL}"
EXPERIMENTS = "hushmote/v1/+/experiment/+"


class FakeConnection:
    """What is asked of a connection, and what the broker has answered."""

    protocol = "5"

    def __init__(self, session_present=True):
        self.session_present = session_present
        self.granted = self.unsubscribed = self.watched = None
        self.messages = []
        self.asked = []

    def watch(self, filters):
        self.asked.append(("watch", *filters))

    def subscribe(self, filters):
        self.asked.append(("subscribe", *filters))

    def unsubscribe(self, filters):
        self.asked.append(("unsubscribe", *filters))


Connection: Any = FakeConnection


def session(**options):
    return Session("host", 1883, "agg", **options)


def unsubscribed(value):
    return ReasonCode(PacketTypes.UNSUBACK, identifier=value)


def test_a_member_of_a_group_gives_up_the_whole_subscription_first():
    for group, asked in [
        (None, [("watch", EXPERIMENTS), ("subscribe", ALL)]),
        ("crew", [("unsubscribe", ALL), ("watch", EXPERIMENTS), ("subscribe", CREW)]),
    ]:
        connection = Connection()
        Subscription(session(group=group), Status()).open(connection, 0.0)
        assert connection.asked == asked
    names = session(fleets=["a", "b"]).filters(None)
    assert names == ["hushmote/v1/a/report/+", "hushmote/v1/b/report/+"]
    names = session(fleets=["a", "b"]).experiment_filters()
    assert names == ["hushmote/v1/a/experiment/+", "hushmote/v1/b/experiment/+"]


def test_a_broker_that_shows_no_experiments_is_said_and_ends_nothing():
    status, connection = Status(), Connection()
    connection.granted = ReasonCode(PacketTypes.SUBACK, identifier=1)
    connection.watched = ReasonCode(PacketTypes.SUBACK, identifier=135)
    Subscription(session(), status).granted(connection)
    assert "shows no experiments (not authorized)" in status.text


def test_a_subscription_is_said_without_the_group_s_name_and_a_refusal_ends_it():
    status, connection = Status(), Connection()
    subscription = Subscription(session(group="crew"), status)
    connection.granted = ReasonCode(PacketTypes.SUBACK, identifier=1)
    subscription.granted(connection)
    assert status.text == "subscribed at host:1883 with MQTT 5, sharing the reports with others"
    assert not subscription.is_over(connection, 1e9)
    connection.granted = ReasonCode(PacketTypes.SUBACK, identifier=135)
    with pytest.raises(BrokerRefused, match="refuses the subscription"):
        subscription.granted(connection)


def test_a_session_is_retired_once_it_is_unsubscribed_drained_and_quiet():
    connection = Connection()
    retirement = Retirement(session(group="crew", retire=True), Status())
    retirement.open(connection, 100.0)
    assert connection.asked == [("unsubscribe", CREW)]
    assert not retirement.is_over(connection, 200.0)  # not unsubscribed yet
    connection.unsubscribed = unsubscribed(0)
    assert not retirement.is_over(connection, 102.9)  # more may come
    connection.messages = [("topic", b"")]
    retirement.holds_messages(110.0)
    assert not retirement.is_over(connection, 120.0)  # not counted yet
    connection.messages = []
    assert not retirement.is_over(connection, 112.9)
    assert retirement.is_over(connection, 113.1)


def test_a_session_that_is_not_there_or_is_subscribed_otherwise_is_not_retired():
    retirement = Retirement(session(retire=True), Status())
    with pytest.raises(BrokerRefused, match="keeps nothing for a client with the id agg"):
        retirement.open(Connection(session_present=False), 0.0)
    connection = Connection()
    retirement.open(connection, 0.0)
    connection.unsubscribed = unsubscribed(17)
    with pytest.raises(BrokerRefused, match="correct share"):
        retirement.is_over(connection, 10.0)
