"""Brokers, queues and aggregators for the benchmarks: fill and drain a queue, and measure the cost.

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
_WINDOW = 1000  # the publisher's window, in messages
_DEADLINE_S = 240.0
_TICKS = os.sysconf("SC_CLK_TCK")


class SecureNatsServers(NatsServers):
    """NATS servers with TLS for boards; `tls` is the configuration line, or ""."""

    tls = ""

    def _lines(self, number: int) -> str:
        return super()._lines(number).replace("mqtt { ", f"mqtt {{ {self.tls}", 1)


@contextmanager
def brokers(
    kind: str, settings: tuple[str, ...] = NO_SAVING, ca: Path | None = None, credential: Path | None = None
) -> Iterator[tuple[int | str, list[int], list[int]]]:
    """Run a broker; yield its address for an aggregator, and the servers' MQTT ports and process ids.

    Args:
        kind: "mosquitto", or "nats" and the number of servers.
        settings: Lines of mosquitto's configuration.
        ca: File with the authority's certificate, with which boards' certificates are checked; None without
            TLS.
        credential: File with the broker's certificate and key; None without TLS.
    """
    if kind == "mosquitto":
        tls_lines = (f"cafile {ca}", f"certfile {credential}", f"keyfile {credential}")
        tls_lines += ("require_certificate true",)
        with MosquittoBroker(settings=settings if credential is None else (*tls_lines, *settings)) as broker:
            assert broker.pid is not None
            yield broker.port, [broker.port], [broker.pid]
        return
    servers = SecureNatsServers(int(kind.split()[1].rstrip(",")), sync="always" if "always" in kind else "2m")
    if credential is not None:
        files = f"cert_file: '{credential}', key_file: '{credential}', ca_file: '{ca}'"
        servers.tls = f"tls {{ {files}, verify: true, timeout: 60 }}, "
    with servers:
        yield servers.url, [node.mqtt for node in servers.nodes], list(servers.pids)


# --- Subscribers, each in its own process -----------------------------------------------------


def counted(
    out: Connection,
    run: Callable[[], object],
    stop: Callable[[], object],
    counter: Callable[[], int],
    is_subscribed: Callable[[], bool],
) -> float:
    """Run on command; send the count and whether it is subscribed until stopped; return CPU seconds."""

    def answer() -> None:
        while out.recv() != "stop":
            out.send((counter(), is_subscribed()))
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
    """Count the messages of a persistent mosquitto session and do nothing else."""
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
    """Run an aggregator on mosquitto's port, or on a NATS URL, where all members share one client id."""
    if isinstance(broker, int):
        address = BrokerAddress("127.0.0.1", broker)
        counting = dataclasses.replace(counting, client_id=f"member-{number}", share=share)
    else:
        address, counting = parse_nats_url(broker), dataclasses.replace(counting, client_id=SHARE)
    commits_s = []
    with Store(url) as store:
        committed = lambda _size, seconds: commits_s.append(seconds)  # noqa: E731
        aggregator = Aggregator(store, address, counting, on_commit=committed, **hooks)
        accepted = lambda: aggregator.counters.accepted  # noqa: E731
        used = counted(out, aggregator.run, aggregator.stop, accepted, aggregator.ready.is_set)
    out.send({"cpu_s": used, "peak_mib": memory_mib(field="VmHWM"), "commit_s": sum(commits_s)})


def drain(
    target: Callable[..., None],
    broker: int | str,
    count: int,
    *rest: object,
    members: int = 1,
    part: float | None = None,
) -> dict[str, Any]:
    """Run bare(), aggregate() or a similar function in each member until `count` reports are counted.

    Args:
        target: The function that each process runs.
        broker: The broker's address: a port, or a NATS URL.
        count: Total number of reports to count.
        *rest: Further arguments for the function.
        members: Number of processes.
        part: Maximum share of a core per process; None for no limit.

    Returns:
        Seconds and CPU seconds, and for aggregators also the peak memory and the seconds spent in commits.
    """
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for number in range(members):
        pipe, child_pipe = context.Pipe()
        processes.append(context.Process(target=target, args=(broker, child_pipe, number, *rest)))
        processes[-1].start()
        pipes.append(pipe)

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
    columns = {key: [row[key] for row in done] for key in done[0]}
    sums = {key: sum(columns[key]) for key in ("cpu_s", "commit_s") if key in columns}
    return {"seconds": seconds, "peak_mib": max(columns.get("peak_mib", [0.0]))} | sums


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process and its children, including children that have ended."""

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
    """Reports from a fleet of n devices, tagged if the fleet has keys."""

    def __init__(self, devices: int, *, fleet: str = FLEET, keyed: bool = True) -> None:
        self.payload = payload("hh", 256, 1_000_000)
        self.names = [device_name(i) for i in range(devices)]
        self._experiment, self._fleet, self._keyed = Experiment.parse(self.payload), fleet, keyed
        self._rng = np.random.default_rng()

    def messages(self, devices: np.ndarray, number: int) -> list[tuple[str, bytes]]:
        """Return one report from each device.

        Args:
            devices: The devices' indices.
            number: The reports' number.
        """
        codes = vectorised.codes(self._experiment, self._rng.integers(0, 256, len(devices)), self._rng)
        pairs = []
        for name, code in zip(map(device_name, devices), codes.tolist(), strict=True):
            key = keys.device_key(MASTER, self._fleet, name) if self._keyed else None
            text = report.encode(self._experiment, number, code, name, key)
            pairs.append((topics.report_topic(self._fleet, name), text))
        return pairs


def set_up(url: str, payload: bytes, keyed: bool = True) -> None:
    """Create a store with a fleet and its experiment."""
    with Store(url) as store:
        store.add_fleet(FLEET, keyed=keyed)
        store.add_experiment(FLEET, payload)


@contextmanager
def database(kind: str, folder: str, name: str) -> Iterator[tuple[str, int | None]]:
    """Yield a new store's URL and its server's process id, or None for SQLite."""
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
    """Add reports to an experiment: `reports` per device, and each window's count of each code."""
    (version,) = (v for v in store.experiments(fleet) if v.experiment.name == name)
    for start in range(0, len(devices), 50_000):
        numbers = {(fleet, name, device): NumberSet(reports) for device in devices[start : start + 50_000]}
        with store.ingest() as transaction:
            transaction.write(numbers, {}, {})
    for window, counts in windows.items():
        code_counts = {
            (version.id, window, 0, code): int(counts[code]) for code in np.flatnonzero(counts).tolist()
        }
        with store.ingest() as transaction:
            transaction.write({}, code_counts, {})


# --- Publishing -----------------------------------------------------------------------------------


def publish(port: int, messages: list[tuple[str, bytes]], window: int = _WINDOW) -> float:
    """Publish all messages at QoS 1, `window` at a time; return the seconds until all are acknowledged."""
    client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv311)
    client.max_inflight_messages_set(window)
    # Limit the messages in flight to far fewer than there are packet ids, since paho also assigns ids to
    # waiting messages.
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
    """A running hushmote command that serves HTTP at `port`; entering waits until it is ready."""

    def __init__(self, command: str, *arguments: str, keyed: bool = False) -> None:
        self.port = free_port()
        http = ("--http", f"127.0.0.1:{self.port}")
        self._command = [sys.executable, "-m", "hushmote", command, *http, *arguments]
        fleet_keys = {keys.ENVIRONMENT_VARIABLE: f"{MASTER.hex()},signing:{MASTER.hex()}"}
        self._environment = os.environ | (fleet_keys if keyed else {})

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
        """Return the process's current memory (field VmRSS) or its peak (VmHWM)."""
        return memory_mib(self.process.pid, field)

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()

    def metric(self, name: str) -> float:
        """Return a metric's sum over all its labels."""
        return sum(
            map(float, re.findall(rf"^{name}(?:{{.*}})? (\S+)$", self.get("/metrics")[1], re.MULTILINE))
        )
