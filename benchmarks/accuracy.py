"""How far estimates are off: Monte Carlo over fleets drawn anew. Error bars are in interval_coverage.py.

    python benchmarks/accuracy.py [--quick] [--workers N | --dask URL]

1. OLH: mean squared error against the sample's own frequencies, over the formula.
2. Hierarchies: mean squared error over all ranges, over published figures.

Prints tables and writes benchmarks/results/accuracy.json.
"""

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from results_file import machine, write
from rich.console import Console
from rich.table import Table
from worker_options import add_worker_options, chosen_workers

from hushmote.device.ldp_client import ONE, Experiment
from hushmote.server.estimate import estimate
from hushmote.server.mechanisms import choose as oracle
from hushmote.server.mechanisms.channel import level_channel
from hushmote.server.mechanisms.flat_choice import best_hash
from hushmote.server.mechanisms.flat_variance import frequency_mse
from hushmote.server.mechanisms.tree_choice import workload_variance
from hushmote.server.mechanisms.workload import ALL_RANGES
from hushmote.simulator.crew import Workers

LN_3 = 1_098_612  # micro-nats
SEED = 20_240
AT_ONCE = 20  # runs of a part
OLH_REPORTS, OLH_CASES = (
    20_000,
    ((500_000, 128), (1_000_000, 128), (1_000_000, 1024), (2_000_000, 1024), (4_000_000, 1024)),
)
RANGE_REPORTS, RANGE_CELLS = 50_000, {2: [2, 4, 5, 5, 5, 5, 5, 5], 4: [4, 5, 5, 5], 16: [5, 5]}

Part = tuple[Any, int, np.random.SeedSequence]
"""A case, how many runs of it, and their seed."""


def experiment(mechanism: str, domain: int, epsilon: int, **fields) -> Experiment:
    """An experiment over domain bins; see experiment_payload."""
    return Experiment.parse(experiment_payload(mechanism, domain, epsilon, **fields))


def experiment_payload(mechanism: str, domain: int, epsilon: int, **fields) -> bytes:
    """An experiment over domain bins; epsilon in micro-nats; parameters by the variance formulas."""
    base = {"v": 1, "name": "bench", "type": "number", "low": 0, "high": 1_000_000, "bins": domain}
    base |= {"mechanism": mechanism, "epsilon": epsilon, "budget": {"rule": "unlimited"}, "window": "all"}
    if mechanism == "olh" and not fields:
        channel = best_hash(domain, epsilon)
        assert channel is not None
        fields = {"g": channel.g}
    if mechanism == "hh" and not fields:
        choice = oracle.choose(domain, epsilon, ALL_RANGES)
        fields = choice.fields()
    return json.dumps(base | fields).encode()


def codes(exp: Experiment, sizes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Codes of sizes[v] boards with the value v, one by one as the board draws them."""
    values = np.repeat(np.arange(exp.domain, dtype=np.int32), sizes)
    weights = np.array([level.weight for level in exp.levels]) / exp.weight_sum
    if len(weights) == 1:
        drawn = np.zeros(len(values), dtype=np.int8)
    else:
        drawn = np.searchsorted(np.cumsum(weights)[:-1], rng.random(len(values)), side="right")
    out = np.empty(len(values), dtype=np.int64)
    for number, level in enumerate(exp.levels):
        here = drawn == number
        nodes = values[here] // np.int32(level.width)
        cells, start = nodes, np.full(len(nodes), level.offset, dtype=np.int64)
        if level.t:
            seeds = rng.integers(1, level.seeds + 1, len(nodes), dtype=np.int32)
            start += (seeds - 1).astype(np.int64) * level.g
            cells = np.zeros(len(nodes), dtype=np.int32)
            for _ in range(level.t):
                cells += nodes % level.g * (seeds % level.g)
                nodes, seeds = nodes // level.g, seeds // level.g
        lies = rng.random(len(cells)) >= level.threshold / ONE
        others = rng.integers(1, level.g, len(cells), dtype=np.int32)
        out[here] = start + (cells + lies * others) % level.g
    return out


def histogram(exp: Experiment, sizes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Counts of the codes of sizes[v] boards with the value v."""
    return np.bincount(codes(exp, sizes, rng), minlength=exp.code_count)


def skewed(domain: int) -> np.ndarray:
    shares = 1 / (1 + np.arange(domain)) ** 1.3
    return shares / shares.sum()


def concentrated(domain: int) -> np.ndarray:
    """Three quarters on one value, a fifth on one beside it, the rest anywhere."""
    shares = np.full(domain, 0.05 / domain)
    shares[domain // 3] += 0.75
    shares[domain // 3 + 2] += 0.2
    return shares


def drawn(
    crew: Workers,
    function: Callable[[Part], np.ndarray],
    cases: list[Any],
    runs: int,
    seed: np.random.SeedSequence,
) -> list[np.ndarray]:
    """Errors of each case, a row a run, drawn by workers."""
    sizes = [min(AT_ONCE, runs - first) for first in range(0, runs, AT_ONCE)]
    seeds = iter(seed.spawn(len(cases) * len(sizes)))
    errors = list(crew.map(function, [(case, size, next(seeds)) for case in cases for size in sizes]))
    return [np.concatenate(errors[i : i + len(sizes)]) for i in range(0, len(errors), len(sizes))]


def olh_errors(part: Part) -> np.ndarray:
    """Mean squared errors of fleets' frequencies against the sample, shape (runs,)."""
    (epsilon, domain), runs, seed = part
    rng, errors = np.random.default_rng(seed), np.empty(runs)
    exp = experiment("olh", domain, epsilon)
    for run in range(runs):
        sizes = rng.multinomial(OLH_REPORTS, skewed(domain))
        estimates = estimate(exp, histogram(exp, sizes, rng)).frequencies
        errors[run] = np.mean((estimates - sizes / OLH_REPORTS) ** 2)
    return errors


def olh_error(runs: int, crew: Workers, seed: np.random.SeedSequence) -> list[dict]:
    """Mean squared error of OLH against the sample, over its formula."""
    rows = []
    for (epsilon, domain), errors in zip(
        OLH_CASES, drawn(crew, olh_errors, list(OLH_CASES), runs, seed), strict=True
    ):
        exp = experiment("olh", domain, epsilon)
        formula = frequency_mse(level_channel(exp.levels[0])) / OLH_REPORTS
        rows.append(
            {
                "epsilon": epsilon / 1e6,
                "domain": domain,
                "g": exp.levels[0].g,
                "reports": OLH_REPORTS,
                "runs": runs,
                "mse_over_formula": errors.mean() / formula,
                "monte_carlo_error": errors.std(ddof=1) / np.sqrt(runs) / formula,
            }
        )
    return rows


def mean_over_ranges(error: np.ndarray) -> float:
    """Mean square over all ranges [i, j], i < j, of the errors of single values."""
    prefix = np.concatenate([[0], np.cumsum(error)])
    points = len(prefix)
    pairs = points * (prefix**2).sum() - prefix.sum() ** 2
    singles = (error**2).sum()
    return float((pairs - singles) / (points * (points - 1) / 2 - len(error)))


def range_errors(part: Part) -> np.ndarray:
    """Mean squared errors over all ranges, against the sample and the population, shape (runs, 2)."""
    fanout, runs, seed = part
    rng, errors, shares = np.random.default_rng(seed), np.empty((runs, 2)), np.full(256, 1 / 256)
    exp = experiment("hh", 256, LN_3, fanout=fanout, cells=RANGE_CELLS[fanout])
    for run in range(runs):
        sizes = rng.multinomial(RANGE_REPORTS, shares)
        estimates = estimate(exp, histogram(exp, sizes, rng)).frequencies
        errors[run] = (
            mean_over_ranges(estimates - sizes / RANGE_REPORTS),
            mean_over_ranges(estimates - shares),
        )
    return errors


def range_error(runs: int, crew: Workers, seed: np.random.SeedSequence) -> list[dict]:
    """Mean squared error of hierarchies over all ranges at D = 256, e^epsilon = 3, scaled to 2^26 reports."""
    published = {2: 0.556, 4: 0.529, 16: 0.691}
    rows = []
    scale = RANGE_REPORTS / 2**26 * 1e6
    for fanout, errors in zip(
        RANGE_CELLS, drawn(crew, range_errors, list(RANGE_CELLS), runs, seed), strict=True
    ):
        exp = experiment("hh", 256, LN_3, fanout=fanout, cells=RANGE_CELLS[fanout])
        channels = [level_channel(level) for level in exp.levels]
        formula = workload_variance(256, fanout, channels, [1] * len(channels), ALL_RANGES)
        rows.append(
            {
                "fanout": fanout,
                "cells": RANGE_CELLS[fanout],
                "reports": RANGE_REPORTS,
                "runs": runs,
                "against_sample_1e-6": errors[:, 0].mean() * scale,
                "against_population_1e-6": errors[:, 1].mean() * scale,
                "monte_carlo_error_1e-6": errors[:, 0].std(ddof=1) / np.sqrt(runs) * scale,
                "formula_1e-6": formula / 2**26 * 1e6,
                "published_1e-6": published[fanout],
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="Errors of estimates.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the runs; writes no file")
    add_worker_options(parser)
    arguments = parser.parse_args()
    quick = arguments.quick
    olh_seed, range_seed = np.random.SeedSequence(SEED).spawn(2)
    console = Console(width=120)
    start = time.perf_counter()
    with chosen_workers(arguments) as crew:
        olh = olh_error(20 if quick else 200, crew, olh_seed)
        hierarchies = range_error(60 if quick else 1000, crew, range_seed)
    table = Table(
        "ε", "D", "g", "runs", "MSE / formula", "± Monte Carlo", title="OLH against its sample, N = 20,000"
    )
    for row in olh:
        numbers = f"{row['mse_over_formula']:.4f}", f"{row['monte_carlo_error']:.4f}"
        table.add_row(f"{row['epsilon']:g}", str(row["domain"]), str(row["g"]), str(row["runs"]), *numbers)
    console.print(table)

    title = "Mean squared error over all ranges, D = 256, e^ε = 3, scaled to N = 2^26, units of 1e-6"
    table = Table(
        "fanout", "against the sample", "± Monte Carlo", "against the population", "published", title=title
    )
    for row in hierarchies:
        keys = ("against_sample_1e-6", "monte_carlo_error_1e-6", "against_population_1e-6", "published_1e-6")
        table.add_row(str(row["fanout"]), *(f"{row[key]:.4f}" for key in keys))
    console.print(table)

    console.print(f"{time.perf_counter() - start:.0f} s")

    if not quick:
        result = {"machine": machine(), "olh_error": olh, "range_error": hierarchies}
        write("accuracy.json", result)


if __name__ == "__main__":
    import accuracy  # by this name workers find its functions

    accuracy.main()
