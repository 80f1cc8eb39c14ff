"""What --publish costs the aggregator: messages a second with and without it, on one mosquitto, in turn.

    python benchmarks/publishing.py [--quick]

As ingest.py drains a queue of authenticated reports, here of 50,000 devices; the store has ten experiments
with 30 days each. `--publish` looks once in the time; `--publish-live 1` works them out all the time, in the
process that `hushmote serve` uses. Three rounds; medians of the ratios to the same round without. CPU
seconds are the aggregator's own process's. Where others use the machine only these can be compared. Writes
benchmarks/results/publishing.json.
"""

import datetime
import tempfile
from contextlib import ExitStack
from multiprocessing.connection import Connection

import numpy as np
from brokers import FLEET, Reports, aggregate, brokers, drain, fill, publish
from published import payload
from results_file import Options, run

from hushmote.server.results.publication import Publication
from hushmote.server.results.publisher import Publisher
from hushmote.server.store import Store
from hushmote.simulator import vectorised

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


def experiments(store: Store, rng: np.random.Generator) -> None:
    """A keyed fleet with the experiment that is drained and nine others, each with 30 days of reports."""
    store.add_fleet(FLEET, keyed=True)
    store.add_experiment(FLEET, payload("hh", 256, 1_000_000))
    today = datetime.datetime.now(datetime.UTC).date()
    days = [str(today - datetime.timedelta(days)) for days in range(1, 31)]
    for i in range(9):
        other = store.add_experiment(FLEET, payload("hh", 256, 1_000_000, name=f"other{i}", window="day"))
        drawn = (vectorised.codes(other, rng.integers(0, 256, 1000), rng) for _ in days)
        fill(store, FLEET, [], dict(zip(days, map(np.bincount, drawn), strict=True)), name=other.name)


def measured(options: Options) -> dict:
    devices, rounds = (5_000, 1) if options.quick else (50_000, 3)
    rows, number, reports = [], 0, Reports(devices)
    with tempfile.TemporaryDirectory() as folder, brokers("mosquitto") as (port, ports, _):
        url = f"sqlite:///{folder}/store.sqlite"
        with Store(url) as store:
            experiments(store, np.random.default_rng(1))
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
