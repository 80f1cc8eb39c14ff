"""Errors of ranges: the chosen trees compared with published ones.

    nice python benchmarks/ranges.py [--quick] [part ...]

published: mean squared error over all ranges at D = 256 and e^ε = 3, for published trees with equal weights,
Haar wavelets (Cormode, Kulkarni, Srivastava 2019) and the chosen tree; three populations, Monte Carlo and
exact. gains, measured_gains: the chosen tree compared with fanout 4 and equal weights, by formula and by
Monte Carlo.
beside_powers: domains near powers of two.

Writes benchmarks/results/ranges.json.
"""

import time
from collections.abc import Callable, Sequence

import numpy as np
import published
from draws import LN_3, mean_and_error, mean_over_ranges, variance_over_ranges
from draws import shares as population
from results_file import Options, run
from scipy.linalg import hadamard

from hushmote.device.ldp_client import Experiment
from hushmote.server.estimate import estimate
from hushmote.server.mechanisms import choose as oracle
from hushmote.server.mechanisms import mechanism_of
from hushmote.server.mechanisms.channel import level_channel
from hushmote.server.mechanisms.tree.choice import level_channels, workload_variance
from hushmote.server.mechanisms.workload import ALL_RANGES, PREFIXES, Workload
from hushmote.simulator import vectorised

Floats = np.ndarray
PUBLISHED = {2: 0.617, 4: 0.552, 16: 0.686, "Haar": 0.499}
PUBLISHED_CELLS = {2: (2, 4, 5, 5, 5, 5, 5, 5), 4: (4, 5, 5, 5), 16: (5, 5)}
SCALE = 1e6 / 2**26  # converts a variance times the number of reports to units of 1e-6 at 2^26 reports
REPORTS = 1 << 14
DOMAINS = (16, 64, 100, 256, 1000, 1024, 4096)
EPSILONS = (500_000, 1_000_000, 1_100_000, 2_000_000, 4_000_000)


def tree(domain: int, epsilon: int, fanout: int, cells: Sequence[int], **more: object) -> Experiment:
    """Return a tree over `domain` bins, with equal weights by default."""
    return published.experiment("hh", domain, epsilon, fanout=fanout, cells=list(cells), **more)


def chosen(domain: int, epsilon: int) -> Experiment:
    return tree(domain, epsilon, **dict(oracle.choose(domain, epsilon, ALL_RANGES).parameters))


def equal(domain: int, epsilon: int, fanout: int) -> Experiment:
    """Return a tree with equal weights and the best cells."""
    return tree(domain, epsilon, fanout, [channel.g for channel in level_channels(domain, fanout, epsilon)])


def formula(exp: Experiment, workload: Workload) -> float:
    """Return the planner's expected error, times the number of reports."""
    channels = [level_channel(level) for level in exp.levels]
    weights = [level.weight for level in exp.levels]
    return workload_variance(exp.domain, exp.fanout, channels, weights, workload)


# --- Monte Carlo ----------------------------------------------------------------------------------

Fleet = Callable[[Floats, np.random.Generator], Floats]


def fleet_of(exp: Experiment) -> Fleet:
    """Return a function from the number of devices with each value to the estimates from their reports."""
    return lambda sizes, rng: estimate(exp, vectorised.histogram(exp, sizes, rng)).frequencies


def haar(sizes: Floats, rng: np.random.Generator) -> Floats:
    """Return estimates by the Haar wavelet of Cormode, Kulkarni, Srivastava, section 4.6."""
    domain, truth_probability = len(sizes), 1 / (1 + np.exp(-LN_3 / 1e6))
    values = rng.permutation(np.repeat(np.arange(domain), sizes))
    estimates = np.full(domain, 1 / domain)
    # Assign equal groups of devices to the levels, which matches the average of independent draws.
    for level, group in enumerate(np.array_split(values, domain.bit_length() - 1)):
        half = domain >> (level + 1)
        position, sign = group // (2 * half), 1 - 2 * (group // half % 2)
        table = hadamard(1 << level)
        row = rng.integers(0, 1 << level, len(group))
        reported = sign * table[position, row] * np.where(rng.random(len(group)) < truth_probability, 1, -1)
        sums = np.bincount(row, reported, minlength=1 << level)
        difference = table @ sums / ((2 * truth_probability - 1) * len(group))
        estimates += np.repeat(np.stack([difference, -difference], axis=1).ravel() / (2 * half), half)
    return estimates


def measure(fleet: Fleet, shares: Floats, runs: int, rng: np.random.Generator) -> Floats:
    """Return mean squared errors over ranges of 2 or more values, times the number of reports, shape (3,).

    The entries are the errors against the sample and the population, and the first error's standard error.
    """
    errors = np.empty((runs, 2))
    for row in errors:
        sizes = rng.multinomial(REPORTS, shares)
        estimates = fleet(sizes, rng)
        row[:] = [mean_over_ranges(estimates - truth, 2) for truth in (sizes / REPORTS, shares)]
    mean, error = mean_and_error(errors[:, 0])
    return REPORTS * np.array([mean, errors[:, 1].mean(), error])


def exact(exp: Experiment, shares: Floats) -> float:
    """Return the mean variance over all ranges, times the number of reports, from the code law."""
    mechanism = mechanism_of(exp)
    return variance_over_ranges(lambda statistics: mechanism.variances(statistics, shares), exp.domain)


# --- The tables -----------------------------------------------------------------------------------


def over_published(options: Options) -> list[dict]:
    """Return the errors of the published trees and the chosen tree for D = 256, e^ε = 3."""
    runs, rng = 40 if options.quick else 4000, np.random.default_rng(20_261)
    plans = {f"fanout {f}, equal": tree(256, LN_3, f, PUBLISHED_CELLS[f]) for f in (2, 4, 16)}
    plans |= {"Haar wavelet, equal": None, "chosen": chosen(256, LN_3)}
    rows = []
    for name, exp in plans.items():
        row: dict = {"plan": name, "published_1e-6": PUBLISHED["Haar"]}
        if exp is not None:
            row |= {"fanout": exp.fanout, "cells": [level.g for level in exp.levels]}
            row |= {"weights": [level.weight for level in exp.levels]}
            row["published_1e-6"] = None if name == "chosen" else PUBLISHED[exp.fanout]
            row["formula_1e-6"] = formula(exp, ALL_RANGES) * SCALE
        for kind in ("even", "skewed", "concentrated"):
            shares = population("uniform" if kind == "even" else kind, 256)
            count = runs if name == "chosen" else runs // 2 if kind == "even" else runs // 4
            got = measure(haar if exp is None else fleet_of(exp), shares, count, rng) * SCALE
            row[kind] = {"against_sample_1e-6": got[0], "runs": count, "reports": REPORTS}
            row[kind] |= {"monte_carlo_error_1e-6": got[2], "against_population_1e-6": got[1]}
            if exp is not None:
                row[kind]["exact_1e-6"] = exact(exp, shares) * SCALE
        rows.append(row)
    return rows


def gains(options: Options) -> list[dict]:
    """Return the chosen tree's variance relative to that of fanout 4 with equal weights, by formula."""
    rows = []
    for workload in (ALL_RANGES, PREFIXES):
        for domain in DOMAINS[: 3 if options.quick else None]:
            for epsilon in EPSILONS:
                start = time.perf_counter()
                choice = oracle.choose(domain, epsilon, workload)
                seconds = time.perf_counter() - start
                other = formula(equal(domain, epsilon, 4), workload)
                row = {"workload": workload.kind, "domain": domain, "epsilon": epsilon / 1e6}
                row |= {"fanout": None, "cells": None, "weights": None} | dict(choice.parameters)
                row |= {"variance": choice.variance, "of_fanout_4": choice.variance / other}
                rows.append(row | {"seconds": seconds})
    return rows


def measured_gains(options: Options) -> list[dict]:
    runs, rng, rows = 20 if options.quick else 1600, np.random.default_rng(20_262), []
    for domain, epsilon in ((100, 1_000_000), (64, 4_000_000), (1000, 1_000_000)):
        shares, pair = population("uniform", domain), (chosen(domain, epsilon), equal(domain, epsilon, 4))
        got = np.array([measure(fleet_of(exp), shares, runs, rng) for exp in pair])
        ratio = float(got[0, 1] / got[1, 1])
        off = ratio * float(np.hypot(*(got[:, 2] / got[:, 1])))
        row = {"domain": domain, "epsilon": epsilon / 1e6, "measured": ratio, "monte_carlo_error": off}
        row |= {"formula": formula(pair[0], ALL_RANGES) / formula(pair[1], ALL_RANGES), "runs": runs}
        rows.append(row | {"exact": exact(pair[0], shares) / exact(pair[1], shares)})
    return rows


def beside_powers(options: Options) -> list[dict]:
    rows = []
    for domain in (200, 240, 255, 256, 257, 272, 300, 400, 511, 512, 513):
        row = {"domain": domain, "chosen": oracle.choose(domain, LN_3, ALL_RANGES).variance}
        rows.append(row | {f"fanout_{f}": formula(equal(domain, LN_3, f), ALL_RANGES) for f in (2, 4, 16)})
    return rows


if __name__ == "__main__":
    parts = (gains, measured_gains, beside_powers)
    run(__doc__, "ranges.json", {"published": over_published} | {p.__name__: p for p in parts})
