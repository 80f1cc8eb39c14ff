"""Reports per second of an aggregator compared with a bare subscriber, and of several that share the work.

    python benchmarks/ingest.py [--quick] [--reports N] [part ...]

Each device of a fleet with keys has sent one authenticated report at QoS 1 while all counting processes were
offline. Then they connect at once, each in its own process, and drain the queue. Nothing is published in the
meantime, so publishers take no CPU time.

bare: a paho subscriber to mosquitto that only counts and acknowledges, and the complete aggregator on SQLite
(WAL, synchronous=FULL), which decodes, checks tags, deduplicates, counts, commits, and then acknowledges.
They take turns, timed from the subscription to the last message.
sqlite, postgresql: 1, 2 and 4 members of a shared mosquitto subscription, on one store. CPU seconds are
totals over all servers, all aggregators and the database. modelled() uses them to predict the rate on a
machine with a core for each process.
members: the same on NATS servers and mosquitto, on PostgreSQL with fsync on. Three processes publish, each
with 1,000 messages in flight, to one server each if there are three. `sync` is the interval at which a server
syncs its files: with "always", which `hushmote provision fleet` writes, an acknowledged report survives a
power cut.
parts: three servers, where each aggregator is limited to a tenth of a core. The machine then has enough cores
for four aggregators, which load servers and database as on a machine with ten times as many cores, so that
this shows how much two and four aggregators slow each other down at the consumer and in the store.
publishing: the store has ten experiments with 30 days each. `--publish` reads the store once during a run;
`--publish-live 1` computes the results continuously, in the process that `hushmote serve` uses. Results are
medians, over three rounds, of the ratios to the same round without publishing. CPU seconds are those of the
aggregator's process alone; on a busy machine, only these can be compared.

Writes benchmarks/results/ingest.json, ingest_scale.json, ingest_nats.json and publishing.json.
"""

import datetime
import multiprocessing
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from brokers import (
    FLEET,
    SHARE,
    Reports,
    aggregate,
    bare,
    brokers,
    cpu_s,
    database,
    drain,
    fill,
    publish,
    set_up,
)
from published import payload
from results_file import Options, run

from hushmote.fleet.results.publication import Publication
from hushmote.fleet.results.publisher import Publisher
from hushmote.server.store import Store
from hushmote.simulator import vectorised

PUBLISHERS = 3
MEMBERS = {"nats 3, sync always": (1,), "nats 3": (1, 2, 4), "mosquitto": (1, 2, 4), "nats 1": (1,)}
PART = 0.1  # share of a core

Row = dict[str, Any]


def published(ports: list[int], messages: list[tuple[str, bytes]]) -> float:
    """Publish from several processes at once; return the seconds until all is acknowledged."""
    with multiprocessing.get_context("spawn").Pool(PUBLISHERS) as pool:
        pool.map(time.sleep, [0.5] * PUBLISHERS, chunksize=1)  # until all of them have started
        parts = [(ports[i % len(ports)], messages[i::PUBLISHERS]) for i in range(PUBLISHERS)]
        return max(pool.starmap(publish, parts, chunksize=1))


# --- Members --------------------------------------------------------------------------------------


def measure(
    kind: str, members: int, reports: Reports, folder: str, store: str, part: float | None = None
) -> dict[str, float]:
    """Publish one report of every device for k absent members, and let them count.

    Args:
        kind: The broker, as for brokers().
        members: Number of aggregators that count as one consumer group.
        reports: The fleet and its reports.
        folder: Folder for the store's file.
        store: The kind of database.
        part: Largest share of a core for each aggregator; None for no limit.
    """
    count = len(reports.names)
    with database(store, folder, f"members{members}") as (url, server), brokers(kind) as (where, ports, pids):

        def busy() -> np.ndarray:
            """Return the CPU seconds that each of the broker's servers has used so far."""
            return np.array([cpu_s(pid) for pid in pids])

        set_up(url, reports.payload)
        drain(aggregate, where, 0, url, SHARE, members=members)
        before = busy()
        seconds = published(ports, reports.messages(np.random.default_rng().permutation(count), 1))
        after, stored = busy(), 0.0 if server is None else cpu_s(server)
        drained = drain(aggregate, where, count, url, SHARE, members=members, part=part)
        publishing, delivering = 1e6 * (after - before) / count, 1e6 * (busy() - after) / count
        with Store(url) as opened:
            assert opened.participation(FLEET)["bench"].reports == count
        used = 0.0 if server is None else cpu_s(server) - stored
        row = {"reports": count, "publish_per_s": count / seconds, "per_s": count / drained["seconds"]}
        row |= {"publish_us": publishing.sum(), "publish_busiest_us": publishing.max()}
        row |= {"delivery_us": delivering.sum(), "delivery_busiest_us": delivering.max()}
        row |= {"aggregator_us": 1e6 * drained["cpu_s"] / count, "database_us": 1e6 * used / count}
        return row | {"commit_us": 1e6 * drained["commit_s"] / count, "peak_mib": drained["peak_mib"]}


def modelled(one: dict[str, float], members: int) -> float:
    """Return the predicted reports per second of k members if each process has its own core.

    k members count k times as fast as one, whose own work and database work alternate, until the busiest
    server fills a core or, with SQLite, the commits do, which are sequential.
    """
    most = min(members * 1e6 / (one["aggregator_us"] + one["database_us"]), 1e6 / one["delivery_busiest_us"])
    return most if one["database_us"] else min(most, 1e6 / one["commit_us"])


def _members(kind: str, store: str, numbers: tuple[int, ...], reports: Reports) -> dict[int, Row]:
    with tempfile.TemporaryDirectory() as folder:
        rows = {k: measure(kind, k, reports, folder, store) for k in numbers}
    return {k: row | {"modelled_per_s": modelled(rows[1], k)} for k, row in rows.items()}


def beside_mosquitto(store: str, options: Options) -> dict[int, Row]:
    return _members("mosquitto", store, (1, 2, 4), make_reports(options, 96_000))


def members(options: Options) -> dict[str, dict[int, Row]]:
    reports = make_reports(options)
    return {kind: _members(kind, "postgresql", numbers, reports) for kind, numbers in MEMBERS.items()}


def parts(options: Options) -> Row:
    reports, rounds = make_reports(options), 1 if options.quick else 3
    with tempfile.TemporaryDirectory() as folder:
        one = partial(measure, "nats 3", reports=reports, folder=folder, store="postgresql", part=PART)
        return {"of a core": PART, "rounds": [{k: one(k) for k in (1, 2, 4)} for _ in range(rounds)]}


# --- Beside a bare subscriber, and with results that are published -----------------------------------


def beside_bare(options: Options) -> Row:
    """Return the aggregator's and the bare subscriber's rates, in turn, and the median of their ratios."""
    reports, rows = make_reports(options, 100_000), list[Row]()
    count = len(reports.names)
    with tempfile.TemporaryDirectory() as folder, brokers("mosquitto") as (where, ports, _):
        url = f"sqlite:///{folder}/store.sqlite"
        set_up(url, reports.payload)
        # Both subscribe once, so that the broker queues messages while they are disconnected.
        drain(aggregate, where, 0, url)
        drain(bare, where, 0)
        for number in range(1, 2 if options.quick else 4):
            row: Row = {"published_s": published(ports, reports.messages(np.arange(count), number))}
            for name, target, rest in (("bare", bare, ()), ("aggregator", aggregate, (url,))):
                drained = drain(target, where, count, *rest)
                row[f"{name}_per_s"] = count / drained["seconds"]
                row[f"{name}_cpu_us"] = 1e6 * drained["cpu_s"] / count
            rows.append(row)
    ratio = float(np.median([row["aggregator_per_s"] / row["bare_per_s"] for row in rows]))
    return {"reports": count, "rounds": rows, "ratio": ratio}


WAYS = ("without", "--publish", "--publish-live 1")


def serving(port: int, out: Connection, number: int, url: str, way: str) -> None:
    """Run an aggregator that publishes."""
    with ExitStack() as stack:
        retained = None
        if way != "without":
            publication = Publication(live_s=1.0 if "live" in way else None)
            publisher = stack.enter_context(Publisher(url, publication))
            retained = lambda: publisher.retained  # noqa: E731
        aggregate(port, out, number, url, retained=retained)


def with_days(url: str, rng: np.random.Generator) -> None:
    """Add nine other experiments to a store, each with 30 days of reports."""
    today = datetime.datetime.now(datetime.UTC).date()
    days = [str(today - datetime.timedelta(days)) for days in range(1, 31)]
    with Store(url) as store:
        for i in range(9):
            other = store.add_experiment(FLEET, payload("hh", 256, 1_000_000, name=f"other{i}", window="day"))
            day_codes = (vectorised.codes(other, rng.integers(0, 256, 1000), rng) for _ in days)
            fill(store, FLEET, [], dict(zip(days, map(np.bincount, day_codes), strict=True)), name=other.name)


def publishing(options: Options) -> Row:
    reports, rows, number = make_reports(options, 50_000), list[Row](), 0
    count = len(reports.names)
    with tempfile.TemporaryDirectory() as folder, brokers("mosquitto") as (where, ports, _):
        url = f"sqlite:///{folder}/store.sqlite"
        set_up(url, reports.payload)
        with_days(url, np.random.default_rng(1))
        drain(serving, where, 0, url, "without")  # creates the subscription
        for _ in range(1 if options.quick else 3):
            row = {}
            for way in WAYS:
                number += 1
                publish(ports[0], reports.messages(np.arange(count), number))
                drained = drain(serving, where, count, url, way)
                row |= {f"{way}: per_s": count / drained["seconds"], f"{way}: cpu_s": drained["cpu_s"]}
            rows.append(row)
    over = lambda way, key: np.median([row[f"{way}: {key}"] / row[f"without: {key}"] for row in rows])  # noqa: E731
    ratios = {way: {key: over(way, key) for key in ("per_s", "cpu_s")} for way in WAYS}
    return {"devices": count, "rounds": rows, "ratios": ratios}


def make_reports(options: Options, usual: int = 0) -> Reports:
    """Return a fleet's reports: `usual` devices if given, otherwise --reports."""
    return Reports(2_000 if options.quick else usual or options.reports)


if __name__ == "__main__":
    reports = {"type": int, "default": 60_000, "help": "reports per case on NATS servers"}
    functions = {kind: partial(beside_mosquitto, kind) for kind in ("sqlite", "postgresql")}
    functions |= {"members": members, "parts": parts, "bare": beside_bare, "publishing": publishing}
    files = dict.fromkeys(("sqlite", "postgresql"), "ingest_scale.json")
    files |= {"bare": "ingest.json", "publishing": "publishing.json"}
    keys = {"bare": "bare, mosquitto", "publishing": ""}
    run(__doc__, "ingest_nats.json", functions, files=files, keys=keys, reports=reports)
