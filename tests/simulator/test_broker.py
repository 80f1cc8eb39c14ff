"""Brokers for the simulator: each choice opens a real one, and an error is one line."""

import shutil
import socket

import paho.mqtt.client as mqtt
import pytest
from broker_facts import Reader, publish
from paho.mqtt.enums import CallbackAPIVersion
from refusals import fails
from running_aggregator import WAIT_S, until

from hushmote.simulator.broker import (
    BrokerError,
    EmbeddedBroker,
    ExternalBroker,
    MosquittoBroker,
    find_mosquitto,
    free_port,
)
from hushmote.simulator.open_broker import open_broker


def first_message(broker, topic="hushmote/v1/+/experiment/+"):
    """Return the first message to a client that subscribes now."""
    listener = Reader(broker, "", clean=True).subscribe(topic)
    listener.read(1, WAIT_S)
    listener.leave()
    return [payload for _, payload, _, _ in listener.got]


def retained(broker):
    """Publish a retained message; return the message to a later subscriber."""
    assert publish(broker, [("hushmote/v1/x/experiment/y", b"z")], retain=True)
    return first_message(broker)


class TestOpenBroker:
    @pytest.mark.parametrize("choice", ["embedded", "mosquitto"])
    def test_keeps_retained_messages_and_stops_afterwards(self, choice):
        with open_broker(choice) as broker:
            assert retained(broker) == [b"z"]
            assert broker.name in ("amqtt", "mosquitto")
            assert broker.name in broker.description
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((broker.host, broker.port), timeout=1)

    def test_auto_selects_mosquitto_if_installed_otherwise_amqtt(self, monkeypatch):
        assert isinstance(open_broker("auto"), MosquittoBroker)
        monkeypatch.setattr("shutil.which", lambda *given, **named: None)
        assert isinstance(open_broker("auto"), EmbeddedBroker)
        with pytest.raises(BrokerError, match="not installed"), MosquittoBroker():
            pass

    def test_url_is_an_external_broker_with_its_login(self):
        broker = open_broker("mqtt://me:p%40ss@example.org:1884")
        assert isinstance(broker, ExternalBroker)
        assert (broker.host, broker.port, broker.username, broker.password) == (
            "example.org",
            1884,
            "me",
            "p@ss",
        )
        assert open_broker("mqtt://example.org").port == 1883
        assert "example.org:1884" in broker.description
        assert "p@ss" not in broker.description

    @pytest.mark.parametrize(
        "choice",
        ["", "rabbit", "http://example.org", "mqtt://", "mqtt://h:port", "mqtt://h/x", "mqtt://h:99999"],
    )
    def test_rejects_any_other_choice_in_one_line(self, choice):
        with pytest.raises(
            BrokerError, match=r"a broker is written mqtt://.*, or auto, embedded, mosquitto or nats"
        ):
            open_broker(choice)


class TestErrors:
    def test_missing_external_broker_is_one_line(self):
        with (
            pytest.raises(BrokerError, match="Connection refused"),
            open_broker(f"mqtt://127.0.0.1:{free_port()}"),
        ):
            pass

    def test_port_in_use_is_one_line(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            s.listen()
            with fails("did not start", BrokerError):
                EmbeddedBroker(port=s.getsockname()[1]).start()


class TestMosquitto:
    def test_keeps_messages_over_restart_but_no_files(self, tmp_path, monkeypatch):
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        with MosquittoBroker() as broker:
            port = broker.port
            assert retained(broker) == [b"z"]
            broker.restart()
            assert broker.port == port
            assert first_message(broker, "#") == [b"z"]
            broker.kill()
            broker.start()
        assert list(tmp_path.iterdir()) == []

    def test_disconnects_sender_of_oversized_packets(self):
        with MosquittoBroker() as broker:
            sender = mqtt.Client(CallbackAPIVersion.VERSION2, reconnect_on_failure=False)
            ended = []
            sender.on_disconnect = lambda *_: ended.append(True)
            sender.connect(broker.host, broker.port)
            sender.publish("a", bytes(1 << 20), qos=1)
            until(lambda: sender.loop(0.05) is not None and ended, "the connection continues")

    def test_failed_start_is_one_line(self):
        with fails("mosquitto did not start", BrokerError):
            MosquittoBroker(settings=("no_such_setting true",)).start()

    def test_is_found_outside_of_path(self, monkeypatch):
        monkeypatch.setenv("PATH", "/nowhere")
        assert shutil.which("mosquitto") is None
        assert find_mosquitto() is not None
