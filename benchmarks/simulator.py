"""Reports per second of the simulator's vectorised path, and its memory for 10^8 devices.

    python benchmarks/simulator.py [--quick]

1. Vectorised, on one core: a code drawn for each of the given indices, ε = 1.
2. The peak memory (VmHWM) of a process that simulates 10^8 devices.

workers.py measures the simulator's other path. Writes benchmarks/results/simulator.json.
"""

import multiprocessing
import time

import numpy as np
from published import experiment
from results_file import Options, memory_mib, min_cpu_s, run

from hushmote.simulator import vectorised


def fast(options: Options) -> list[dict]:
    reports, rows = 10**6 if options.quick else 5 * 10**6, []
    rng = np.random.default_rng(1)
    for mechanism in ("rr", "grr", "olh", "hh"):
        domain = 2 if mechanism == "rr" else 1024
        exp = experiment(mechanism, domain, 1_000_000)
        indices = rng.integers(0, domain, reports)
        seconds = min_cpu_s(lambda e=exp, i=indices: vectorised.codes(e, i, rng), 5)
        rows.append({"mechanism": mechanism, "domain": domain, "codes_per_s": reports / seconds})
    return rows


def simulate_alone(devices: int) -> dict:
    """Simulate a fleet; call this in a fresh process, since it measures peak memory."""
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
