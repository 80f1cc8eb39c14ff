"""Reports a second: one aggregator beside a bare subscriber, and several of a share.

    python benchmarks/ingest.py [--quick] [--reports N] [part ...]

A fleet with keys has sent one authenticated report of each device, at QoS 1, while all that count were away.
Then those that count connect at once, each in a process of its own, and drain what waits. Nobody publishes
meanwhile: the publishers take no share of the cores.

bare, KIND: a subscriber that only counts and acknowledges, and the whole aggregator on SQLite (WAL,
synchronous=FULL), which decodes, checks tags, deduplicates, counts, commits, then acknowledges. In turn, from
the subscription to the last message; on mosquitto by paho, on NATS servers by nats-py's pull consumer.
sqlite, postgresql: 1, 2 and 4 members of a shared subscription of mosquitto, on one store. CPU seconds are
those of all servers, of all aggregators and of the database. What the cores of this machine hide is modelled
from them, see modelled().
members: the same on NATS servers beside mosquitto, on PostgreSQL with fsync on. Three processes publish, each
1,000 at a time, to one server each where there are three. `sync` is how often a server syncs its files: with
"always", which `hushmote provision fleet` writes, a PUBACK outlives a power cut.
parts: on three servers, where each aggregator has a tenth of a core and no more. So the machine has cores to
spare for four of them, and servers and database have their relation to one another as on a machine with ten
times as many: what two and four hinder each other at the consumer and in the store shows.

Writes benchmarks/results/ingest.json, ingest_scale.json and ingest_nats.json.
"""

import asyncio
import multiprocessing
import tempfile
import threading
import time
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import brokers as common
import numpy as np
from brokers import (
    FLEET,
    SHARE,
    Reports,
    aggregate,
    brokers,
    counted,
    cpu_s,
    database,
    drain,
    publish,
)
from results_file import Options, run

from hushmote.server.ingest.broker_url import parse_nats_url
from hushmote.server.store import Store
from hushmote.server.wire.limits import BATCH_REPORTS
from hushmote.server.wire.subjects import STREAM, report_subject

PUBLISHERS = 3
MEMBERS = {"nats 3, sync always": (1,), "nats 3": (1, 2, 4), "mosquitto": (1, 2, 4), "nats 1": (1,)}
PART = 0.1  # of a core

Row = dict[str, Any]


def published(ports: list[int], messages: list[tuple[str, bytes]]) -> float:
    """Publish from several processes at once; the seconds until all is acknowledged."""
    with multiprocessing.get_context("spawn").Pool(PUBLISHERS) as pool:
        pool.map(time.sleep, [0.5] * PUBLISHERS, chunksize=1)  # each of them is there
        parts = [(ports[i % len(ports)], messages[i::PUBLISHERS]) for i in range(PUBLISHERS)]
        return max(pool.starmap(publish, parts, chunksize=1))


# --- Members --------------------------------------------------------------------------------------


def measure(
    kind: str, members: int, reports: Reports, folder: str, store: str, part: float | None = None
) -> dict[str, float]:
    """Publish one report of every device for k members that are away, and let them count.

    part: of a core, which each of them has at most.
    """
    count = len(reports.names)
    with database(store, folder, f"members{members}") as (url, server), brokers(kind) as (where, ports, pids):

        def busy() -> np.ndarray:
            """CPU seconds of each server of the broker so far."""
            return np.array([cpu_s(pid) for pid in pids])

        common.set_up(url, reports.payload)
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
    """Reports a second of k members where each process has a core of its own.

    k members do k times what one does, whose own time and its database's follow each other, until the
    busiest server has a core full, or SQLite's commits, of which there is one at a time.
    """
    most = min(members * 1e6 / (one["aggregator_us"] + one["database_us"]), 1e6 / one["delivery_busiest_us"])
    return most if one["database_us"] else min(most, 1e6 / one["commit_us"])


def _members(kind: str, store: str, numbers: tuple[int, ...], reports: Reports) -> dict[int, Row]:
    with tempfile.TemporaryDirectory() as folder:
        rows = {k: measure(kind, k, reports, folder, store) for k in numbers}
    return {k: row | {"modelled_per_s": modelled(rows[1], k)} for k, row in rows.items()}


def beside_mosquitto(store: str, options: Options) -> dict[int, Row]:
    return _members("mosquitto", store, (1, 2, 4), made(options, 96_000))


def members(options: Options) -> dict[str, dict[int, Row]]:
    reports = made(options)
    return {kind: _members(kind, "postgresql", numbers, reports) for kind, numbers in MEMBERS.items()}


def parts(options: Options) -> Row:
    reports, rounds = made(options), 1 if options.quick else 3
    with tempfile.TemporaryDirectory() as folder:
        one = partial(measure, "nats 3", reports=reports, folder=folder, store="postgresql", part=PART)
        return {"of a core": PART, "rounds": [{k: one(k) for k in (1, 2, 4)} for _ in range(rounds)]}


# --- Beside a bare subscriber ---------------------------------------------------------------------


def bare(where: int | str, out: Connection, number: int) -> None:
    """Only count what comes, on NATS servers by a pull consumer."""
    if isinstance(where, int):
        common.bare(where, out, number)
        return
    import nats
    from nats.js.api import AckPolicy, ConsumerConfig

    seen, subscribed, stopped = 0, threading.Event(), threading.Event()
    kept = ConsumerConfig(durable_name="bare", ack_policy=AckPolicy.EXPLICIT, max_ack_pending=100_000)
    kept.filter_subject = report_subject(FLEET)

    async def pull() -> None:
        nonlocal seen
        servers = parse_nats_url(where).servers
        client = await nats.connect([f"nats://{host}:{port}" for host, port, _ in servers])
        await client.jetstream().add_consumer(STREAM, kept)
        subscription = await client.jetstream().pull_subscribe_bind("bare", STREAM)
        subscribed.set()
        while not stopped.is_set():
            with suppress(TimeoutError):
                for message in await subscription.fetch(BATCH_REPORTS, timeout=0.2):
                    await message.ack()
                    seen += 1
        await client.flush()
        await client.close()

    run = lambda: asyncio.run(pull())  # noqa: E731
    out.send({"cpu_s": counted(out, run, stopped.set, lambda: seen, subscribed.is_set)})


def beside_bare(kind: str, options: Options) -> Row:
    """The aggregator and the bare subscriber, in turn, and the median of their ratios."""
    reports, rows = made(options, 100_000 if kind == "mosquitto" else 0), list[Row]()
    count = len(reports.names)
    with tempfile.TemporaryDirectory() as folder, brokers(kind) as (where, ports, _):
        url = f"sqlite:///{folder}/store.sqlite"
        common.set_up(url, reports.payload)
        # Both subscribe once, so that the broker keeps what comes while they are away.
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


def made(options: Options, usual: int = 0) -> Reports:
    """A fleet's reports: as many as usual, or as are asked for."""
    return Reports(2_000 if options.quick else usual or options.reports)


if __name__ == "__main__":
    reports = {"type": int, "default": 60_000, "help": "of each case on NATS servers"}
    which = {kind: partial(beside_mosquitto, kind) for kind in ("sqlite", "postgresql")}
    which |= {"members": members, "parts": parts}
    which |= {f"bare, {kind}": partial(beside_bare, kind) for kind in ("mosquitto", "nats 1", "nats 3")}
    files = dict.fromkeys(("sqlite", "postgresql"), "ingest_scale.json")
    files |= {"bare, mosquitto": "ingest.json"}
    run(__doc__, "ingest_nats.json", which, files=files, reports=reports)
