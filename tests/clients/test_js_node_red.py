"""clients/js/node-red in Node-RED: readings over HTTP, reports to a broker and into a store."""

import contextlib
import datetime
import json
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from experiments import number_json
from paho.mqtt import publish
from running_aggregator import WAIT_S, running, until

from hushmote.device.ldp_client import Experiment
from hushmote.server.experiments.definition import load
from hushmote.server.store import Store
from hushmote.simulator.broker import MosquittoBroker, free_port

NODE_RED = shutil.which("node-red")
CLIENT = Path(__file__).parents[2] / "clients" / "js"
ROOM = number_json(8, name="room", epsilon=1_000_000, budget={"rule": "sum", "cap": 5_000_000}, window="day")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(NODE_RED is None, reason="no Node-RED: npm install --global node-red"),
]


def flow(broker: MosquittoBroker, ledger: Path, **options: str) -> list[dict[str, Any]]:
    """Return a flow that sends the node readings (HTTP), experiments (MQTT) and acknowledgements.

    options: further fields of the node.
    """
    mqtt = {"broker": "broker", "qos": "", "retain": "", "topic": ""}
    read = "const {value, ...more} = msg.payload; return Object.assign(msg, more, {payload: value});"
    answer = "if (msg.res) return {res: msg.res, payload: ''};"  # once the node has handled the reading
    nodes: list[dict[str, Any]] = [
        {"id": "post", "type": "http in", "url": "/take", "method": "post", "wires": [["read"]]},
        {"id": "read", "type": "function", "func": read, "outputs": 1, "wires": [["hushmote"]]},
        {"id": "handled", "type": "complete", "scope": ["hushmote"], "wires": [["answered"]]},
        {"id": "failed", "type": "catch", "scope": ["hushmote"], "wires": [["answered"]]},
        {"id": "answered", "type": "function", "func": answer, "outputs": 1, "wires": [["answer"]]},
        {"id": "answer", "type": "http response", "wires": []},
        mqtt
        | {"id": "subscribed", "type": "mqtt in", "datatype": "buffer", "wires": [["hushmote"]]}
        | {"topic": "#", "qos": "1"},  # any published message
        {"id": "hushmote", "type": "hushmote", "wires": [["out"]], "folder": str(ledger)}
        | {"fleet": "trial", "experiments": "room", "epsilon": "1", "sum": "8", "device": ""}
        | options,
        mqtt | {"id": "out", "type": "mqtt out", "wires": []},
        {"id": "done", "type": "complete", "scope": ["out"], "wires": [["hushmote"]]},
    ]
    server = {"id": "broker", "type": "mqtt-broker", "broker": broker.host, "port": str(broker.port)}
    return [{"id": "tab", "type": "tab"}, server, *(node | {"z": "tab", "x": 0, "y": 0} for node in nodes)]


@contextlib.contextmanager
def node_red(folder: Path, port: int) -> Iterator[None]:
    """Run Node-RED until its flow has started, and kill it at the end."""
    assert NODE_RED
    command = [NODE_RED, "--userDir", str(folder), "--port", str(port), "flows.json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        log = []
        while "Started flows" not in (line := process.stdout.readline()):
            assert line, log
            log.append(line)
        yield
    finally:
        process.kill()
        process.communicate()


def send_reading(port: int, value: Any, topic: str = "room", **properties: bool) -> None:
    body = json.dumps({"topic": topic, "value": value, **properties}).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/take", body, {"Content-Type": "application/json"}
    )
    urllib.request.urlopen(request, timeout=WAIT_S).close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(f"sqlite:///{tmp_path / 'store.sqlite'}")
    store.add_fleet("trial", keyed=False)
    store.add_experiment("trial", ROOM, datetime.date.max)
    yield store
    store.close()


def test_counts_readings_once_through_broker_outage_and_kill(tmp_path, store):
    shutil.copytree(CLIENT, tmp_path / "node_modules" / "hushmote")
    ledger, broker, port = tmp_path / "ledger", MosquittoBroker(free_port()), free_port()
    (tmp_path / "flows.json").write_text(json.dumps(flow(broker, ledger)))

    def record() -> dict[str, Any]:
        newest = max(ledger.glob("ledger.*"), key=lambda path: int(path.suffix[1:]))
        return json.loads(newest.read_text()[64:])

    def counted() -> int:
        return int(store.histogram("trial", Experiment.parse(ROOM).digest).sum())

    broker.start()
    try:
        with running(store, broker):
            with node_red(tmp_path, port):
                send_reading(port, 0.5)  # nobody has opted in
                send_reading(port, None, provision=True)
                until(lambda: (ledger / "ledger.2").exists(), "the ledger")
                for topic in ("hushmote/consent", "room"):
                    body = json.dumps({"consent": True})
                    publish.single(topic, body, 1, hostname=broker.host, port=broker.port)
                send_reading(port, 0.5)
                assert record()["consent"] is None
                send_reading(port, None, consent=True)
                until(lambda: record()["consent"], "the opt-in")

                def reported(number: int) -> bool:
                    send_reading(port, 0.25)
                    return record()["entries"].get(".room", [0])[0] >= number

                until(lambda: reported(1), "the experiment")
                until(lambda: counted() >= 1 and record()["unsent"] == [], record)
                broker.terminate()
                send_reading(port, "no number")  # the node warns and reports a missing reading
                until(lambda: reported(5), record)
                waiting = record()["unsent"]
                assert waiting
            broker.start()
            with node_red(tmp_path, port):
                until(lambda: counted() == 5 and record()["unsent"] == [], record)
                send_reading(port, 0.25)
        assert (counted(), record()["entries"][".room"][0]) == (5, 5)
    finally:
        broker.terminate()


def test_reports_below_topic_prefix(tmp_path, store):
    shutil.copytree(CLIENT, tmp_path / "node_modules" / "hushmote")
    ledger, port = tmp_path / "ledger", free_port()
    with MosquittoBroker() as broker, running(store, broker, prefix="tenants/acme/"):
        (tmp_path / "flows.json").write_text(json.dumps(flow(broker, ledger, prefix="tenants/acme")))
        with node_red(tmp_path, port):
            send_reading(port, None, provision=True)
            send_reading(port, None, consent=True)

            def counted() -> int:
                send_reading(port, 0.25)  # until the experiment has arrived
                return int(store.histogram("trial", Experiment.parse(ROOM).digest).sum())

            until(lambda: counted() >= 1, "a report")


def test_example_flow_counts_a_reading(tmp_path):
    shutil.copytree(CLIENT, tmp_path / "node_modules" / "hushmote")
    nodes = json.loads((CLIENT / "examples" / "room-temperature.json").read_text("utf-8"))
    port = free_port()
    definition = load(CLIENT.parents[1] / "examples" / "room_temp.toml")
    payload = json.loads(definition.payload()) | {"every": 1}  # no need to press the button 90 times
    with (
        MosquittoBroker() as broker,
        Store(f"sqlite:///{tmp_path / 'store.sqlite'}") as store,
    ):
        store.add_fleet("home", keyed=False)
        experiment = store.add_experiment("home", json.dumps(payload).encode(), datetime.date.max)
        own = {"broker": {"broker": broker.host, "port": str(broker.port)}}
        own["hushmote"] = {"folder": str(tmp_path / "ledger")}
        flows = [node | own.get(node["id"], {}) for node in nodes]
        (tmp_path / "flows.json").write_text(json.dumps(flows))

        def press(button: str) -> None:
            request = urllib.request.Request(f"http://127.0.0.1:{port}/inject/{button}", b"")
            urllib.request.urlopen(request, timeout=WAIT_S).close()

        def counted() -> int:
            press("hourly")
            return int(store.histogram("home", experiment.digest).sum())

        with running(store, broker), node_red(tmp_path, port):
            with urllib.request.urlopen(
                f"http://127.0.0.1:{port}/library/examples/flows/hushmote", timeout=WAIT_S
            ) as answer:
                assert b"room-temperature" in answer.read()  # the menu Import
            press("provision")
            until(lambda: (tmp_path / "ledger" / "ledger.2").exists(), "the ledger")
            press("agree")
            until(lambda: counted() >= 1, "a report")
