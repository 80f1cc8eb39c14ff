"""Simulate thousands of power cuts below the file system and check the SQLite store after each.

    python benchmarks/store_power_loss.py [--draws 4] [--jobs 1] [--quick]

This is the long form of tests/server/store/test_power_loss.py; tests/support/write_log.py defines which data
a power cut may lose. Three kinds of processes run: one creates a store and counts reports, with a checkpoint
every 4, 8 or 1,000 pages; one upgrades a store; and one backs a store up. The power is cut at every write,
truncation, rename and sync of each process. Writes benchmarks/results/store_power_loss.json, and exits with
status 1 if anything was lost, counted twice or damaged.
"""

import argparse
import functools
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import results_file

# isort: split
from store_workload import WORKLOADS, recorded  # pyright: ignore[reportMissingImports]
from write_log import PowerCut, power_cuts  # pyright: ignore[reportMissingImports]

_SEED = 2
_RUNS = {
    "count, checkpoint each 4 pages": ("count", "--pages", "4"),
    "count, checkpoint each 8 pages": ("count", "--pages", "8"),
    "count, checkpoint each 1,000 pages": ("count", "--pages", "1000"),
    "upgrade": ("upgrade",),
    "backup": ("backup",),
}


def _failure(name: str, cut: PowerCut) -> str | None:
    with tempfile.TemporaryDirectory() as folder:
        reason = WORKLOADS[name].failure(cut, Path(folder) / "after")
    return reason and f"{cut}: {reason}"


def _states(run: tuple[str, ...], draws: int, more: float) -> tuple[int, Iterator[PowerCut]]:
    """Return a run's number of operations, and the disk's states after power cuts between them."""
    with tempfile.TemporaryDirectory() as folder:
        recording = recorded(run[0], Path(folder) / "disk", *run[1:])
    return len(recording.operations), power_cuts(recording, np.random.default_rng(_SEED), draws, more)


def runs(options: argparse.Namespace) -> dict:
    draws, more = (1, 0.02) if options.quick else (options.draws, 1.0)
    rows, failures = [], []
    with ProcessPoolExecutor(options.jobs) as pool:
        for title, run in _RUNS.items():
            operations, states = _states(run, draws, more)
            states = list(states)
            reasons = pool.map(functools.partial(_failure, run[0]), states, chunksize=8)
            wrong = [reason for reason in reasons if reason is not None]
            failures += [f"{title}: {reason}" for reason in wrong]
            by_loss = Counter(cut.loss.name.lower() for cut in states)
            row = {"run": title, "operations": operations, "states": len(states), **by_loss}
            rows.append(row | {"failures": len(wrong)})
    print(*failures[:20], sep="\n")
    return {"seed": _SEED, "draws": draws, "runs": rows}


if __name__ == "__main__":
    draws = {"type": int, "default": 4, "help": "random losses of each kind per cut"}
    jobs = {"type": int, "default": 1, "help": "number of processes that check the states"}
    results = results_file.run(__doc__, "store_power_loss.json", {"": runs}, draws=draws, jobs=jobs)
    sys.exit(any(row["failures"] for row in results[""]["runs"]))
