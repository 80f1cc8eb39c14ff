"""Reports a second on NATS servers, one and three, beside mosquitto: publishing, counting, a bare subscriber.

    python benchmarks/ingest_nats.py [--quick] [--reports N] [parts | members | "bare, nats 3"]

Publishing: three processes publish reports at QoS 1, each 1,000 at a time, to one server each where there are
three, while a consumer (on mosquitto: the session of a group's member) is away. `sync` is how often a NATS
server syncs its files: with "always", which `hushmote provision fleet` writes, a PUBACK outlives a power cut.

Members: 1, 2 and 4 aggregators, each in a process of its own, then divide what waits, on PostgreSQL with
fsync on (one server and "always": 1 aggregator, as nothing but the servers differs); nobody publishes
meanwhile. CPU seconds are those of all servers, of all aggregators and of the database. What the cores of
this machine hide is modelled from them, see modelled().

Parts: the same on three servers, where each aggregator has a tenth of a core and no more. So the machine has
cores to spare for four of them, and servers and database have their relation to one another as on a machine
with ten times as many: what two and four hinder each other at the consumer and in the store shows.

Bare: a nats-py pull subscriber that only counts and acknowledges, and the whole aggregator on SQLite, in
turn, each on a durable consumer of its own, for which the same reports wait.

Writes benchmarks/results/ingest_nats.json.
"""

import argparse
import asyncio
import multiprocessing
import tempfile
import time
from functools import partial
from multiprocessing.connection import Connection

import numpy as np
from brokers import FLEET, Reports, aggregate, brokers, cpu_s, database, drain, drain_members, publish, set_up
from results_file import run

from hushmote.server.ingest.broker_url import parse_nats_url
from hushmote.server.store import Store
from hushmote.server.wire.limits import BATCH_REPORTS
from hushmote.server.wire.subjects import STREAM, report_subject

PUBLISHERS = 3
MEMBERS = {"nats 3, sync always": (1,), "nats 3": (1, 2, 4), "mosquitto": (1, 2, 4), "nats 1": (1,)}
PART = 0.1  # of a core
PART_MEMBERS = (1, 2, 4)
_DEADLINE_S = 240.0
_FETCH_S = 20.0


def busy(pids: list[int]) -> np.ndarray:
    """CPU seconds of each server so far."""
    return np.array([cpu_s(pid) for pid in pids])


def part(port: int, messages: list[tuple[str, bytes]], out: Connection) -> None:
    """Publish these and say when it is done."""
    out.send("ready")
    out.recv()
    publish(port, messages)
    out.send(time.process_time())


def published(ports: list[int], messages: list[tuple[str, bytes]]) -> float:
    """Publish from several processes at once; the seconds until all is acknowledged."""
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for i in range(PUBLISHERS):
        here, there = context.Pipe()
        own = messages[i::PUBLISHERS]
        processes.append(context.Process(target=part, args=(ports[i % len(ports)], own, there)))
        processes[-1].start()
        pipes.append(here)
    for pipe in pipes:
        assert pipe.recv() == "ready"
    start = time.perf_counter()
    for pipe in pipes:
        pipe.send("go")
    for pipe in pipes:
        pipe.recv()
    seconds = time.perf_counter() - start
    for process in processes:
        process.join(30)
    return seconds


def measure(
    kind: str, members: int, reports: Reports, folder: str, store: str, part: float | None = None
) -> dict[str, float]:
    """Publish one report of every device for k members that are away, and let them count.

    part: of a core, which each of them has at most.
    """
    count = len(reports.names)
    with database(store, folder, f"members{members}") as (url, server), brokers(kind) as (where, ports, pids):
        set_up(url, reports.payload)
        drain_members(where, url, members, 0)
        before = busy(pids)
        seconds = published(ports, reports.messages(np.random.default_rng().permutation(count), 1))
        after = busy(pids)
        stored = 0.0 if server is None else cpu_s(server)
        drained = drain_members(where, url, members, count, part=part)
        delivering = busy(pids) - after
        with Store(url) as opened:
            assert opened.participation(FLEET)["bench"].reports == count
        return {
            "reports": count,
            "publish_per_s": count / seconds,
            "publish_us": 1e6 * (after - before).sum() / count,
            "publish_busiest_us": 1e6 * (after - before).max() / count,
            "per_s": count / drained["seconds"],
            "aggregator_us": 1e6 * drained["cpu_s"] / count,
            "delivery_us": 1e6 * delivering.sum() / count,
            "delivery_busiest_us": 1e6 * delivering.max() / count,
            "database_us": 0.0 if server is None else 1e6 * (cpu_s(server) - stored) / count,
            "commit_us": 1e6 * drained["commit_s"] / count,
            "peak_mib": drained["peak_mib"],
        }


def modelled(one: dict[str, float], members: int) -> float:
    """Reports a second of k members where each process has a core of its own.

    k members do k times what one does, whose own time and its database's follow each other, until the
    busiest server has a core full.
    """
    return min(members * 1e6 / (one["aggregator_us"] + one["database_us"]), 1e6 / one["delivery_busiest_us"])


async def _pull(url: str, wanted: int) -> tuple[float, int]:
    import nats
    from nats.js.api import AckPolicy, ConsumerConfig

    start, end = time.perf_counter(), time.monotonic() + _DEADLINE_S
    address = parse_nats_url(url)
    client = await nats.connect([f"nats://{host}:{port}" for host, port, _ in address.servers])
    stream = client.jetstream()
    if wanted == 0:
        config = ConsumerConfig(
            durable_name="bare",
            filter_subject=report_subject(FLEET),
            ack_policy=AckPolicy.EXPLICIT,
            max_ack_pending=100_000,
        )
        await stream.add_consumer(STREAM, config)
    subscription = await stream.pull_subscribe_bind("bare", STREAM)
    seen = 0
    while seen < wanted and time.monotonic() < end:
        for message in await subscription.fetch(min(BATCH_REPORTS, wanted - seen), timeout=_FETCH_S):
            await message.ack()
            seen += 1
    await client.flush()
    seconds = time.perf_counter() - start
    await client.close()
    return seconds, seen


def bare(url: str, wanted: int, out: Connection) -> None:
    """Count what a pull consumer brings; sends the seconds that it took, CPU seconds, and how many it saw."""
    before = time.process_time()
    seconds, seen = asyncio.run(_pull(url, wanted))
    out.send((seconds, time.process_time() - before, seen))


def beside_bare(kind: str, reports: Reports, rounds: int, folder: str) -> dict:
    """The aggregator and the bare subscriber, in turn, and the median of their ratios."""
    count, rows = len(reports.names), []
    url = f"sqlite:///{folder}/{kind.replace(' ', '')}.sqlite"
    set_up(url, reports.payload)
    with brokers(kind) as (where, ports, _):
        drain(aggregate, where, 0, url)
        drain(bare, where, 0)
        for number in range(1, rounds + 1):
            published(ports, reports.messages(np.arange(count), number))
            row: dict = {}
            for name, target, rest in (("bare", bare, ()), ("aggregator", aggregate, (url,))):
                seconds, used_s, _ = drain(target, where, count, *rest)
                row |= {f"{name}_per_s": count / seconds, f"{name}_cpu_us": 1e6 * used_s / count}
            rows.append(row)
    ratio = float(np.median([row["aggregator_per_s"] / row["bare_per_s"] for row in rows]))
    return {"reports": count, "rounds": rows, "ratio": ratio}


def made(options: argparse.Namespace) -> Reports:
    return Reports(2_000 if options.quick else options.reports)


def parts(options: argparse.Namespace) -> dict:
    reports, rounds = made(options), 1 if options.quick else 3
    with tempfile.TemporaryDirectory() as folder:
        found = [
            {k: measure("nats 3", k, reports, folder, "postgresql", PART) for k in PART_MEMBERS}
            for _ in range(rounds)
        ]
    return {"of a core": PART, "rounds": found}


def members(options: argparse.Namespace) -> dict:
    reports, found = made(options), {}
    with tempfile.TemporaryDirectory() as folder:
        for kind, numbers in MEMBERS.items():
            rows = {k: measure(kind, k, reports, folder, "postgresql") for k in numbers}
            found[kind] = {k: row | {"modelled_per_s": modelled(rows[1], k)} for k, row in rows.items()}
    return found


def bares(kind: str, options: argparse.Namespace) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        return beside_bare(kind, made(options), 1 if options.quick else 3, folder)


if __name__ == "__main__":
    reports = {"type": int, "default": 60_000, "help": "of each case"}
    which = {"parts": parts, "members": members}
    which |= {f"bare, {kind}": partial(bares, kind) for kind in ("nats 1", "nats 3")}
    run(__doc__, "ingest_nats.json", which, reports=reports)
