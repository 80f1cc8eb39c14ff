"""Brokers, queues and aggregators of the benchmarks: functions that fill and drain a queue, and their cost.

Publishers and aggregators take turns, each in its own process, so that they do not share a core.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from results_file import memory_mib

# isort: split
from postgres import Cluster

from hushmote.device.ldp_client import Experiment
from hushmote.server.aggregator import Aggregator, Counting
from hushmote.server.ingest.broker_url import BrokerAddress, parse_nats_url
from hushmote.server.store import Store
from hushmote.server.store.number_set import NumberSet
from hushmote.server.wire import keys, report, topics
from hushmote.server.wire.limits import BATCH_REPORTS
from hushmote.simulator import vectorised
from hushmote.simulator.broker import MosquittoBroker, free_port
from hushmote.simulator.nats_servers import NatsServers

FLEET = "bench"
MASTER = bytes(range(32))
FLEET_KEYS = keys.FleetKeys((MASTER,), MASTER)
COUNTING = Counting(fleets=[FLEET], fleet_keys=FLEET_KEYS)
SHARE = "count"
# With its defaults, mosquitto would save 200,000 queued messages every second and do little else.
NO_SAVING = ("autosave_interval 3600",)
_WINDOW = 1000  # of the publisher, in messages
_DEADLINE_S = 240.0
_TICKS = os.sysconf("SC_CLK_TCK")


class SecureNatsServers(NatsServers):
    """NATS servers with TLS for boards; `tls` is the configuration line, or ""."""

    tls = ""

    def _lines(self, number: int) -> str:
        return super()._lines(number).replace("mqtt { ", f"mqtt {{ {self.tls}", 1)


@contextmanager
def brokers(
    kind: str, settings: tuple[str, ...] = NO_SAVING, ca: Path | None = None, own: Path | None = None
) -> Iterator[tuple[int | str, list[int], list[int]]]:
    """Run a broker; yield its address for an aggregator, and the servers' MQTT ports and process ids.

    Args:
        kind: "mosquitto", or "nats" and the number of servers.
        settings: Lines of mosquitto's configuration.
        ca: The authority's certificate, if the broker requires certificates from boards; None without TLS.
        own: The broker's certificate and key in one file; None without TLS.
    """
    if kind == "mosquitto":
        lines = (f"cafile {ca}", f"certfile {own}", f"keyfile {own}", "require_certificate true")
        with MosquittoBroker(settings=settings if own is None else (*lines, *settings)) as broker:
            assert broker.pid is not None
            yield broker.port, [broker.port], [broker.pid]
        return
    servers = SecureNatsServers(int(kind.split()[1].rstrip(",")), sync="always" if "always" in kind else "2m")
    if own is not None:
        files = f"cert_file: '{own}', key_file: '{own}', ca_file: '{ca}'"
        servers.tls = f"tls {{ {files}, verify: true, timeout: 60 }}, "
    with servers:
        pids = [pid for i in range(len(servers.nodes)) if (pid := servers.pid(i)) is not None]
        yield servers.url, [node.mqtt for node in servers.nodes], pids


# --- Subscribers, each in its own process -----------------------------------------------------


def counted(
    out: Connection, run: Callable[[], object], stop: Callable[[], object], counter: Callable[[], int], there
) -> float:
    """Run on command; report the count and the subscription until stopped; return CPU seconds."""

    def answer() -> None:
        while out.recv() != "stop":
            out.send((counter(), there()))
        stop()

    answering = threading.Thread(target=answer)
    out.send("ready")
    out.recv()
    before = time.process_time()
    answering.start()
    run()
    answering.join()
    return time.process_time() - before


def bare(port: int, out: Connection, number: int) -> None:
    """Only count the messages of a persistent session of mosquitto."""
    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id="bare", protocol=MQTTProtocolVersion.MQTTv5)
    messages, subscribed, stopped = 0, threading.Event(), threading.Event()

    def on_message(*_: object) -> None:
        nonlocal messages
        messages += 1

    def on_connect(*_: object) -> None:
        client.subscribe(topics.report_filter(FLEET), qos=1)

    client.on_connect = on_connect
    client.on_subscribe, client.on_message = lambda *_: subscribed.set(), on_message
    properties = Properties(PacketTypes.CONNECT)
    properties.SessionExpiryInterval, properties.ReceiveMaximum = 3600, 2 * BATCH_REPORTS

    def run() -> None:
        client.connect("127.0.0.1", port, clean_start=False, properties=properties)
        while client.want_write() or not stopped.is_set():  # until the last acknowledgement
            client.loop(0.2)
        client.disconnect()

    out.send({"cpu_s": counted(out, run, stopped.set, lambda: messages, subscribed.is_set)})


def aggregate(
    broker: int | str,
    out: Connection,
    number: int,
    url: str,
    share: str | None = None,
    counting: Counting = COUNTING,
    **hooks: Any,
) -> None:
    """Run an aggregator on mosquitto's port, or on the URL of NATS servers, where all share one client id."""
    if isinstance(broker, int):
        address = BrokerAddress("127.0.0.1", broker)
        counting = dataclasses.replace(counting, client_id=f"member-{number}", share=share)
    else:
        address, counting = parse_nats_url(broker), dataclasses.replace(counting, client_id=SHARE)
    commits_s = []
    with Store(url) as store:
        committed = lambda _size, seconds: commits_s.append(seconds)  # noqa: E731
        own = Aggregator(store, address, counting, on_commit=committed, **hooks)
        used = counted(out, own.run, own.stop, lambda: own.counters.accepted, own.ready.is_set)
    out.send({"cpu_s": used, "peak_mib": memory_mib(field="VmHWM"), "commit_s": sum(commits_s)})


def drain(
    target: Callable[..., None],
    broker: int | str,
    count: int,
    *rest: object,
    members: int = 1,
    part: float | None = None,
) -> dict[str, Any]:
    """Run bare(), aggregate() or similar until they have counted `count`.

    Args:
        target: The function that each process runs.
        broker: Its address: a port, or a URL of NATS servers.
        count: How many reports they have to count together.
        *rest: Further arguments of the function.
        members: How many processes run it.
        part: Largest share of a core for each; None for no limit.

    Returns:
        Seconds, CPU seconds, and for aggregators the peak memory and the seconds of commits.
    """
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for number in range(members):
        here, there = context.Pipe()
        processes.append(context.Process(target=target, args=(broker, there, number, *rest)))
        processes[-1].start()
        pipes.append(here)

    def answers_to(word: str) -> list[Any]:
        for pipe in pipes:
            pipe.send(word)
        return [pipe.recv() for pipe in pipes]

    for pipe in pipes:
        assert pipe.recv() == "ready"
    with ExitStack() as parts:
        for process in processes:
            if part is not None and process.pid is not None:
                parts.enter_context(limited([process.pid], part, period_us=10_000))
        start = time.perf_counter()
        for pipe in pipes:
            pipe.send("go")
        counts, ready = [0], [False]
        while sum(counts) < count or not all(ready):
            time.sleep(0.01 if part is None else 0.1)  # answering uses some of the members' share
            counts, ready = zip(*answers_to("how many"), strict=True)
            assert time.perf_counter() - start < _DEADLINE_S, f"{counts} of {count}"
        seconds = time.perf_counter() - start
    done = answers_to("stop")
    for process in processes:
        process.join(30)
    of = {key: [row[key] for row in done] for key in done[0]}
    sums = {key: sum(of[key]) for key in ("cpu_s", "commit_s") if key in of}
    return {"seconds": seconds, "peak_mib": max(of.get("peak_mib", [0.0]))} | sums


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process and of its children, including those that have ended."""

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


def device_name(index: int) -> str:
    return f"d{index:07}"


class Reports:
    """Reports of a fleet of n devices, with tags if it has keys, and the next number at every call."""

    def __init__(self, devices: int, *, fleet: str = FLEET, keyed: bool = True) -> None:
        self.payload = payload("hh", 256, 1_000_000)
        self.names = [device_name(i) for i in range(devices)]
        self._experiment, self._fleet, self._keyed = Experiment.parse(self.payload), fleet, keyed
        self._rng = np.random.default_rng()

    def messages(self, devices: np.ndarray, number: int) -> list[tuple[str, bytes]]:
        """Return one report of each of the devices, given by index."""
        codes = vectorised.codes(self._experiment, self._rng.integers(0, 256, len(devices)), self._rng)
        pairs = []
        for name, code in zip(map(device_name, devices), codes.tolist(), strict=True):
            key = keys.device_key(MASTER, self._fleet, name) if self._keyed else None
            text = report.encode(self._experiment, number, code, name, key)
            pairs.append((topics.report_topic(self._fleet, name), text))
        return pairs


def set_up(url: str, payload: bytes, keyed: bool = True) -> None:
    """Make a store with a fleet and its experiment."""
    with Store(url) as store:
        store.add_fleet(FLEET, keyed=keyed)
        store.add_experiment(FLEET, payload)


@contextmanager
def database(kind: str, folder: str, name: str) -> Iterator[tuple[str, int | None]]:
    """Yield the URL of a new store, and the process id of its server."""
    if kind == "sqlite":
        yield f"sqlite:///{folder}/{name}.sqlite", None
        return
    with Cluster(durable=True) as cluster:
        cluster.execute(f"CREATE DATABASE {name}")
        assert cluster.pid is not None
        yield cluster.url(name), cluster.pid


def fill(
    store: Store,
    fleet: str,
    devices: Sequence[str],
    windows: Mapping[str, np.ndarray],
    *,
    reports=1,
    name="bench",
) -> None:
    """Count in one experiment this many reports of each device, and of each code in each window."""
    (version,) = (v for v in store.experiments(fleet) if v.experiment.name == name)
    for start in range(0, len(devices), 50_000):
        numbers = {(fleet, name, device): NumberSet(reports) for device in devices[start : start + 50_000]}
        with store.ingest() as transaction:
            transaction.write(numbers, {}, {})
    for window, counts in windows.items():
        code_counts = {
            (version.id, window, code): int(counts[code]) for code in np.flatnonzero(counts).tolist()
        }
        with store.ingest() as transaction:
            transaction.write({}, code_counts, {})


# --- Publishing -----------------------------------------------------------------------------------


def publish(port: int, messages: list[tuple[str, bytes]], window: int = _WINDOW) -> float:
    """Publish all at QoS 1, `window` at a time; return the seconds until the broker acknowledged all."""
    client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv311)
    client.max_inflight_messages_set(window)
    # Far fewer at a time than packet ids: paho also gives ids to waiting messages.
    slots = threading.Semaphore(window)
    client.on_publish = lambda *_: slots.release()
    client.connect("127.0.0.1", port)
    client.loop_start()
    start = time.perf_counter()
    for topic, content in messages:
        if not slots.acquire(timeout=_DEADLINE_S):
            break
        client.publish(topic, content, qos=1)
    if not all(slots.acquire(timeout=_DEADLINE_S) for _ in range(window)):
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
        """Return VmRSS, or VmHWM for its peak."""
        return memory_mib(self.process.pid, field)

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()

    def metric(self, name: str) -> float:
        """Return the sum over a metric's labels."""
        return sum(
            map(float, re.findall(rf"^{name}(?:{{.*}})? (\S+)$", self.get("/metrics")[1], re.MULTILINE))
        )
