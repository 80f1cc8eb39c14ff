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
from draws import payload as experiment_payload
from ingest import FLEET, FLEET_KEYS, MASTER, NO_SAVING, drain, publish
from results_file import machine, write
from rich.console import Console
from rich.table import Table

from hushmote.device.ldp_client import Experiment
from hushmote.server.aggregator import Aggregator
from hushmote.server.results.publication import Publication
from hushmote.server.results.publisher import Publisher
from hushmote.server.results.worker import Watch
from hushmote.server.store import Store
from hushmote.server.wire import keys, report, topics
from hushmote.simulator import vectorised
from hushmote.simulator.broker import MosquittoBroker

WAYS = ("without", "--publish", "--publish-live 1", "live, in a thread")
_DEADLINE_S = 120.0


def serving(port: int, wanted: int, out: Connection, url: str, way: str) -> None:
    """Run an aggregator until it has accepted `wanted` more reports; sends seconds, CPU seconds, reports."""
    retained: Callable[[], Mapping[str, bytes]] | None = None
    with Store(url) as store, ExitStack() as stack:
        if way == "live, in a thread":
            retained = _in_a_thread(url)
        elif way != "without":
            publication = Publication(live_s=1.0 if "live" in way else None)
            publisher = stack.enter_context(Publisher(url, publication))
            retained = lambda: publisher.retained  # noqa: E731
        aggregator = Aggregator(store, port=port, fleets=[FLEET], fleet_keys=FLEET_KEYS, retained=retained)
        start = time.perf_counter()

        def watch() -> None:
            end = time.monotonic() + _DEADLINE_S
            aggregator.ready.wait(_DEADLINE_S)
            while time.monotonic() < end and aggregator.counters.accepted < wanted:
                time.sleep(0.005)
            out.send((time.perf_counter() - start, time.process_time(), aggregator.counters.accepted))
            aggregator.stop()

        watcher = threading.Thread(target=watch)
        watcher.start()
        aggregator.run()
        watcher.join()


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


def fill(store: Store, rng: np.random.Generator) -> Experiment:
    """A keyed fleet with the experiment that is drained and nine others, each with 30 days of reports."""
    store.add_fleet(FLEET, keyed=True)
    drained = store.add_experiment(FLEET, experiment_payload("hh", 256, 1_000_000))
    today = datetime.datetime.now(datetime.UTC).date()
    for i in range(9):
        payload = experiment_payload("hh", 256, 1_000_000).replace(b'"bench"', f'"other{i}"'.encode())
        payload = payload.replace(b'"window": "all"', b'"window": "day"')
        other = store.add_experiment(FLEET, payload)
        version = next(v for v in store.experiments(FLEET) if v.experiment.digest == other.digest)
        counts = {}
        for day in (str(today - datetime.timedelta(days)) for days in range(1, 31)):
            codes = vectorised.codes(other, rng.integers(0, 256, 1000), rng)
            values, numbers = np.unique(codes, return_counts=True)
            counts |= {(version.id, day, int(c)): int(n) for c, n in zip(values, numbers, strict=True)}
        with store.ingest() as transaction:
            transaction.write({}, counts, {})
    return drained


def main() -> None:
    parser = argparse.ArgumentParser(description="Messages a second with and without --publish.")
    parser.add_argument("--quick", action="store_true", help="5,000 devices, one round; writes no file")
    quick = parser.parse_args().quick
    devices, rounds = (5_000, 1) if quick else (50_000, 3)
    rng, rows, number = np.random.default_rng(1), [], 0
    names = [f"d{i:06}" for i in range(devices)]
    device_keys = [keys.device_key(MASTER, FLEET, name) for name in names]
    with tempfile.TemporaryDirectory() as folder, MosquittoBroker(settings=NO_SAVING) as broker:
        url = f"sqlite:///{folder}/store.sqlite"
        with Store(url) as store:
            drained = fill(store, rng)
        drain(serving, broker.port, 0, url, "without")  # it subscribes
        codes = vectorised.codes(drained, rng.integers(0, 256, devices), rng)
        for _ in range(rounds):
            row = {}
            for way in WAYS:
                number += 1
                messages = [
                    (topics.report_topic(FLEET, name), report.encode(drained, number, int(code), name, key))
                    for name, key, code in zip(names, device_keys, codes, strict=True)
                ]
                publish(broker.port, messages)
                seconds, cpu_s, seen = drain(serving, broker.port, devices, url, way)
                assert seen == devices, f"{way} saw {seen} of {devices}"
                row |= {f"{way}: per_s": devices / seconds, f"{way}: cpu_s": cpu_s}
            rows.append(row)
    ratios = {
        way: {
            key: float(np.median([row[f"{way}: {key}"] / row[f"without: {key}"] for row in rows]))
            for key in ("per_s", "cpu_s")
        }
        for way in WAYS
    }
    table = Table(
        "", "messages a second", "ratio", "CPU s", "ratio", title=f"{devices:,} devices, 10 experiments"
    )
    for way in WAYS:
        per_s, cpu_s = (
            float(np.median([row[f"{way}: {key}"] for row in rows])) for key in ("per_s", "cpu_s")
        )
        mine = ratios[way]
        table.add_row(way, f"{per_s:,.0f}", f"{mine['per_s']:.2f}", f"{cpu_s:.1f}", f"{mine['cpu_s']:.2f}")
    Console(width=100).print(table)
    if not quick:
        result = {"machine": machine(), "devices": devices, "rounds": rows, "ratios": ratios}
        write("publishing.json", result)


if __name__ == "__main__":
    main()
