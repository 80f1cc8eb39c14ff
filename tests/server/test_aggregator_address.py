"""Aggregators and doors at addresses with a topic prefix, over WebSocket, with a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from boards import experiment, payload_of
from certificates import Authority
from doors import open_door
from paho.mqtt.enums import CallbackAPIVersion
from running_aggregator import until
from serve_process import served
from traffic import counted_reports, crowd, publish

from hushmote.server.ingest.broker_url import BrokerUrlError, parse_broker_url
from hushmote.server.store import Store
from hushmote.server.wire import topics
from hushmote.simulator.broker import MosquittoBroker, free_port

PREFIX = "tenants/acme.example"


class Broker:
    """mosquitto that allows only topics below the prefix, over TCP and over WebSocket with and without TLS.

    Its listeners for WebSocket use all interfaces: mosquitto 2.0 cannot bind them to an address.
    """

    def __init__(self, folder: Path) -> None:
        self.ca = Authority(folder)
        certificate, key = self.ca.sign("broker", "localhost")
        self.ports = {"ws": free_port(), "wss": free_port()}
        access = folder / "acl"
        access.write_text(f"topic readwrite {PREFIX}/#\ntopic readwrite homeassistant/#\n")
        lines = [f"acl_file {access}", "allow_anonymous true"]
        lines += [f"listener {self.ports['ws']}", "protocol websockets", "allow_anonymous true"]
        lines += [f"listener {self.ports['wss']}", "protocol websockets", "allow_anonymous true"]
        lines += [f"certfile {certificate}", f"keyfile {key}"]
        self.broker = MosquittoBroker(settings=tuple(lines))

    def url(self, scheme: str) -> str:
        return f"{scheme}://localhost:{self.ports.get(scheme, self.broker.port)}?prefix={PREFIX}"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path)
    with broker.broker:
        yield broker


class Listener:
    """A client that receives everything below the prefix, and Home Assistant's topics."""

    def __init__(self, broker: Broker) -> None:
        self.messages: dict[str, bytes] = {}
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2)
        self._client.on_message = self._take
        self._client.connect(broker.broker.host, broker.broker.port)
        self._client.subscribe([(f"{PREFIX}/#", 1), ("homeassistant/#", 1)])
        self._client.loop_start()

    def _take(self, _client: Any, _data: Any, message: Any) -> None:
        self.messages[message.topic] = message.payload

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


@pytest.fixture
def listener(broker: Broker) -> Iterator[Listener]:
    client = Listener(broker)
    yield client
    client.close()


class TestAggregator:
    @pytest.mark.parametrize("scheme", ["mqtt", "ws", "wss"])
    def test_counts_and_announces_below_the_prefix(
        self, broker: Broker, listener: Listener, store: Store, scheme: str
    ) -> None:
        messages, counts = crowd(300)
        arguments = ["--store", f"sqlite:///{store.where}", "--broker", broker.url(scheme), "--batch", "0.1s"]
        environment = {"HUSHMOTE_BROKER_CA": str(broker.ca.file)} if scheme == "wss" else {}
        topic = f"{PREFIX}/{topics.experiment_topic('open', experiment().name)}"
        with served(*arguments, "--publish", "1,home-assistant", environment=environment) as process:
            process.ready()
            publish(broker.broker, [(f"{PREFIX}/{name}", payload) for name, payload in messages])
            until(lambda: counted_reports(store) == 300, lambda: f"{counted_reports(store)} reports")
            until(lambda: topic in listener.messages, "the experiment")
            sensors = "homeassistant/sensor/hushmote_open/"
            until(lambda: any(name.startswith(sensors) for name in listener.messages), "a sensor")
            assert process.end() == 0
        assert list(store.histogram("open", experiment().digest)) == counts
        assert listener.messages[topic] == payload_of(experiment())
        sensors_json = {p for name, p in listener.messages.items() if name.startswith(sensors) and p}
        assert all(f'"{PREFIX}/hushmote/v1/open/result/temp"'.encode() in payload for payload in sensors_json)

    def test_door_publishes_below_the_prefix(self, broker: Broker, listener: Listener) -> None:
        address = parse_broker_url(broker.url("ws"), tls=True)
        topic, payload = crowd(1)[0][0]
        experiment_topic = f"{PREFIX}/{topics.experiment_topic('open', experiment().name)}"
        publish(broker.broker, [(experiment_topic, payload_of(experiment()))], retain=True)
        with open_door(broker.broker, address=address) as door:
            assert door.report("d0", payload).status == 204
            until(lambda: f"{PREFIX}/{topic}" in listener.messages, "the report")


class TestUrl:
    def test_parses_transport_and_prefix(self) -> None:
        address = parse_broker_url("wss://ann@host/broker/?prefix=a/b", tls=True)
        assert (address.port, address.tls, address.websocket, address.prefix) == (
            443,
            True,
            "/broker",
            "a/b/",
        )
        address = parse_broker_url("ws://host:8083", tls=True)
        assert (address.port, address.tls, address.websocket, address.prefix) == (8083, False, "/mqtt", "")
        assert parse_broker_url("mqtt://host?prefix=", tls=True).prefix == ""

    @pytest.mark.parametrize("prefix", ["/a", "a//b", "+", "a/%23", "$share", "a b", "a" * 65, "%C3%B6"])
    def test_rejects_other_prefixes(self, prefix: str) -> None:
        with pytest.raises(BrokerUrlError, match="a topic prefix must be at most 64 of"):
            parse_broker_url(f"mqtt://host?prefix={prefix}", tls=True)

    @pytest.mark.parametrize("url", ["mqtt://host?prefx=a", "mqtt://host/mqtt", "ws://host?path=/x"])
    def test_rejects_unknown_parts(self, url: str) -> None:
        with pytest.raises(BrokerUrlError, match="a broker is written mqtt://"):
            parse_broker_url(url, tls=True)
