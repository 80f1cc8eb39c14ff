"""Ingest with 1, 2 and 4 aggregators of one share, on SQLite and PostgreSQL, and with a million devices.

    python benchmarks/ingest_scale.py [--quick]

Members: a fleet with keys has sent one authenticated report of each of 96,000 devices, at QoS 1, while all
members of a shared subscription were away; mosquitto divided them among their sessions. Then all members
connect at once, each in a process of its own, on one store (SQLite in WAL mode; PostgreSQL with fsync on).
Nobody publishes meanwhile: the publisher takes no share of the cores. What the cores of this machine hide is
modelled from CPU seconds per report, see modelled().

Million: the same reports into stores whose dedupe table holds 100,000 and 1,000,000 devices, in turn; the
devices that report are drawn from all. Peak memory is the aggregator's own process.

Writes benchmarks/results/ingest_scale.json.
"""

import argparse
import multiprocessing
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
from core_parts import limited
from draws import payload as experiment_payload
from ingest import FLEET, FLEET_KEYS, MASTER, NO_SAVING, publish
from results_file import machine, write
from rich.console import Console
from rich.table import Table

from hushmote.device.ldp_client import Experiment
from hushmote.server.aggregator import Aggregator
from hushmote.server.ingest.broker_url import parse_nats_url
from hushmote.server.store import Store
from hushmote.server.store.number_set import NumberSet
from hushmote.server.wire import keys, report, topics
from hushmote.simulator import vectorised
from hushmote.simulator.broker import MosquittoBroker

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))
from postgres import Cluster, find_postgres  # pyright: ignore[reportMissingImports]

SHARE = "count"
_DEADLINE_S = 180.0
_TICKS = os.sysconf("SC_CLK_TCK")


def member(broker: int | str, url: str, number: int, share: str | None, out: Connection) -> None:
    """Once told to go, count until told to stop; sends its accepted reports as often as it is asked.

    broker: mosquitto's port, or the URL of NATS servers, where all members have one client id.
    """
    if isinstance(broker, int):
        where: dict = {"port": broker, "client_id": f"member-{number}", "share": share}
    else:
        where = {"nats": parse_nats_url(broker), "client_id": SHARE}
    commit_s = 0.0

    def committed(_size: int, seconds: float) -> None:
        nonlocal commit_s
        commit_s += seconds

    with Store(url) as store:
        aggregator = Aggregator(store, fleets=[FLEET], fleet_keys=FLEET_KEYS, on_commit=committed, **where)

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
        # Not getrusage(): its most includes what the parent had when it made this process.
        status = Path("/proc/self/status").read_text()
        peak_mib = int(status.partition("VmHWM:")[2].split()[0]) / 1024
        out.send((time.process_time() - before, peak_mib, commit_s))


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


def drain(
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
        self.payload = experiment_payload("hh", 256, 1_000_000)
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


def set_up(url: str, payload: bytes) -> None:
    with Store(url) as store:
        store.add_fleet(FLEET, keyed=True)
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


def measure_members(kind: str, members: int, reports: Reports, folder: str) -> dict[str, float]:
    """Publish one report of every device for k members that are away, and let them count."""
    count = len(reports.names)
    with (
        database(kind, folder, f"members{members}") as (url, server),
        MosquittoBroker(settings=NO_SAVING) as broker,
    ):
        set_up(url, reports.payload)
        drain(broker.port, url, members, 0)
        publish(broker.port, reports.messages(np.random.default_rng().permutation(count), 1))
        assert broker.pid is not None
        before = cpu_s(broker.pid), 0.0 if server is None else cpu_s(server)
        drained = drain(broker.port, url, members, count)
        with Store(url) as store:
            assert store.participation(FLEET)["bench"].reports == count
        return {
            "per_s": count / drained["seconds"],
            "aggregator_us": 1e6 * drained["cpu_s"] / count,
            "commit_us": 1e6 * drained["commit_s"] / count,
            "broker_us": 1e6 * (cpu_s(broker.pid) - before[0]) / count,
            "database_us": 0.0 if server is None else 1e6 * (cpu_s(server) - before[1]) / count,
            "peak_mib": drained["peak_mib"],
        }


def modelled(one: dict[str, float], members: int) -> float:
    """Reports a second of k members where each process has a core of its own.

    k members do k times what one does, whose own time and its database's follow each other, until the broker,
    which has one thread, is full, or SQLite's commits, of which there is one at a time.
    """
    most = min(members * 1e6 / (one["aggregator_us"] + one["database_us"]), 1e6 / one["broker_us"])
    return most if one["database_us"] else min(most, 1e6 / one["commit_us"])


def fill(url: str, names: list[str]) -> None:
    """Give every device a dedupe row with report 1."""
    seen = NumberSet().add(1)
    with Store(url) as store:
        for start in range(0, len(names), 50_000):
            with store.ingest() as transaction:
                part = names[start : start + 50_000]
                transaction.write({(FLEET, "bench", name): seen for name in part}, {}, {})


def measure_million(sizes: tuple[int, ...], count: int, rounds: int, folder: str) -> list[dict[str, float]]:
    """Count the same number of reports with n devices in the dedupe table; sizes in turn."""
    rows = []
    made = {size: Reports(size) for size in sizes}
    urls = {size: f"sqlite:///{folder}/devices{size}.sqlite" for size in sizes}
    for size in sizes:
        set_up(urls[size], made[size].payload)
        fill(urls[size], made[size].names)
    rng = np.random.default_rng()
    order = {size: rng.permutation(size) for size in sizes}
    for number in range(rounds):
        for size in sizes:
            with MosquittoBroker(settings=NO_SAVING) as broker:
                drain(broker.port, urls[size], 1, 0, share=None)
                # Where the fleet is larger than the count, others each time.
                chosen = np.take(order[size], range(number * count, (number + 1) * count), mode="wrap")
                report_number = 2 + number * count // size
                publish(broker.port, made[size].messages(chosen, report_number))
                drained = drain(broker.port, urls[size], 1, count, share=None)
                rows.append(
                    {"devices": size, "per_s": count / drained["seconds"]}
                    | {"cpu_us": 1e6 * drained["cpu_s"] / count, "peak_mib": drained["peak_mib"]}
                )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="Several aggregators, and a million devices.")
    parser.add_argument("--quick", action="store_true", help="few reports, one round; writes no file")
    parser.add_argument("--only", choices=["members", "million"])
    options = parser.parse_args()
    quick, console = options.quick, Console(width=100)
    result: dict = {"machine": machine()}
    with tempfile.TemporaryDirectory() as folder:
        if options.only != "million":
            reports = Reports(8_000 if quick else 96_000)
            table = Table(
                "store",
                "members",
                "reports a second",
                "times one",
                "aggregator µs",
                "broker µs",
                "database µs",
                "modelled",
            )
            for kind in ("sqlite", *(["postgresql"] if find_postgres() else [])):
                by_members = {k: measure_members(kind, k, reports, folder) for k in (1, 2, 4)}
                result[kind] = by_members
                for k, row in by_members.items():
                    table.add_row(
                        kind,
                        str(k),
                        f"{row['per_s']:,.0f}",
                        f"{row['per_s'] / by_members[1]['per_s']:.2f}",
                        f"{row['aggregator_us']:.0f}",
                        f"{row['broker_us']:.0f}",
                        f"{row['database_us']:.0f}",
                        f"{modelled(by_members[1], k):,.0f}",
                    )
            console.print(table)
        if options.only != "members":
            sizes = (2_000, 20_000) if quick else (100_000, 1_000_000)
            rows = measure_million(sizes, 2_000 if quick else 100_000, 1 if quick else 3, folder)
            table = Table("devices", "reports a second", "CPU µs a report", "peak MiB")
            median = {}
            for size in sizes:
                own = [row for row in rows if row["devices"] == size]
                median[size] = {key: float(np.median([row[key] for row in own])) for key in own[0]}
                table.add_row(
                    f"{size:,}", *(f"{median[size][key]:,.1f}" for key in ("per_s", "cpu_us", "peak_mib"))
                )
            console.print(table)
            ratio = median[sizes[1]]["per_s"] / median[sizes[0]]["per_s"]
            console.print(f"rate with {sizes[1]:,} / {sizes[0]:,} devices: {ratio:.2f}")
            result["million"] = {"rounds": rows, "ratio": ratio}
    if not quick and options.only is None:
        write("ingest_scale.json", result)


if __name__ == "__main__":
    main()
