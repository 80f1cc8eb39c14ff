"""The real client on many boards, by one worker and by several: time, processor time, memory.

    python benchmarks/workers.py [--quick] [--boards 1000000]

1. One process against two workers of Dask, in turns: the ratio of the times, with and without start.
2. One to eight workers: where there are fewer cores, processor time per board says what more cores would do.
   It stays the same if workers do not hinder each other, and this process's own says how many it can feed.

Every run has the same seed and must give the same histogram. Boards draw with their own generator otherwise;
here NumPy does, for the seed. Writes benchmarks/results/workers.json; --quick runs 20,000 boards, once.
"""

import argparse
import json
import os
import resource
import time
from dataclasses import asdict, dataclass
from statistics import median

import numpy as np
import results_file
from published import payload as experiment_payload

from hushmote.simulator.faithful import Faults
from hushmote.simulator.faithful_parts import FleetPart, RealClients, fleet_parts, run_part
from hushmote.simulator.population import normal
from hushmote.simulator.workers import workers

SEED = 17
MOST_WORKERS = 8


@dataclass(frozen=True)
class PartCost:
    """What a part took where it ran. codes: a sum over its reports, which any run must have alike."""

    process: int
    cpu_s: float
    peak_bytes: int
    codes: int


@dataclass(frozen=True)
class WorkersRun:
    """A fleet by so many workers.

    seconds: without their start; started_s: with their start and end. parts_cpu_s: of the parts themselves;
    own_cpu_s: of the process that divides and adds up; peak_bytes: of the largest worker.
    """

    workers: int
    boards: int
    parts: int
    seconds: float
    started_s: float
    parts_cpu_s: float
    own_cpu_s: float
    peak_bytes: int
    codes: int


def published() -> bytes:
    """The experiment that each board reports to: ranges of 256 values."""
    budget = {"budget": {"rule": "sum", "cap": 4_000_000}}
    return json.dumps(json.loads(experiment_payload("hh", 256, 1_000_000)) | budget).encode()


def costed(part: FleetPart, clients: RealClients) -> PartCost:
    """Run a part and say what it took."""
    start = time.process_time()
    outcome = run_part(part, clients)
    cpu_s = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return PartCost(os.getpid(), cpu_s, peak, int(outcome.codes.sum(dtype=np.int64)))


def run(count: int, boards: int) -> WorkersRun:
    """One report of each board, by so many workers."""
    clients = RealClients(published(), normal(500, 120), Faults(), rounds=1, repeatable=True)
    parts = fleet_parts(boards, clients.rounds, SEED)
    began = time.perf_counter()
    with workers(count) as crew:
        list(crew.map(costed, fleet_parts(count * 20, 1, SEED), clients))  # all have loaded the client
        start, own = time.perf_counter(), time.process_time()
        costs = list(crew.map(costed, parts, clients))
        seconds, own = time.perf_counter() - start, time.process_time() - own
    parts_cpu_s = sum(cost.cpu_s for cost in costs)
    return WorkersRun(
        count,
        boards,
        len(parts),
        seconds,
        time.perf_counter() - began,
        parts_cpu_s,
        own - (parts_cpu_s if count == 1 else 0.0),
        max(cost.peak_bytes for cost in costs),
        sum(cost.codes for cost in costs),
    )


def beside(options: argparse.Namespace) -> dict:
    """One process and two workers in turns, then more of them; the numbers must not depend on the workers."""
    boards, rounds = (20_000, 1) if options.quick else (options.boards, 3)
    runs = [run(count, boards) for _ in range(rounds) for count in (1, 2)]
    alone, two = runs[::2], runs[1::2]
    less = max(20_000, boards // 10)
    many = [run(count, less) for count in ((1, 2, 4) if options.quick else range(1, MOST_WORKERS + 1))]
    for group in (runs, many):
        assert len({one.codes for one in group}) == 1, "the numbers depend on the workers"
    return {
        "ratios": [a.seconds / b.seconds for a, b in zip(alone, two, strict=True)],
        "ratios_with_start": [a.started_s / b.started_s for a, b in zip(alone, two, strict=True)],
        "feeds": median(one.parts_cpu_s / one.own_cpu_s for one in many if one.workers > 1),
        "beside": [asdict(one) for one in runs],
        "many": [asdict(one) for one in many],
    }


def main() -> None:
    results_file.run(__doc__, "workers.json", {"": beside}, boards={"type": int, "default": 1_000_000})


if __name__ == "__main__":
    import workers as by_name  # by this name Dask's processes find its functions

    by_name.main()
