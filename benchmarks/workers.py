"""The real client on many boards, with one worker and with several: time, processor time, memory.

    python benchmarks/workers.py [--quick] [--boards 1000000]

1. One process against two workers of Dask, in turns: the ratio of the times, with and without start.
2. One to eight workers: with fewer cores, processor time per board shows what more cores would do. It stays
   the same if workers do not slow each other down, and this process's own shows how many it can feed.

Every run has the same seed and must give the same histogram. Boards draw with their own generator otherwise;
here NumPy does, for the seed. Writes benchmarks/results/workers.json; --quick runs 20,000 boards, once.
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
MOST_WORKERS = 8


def costed(part: FleetPart, clients: RealClients) -> tuple[float, float, int]:
    """Return CPU seconds and peak bytes of a part where it ran, and a checksum that all runs share."""
    start = time.process_time()
    outcome = run_part(part, clients)
    used = time.process_time() - start
    return used, results_file.memory_mib(field="VmHWM") * 2**20, int(outcome.codes.sum(dtype=np.int64))


def run(count: int, boards: int) -> dict[str, Any]:
    """Run one report of each board, by so many workers.

    In the result, seconds are without their start, and started_s with their start and end. parts_cpu_s is of
    the parts themselves, own_cpu_s of the process that divides and adds up, and peak_bytes of the largest
    worker.
    """
    published = payload("hh", 256, 1_000_000, budget={"rule": "sum", "cap": 4_000_000})
    clients = RealClients(published, normal(500, 120), Faults(), rounds=1, repeatable=True)
    parts = fleet_parts(boards, clients.rounds, SEED)
    began = time.perf_counter()
    with workers(count) as pool:
        list(pool.map(costed, fleet_parts(count * 20, 1, SEED), clients))  # all have loaded the client
        start, own = time.perf_counter(), time.process_time()
        used, peaks, codes = zip(*pool.map(costed, parts, clients), strict=True)
        seconds, own = time.perf_counter() - start, time.process_time() - own
    row = {"workers": count, "boards": boards, "parts": len(parts), "seconds": seconds}
    row |= {"started_s": time.perf_counter() - began, "parts_cpu_s": sum(used)}
    row |= {"own_cpu_s": own - (sum(used) if count == 1 else 0.0), "peak_bytes": round(max(peaks))}
    return row | {"codes": sum(codes)}


def beside(options: argparse.Namespace) -> dict:
    """Run one process and two workers in turns, then more of them; check that the numbers are the same."""
    boards, rounds = (20_000, 1) if options.quick else (options.boards, 3)
    runs = [run(count, boards) for _ in range(rounds) for count in (1, 2)]
    less = max(20_000, boards // 10)
    many = [run(count, less) for count in ((1, 2, 4) if options.quick else range(1, MOST_WORKERS + 1))]
    for group in (runs, many):
        assert len({one["codes"] for one in group}) == 1, "the numbers depend on the workers"
    ratios = {
        name: [a[key] / b[key] for a, b in zip(runs[::2], runs[1::2], strict=True)]
        for name, key in (("ratios", "seconds"), ("ratios_with_start", "started_s"))
    }
    feeds = median(one["parts_cpu_s"] / one["own_cpu_s"] for one in many if one["workers"] > 1)
    return ratios | {"feeds": feeds, "beside": runs, "many": many}


def main() -> None:
    results_file.run(__doc__, "workers.json", {"": beside}, boards={"type": int, "default": 1_000_000})


if __name__ == "__main__":
    import workers as by_name  # Dask's processes find its functions by this name

    by_name.main()
