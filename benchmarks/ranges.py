"""How far ranges are off: the chosen trees against published ones, and what a second pass would gain.

    nice python benchmarks/ranges.py [--quick] [part ...]

published: mean squared error over all ranges, D = 256, e^ε = 3: published trees with equal weights, Haar
wavelets (Cormode, Kulkarni, Srivastava 2019) and the chosen tree, three populations, Monte Carlo and exact.
gains, measured_gains: the chosen tree over fanout 4 with equal weights, by formula, and by Monte Carlo.
beside_powers, over_domains: domains beside powers of two.
second_pass, cross_fitted: what re-weighting the least squares by what a first pass found gains; exact but for
the first pass, and for real.

Writes benchmarks/results/ranges.json and ranges.png.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import draws
import numpy as np
import published
from draws import LN_3, mean_and_error, mean_over_ranges
from fisher import ordinary, scored, true_variances
from results_file import RESULTS, run
from scipy.linalg import hadamard

from hushmote.device.ldp_client import Experiment, Level
from hushmote.server.estimate import estimate
from hushmote.server.estimate.fisher import fisher
from hushmote.server.mechanisms import choose as oracle
from hushmote.server.mechanisms.channel import Channel, level_channel
from hushmote.server.mechanisms.decoded import simplex
from hushmote.server.mechanisms.hashing import butterfly
from hushmote.server.mechanisms.tree.choice import level_channels, workload_variance
from hushmote.server.mechanisms.workload import ALL_RANGES, PREFIXES, Workload

Floats = np.ndarray
PUBLISHED = {2: 0.617, 4: 0.552, 16: 0.686, "Haar": 0.499}
PUBLISHED_CELLS = {2: (2, 4, 5, 5, 5, 5, 5, 5), 4: (4, 5, 5, 5), 16: (5, 5)}
SCALE = 1e6 / 2**26  # of a variance times reports: units of 1e-6 at 2^26 reports
REPORTS = 1 << 14
DOMAINS = (16, 64, 100, 256, 1000, 1024, 4096)
EPSILONS = (500_000, 1_000_000, 1_100_000, 2_000_000, 4_000_000)


def population(name: str, domain: int) -> Floats:
    """Shares; a bell is a normal distribution whose standard deviation is 6 % of the range."""
    bell = np.exp(-0.5 * ((np.arange(domain) / domain - 0.55) / 0.06) ** 2)
    names = {"even": "uniform"}
    shares = bell if name == "bell" else draws.POPULATIONS[names.get(name, name)](domain)
    return shares / shares.sum()


def tree(domain: int, epsilon: int, fanout: int, cells: Sequence[int], **more: object) -> Experiment:
    """A tree over domain bins, with equal weights where there are none."""
    return published.experiment("hh", domain, epsilon, fanout=fanout, cells=list(cells), **more)


def chosen(domain: int, epsilon: int) -> Experiment:
    return tree(domain, epsilon, **dict(oracle.choose(domain, epsilon, ALL_RANGES).parameters))


def equal(domain: int, epsilon: int, fanout: int) -> Experiment:
    """A tree with equal weights and the best cells."""
    return tree(domain, epsilon, fanout, [channel.g for channel in level_channels(domain, fanout, epsilon)])


def formula(exp: Experiment, workload: Workload) -> float:
    """What the planner expects, times reports."""
    channels = [level_channel(level) for level in exp.levels]
    weights = [level.weight for level in exp.levels]
    return workload_variance(exp.domain, exp.fanout, channels, weights, workload)


# --- Monte Carlo ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """Means over runs of the mean squared error over all ranges, times reports, and a standard error."""

    sample: float
    population: float
    error: float

    @staticmethod
    def of(errors: Floats, reports: int) -> "Measured":
        mean, error = mean_and_error(errors[:, 0])
        return Measured(mean * reports, errors[:, 1].mean() * reports, error * reports)


def squares(estimates: Floats, sizes: Floats, shares: Floats) -> tuple[float, float]:
    """Against the sample and against the population, over all ranges of two and more values."""
    both = (sizes / sizes.sum(), shares)
    one, other = (mean_over_ranges(estimates - truth, 2) for truth in both)
    return one, other


def measure(exp: Experiment, shares: Floats, runs: int, rng: np.random.Generator) -> Measured:
    errors = np.empty((runs, 2))
    for row in errors:
        sizes = rng.multinomial(REPORTS, shares)
        e = estimate(exp, draws.vectorised.histogram(exp, sizes, rng))
        row[:] = squares(e.frequencies, sizes, shares)
    return Measured.of(errors, REPORTS)


def measure_haar(shares: np.ndarray, epsilon: float, runs: int, rng: np.random.Generator) -> Measured:
    """The Haar wavelet of Cormode, Kulkarni, Srivastava, section 4.6: equal levels, Hadamard response."""
    domain = len(shares)
    height = domain.bit_length() - 1
    kept = 1 / (1 + np.exp(-epsilon))
    errors = np.empty((runs, 2))
    for row in errors:
        sizes = rng.multinomial(REPORTS, shares)
        values = rng.permutation(np.repeat(np.arange(domain), sizes))
        estimates = np.full(domain, 1 / domain)
        # Whole groups of devices, as drawing levels independently does on average.
        for level, here in enumerate(np.array_split(values, height)):
            half = domain >> (level + 1)
            position, sign = here // (2 * half), 1 - 2 * (here // half % 2)
            table = hadamard(1 << level)
            row = rng.integers(0, 1 << level, len(here))
            told = sign * table[position, row] * np.where(rng.random(len(here)) < kept, 1, -1)
            sums = np.bincount(row, told, minlength=1 << level)
            difference = table @ sums / ((2 * kept - 1) * len(here))
            estimates += np.repeat(np.stack([difference, -difference], axis=1).ravel() / (2 * half), half)
        row[:] = squares(estimates, sizes, shares)
    return Measured.of(errors, REPORTS)


# --- Exactly, from every covariance ---------------------------------------------------------------


@dataclass(frozen=True)
class LevelModel:
    """A level that is drawn: which class of codes supports which node, how likely classes are, its share."""

    level: Level
    share: float

    @cached_property
    def channel(self) -> Channel:
        return level_channel(self.level)

    def nodes(self, shares: Floats) -> Floats:
        return np.add.reduceat(shares, np.arange(0, len(shares), self.level.width))

    def covariance(self, shares: Floats) -> Floats:
        """Of the nodes' estimates, times reports."""
        if self.level.t:
            supported = butterfly.class_weights(self.level, np.eye(self.level.domain))
            seeds = len(supported) / self.level.g
        else:
            supported, seeds = np.eye(self.level.domain), 1
        c = self.channel
        likely = (c.lie + (c.p - c.lie) * supported @ self.nodes(shares)) / seeds
        mean = likely @ supported
        both = (supported * likely[:, None]).T @ supported
        return (both - np.outer(mean, mean)) / (c.p - c.q) ** 2 / self.share

    def sums(self, domain: int) -> Floats:
        """Nodes as sums of values, shape (nodes, domain)."""
        return (np.arange(domain) // self.level.width == np.arange(self.level.domain)[:, None]).astype(float)


def models(exp: Experiment) -> list[LevelModel]:
    return [LevelModel(level, level.weight / exp.weight_sum) for level in exp.levels if level.weight]


def least_squares(exp: Experiment, variances: Callable[[LevelModel], Floats | float]) -> list[Floats]:
    """Least squares with these variances of nodes, the sum of all values known: from nodes to values."""
    information, sides = np.zeros((exp.domain, exp.domain)), []
    for model in models(exp):
        side = model.sums(exp.domain).T * model.share / variances(model)
        information += side @ model.sums(exp.domain)
        sides.append(side)
    free = np.eye(exp.domain)[:, 1:] - 1 / exp.domain
    inverse = free @ np.linalg.solve(free.T @ information @ free, free.T)
    return [inverse @ side for side in sides]


def error(exp: Experiment, shares: Floats, variances: Callable[[LevelModel], Floats | float]) -> float:
    """Mean variance over all ranges, times reports, of least squares that assumes these variances."""
    i = np.arange(exp.domain)
    covered = (np.minimum.outer(i, i) + 1) * (exp.domain - np.maximum.outer(i, i))
    gram = covered / (exp.domain * (exp.domain + 1) / 2)
    pairs = zip(least_squares(exp, variances), models(exp), strict=True)
    return sum(float(((gram @ m) * (m @ model.covariance(shares))).sum()) for m, model in pairs)


def assumed(model: LevelModel) -> float:
    """What the estimator takes."""
    return model.channel.assumed


def rare(model: LevelModel) -> float:
    return model.channel.variance


# --- The tables -----------------------------------------------------------------------------------


def over_published(options: argparse.Namespace) -> list[dict]:
    """D = 256, e^ε = 3: errors of the published trees and of the chosen one."""
    runs, rng = 40 if options.quick else 4000, np.random.default_rng(20_261)
    plans = {f"fanout {f}, equal": tree(256, LN_3, f, PUBLISHED_CELLS[f]) for f in (2, 4, 16)}
    plans |= {"Haar wavelet, equal": None, "chosen": chosen(256, LN_3)}
    rows = []
    for name, exp in plans.items():
        if exp is None:
            row: dict = {"plan": name, "published_1e-6": PUBLISHED["Haar"]}
        else:
            row = {"plan": name, "fanout": exp.fanout, "cells": [level.g for level in exp.levels]}
            row |= {"weights": [level.weight for level in exp.levels]}
            row["published_1e-6"] = None if name == "chosen" else PUBLISHED[exp.fanout]
            row["formula_1e-6"] = formula(exp, ALL_RANGES) * SCALE
        for of in ("even", "skewed", "concentrated"):
            shares = population(of, 256)
            here = runs if name == "chosen" else runs // 2 if of == "even" else runs // 4
            if exp is None:
                got = measure_haar(shares, LN_3 / 1e6, here, rng)
            else:
                got = measure(exp, shares, here, rng)
            row[of] = {"against_sample_1e-6": got.sample * SCALE, "runs": here, "reports": REPORTS}
            row[of] |= {"monte_carlo_error_1e-6": got.error * SCALE}
            row[of] |= {"against_population_1e-6": got.population * SCALE}
            if exp is not None:
                row[of] |= {"exact_1e-6": error(exp, shares, assumed) * SCALE}
        rows.append(row)
    return rows


def gains(options: argparse.Namespace) -> list[dict]:
    """Variance of the chosen tree over that of fanout 4 with equal weights, by formula."""
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


def measured_gains(options: argparse.Namespace) -> list[dict]:
    runs, rng, rows = 20 if options.quick else 1600, np.random.default_rng(20_262), []
    for domain, epsilon in ((100, 1_000_000), (64, 4_000_000), (1000, 1_000_000)):
        shares = population("even", domain)
        pair = chosen(domain, epsilon), equal(domain, epsilon, 4)
        ours, four = (measure(exp, shares, runs, rng) for exp in pair)
        ratio = ours.population / four.population
        off = ratio * np.hypot(ours.error / ours.population, four.error / four.population)
        row = {"domain": domain, "epsilon": epsilon / 1e6, "measured": ratio, "monte_carlo_error": off}
        row |= {"formula": formula(pair[0], ALL_RANGES) / formula(pair[1], ALL_RANGES), "runs": runs}
        for name, variances in (("exact", assumed), ("exact_rare", rare)):
            ends = [error(exp, shares, variances) for exp in pair]
            row[name] = ends[0] / ends[1]
        rows.append(row)
    return rows


def beside_powers(options: argparse.Namespace) -> list[dict]:
    rows = []
    for domain in (200, 240, 255, 256, 257, 272, 300, 400, 511, 512, 513):
        row = {"domain": domain, "chosen": oracle.choose(domain, LN_3, ALL_RANGES).variance}
        rows.append(row | {f"fanout_{f}": formula(equal(domain, LN_3, f), ALL_RANGES) for f in (2, 4, 16)})
    return rows


def second_pass(options: argparse.Namespace) -> list[dict]:
    """Variance over that of the weights in use, of weights from a first pass over half of the reports."""
    many, rng, rows = 1 if options.quick else 2, np.random.default_rng(20_263), []
    for epsilon in (2_000_000,) if options.quick else (500_000, 1_000_000, 2_000_000, 4_000_000):
        exp = chosen(256, epsilon)
        for name in ("even", "skewed", "bell", "concentrated"):
            shares = population(name, 256)
            base = error(exp, shares, assumed)
            row = {"epsilon": epsilon / 1e6, "population": name, "rare": error(exp, shares, rare) / base}
            for reports in (10_000, 1_000_000):
                ratios = []
                for _ in range(many):
                    half = draws.counts(exp, shares, reports // 2, rng)
                    first, used = simplex(estimate(exp, half).frequencies), ordinary(exp, half)

                    def by_node(model: LevelModel, first: Floats = first) -> Floats:
                        return np.array([model.channel.node_variance(x) for x in model.nodes(first)])

                    least = np.maximum(first, 1e-12)
                    codes = true_variances(scored(used, least), shares)[1] / true_variances(used, shares)[1]
                    ratios.append((error(exp, shares, by_node) / base, codes))
                row[f"nodes_{reports}"], row[f"codes_{reports}"] = np.mean(ratios, axis=0).tolist()
            best = true_variances(scored(used, np.maximum(shares, 1e-12)), shares)[1]
            rows.append(row | {"bound": best / true_variances(used, shares)[1]})
    return rows


def cross_fitted(options: argparse.Namespace) -> dict:
    """The second pass for real: each half of the reports is weighed by what the other half found."""
    runs, rng = 4 if options.quick else 100, np.random.default_rng(20_264)
    exp, shares, reports = chosen(256, 2_000_000), population("skewed", 256), 100_000
    off = np.empty((runs, 2, 256))
    for one in off:
        histogram = draws.counts(exp, shares, reports, rng)
        one[:] = [way(exp, histogram).frequencies - shares for way in (estimate, fisher)]
    errors = np.array([[mean_over_ranges(x, 2) for x in one] for one in off])
    means = errors.mean(axis=0)
    ratio = means[1] / means[0]
    _, uncertain = mean_and_error((errors[:, 1] - ratio * errors[:, 0]) / means[0])
    bias = [mean_over_ranges(m, 2) * runs / mean for m, mean in zip(off.mean(axis=0), means, strict=True)]
    result = {"epsilon": 2.0, "population": "skewed", "reports": reports, "runs": runs, "ratio": ratio}
    return result | {"monte_carlo_error": uncertain, "squared_mean_error_over_variance_of_it": bias}


def over_domains(options: argparse.Namespace) -> dict[str, list]:
    """Variance times reports over all ranges at ε = 1, for the plot."""
    domains = sorted({round(16 * 2 ** (i / 8)) for i in range(65)} | {4**i + 1 for i in range(2, 7)})
    domains = domains[:: 10 if options.quick else 1]
    result: dict[str, list] = {"domain": domains}
    result["chosen"] = [oracle.choose(d, 1_000_000, ALL_RANGES).variance for d in domains]
    for fanout in (2, 4, 16):
        result[f"fanout {fanout}, equal"] = [
            formula(equal(d, 1_000_000, fanout), ALL_RANGES) for d in domains
        ]
    return result


def plot(domains: dict[str, list], table: list[dict]) -> None:
    from hushmote.server.answers.figure import COLOURS, figure, style

    with figure(RESULTS / "ranges.png", columns=2) as (_, (left, right)):
        names = [row["plan"].replace(", equal", ",\nequal") for row in table]
        got = [row["even"]["against_sample_1e-6"] for row in table]
        bars = left.bar(names, got, color=[COLOURS[4]] * (len(got) - 1) + [COLOURS[0]], width=0.62)
        left.bar_label(bars, [f"{x:.3f}" for x in got], padding=3, fontsize=9)
        best = PUBLISHED["Haar"]
        left.axhline(best, color=COLOURS[1], linewidth=1.2, linestyle="--")
        left.text(4, best + 0.007, "best published,\n0.499", color=COLOURS[1], fontsize=9, ha="center")
        style(
            left,
            "Mean squared error over all ranges",
            "256 values, e^ε = 3, even population, 1e-6 at 2^26 reports",
            ylabel="1e-6",
        )
        left.tick_params(axis="x", labelsize=8.5)
        left.grid(axis="x", visible=False)
        lines = {"fanout 16, equal": 2, "fanout 4, equal": 1, "fanout 2, equal": 3, "chosen": 0}
        for name, colour in lines.items():
            width = 2.4 if name == "chosen" else 1.3
            right.plot(domains["domain"], domains[name], color=COLOURS[colour], label=name, linewidth=width)
        right.set_xscale("log", base=2)
        ticks = [16, 64, 256, 1024, 4096]
        right.set_xticks(ticks, [str(d) for d in ticks])
        right.minorticks_off()
        right.set_xlim(14, 4900)
        right.set_ylim(0)
        right.legend(frameon=False, loc="upper left")
        style(
            right,
            "Any number of values",
            "mean variance over all ranges, times reports, ε = 1, by formula",
            xlabel="values",
        )


if __name__ == "__main__":
    parts = (gains, measured_gains, beside_powers, over_domains, second_pass, cross_fitted)
    found = run(__doc__, "ranges.json", {"published": over_published} | {p.__name__: p for p in parts})
    if {"published", "over_domains"} <= set(found) and "--quick" not in sys.argv:
        plot(found["over_domains"], found["published"])
