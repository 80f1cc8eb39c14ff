"""Reports per second of both simulator paths, and the memory of 10^8 devices.

    python benchmarks/simulator.py [--quick]

1. Vectorised, one core: codes drawn one by one for given indices, and histograms of whole fleets.
2. Peak memory of a process that simulates 10^8 devices, by its own ru_maxrss.
3. Faithful: real clients, each provisioned, enrolled and reporting once, in process and through a broker.

CPU seconds are this process's own; mosquitto's are not in them. Prints tables; without --quick, writes
benchmarks/results/simulator.json.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
from draws import experiment
from results_file import machine, write
from rich.console import Console
from rich.table import Table

from hushmote.server.wire import keys
from hushmote.simulator import vectorised
from hushmote.simulator.broker import open_broker
from hushmote.simulator.faithful import SimulatedFleet
from hushmote.simulator.gateway import Gateways

MASTER = bytes(range(32))
REPEATS = 5

EXPERIMENTS: dict[str, tuple[str, int, int]] = {
    "rr, 2 values, ε = 1": ("rr", 2, 1_000_000),
    "grr, 16 values, ε = 2": ("grr", 16, 2_000_000),
    "olh, 1,024 values, ε = 1": ("olh", 1024, 1_000_000),
    "olh, 1,024 values, ε = 3": ("olh", 1024, 3_000_000),
    "olh, 65,536 values, ε = 1": ("olh", 65_536, 1_000_000),
    "hh, 1,024 values, ε = 1": ("hh", 1024, 1_000_000),
}


def best_s(work: Callable[[], object]) -> float:
    """Least CPU time of REPEATS calls: what else runs on the machine only ever adds to it."""
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def measure_vectorised(reports: int, console: Console) -> list[dict]:
    rng = np.random.default_rng(1)
    table = Table(title=f"Vectorised, {reports:,} reports, one core: million reports per CPU second")
    for column in ("experiment", "codes", "g", "code by code", "histogram"):
        table.add_column(column, justify="left" if column == "experiment" else "right")
    rows = []
    for name, (mechanism, domain, epsilon) in EXPERIMENTS.items():
        exp = experiment(mechanism, domain, epsilon)
        indices = rng.integers(0, domain, reports)
        counts = np.bincount(indices, minlength=domain)
        codes_s = best_s(lambda e=exp, i=indices: vectorised.codes(e, i, rng))
        histogram_s = best_s(lambda e=exp, c=counts: vectorised.histogram(e, c, rng))
        cells = ", ".join(str(level.g) for level in exp.levels)
        rates = reports / codes_s, reports / histogram_s
        table.add_row(name, f"{exp.code_count:,}", cells, *(f"{rate / 1e6:.1f}" for rate in rates))
        rows.append(
            {"experiment": name, "code_count": exp.code_count, "g": cells}
            | {"codes_per_s": rates[0], "histogram_per_s": rates[1]}
        )
    console.print(table)
    return rows


def simulate_alone(devices: int) -> None:
    """The child process: simulate a fleet, print what it took as JSON."""
    exp = experiment("olh", 1024, 1_000_000)
    rng = np.random.default_rng(2)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    counts = vectorised.histogram(exp, rng.multinomial(devices, np.full(1024, 1 / 1024)), rng)
    seconds = time.perf_counter() - start
    assert counts.sum() == devices
    usage = resource.getrusage(resource.RUSAGE_SELF)
    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, Linux KiB
    memory = {"peak_bytes": usage.ru_maxrss * unit, "before_bytes": before * unit}
    print(json.dumps({"devices": devices, "seconds": seconds} | memory))


def measure_memory(devices: int, console: Console) -> dict:
    child = [sys.executable, __file__, "--alone", str(devices)]
    result = json.loads(subprocess.run(child, check=True, capture_output=True, text=True).stdout)
    table = Table(title="Memory, olh, 1,024 values, ε = 1")
    for column in ("devices", "seconds", "peak MiB", "of it before the first device"):
        table.add_column(column, justify="right")
    peak, before = (f"{result[key] / 2**20:.0f}" for key in ("peak_bytes", "before_bytes"))
    table.add_row(f"{devices:,}", f"{result['seconds']:.1f}", peak, before)
    console.print(table)
    return result


def published() -> bytes:
    """The experiment that each device takes part in: ranges of 256 values."""
    levels = experiment("hh", 256, 1_000_000)
    fields = {"v": 1, "name": "bench", "type": "number", "low": 0, "high": 1_000_000, "bins": 256}
    fields |= {"mechanism": "hh", "fanout": levels.fanout, "cells": [level.g for level in levels.levels]}
    fields |= {"epsilon": 1_000_000, "budget": {"rule": "sum", "cap": 4_000_000}, "window": "all"}
    return json.dumps(fields).encode()


def measure_faithful(devices: int, console: Console) -> list[dict]:
    readings = np.random.default_rng(3).normal(500, 120, devices).tolist()
    rows = []

    def device_key(device: str) -> bytes:
        return keys.device_key(MASTER, "bench", device)

    def run(way: str, deliver: Callable[[SimulatedFleet], object]) -> None:
        start, cpu = time.perf_counter(), time.process_time()
        rng = np.random.default_rng(4)
        made = SimulatedFleet("bench", [published()], size=devices, rng=rng, device_key=device_key)
        deliver(made)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        assert len(made.acknowledged) == devices
        rows.append({"way": way, "devices": devices, "seconds": seconds, "cpu_seconds": cpu})

    def in_process(made: SimulatedFleet) -> None:
        for delivery in made.round({"bench": readings}):
            made.acknowledge(delivery)

    run("in process", in_process)
    with open_broker() as broker:

        def over_mqtt(made: SimulatedFleet) -> None:
            with Gateways(broker.host, broker.port) as gateways:
                gateways.deliver(made, made.round({"bench": readings}))

        run(f"MQTT, QoS 1, {broker.name}", over_mqtt)
    table = Table(title="Faithful: provisioned, enrolled, one authenticated report of each device")
    for column in ("way", "devices", "seconds", "CPU seconds", "reports/s", "CPU µs each"):
        table.add_column(column, justify="left" if column == "way" else "right")
    for row in rows:
        seconds, cpu = row["seconds"], row["cpu_seconds"]
        numbers = f"{seconds:.1f}", f"{cpu:.1f}", f"{devices / seconds:,.0f}", f"{cpu / devices * 1e6:.0f}"
        table.add_row(row["way"], f"{devices:,}", *numbers)
    console.print(table)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a few seconds, rougher numbers")
    parser.add_argument("--alone", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.alone:
        simulate_alone(arguments.alone)
        return
    console = Console()
    quick = arguments.quick
    results = {
        "machine": machine(),
        "quick": quick,
        # First: a child's ru_maxrss starts from what its parent had.
        "memory": measure_memory(10**7 if quick else 10**8, console),
        "vectorised": measure_vectorised(10**6 if quick else 5 * 10**6, console),
        "faithful": measure_faithful(2_000 if quick else 26_115, console),
    }
    if quick:
        return
    write("simulator.json", results)


if __name__ == "__main__":
    main()
