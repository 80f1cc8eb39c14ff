"""Ingest with 1, 2 and 4 aggregators of one share, on SQLite and PostgreSQL, and with a million devices.

    python benchmarks/ingest_scale.py [--quick] [part ...]

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
import tempfile
from functools import partial

import numpy as np
from brokers import FLEET, Reports, brokers, cpu_s, database, drain_members, publish, set_up
from results_file import run

from hushmote.server.store import Store
from hushmote.server.store.number_set import NumberSet


def measure_members(kind: str, members: int, reports: Reports, folder: str) -> dict[str, float]:
    """Publish one report of every device for k members that are away, and let them count."""
    count = len(reports.names)
    with (
        database(kind, folder, f"members{members}") as (url, server),
        brokers("mosquitto") as (_, (port,), (pid,)),
    ):
        set_up(url, reports.payload)
        drain_members(port, url, members, 0)
        publish(port, reports.messages(np.random.default_rng().permutation(count), 1))
        before = cpu_s(pid), 0.0 if server is None else cpu_s(server)
        drained = drain_members(port, url, members, count)
        with Store(url) as opened:
            assert opened.participation(FLEET)["bench"].reports == count
        return {
            "per_s": count / drained["seconds"],
            "aggregator_us": 1e6 * drained["cpu_s"] / count,
            "commit_us": 1e6 * drained["commit_s"] / count,
            "broker_us": 1e6 * (cpu_s(pid) - before[0]) / count,
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
            with brokers("mosquitto") as (_, (port,), _):
                drain_members(port, urls[size], 1, 0, share=None)
                # Where the fleet is larger than the count, others each time.
                chosen = np.take(order[size], range(number * count, (number + 1) * count), mode="wrap")
                report_number = 2 + number * count // size
                publish(port, made[size].messages(chosen, report_number))
                drained = drain_members(port, urls[size], 1, count, share=None)
                rows.append(
                    {"devices": size, "per_s": count / drained["seconds"]}
                    | {"cpu_us": 1e6 * drained["cpu_s"] / count, "peak_mib": drained["peak_mib"]}
                )
    return rows


def members(kind: str, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """What 1, 2 and 4 members do; modelled: were there a core for each process."""
    reports, found = Reports(8_000 if options.quick else 96_000), {}
    with tempfile.TemporaryDirectory() as folder:
        for k in (1, 2, 4):
            found[str(k)] = measure_members(kind, k, reports, folder)
    return {k: row | {"modelled_per_s": modelled(found["1"], int(k))} for k, row in found.items()}


def million(options: argparse.Namespace) -> dict:
    quick = options.quick
    sizes, count, rounds = ((2_000, 20_000), 2_000, 1) if quick else ((100_000, 1_000_000), 100_000, 3)
    with tempfile.TemporaryDirectory() as folder:
        rows = measure_million(sizes, count, rounds, folder)
    one, other = (np.median([row["per_s"] for row in rows if row["devices"] == size]) for size in sizes)
    return {"rounds": rows, "ratio": float(other / one)}


if __name__ == "__main__":
    parts = {kind: partial(members, kind) for kind in ("sqlite", "postgresql")}
    run(__doc__, "ingest_scale.json", parts | {"million": million})
