"""The cost of the board list for a NATS server set up by `hushmote provision fleet --broker nats`.

    python benchmarks/nats_fleet.py [--quick]

One server has many boards in users.conf, of which one connects. This measures the cost of starting, of
rereading the list on SIGHUP, and of each connection. For comparison, it repeats this with users named by
their certificates' subjects, which NATS also accepts but compares with every entry. --quick: up to 1,000
boards. handshakes.py measures the cost of a subscription; ingest.py and broker_kills.py measure the cost of
syncing. Writes benchmarks/results/nats_fleet.json.
"""

import datetime
import re
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion
from results_file import Options, memory_mib, run

from hushmote.fleet.provisioning import nats
from hushmote.fleet.provisioning.fleet_folder import FleetFolder, now_utc
from hushmote.fleet.provisioning.journal import Credential
from hushmote.server.ingest.tls import client_context
from hushmote.simulator.nats_servers import find_nats_server

# isort: split
from fleet_servers import FleetServers, make_nats_fleet, serving  # pyright: ignore[reportMissingImports]

CONNECTIONS = 15
_END_S = 300


def client(folder: FleetFolder, name: str, client_id: str) -> paho.Client:
    """Return a client with a board's certificate that has started to connect."""
    connection = paho.Client(CallbackAPIVersion.VERSION2, client_id, protocol=paho.MQTTv311)
    pem = folder.path / f"{name}.pem"
    connection.tls_set_context(client_context(folder.path / "aggregator/ca.pem", pem, pem))
    connection.connect(folder.fleet.hosts[0], folder.fleet.port)
    return connection


def list_boards(folder: FleetFolder, boards: int, *, by_subject: bool) -> float:
    """Write a list of further boards, without the board called unknown; return its size in MB."""
    journal = folder.journal().credentials
    root, later = journal[0].authority, now_utc() + datetime.timedelta(days=1)
    others = [Credential(f"b{i:07}", "device", f"{i:040x}", root, later) for i in range(boards)]
    listed = [c for c in journal if c.name != "unknown"]
    text = nats.users_conf(folder.fleet, [*listed, *others], {root})
    if by_subject:
        text = re.sub(r'"urn:hushmote:([a-z0-9_]+):[0-9a-f]+"', r'"CN=\1"', text)
    folder.put("broker/1/users.conf", text.encode())
    return len(text) / 1e6


def connecting(folder: FleetFolder, name: str) -> float:
    """Return the median seconds from TCP to the server's answer, whether it accepts or not."""
    times = []
    for i in range(CONNECTIONS):
        begin, answers = time.perf_counter(), []
        board = client(folder, name, f"c{i}")
        board.on_connect = lambda _c, _d, _f, reason, _p, to=answers: to.append(reason.is_failure)
        while not answers:
            board.loop(0.01)
        times.append(time.perf_counter() - begin)
        assert answers == [name == "unknown"], answers
        board.disconnect()
    return statistics.median(times)


def reloading(servers: FleetServers) -> tuple[float, float]:
    """Return the seconds that a SIGHUP takes, and the longest wait for a PUBACK in the meantime."""
    board = client(servers.folder, "known", "busy")
    board.loop_start()
    begin, longest, took = time.perf_counter(), 0.0, None
    servers.hang_up()
    while took is None:
        sent = time.perf_counter()
        board.publish("hushmote/v1/home/report/known", b"x" * 20, qos=1).wait_for_publish(_END_S)
        longest = max(longest, time.perf_counter() - sent)
        if "Reloaded server configuration" in servers.log():
            took = time.perf_counter() - begin
    board.disconnect()
    board.loop_stop()
    return took, longest


def listed(boards: int, *, by_subject: bool) -> dict[str, Any]:
    """Measure the cost of a list of this many boards."""
    with tempfile.TemporaryDirectory() as path:
        folder = make_nats_fleet(Path(path) / "fleet")
        for name in ("known", "unknown"):
            (folder.path / f"{name}.pem").write_bytes(folder.issue_device(name, now_utc()).to_pem())
        size, begin = list_boards(folder, boards, by_subject=by_subject), time.perf_counter()
        with serving(folder) as servers:
            row = {"named": "by subject" if by_subject else "by URI", "boards": boards}
            row |= {"file_mb": round(size, 2), "start_s": round(time.perf_counter() - begin, 3)}
            row |= {"connect_ms": round(1e3 * connecting(folder, "known"), 2)}
            row |= {"refuse_ms": round(1e3 * connecting(folder, "unknown"), 2)}
            took, longest = reloading(servers)
            row |= {"reload_s": round(took, 3), "longest_puback_s": round(longest, 3)}
            return row | {"rss_mb": round(memory_mib(servers.pid()) * 1.024, 1)}


def users(options: Options) -> list[dict[str, Any]]:
    sizes = (100, 1_000) if options.quick else (1_000, 10_000, 100_000)
    return [listed(n, by_subject=subject) for subject in (False, True) for n in sizes]


if __name__ == "__main__":
    if find_nats_server() is None:
        print("skipped: nats-server is missing; run pip install 'hushmote[nats]'")
    else:
        run(__doc__, "nats_fleet.json", {"users": users})
