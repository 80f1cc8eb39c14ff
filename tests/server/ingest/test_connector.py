"""Connecting, falling back and explaining a loss, with a fake connection instead of a broker."""

import logging
import ssl
from typing import Any

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode

from hushmote.server.ingest import connector as module
from hushmote.server.ingest.broker_url import BrokerAddress
from hushmote.server.ingest.connector import Connector
from hushmote.server.ingest.session import BrokerRefused, Session
from hushmote.server.ingest.status import Loss, Status

ALERT = "failed to receive on socket: [SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] alert"


class FakeConnection:
    """The parts of a connection that a connector reads; connecting raises `failure`, if there is one."""

    failure: Exception | None = None
    connack_properties = end_reason = end_properties = None

    def __init__(self, protocol="5", *_):
        self.protocol, self.started_at, self.answer, self.error = protocol, 0.0, None, ""

    def connect(self, _host, _port):
        if self.failure is not None:
            raise self.failure


Connection: Any = FakeConnection


@pytest.fixture
def make():
    def make(protocol: Any = "auto", **session: Any) -> tuple[Any, Status]:
        status = Status()
        return Connector(
            Session(BrokerAddress("host"), "agg", **session), status, protocol, Connection
        ), status

    return make


def answered(value):
    connection = Connection()
    connection.answer = ReasonCode(PacketTypes.CONNACK, identifier=value)
    return connection


class TestProtocol:
    def test_alternates_while_the_broker_is_silent(self, make):
        connector, status = make()
        tried = []
        for _ in range(3):
            connection = connector.connect()
            tried.append(connection.protocol)
            assert not connector.has_waited_enough(connection, 1.9)
            assert connector.has_waited_enough(connection, 2.1)
            connector.explain_loss(connection)
        assert tried == ["5", "3.1.1", "5"]
        assert status.text == "the broker at host:1883 did not answer: trying again"

    @pytest.mark.parametrize("session", [{"group": "pair"}, {"retire": True}], ids=["group", "retire"])
    def test_does_not_fall_back_if_mqtt_5_is_needed(self, make, session):
        connector, status = make(**session)
        connection = connector.connect()
        assert not connector.has_waited_enough(connection, 9.9)
        assert connector.has_waited_enough(connection, 10.1)
        connector.explain_loss(connection)
        assert connector.connect().protocol == "5"
        assert "share and --retire need" in status.text
        with pytest.raises(BrokerRefused, match=r"supports only MQTT 3\.1\.1"):
            connector.accepted(answered(132))

    def test_stays_once_accepted(self, make):
        connector, status = make()
        assert connector.accepted(answered(0))
        connector.explain_loss(connector.connect())
        assert connector.connect().protocol == "5"
        with pytest.raises(BrokerRefused, match="refuses the connection"):
            connector.accepted(answered(132))
        assert not connector.accepted(answered(136))  # server unavailable: retry
        assert status.text.endswith("refuses the connection: it is unavailable; trying again")

    def test_falls_back_after_a_refusal_but_not_a_bad_login(self, make):
        connector, _ = make()
        assert not connector.accepted(answered(132))
        assert connector.connect().protocol == "3.1.1"
        with pytest.raises(BrokerRefused, match="refuses the connection"):
            connector.accepted(answered(135))


class TestMessages:
    def test_silence_does_not_replace_a_tls_error(self, make):
        connector, status = make(tls=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        result = connector.connect()
        result.error = ALERT
        connector.explain_loss(result)
        assert status.loss is Loss.NO_TLS
        reason = status.text
        assert "it requires a client certificate" in reason
        connector.explain_loss(connector.connect())
        assert status.text == reason
        assert connector.connect().protocol == "5"  # as long as TLS is the problem
        status.say(0, "something else")
        connector.explain_loss(connector.connect())
        assert "it may require a client certificate" in status.text
        assert connector.connect().protocol == "3.1.1"

    def test_connection_failure_is_one_line(self, make, monkeypatch):
        connector, status = make()
        tls = ssl.SSLError(1, "wrong version number")
        tls.reason = "WRONG_VERSION_NUMBER"
        for error, text in [
            (
                ConnectionRefusedError(111, "Connection refused"),
                "no broker at host:1883 (Connection refused)",
            ),
            (ValueError("Invalid host."), "no broker at host:1883 (Invalid host.)"),
            (tls, "does not use TLS"),
        ]:
            monkeypatch.setattr(Connection, "failure", error)
            assert connector.connect() is None
            assert text in status.text
        assert status.loss is Loss.NO_TLS

    def test_short_connections_blame_another_client(self, make, monkeypatch):
        connector, status = make()
        connection = answered(0)
        for seconds, blamed in [(1, False), (1, False), (1, True), (60, False), (1, False)]:
            monkeypatch.setattr(module.time, "monotonic", lambda now=seconds: float(now))
            connector.explain_loss(connection)
            assert ("another client with the id agg?" in status.text) is blamed

    def test_lasting_error_is_repeated_once_a_minute(self, caplog: pytest.LogCaptureFixture) -> None:
        now = [0.0]
        status = Status(lambda: now[0])
        for now[0] in (0.0, 1.0, 59.0, 60.0, 119.0, 120.0):
            status.say(logging.WARNING, "no broker")
        assert caplog.messages == 3 * ["no broker"]
