"""Brokers, queues and aggregators of the benchmarks: what fills a queue, what drains it, what that costs.

Who publishes and who counts take turns, each in a process of its own: neither takes of the other's core.
"""

import dataclasses
import multiprocessing
import os
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import paho.mqtt.client as mqtt
from core_parts import limited
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from published import payload

from hushmote.device.ldp_client import Experiment
from hushmote.server.aggregator import Aggregator, Counting
from hushmote.server.ingest.broker_url import BrokerAddress, parse_nats_url
from hushmote.server.store import Store
from hushmote.server.wire import keys, report, topics
from hushmote.server.wire.limits import BATCH_REPORTS
from hushmote.simulator import vectorised
from hushmote.simulator.broker import MosquittoBroker, free_port
from hushmote.simulator.nats_servers import NatsServers

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))
from postgres import Cluster

FLEET = "bench"
MASTER = bytes(range(32))
FLEET_KEYS = keys.FleetKeys((MASTER,), MASTER)
COUNTING = Counting(fleets=[FLEET], fleet_keys=FLEET_KEYS)
SHARE = "count"
# With what it ships, mosquitto would save 200,000 queued messages every second and do little else.
NO_SAVING = ("autosave_interval 3600",)
_WINDOW = 1000  # of the publisher, in messages
_DEADLINE_S = 240.0
_TICKS = os.sysconf("SC_CLK_TCK")


@contextmanager
def brokers(kind: str) -> Iterator[tuple[int | str, list[int], list[int]]]:
    """A broker: what an aggregator is told, the servers' MQTT ports and process ids."""
    if kind == "mosquitto":
        with MosquittoBroker(settings=NO_SAVING) as broker:
            assert broker.pid is not None
            yield broker.port, [broker.port], [broker.pid]
        return
    count = int(kind.split()[1].rstrip(","))
    with NatsServers(count, sync="always" if "always" in kind else "2m") as servers:
        pids = [pid for i in range(count) if (pid := servers.pid(i)) is not None]
        yield servers.url, [node.mqtt for node in servers.nodes], pids


# --- Subscribers, each in a process of its own ----------------------------------------------------


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


def aggregate(
    broker: int | str, wanted: int, out: Connection, url: str, counting: Counting = COUNTING, **hooks: Any
) -> None:
    """Run an aggregator until it has accepted `wanted` more reports; sends what bare() sends."""
    address = BrokerAddress("127.0.0.1", broker) if isinstance(broker, int) else parse_nats_url(broker)
    with Store(url) as store:
        aggregator = Aggregator(store, address, counting, **hooks)
        start, before = time.perf_counter(), 0.0 if isinstance(broker, int) else time.process_time()

        def watch() -> None:
            end = time.monotonic() + _DEADLINE_S
            aggregator.ready.wait(_DEADLINE_S)
            while time.monotonic() < end and aggregator.counters.accepted < wanted:
                time.sleep(0.005)
            used = time.process_time() - before
            out.send((time.perf_counter() - start, used, aggregator.counters.accepted))
            aggregator.stop()

        watcher = threading.Thread(target=watch)
        watcher.start()
        aggregator.run()
        watcher.join()


def drain(
    target: Callable[..., None], broker: int | str, wanted: int, *rest: object
) -> tuple[float, float, int]:
    """Run bare(), aggregate() or their like in a process of its own."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=target, args=(broker, wanted, there, *rest))
    process.start()
    measured = here.recv()
    process.join(30)
    assert measured[2] >= wanted, f"{target.__name__} saw {measured[2]} of {wanted}"
    return measured


def member(broker: int | str, url: str, number: int, share: str | None, out: Connection) -> None:
    """Once told to go, count until told to stop; sends its accepted reports as often as it is asked.

    broker: mosquitto's port, or the URL of NATS servers, where all members have one client id.
    """
    if isinstance(broker, int):
        address, who = BrokerAddress("127.0.0.1", broker), {"client_id": f"member-{number}", "share": share}
    else:
        address, who = parse_nats_url(broker), {"client_id": SHARE}
    counting = dataclasses.replace(COUNTING, **who)
    commit_s = 0.0

    def committed(_size: int, seconds: float) -> None:
        nonlocal commit_s
        commit_s += seconds

    with Store(url) as store:
        aggregator = Aggregator(store, address, counting, on_commit=committed)

        def answer() -> None:
            while out.recv() != "stop":
                out.send((aggregator.counters.accepted, aggregator.ready.is_set()))
            aggregator.stop()

        answering = threading.Thread(target=answer)
        out.send("ready")
        out.recv()
        before = time.process_time()
        answering.start()
        aggregator.run()
        answering.join()
        out.send((time.process_time() - before, memory_mib(field="VmHWM"), commit_s))


def cpu_s(pid: int) -> float:
    """CPU seconds of a process and of its children, those that have ended too."""

    def fields(path: Path) -> list[str]:
        return path.read_text().rpartition(")")[2].split()

    total = sum(map(int, fields(Path(f"/proc/{pid}/stat"))[11:15]))
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            child = fields(path)
        except OSError:
            continue
        if int(child[1]) == pid:
            total += sum(map(int, child[11:13]))
    return total / _TICKS


def drain_members(
    broker: int | str,
    url: str,
    members: int,
    wanted: int,
    share: str | None = SHARE,
    part: float | None = None,
) -> dict[str, float]:
    """Run the members until they have accepted `wanted`; returns seconds, their CPU seconds, peak memory.

    part: of a core, which each member has at most; None for all that the machine gives.
    """
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for number in range(members):
        here, there = context.Pipe()
        processes.append(context.Process(target=member, args=(broker, url, number, share, there)))
        processes[-1].start()
        pipes.append(here)
    for pipe in pipes:
        assert pipe.recv() == "ready"
    with ExitStack() as parts:
        for process in processes:
            if part is not None and process.pid is not None:
                parts.enter_context(limited([process.pid], part, period_us=10_000))
        start = time.perf_counter()
        for pipe in pipes:
            pipe.send("go")
        accepted, ready = 0, False
        while accepted < wanted or not ready:
            time.sleep(0.01 if part is None else 0.1)  # answering takes of the members' part
            for pipe in pipes:
                pipe.send("how many")
            progress = [pipe.recv() for pipe in pipes]
            accepted, ready = sum(count for count, _ in progress), all(is_ready for _, is_ready in progress)
            assert time.perf_counter() - start < _DEADLINE_S, f"{accepted} of {wanted}"
        seconds = time.perf_counter() - start
    for pipe in pipes:
        pipe.send("stop")
    done = [pipe.recv() for pipe in pipes]
    for process in processes:
        process.join(30)
    return {
        "seconds": seconds,
        "cpu_s": sum(d[0] for d in done),
        "peak_mib": max(d[1] for d in done),
        "commit_s": sum(d[2] for d in done),
    }


def device_name(index: int) -> str:
    return f"d{index:07}"


class Reports:
    """Authenticated reports of a fleet of n devices, the next number of each at every call."""

    def __init__(self, devices: int) -> None:
        self.payload = payload("hh", 256, 1_000_000)
        self._experiment = Experiment.parse(self.payload)
        self.names = [device_name(i) for i in range(devices)]
        self._rng = np.random.default_rng()

    def messages(self, devices: np.ndarray, number: int) -> list[tuple[str, bytes]]:
        """One report of each of the devices, given by index."""
        codes = vectorised.codes(self._experiment, self._rng.integers(0, 256, len(devices)), self._rng)
        pairs = []
        for i, code in zip(devices, codes, strict=True):
            name = device_name(i)
            key = keys.device_key(MASTER, FLEET, name)
            topic = topics.report_topic(FLEET, name)
            pairs.append((topic, report.encode(self._experiment, number, int(code), name, key)))
        return pairs


def set_up(url: str, payload: bytes, keyed: bool = True) -> None:
    """Make a store with a fleet and its experiment."""
    with Store(url) as store:
        store.add_fleet(FLEET, keyed=keyed)
        store.add_experiment(FLEET, payload)


@contextmanager
def database(kind: str, folder: str, name: str) -> Iterator[tuple[str, int | None]]:
    """The URL of a new store, and the process id of its server."""
    if kind == "sqlite":
        yield f"sqlite:///{folder}/{name}.sqlite", None
        return
    with Cluster(durable=True) as cluster:
        cluster.execute(f"CREATE DATABASE {name}")
        assert cluster.pid is not None
        yield cluster.url(name), cluster.pid


# --- Publishing -----------------------------------------------------------------------------------


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
    for topic, content in messages:
        if not room.acquire(timeout=_DEADLINE_S):
            break
        client.publish(topic, content, qos=1)
    if not all(room.acquire(timeout=_DEADLINE_S) for _ in range(window)):
        raise SystemExit("the broker did not acknowledge everything")
    client.loop_stop()
    client.disconnect()
    return time.perf_counter() - start


# --- Commands -------------------------------------------------------------------------------------


class Process:
    """A hushmote command that serves HTTP at `port`, ready when entered."""

    def __init__(self, command: str, *arguments: str, keyed: bool = False) -> None:
        self.port = free_port()
        http = ("--http", f"127.0.0.1:{self.port}")
        self._command = [sys.executable, "-m", "hushmote", command, *http, *arguments]
        own = {keys.ENVIRONMENT_VARIABLE: f"{MASTER.hex()},signing:{MASTER.hex()}"} if keyed else {}
        self._environment = os.environ | own

    def __enter__(self) -> "Process":
        self.process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=self._environment
        )
        assert self.process.stdout is not None
        if self.process.stdout.readline() != "ready\n":
            raise SystemExit(f"{' '.join(self._command)} did not start")
        return self

    def __exit__(self, *exc: object) -> None:
        self.process.terminate()
        if self.process.wait(120):
            raise SystemExit(f"{' '.join(self._command)} ended with status {self.process.returncode}")

    def memory_mib(self, field: str) -> float:
        """VmRSS, or VmHWM for its peak."""
        return memory_mib(self.process.pid, field)

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()

    def metric(self, name: str) -> float:
        """The sum over a metric's labels."""
        return sum(
            map(float, re.findall(rf"^{name}(?:{{.*}})? (\S+)$", self.get("/metrics")[1], re.MULTILINE))
        )


def memory_mib(pid: int | str = "self", field: str = "VmRSS") -> float:
    """Resident memory of a process, or with VmHWM its peak.

    Not getrusage(): its most includes what the parent had when it made this process.
    """
    return int(Path(f"/proc/{pid}/status").read_text().partition(f"{field}:")[2].split()[0]) / 1024
