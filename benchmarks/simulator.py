"""Reports per second of both simulator paths, and the memory of 10^8 devices.

    python benchmarks/simulator.py [--quick]

1. Vectorised, one core: codes drawn one by one for given indices, and histograms of whole fleets.
2. Peak memory of a process that simulates 10^8 devices, by its own ru_maxrss.
3. Faithful: real clients, each provisioned, enrolled and reporting once, in process and through a broker.

CPU seconds are this process's own; mosquitto's are not in them. Writes benchmarks/results/simulator.json.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
from published import experiment, payload
from results_file import run

from hushmote.server.wire import keys
from hushmote.simulator import vectorised
from hushmote.simulator.faithful import SimulatedFleet
from hushmote.simulator.gateway import Gateways
from hushmote.simulator.open_broker import open_broker

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


def fast(options: argparse.Namespace) -> list[dict]:
    reports = 10**6 if options.quick else 5 * 10**6
    rng = np.random.default_rng(1)
    rows = []
    for name, (mechanism, domain, epsilon) in EXPERIMENTS.items():
        exp = experiment(mechanism, domain, epsilon)
        indices = rng.integers(0, domain, reports)
        counts = np.bincount(indices, minlength=domain)
        codes_s = best_s(lambda e=exp, i=indices: vectorised.codes(e, i, rng))
        histogram_s = best_s(lambda e=exp, c=counts: vectorised.histogram(e, c, rng))
        cells = ", ".join(str(level.g) for level in exp.levels)
        rates = reports / codes_s, reports / histogram_s
        rows.append(
            {"experiment": name, "code_count": exp.code_count, "g": cells}
            | {"codes_per_s": rates[0], "histogram_per_s": rates[1]}
        )
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


def memory(options: argparse.Namespace) -> dict:
    child = [sys.executable, __file__, "--alone", str(10**7 if options.quick else 10**8)]
    return json.loads(subprocess.run(child, check=True, capture_output=True, text=True).stdout)


def published() -> bytes:
    """The experiment that each device takes part in: ranges of 256 values."""
    return payload("hh", 256, 1_000_000, budget={"rule": "sum", "cap": 4_000_000})


def faithful(options: argparse.Namespace) -> list[dict]:
    devices = 1_000 if options.quick else 26_115
    readings = np.random.default_rng(3).normal(500, 120, devices).tolist()
    rows = []

    def device_key(device: str) -> bytes:
        return keys.device_key(MASTER, "bench", device)

    def timed(way: str, deliver: Callable[[SimulatedFleet], object]) -> None:
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

    timed("in process", in_process)
    with open_broker() as broker:

        def over_mqtt(made: SimulatedFleet) -> None:
            with Gateways(broker.host, broker.port) as gateways:
                gateways.deliver(made, made.round({"bench": readings}))

        timed(f"MQTT, QoS 1, {broker.name}", over_mqtt)
    return rows


if __name__ == "__main__":
    if "--alone" in sys.argv:
        simulate_alone(int(sys.argv[-1]))
    else:
        # First: a child's ru_maxrss starts from what its parent had.
        run(__doc__, "simulator.json", {"memory": memory, "vectorised": fast, "faithful": faithful})
