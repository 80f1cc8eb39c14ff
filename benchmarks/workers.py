"""Time, CPU time and memory of simulating the real client on many boards, with one and more workers.

    python benchmarks/workers.py [--quick] [--boards 1000000]

1. One process and two Dask workers take turns; the result is the ratio of the times, with and without
start-up. 2. One to eight workers: on a machine with fewer cores, the CPU time per board shows the effect of
more cores. It
   stays the same if workers do not slow each other down; this process's CPU time shows how many workers it
   can keep busy.

Every run has the same seed and must give the same histogram. For that, boards draw from NumPy's generator
instead of their usual one. Writes benchmarks/results/workers.json; --quick runs 20,000 boards once.
"""

import argparse
import time
from statistics import median
from typing import Any

import numpy as np
import results_file
from published import payload

from hushmote.simulator.faithful import Faults
from hushmote.simulator.faithful_parts import FleetPart, RealClients, fleet_parts, run_part
from hushmote.simulator.population import normal
from hushmote.simulator.workers import workers

SEED = 17
MAX_WORKERS = 8


def costed(part: FleetPart, clients: RealClients) -> tuple[float, float, int]:
    """Run a part; return its worker's CPU seconds and peak memory in bytes, and a checksum of the codes."""
    start = time.process_time()
    outcome = run_part(part, clients)
    used = time.process_time() - start
    return used, results_file.memory_mib(field="VmHWM") * 2**20, int(outcome.codes.sum(dtype=np.int64))


def run(count: int, boards: int) -> dict[str, Any]:
    """Simulate one report from each board, with `count` workers.

    In the result, `seconds` excludes the workers' start and end, and `started_s` includes them. `parts_cpu_s`
    is the parts' CPU time, `own_cpu_s` that of the process that distributes and sums them, and `peak_bytes`
    the largest worker's memory.
    """
    published = payload("hh", 256, 1_000_000, budget={"rule": "sum", "cap": 4_000_000})
    clients = RealClients(published, normal(500, 120), Faults(), rounds=1, repeatable=True)
    parts = fleet_parts(boards, clients.rounds, SEED)
    began = time.perf_counter()
    with workers(count) as pool:
        list(pool.map(costed, fleet_parts(count * 20, 1, SEED), clients))  # make all workers load the client
        start, own_s = time.perf_counter(), time.process_time()
        used, peaks, codes = zip(*pool.map(costed, parts, clients), strict=True)
        seconds, own_s = time.perf_counter() - start, time.process_time() - own_s
    row = {"workers": count, "boards": boards, "parts": len(parts), "seconds": seconds}
    row |= {"started_s": time.perf_counter() - began, "parts_cpu_s": sum(used)}
    row |= {"own_cpu_s": own_s - (sum(used) if count == 1 else 0.0), "peak_bytes": round(max(peaks))}
    return row | {"codes": sum(codes)}


def compare(options: argparse.Namespace) -> dict:
    """Run one process and two workers in turn, then more workers; check that all results are the same."""
    boards, rounds = (20_000, 1) if options.quick else (options.boards, 3)
    runs = [run(count, boards) for _ in range(rounds) for count in (1, 2)]
    fewer_boards = max(20_000, boards // 10)
    worker_runs = [
        run(count, fewer_boards) for count in ((1, 2, 4) if options.quick else range(1, MAX_WORKERS + 1))
    ]
    for group in (runs, worker_runs):
        assert len({one["codes"] for one in group}) == 1, "the numbers depend on the workers"
    ratios = {
        name: [a[key] / b[key] for a, b in zip(runs[::2], runs[1::2], strict=True)]
        for name, key in (("ratios", "seconds"), ("ratios_with_start", "started_s"))
    }
    feeds = median(one["parts_cpu_s"] / one["own_cpu_s"] for one in worker_runs if one["workers"] > 1)
    return ratios | {"feeds": feeds, "beside": runs, "many": worker_runs}


def main() -> None:
    results_file.run(__doc__, "workers.json", {"": compare}, boards={"type": int, "default": 1_000_000})


if __name__ == "__main__":
    import workers as by_name  # Dask's processes import this module by its name

    by_name.main()
