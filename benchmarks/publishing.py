"""What --publish costs the aggregator: messages a second with and without it, on one mosquitto, in turn.

    python benchmarks/publishing.py [--quick]

As ingest.py drains a queue of authenticated reports, here of 50,000 devices; the store has ten experiments
with 30 days each. `--publish` looks once in the time; `--publish-live 1` works all of them out all the time,
in the process that `hushmote serve` uses and, for comparison, in a thread of the aggregator. Three rounds;
medians of the ratios to the same round without. CPU seconds are the aggregator's own process's. Where others
use the machine only these can be compared. Writes benchmarks/results/publishing.json.
"""

import argparse
import datetime
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from multiprocessing.connection import Connection

import numpy as np
from brokers import FLEET, Reports, aggregate, brokers, drain, publish
from published import payload
from results_file import run

from hushmote.server.results.publication import Publication
from hushmote.server.results.publisher import Publisher
from hushmote.server.results.worker import Watch
from hushmote.server.store import Store
from hushmote.simulator import vectorised

WAYS = ("without", "--publish", "--publish-live 1", "live, in a thread")


def serving(port: int, out: Connection, number: int, url: str, way: str) -> None:
    """Run an aggregator that publishes."""
    retained: Callable[[], Mapping[str, bytes]] | None = None
    with ExitStack() as stack:
        if way == "live, in a thread":
            retained = _in_a_thread(url)
        elif way != "without":
            publication = Publication(live_s=1.0 if "live" in way else None)
            publisher = stack.enter_context(Publisher(url, publication))
            retained = lambda: publisher.retained  # noqa: E731
        aggregate(port, out, number, url, retained=retained)


def _in_a_thread(url: str) -> Callable[[], Mapping[str, bytes]]:
    watch, latest = Watch(Store(url, create=False), Publication(live_s=1.0)), [{}]

    def look() -> None:
        while True:
            said = watch.turn(datetime.datetime.now(datetime.UTC), time.monotonic())
            if said is not None:
                latest[0] = {topic: text.encode() for topic, text in said["retained"].items()}
            time.sleep(1.0)

    threading.Thread(target=look, daemon=True).start()
    return lambda: latest[0]


def fill(store: Store, rng: np.random.Generator) -> None:
    """A keyed fleet with the experiment that is drained and nine others, each with 30 days of reports."""
    store.add_fleet(FLEET, keyed=True)
    store.add_experiment(FLEET, payload("hh", 256, 1_000_000))
    today = datetime.datetime.now(datetime.UTC).date()
    for i in range(9):
        other = store.add_experiment(FLEET, payload("hh", 256, 1_000_000, name=f"other{i}", window="day"))
        version = next(v for v in store.experiments(FLEET) if v.experiment.digest == other.digest)
        counts = {}
        for day in (str(today - datetime.timedelta(days)) for days in range(1, 31)):
            codes = vectorised.codes(other, rng.integers(0, 256, 1000), rng)
            values, numbers = np.unique(codes, return_counts=True)
            counts |= {(version.id, day, int(c)): int(n) for c, n in zip(values, numbers, strict=True)}
        with store.ingest() as transaction:
            transaction.write({}, counts, {})


def measured(options: argparse.Namespace) -> dict:
    devices, rounds = (5_000, 1) if options.quick else (50_000, 3)
    rows, number, reports = [], 0, Reports(devices)
    with tempfile.TemporaryDirectory() as folder, brokers("mosquitto") as (port, ports, _):
        url = f"sqlite:///{folder}/store.sqlite"
        with Store(url) as store:
            fill(store, np.random.default_rng(1))
        drain(serving, port, 0, url, "without")  # it subscribes
        for _ in range(rounds):
            row = {}
            for way in WAYS:
                number += 1
                publish(ports[0], reports.messages(np.arange(devices), number))
                drained = drain(serving, port, devices, url, way)
                row[f"{way}: per_s"] = devices / drained["seconds"]
                row[f"{way}: cpu_s"] = drained["cpu_s"]
            rows.append(row)
    of = {key: {way: [row[f"{way}: {key}"] for row in rows] for way in WAYS} for key in ("per_s", "cpu_s")}
    ratios = {
        way: {k: float(np.median(np.divide(by[way], by["without"]))) for k, by in of.items()} for way in WAYS
    }
    return {"devices": devices, "rounds": rows, "ratios": ratios}


if __name__ == "__main__":
    run(__doc__, "publishing.json", {"": measured})
