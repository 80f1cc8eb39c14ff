"""Reports per second of the simulator's quick path, and the memory of 10^8 devices; workers.py has the other.

    python benchmarks/simulator.py [--quick]

1. Vectorised, one core: codes drawn one by one for given indices, and histograms of whole fleets.
2. Peak memory of a process that simulates 10^8 devices, by its own VmHWM.

Writes benchmarks/results/simulator.json.
"""

import multiprocessing
import time

import numpy as np
from brokers import memory_mib
from published import experiment
from results_file import Options, least_cpu_s, run

from hushmote.simulator import vectorised

REPEATS = 5

EXPERIMENTS: dict[str, tuple[str, int, int]] = {
    "rr, 2 values, ε = 1": ("rr", 2, 1_000_000),
    "grr, 16 values, ε = 2": ("grr", 16, 2_000_000),
    "olh, 1,024 values, ε = 1": ("olh", 1024, 1_000_000),
    "olh, 1,024 values, ε = 3": ("olh", 1024, 3_000_000),
    "olh, 65,536 values, ε = 1": ("olh", 65_536, 1_000_000),
    "hh, 1,024 values, ε = 1": ("hh", 1024, 1_000_000),
}


def fast(options: Options) -> list[dict]:
    reports = 10**6 if options.quick else 5 * 10**6
    rng = np.random.default_rng(1)
    rows = []
    for name, (mechanism, domain, epsilon) in EXPERIMENTS.items():
        exp = experiment(mechanism, domain, epsilon)
        indices = rng.integers(0, domain, reports)
        counts = np.bincount(indices, minlength=domain)
        codes_s = least_cpu_s(lambda e=exp, i=indices: vectorised.codes(e, i, rng), REPEATS)
        histogram_s = least_cpu_s(lambda e=exp, c=counts: vectorised.histogram(e, c, rng), REPEATS)
        row = {"experiment": name, "code_count": exp.code_count}
        row["g"] = ", ".join(str(level.g) for level in exp.levels)
        rows.append(row | {"codes_per_s": reports / codes_s, "histogram_per_s": reports / histogram_s})
    return rows


def simulate_alone(devices: int) -> dict:
    """Simulate a fleet, in a process of its own."""
    exp = experiment("olh", 1024, 1_000_000)
    rng = np.random.default_rng(2)
    before, start = memory_mib(field="VmHWM"), time.perf_counter()
    counts = vectorised.histogram(exp, rng.multinomial(devices, np.full(1024, 1 / 1024)), rng)
    seconds = time.perf_counter() - start
    assert counts.sum() == devices
    memory = {"peak_bytes": round(memory_mib(field="VmHWM") * 2**20), "before_bytes": round(before * 2**20)}
    return {"devices": devices, "seconds": seconds} | memory


def memory(options: Options) -> dict:
    with multiprocessing.get_context("spawn").Pool(1) as fresh:
        return fresh.apply(simulate_alone, (10**7 if options.quick else 10**8,))


if __name__ == "__main__":
    run(__doc__, "simulator.json", {"memory": memory, "vectorised": fast})
