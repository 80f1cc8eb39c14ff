"""Messages a second: a bare paho subscriber that only counts, and the whole aggregator, on one mosquitto.

    python benchmarks/ingest.py [--quick]

100,000 devices of a fleet with keys have sent one authenticated report each, at QoS 1, while both were away;
the broker kept all for each of their sessions. Each is then started alone, in a process of its own, and
drains its queue: nobody publishes meanwhile, so that the publisher takes no share of the cores. The bare
subscriber acknowledges every message and counts it. The aggregator decodes, checks the tag, deduplicates,
counts, commits durably (SQLite, WAL, synchronous=FULL), then acknowledges. Times run from the subscription to
the last message. Three rounds, in turn; the median is told. Writes benchmarks/results/ingest.json.
"""

import argparse
import multiprocessing
import tempfile
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

import numpy as np
import paho.mqtt.client as mqtt
from draws import payload as experiment_payload
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from results_file import machine, write
from rich.console import Console
from rich.table import Table

from hushmote.device.ldp_client import Experiment
from hushmote.server.aggregator import Aggregator
from hushmote.server.store import Store
from hushmote.server.wire import keys, report, topics
from hushmote.server.wire.limits import BATCH_REPORTS
from hushmote.simulator import vectorised
from hushmote.simulator.broker import MosquittoBroker

FLEET = "bench"
MASTER = bytes(range(32))
FLEET_KEYS = keys.FleetKeys((MASTER,), MASTER)
_WINDOW = 1000  # of the publisher, in messages
_DEADLINE_S = 120.0
# With what it ships, mosquitto would save 200,000 queued messages every second and do little else.
NO_SAVING = ("autosave_interval 3600",)


def bare(port: int, wanted: int, out: Connection) -> None:
    """Count messages of a kept session; sends the seconds that it took, CPU seconds, and how many it saw."""
    version = MQTTProtocolVersion.MQTTv5
    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id="bare", protocol=version)
    seen, subscribed = 0, False

    def on_connect(client: mqtt.Client, *_: object) -> None:
        client.subscribe(topics.report_filter(FLEET), qos=1)

    def on_subscribe(*_: object) -> None:
        nonlocal subscribed
        subscribed = True

    def on_message(*_: object) -> None:
        nonlocal seen
        seen += 1

    client.on_connect, client.on_subscribe, client.on_message = on_connect, on_subscribe, on_message
    properties = Properties(PacketTypes.CONNECT)
    properties.SessionExpiryInterval = 3600
    properties.ReceiveMaximum = 2 * BATCH_REPORTS
    start, end = time.perf_counter(), time.monotonic() + _DEADLINE_S
    client.connect("127.0.0.1", port, clean_start=False, properties=properties)
    while time.monotonic() < end and (seen < wanted or not subscribed):
        client.loop(0.2)
    seconds, cpu_s = time.perf_counter() - start, time.process_time()
    while client.want_write():  # the last acknowledgements
        client.loop(0.01)
    client.disconnect()
    out.send((seconds, cpu_s, seen))


def whole(port: int, wanted: int, out: Connection, url: str) -> None:
    """Run the aggregator until it has accepted `wanted` more reports; sends what bare() sends."""
    with Store(url) as store:
        aggregator = Aggregator(store, port=port, fleets=[FLEET], fleet_keys=FLEET_KEYS)
        start = time.perf_counter()

        def watch() -> None:
            end = time.monotonic() + _DEADLINE_S
            aggregator.ready.wait(_DEADLINE_S)
            while time.monotonic() < end and aggregator.counters.accepted < wanted:
                time.sleep(0.005)
            out.send((time.perf_counter() - start, time.process_time(), aggregator.counters.accepted))
            aggregator.stop()

        watcher = threading.Thread(target=watch)
        watcher.start()
        aggregator.run()
        watcher.join()


def drain(target: Callable[..., None], port: int, wanted: int, *rest: str) -> tuple[float, float, int]:
    """Run bare() or whole() in a process of its own."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=target, args=(port, wanted, there, *rest))
    process.start()
    measured = here.recv()
    process.join(30)
    return measured


def publish(port: int, messages: list[tuple[str, bytes]], window: int = _WINDOW) -> float:
    """Publish all at QoS 1, `window` at a time; returns the seconds until the broker acknowledged all."""
    client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv311)
    client.max_inflight_messages_set(window)
    # No more at a time than there are packet ids, by far: paho gives an id to what only waits, too.
    room = threading.Semaphore(window)
    client.on_publish = lambda *_: room.release()
    client.connect("127.0.0.1", port)
    client.loop_start()
    start = time.perf_counter()
    for topic, payload in messages:
        if not room.acquire(timeout=_DEADLINE_S):
            break
        client.publish(topic, payload, qos=1)
    if not all(room.acquire(timeout=_DEADLINE_S) for _ in range(window)):
        raise SystemExit("the broker did not acknowledge everything")
    client.loop_stop()
    client.disconnect()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description="Messages a second, beside a bare subscriber.")
    parser.add_argument("--quick", action="store_true", help="5,000 devices, one round; writes no file")
    quick = parser.parse_args().quick
    devices, rounds = (5_000, 1) if quick else (100_000, 3)
    console, rng = Console(width=100), np.random.default_rng(1)
    payload = experiment_payload("hh", 256, 1_000_000)
    exp = Experiment.parse(payload)
    codes = vectorised.codes(exp, rng.integers(0, 256, devices), rng)
    names = [f"d{i:06}" for i in range(devices)]
    device_keys = [keys.device_key(MASTER, FLEET, name) for name in names]
    rows = []
    with tempfile.TemporaryDirectory() as folder, MosquittoBroker(settings=NO_SAVING) as broker:
        url = f"sqlite:///{folder}/store.sqlite"
        with Store(url) as store:
            store.add_fleet(FLEET, keyed=True)
            store.add_experiment(FLEET, payload)
        # Both subscribe once, so that the broker keeps what comes while they are away.
        drain(bare, broker.port, 0)
        drain(whole, broker.port, 0, url)
        for number in range(1, rounds + 1):
            messages = [
                (topics.report_topic(FLEET, name), report.encode(exp, number, int(code), name, key))
                for name, key, code in zip(names, device_keys, codes, strict=True)
            ]
            row: dict = {"published_s": publish(broker.port, messages)}
            for name, target, rest in (("bare", bare, ()), ("aggregator", whole, (url,))):
                seconds, cpu_s, seen = drain(target, broker.port, devices, *rest)
                assert seen == devices, f"{name} saw {seen} of {devices}"
                row |= {f"{name}_per_s": devices / seconds, f"{name}_cpu_s": cpu_s}
            rows.append(row)
    median = {key: float(np.median([row[key] for row in rows])) for key in rows[0]}
    ratio = float(np.median([row["aggregator_per_s"] / row["bare_per_s"] for row in rows]))
    table = Table("", "messages a second", "CPU s", title=f"{devices:,} devices, QoS 1, mosquitto")
    for name in ("bare", "aggregator"):
        table.add_row(name, f"{median[f'{name}_per_s']:,.0f}", f"{median[f'{name}_cpu_s']:.1f}")
    console.print(table)
    console.print(f"aggregator / bare: {ratio:.2f}")
    if not quick:
        result = {"machine": machine(), "devices": devices, "rounds": rows, "ratio": ratio}
        write("ingest.json", result)


if __name__ == "__main__":
    main()
