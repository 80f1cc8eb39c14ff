"""How far ranges are off: the chosen trees against published ones, and what a second pass would gain.

    nice python benchmarks/ranges.py [--quick]

1. Mean squared error over all ranges, D = 256, e^ε = 3: published trees with equal weights, Haar wavelets
   (Cormode, Kulkarni, Srivastava 2019) and the chosen tree, three populations, Monte Carlo and exact.
2. Gain of the chosen tree over fanout 4 with equal weights, by formula, and by Monte Carlo for a few.
3. Domains beside powers of two.
4. What re-weighting the least squares by what a first pass found would gain; exact but for the first pass.

Prints tables and writes benchmarks/results/ranges.json and ranges.png.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from accuracy import LN_3, concentrated, mean_over_ranges, skewed
from results_file import RESULTS, machine, write
from rich.console import Console
from rich.table import Table
from scipy.linalg import hadamard

from hushmote.device.ldp_client import Experiment, Level
from hushmote.server.estimate import estimate
from hushmote.server.mechanisms import butterfly
from hushmote.server.mechanisms import choose as oracle
from hushmote.server.mechanisms import tree as hierarchy
from hushmote.server.mechanisms.channel import Channel, level_channel
from hushmote.server.mechanisms.decoded import simplex
from hushmote.server.mechanisms.tree_choice import level_channels, workload_variance
from hushmote.server.mechanisms.workload import ALL_RANGES, PREFIXES, Workload
from hushmote.simulator import vectorised

Floats = np.ndarray
PUBLISHED = {2: 0.617, 4: 0.552, 16: 0.686, "Haar": 0.499}
PUBLISHED_CELLS = {2: (2, 4, 5, 5, 5, 5, 5, 5), 4: (4, 5, 5, 5), 16: (5, 5)}
SCALE = 1e6 / 2**26  # of a variance times reports: units of 1e-6 at 2^26 reports
REPORTS = 1 << 14


def bell(domain: int) -> np.ndarray:
    """A normal distribution whose standard deviation is 6 % of the range."""
    shares = np.exp(-0.5 * ((np.arange(domain) / domain - 0.55) / 0.06) ** 2)
    return shares / shares.sum()


def even(domain: int) -> np.ndarray:
    return np.full(domain, 1 / domain)


POPULATIONS = {"even": even, "skewed": skewed, "bell": bell, "concentrated": concentrated}


def experiment(
    domain: int, epsilon: int, fanout: int, cells: Sequence[int], weights: Sequence[int] | None
) -> Experiment:
    """A tree over domain bins."""
    fields = {"v": 1, "name": "bench", "type": "number", "low": 0, "high": 1_000_000, "bins": domain}
    fields |= {"mechanism": "hh", "fanout": fanout, "cells": list(cells), "epsilon": epsilon}
    fields |= {"weights": list(weights)} if weights else {}
    fields |= {"budget": {"rule": "unlimited"}, "window": "all"}
    return Experiment.parse(json.dumps(fields).encode())


def chosen(domain: int, epsilon: int, workload: Workload = ALL_RANGES) -> Experiment:
    choice = oracle.choose(domain, epsilon, workload)
    return experiment(domain, epsilon, **dict(choice.parameters))


def equal(domain: int, epsilon: int, fanout: int) -> Experiment:
    """A tree with equal weights and the best cells."""
    cells = [channel.g for channel in level_channels(domain, fanout, epsilon)]
    return experiment(domain, epsilon, fanout, cells, None)


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
    def of(errors: np.ndarray, reports: int) -> "Measured":
        mean = errors.mean(axis=0) * reports
        return Measured(mean[0], mean[1], errors[:, 0].std(ddof=1) / np.sqrt(len(errors)) * reports)


def measure(exp: Experiment, shares: np.ndarray, runs: int, rng: np.random.Generator) -> Measured:
    errors = np.empty((runs, 2))
    for run in range(runs):
        sizes = rng.multinomial(REPORTS, shares)
        estimates = estimate(exp, vectorised.histogram(exp, sizes, rng)).frequencies
        errors[run] = mean_over_ranges(estimates - sizes / REPORTS), mean_over_ranges(estimates - shares)
    return Measured.of(errors, REPORTS)


def measure_haar(shares: np.ndarray, epsilon: float, runs: int, rng: np.random.Generator) -> Measured:
    """The Haar wavelet of Cormode, Kulkarni, Srivastava, section 4.6: equal levels, Hadamard response."""
    domain = len(shares)
    height = domain.bit_length() - 1
    kept = 1 / (1 + np.exp(-epsilon))
    errors = np.empty((runs, 2))
    for run in range(runs):
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
        errors[run] = mean_over_ranges(estimates - sizes / REPORTS), mean_over_ranges(estimates - shares)
    return Measured.of(errors, REPORTS)


# --- Exactly, from every covariance ---------------------------------------------------------------


def all_ranges_gram(domain: int) -> np.ndarray:
    """Mean over all ranges of the products of their indicators, shape (domain, domain)."""
    i = np.arange(domain)
    covered = (np.minimum.outer(i, i) + 1) * (domain - np.maximum.outer(i, i))
    return covered / (domain * (domain + 1) / 2)


@dataclass(frozen=True)
class LevelModel:
    """A level that is drawn: which class of codes supports which node, how likely classes are, its share."""

    level: Level
    share: float

    @cached_property
    def channel(self) -> Channel:
        return level_channel(self.level)

    @cached_property
    def supported(self) -> np.ndarray:
        """Shape (classes, nodes), 0 or 1, in decode's order of classes."""
        if not self.level.t:
            return np.eye(self.level.domain)
        return butterfly.class_weights(self.level, np.eye(self.level.domain))

    def likely(self, nodes: np.ndarray) -> np.ndarray:
        """Probability of each class for a population with these shares of the nodes."""
        seeds = len(self.supported) / self.level.g if self.level.t else 1
        channel = self.channel
        return (channel.lie + (channel.p - channel.lie) * self.supported @ nodes) / seeds

    def nodes(self, shares: np.ndarray) -> np.ndarray:
        return np.add.reduceat(shares, np.arange(0, len(shares), self.level.width))

    def covariance(self, shares: np.ndarray) -> np.ndarray:
        """Of the nodes' estimates, times reports."""
        likely, scale = self.likely(self.nodes(shares)), self.channel.p - self.channel.q
        mean = likely @ self.supported
        both = (self.supported * likely[:, None]).T @ self.supported
        return (both - np.outer(mean, mean)) / scale**2 / self.share

    def sums(self, domain: int) -> np.ndarray:
        """Nodes as sums of values, shape (nodes, domain)."""
        return (np.arange(domain) // self.level.width == np.arange(self.level.domain)[:, None]).astype(float)


def models(exp: Experiment) -> list[LevelModel]:
    return [LevelModel(level, level.weight / exp.weight_sum) for level in exp.levels if level.weight]


def tree_maps(exp: Experiment, variances: Sequence[float]) -> list[np.ndarray]:
    """What least squares makes of each drawn level's estimates, shape (domain, nodes) each."""
    weights = [level.weight / exp.weight_sum for level in exp.levels]
    scaled = [v / w if w else np.inf for v, w in zip(variances, weights, strict=True)]
    tree = hierarchy.tree(exp.domain, exp.fanout, scaled)
    maps = []
    for number, level in enumerate(exp.levels):
        if level.weight:
            parts: list[np.ndarray | None] = [None] * len(exp.levels)
            parts[number] = np.eye(level.domain)
            maps.append(hierarchy.solve(tree, parts, root=0.0)[-1])
    return maps


def map_error(maps: Sequence[np.ndarray], covariances: Sequence[np.ndarray]) -> float:
    """Mean variance over all ranges, times reports."""
    gram = all_ranges_gram(len(maps[0]))
    return sum(float(((gram @ m) * (m @ c)).sum()) for m, c in zip(maps, covariances, strict=True))


def constrained_inverse(information: np.ndarray) -> np.ndarray:
    """Covariance of the frequencies where their sum is known."""
    domain = len(information)
    free = np.eye(domain)[:, 1:] - 1 / domain
    return free @ np.linalg.solve(free.T @ information @ free, free.T)


def by_node_variances(exp: Experiment, assumed: np.ndarray) -> list[np.ndarray]:
    """Least squares with a variance for each node, as common as the shares assumed say."""
    information, sides = np.zeros((exp.domain, exp.domain)), []
    for model in models(exp):
        variances = np.array([model.channel.node_variance(x) for x in model.nodes(assumed)]) / model.share
        side = model.sums(exp.domain).T / variances
        information += side @ model.sums(exp.domain)
        sides.append(side)
    inverse = constrained_inverse(information)
    return [inverse @ side for side in sides]


@dataclass(frozen=True)
class CodeFit:
    """Least squares over codes, each weighed by how likely the shares assumed say it is.

    That is a step of Fisher scoring, and no unbiased estimate does better where they are right. maps: per
    level, from the shares of its classes of codes to the frequencies, shape (domain, classes); the constant.
    """

    maps: list[np.ndarray]
    constant: np.ndarray

    @staticmethod
    def of(exp: Experiment, assumed: np.ndarray) -> "CodeFit":
        domain = exp.domain
        information, sides, base = np.zeros((domain, domain)), [], np.zeros(domain)
        for model in models(exp):
            seeds = len(model.supported) / model.level.g if model.level.t else 1
            slope = (model.channel.p - model.channel.lie) / seeds * model.supported @ model.sums(domain)
            side = model.share * slope.T / model.likely(model.nodes(assumed))
            information += side @ slope
            base += side.sum(axis=1) * model.channel.lie / seeds
            sides.append(side)
        inverse = constrained_inverse(information)
        start = np.full(domain, 1 / domain)
        constant = start - inverse @ (information @ start) - inverse @ base
        return CodeFit([inverse @ side for side in sides], constant)

    def error(self, exp: Experiment, shares: np.ndarray) -> float:
        """Mean variance over all ranges times reports for a population that may not be the one assumed."""
        covariances = []
        for model in models(exp):
            likely = model.likely(model.nodes(shares))
            covariances.append((np.diag(likely) - np.outer(likely, likely)) / model.share)
        return map_error(self.maps, covariances)

    def frequencies(self, exp: Experiment, counts: np.ndarray) -> np.ndarray:
        estimates = self.constant.copy()
        for model, m in zip(models(exp), self.maps, strict=True):
            level = model.level
            classes = butterfly.collapse(level, counts[level.offset : level.offset + level.code_count])
            estimates += m @ (classes / classes.sum())
        return estimates


def bound(exp: Experiment, shares: np.ndarray) -> float:
    """The least mean variance over all ranges, times reports, of any unbiased estimate: Cramér and Rao's."""
    return CodeFit.of(exp, shares).error(exp, shares)


# --- The tables -----------------------------------------------------------------------------------


def over_published(runs: int, rng: np.random.Generator) -> list[dict]:
    """D = 256, e^ε = 3: errors of the published trees and of the chosen one."""
    plans = {f"fanout {f}, equal": experiment(256, LN_3, f, PUBLISHED_CELLS[f], None) for f in (2, 4, 16)}
    plans["chosen"] = chosen(256, LN_3)
    rows = []
    names = ("even", "skewed", "concentrated")
    for name, exp in plans.items():
        row = {"plan": name, "fanout": exp.fanout, "cells": [level.g for level in exp.levels]}
        row |= {
            "weights": [level.weight for level in exp.levels],
            "published_1e-6": PUBLISHED.get(exp.fanout),
        }
        if name == "chosen":
            row["published_1e-6"] = None
        row["formula_1e-6"] = formula(exp, ALL_RANGES) * SCALE
        for population in names:
            shares = POPULATIONS[population](256)
            here = runs if name == "chosen" else runs // 2 if population == "even" else runs // 4
            got = measure(exp, shares, here, rng)
            known = exact(exp, shares, lambda c: c.assumed) * SCALE
            row[population] = {"against_sample_1e-6": got.sample * SCALE, "runs": here, "reports": REPORTS}
            row[population] |= {"monte_carlo_error_1e-6": got.error * SCALE}
            row[population] |= {
                "against_population_1e-6": got.population * SCALE,
                "exact_1e-6": known,
            }
        rows.append(row)
    haar = {"plan": "Haar wavelet, equal", "published_1e-6": PUBLISHED["Haar"]}
    for population in names:
        here = runs // 2 if population == "even" else runs // 4
        got = measure_haar(POPULATIONS[population](256), LN_3 / 1e6, here, rng)
        haar[population] = {"against_sample_1e-6": got.sample * SCALE, "runs": here, "reports": REPORTS}
        haar[population] |= {"monte_carlo_error_1e-6": got.error * SCALE}
        haar[population] |= {"against_population_1e-6": got.population * SCALE}
    return [*rows[:3], haar, rows[3]]


DOMAINS = (16, 64, 100, 256, 1000, 1024, 4096)
EPSILONS = (500_000, 1_000_000, 1_100_000, 2_000_000, 4_000_000)


def gains() -> list[dict]:
    """Variance of the chosen tree over that of fanout 4 with equal weights, by formula."""
    rows = []
    for workload in (ALL_RANGES, PREFIXES):
        for domain in DOMAINS:
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


def exact(exp: Experiment, shares: np.ndarray, assumed: Callable[[Channel], float]) -> float:
    """Mean variance over all ranges, times reports, of least squares that assumes these node variances."""
    maps = tree_maps(exp, [assumed(level_channel(level)) for level in exp.levels])
    return map_error(maps, [model.covariance(shares) for model in models(exp)])


def measured_gains(runs: int, rng: np.random.Generator) -> list[dict]:
    rows = []
    for domain, epsilon in ((100, 1_000_000), (64, 4_000_000), (1000, 1_000_000)):
        shares = even(domain)
        pair = chosen(domain, epsilon), equal(domain, epsilon, 4)
        ours, four = (measure(exp, shares, runs, rng) for exp in pair)
        ratio = ours.population / four.population
        error = ratio * np.hypot(ours.error / ours.population, four.error / four.population)
        row = {"domain": domain, "epsilon": epsilon / 1e6, "measured": ratio, "monte_carlo_error": error}
        row |= {"formula": formula(pair[0], ALL_RANGES) / formula(pair[1], ALL_RANGES), "runs": runs}
        for name, assumed in (("exact", lambda c: c.assumed), ("exact_rare", lambda c: c.variance)):
            ends = [exact(exp, shares, assumed) for exp in pair]
            row[name] = ends[0] / ends[1]
        rows.append(row)
    return rows


def beside_powers() -> list[dict]:
    rows = []
    for domain in (200, 240, 255, 256, 257, 272, 300, 400, 511, 512, 513):
        row = {"domain": domain, "chosen": oracle.choose(domain, LN_3, ALL_RANGES).variance}
        rows.append(row | {f"fanout_{f}": formula(equal(domain, LN_3, f), ALL_RANGES) for f in (2, 4, 16)})
    return rows


def second_pass(draws: int, rng: np.random.Generator) -> list[dict]:
    """Variance over that of the weights in use, of weights from a first pass over half of the reports."""
    rows = []
    for epsilon in (500_000, 1_000_000, 2_000_000, 4_000_000):
        exp = chosen(256, epsilon)
        channels = [level_channel(level) for level in exp.levels]
        used = tree_maps(exp, [c.assumed for c in channels])
        rare = tree_maps(exp, [c.variance for c in channels])
        for name, make in POPULATIONS.items():
            shares = make(256)
            covariances = [model.covariance(shares) for model in models(exp)]
            base = map_error(used, covariances)
            row = {"epsilon": epsilon / 1e6, "population": name, "rare": map_error(rare, covariances) / base}
            for reports in (10_000, 1_000_000):
                ratios = np.empty((draws, 2))
                for draw in range(draws):
                    counts = vectorised.histogram(exp, rng.multinomial(reports // 2, shares), rng)
                    first = simplex(estimate(exp, counts).frequencies)
                    ratios[draw, 0] = map_error(by_node_variances(exp, first), covariances) / base
                    ratios[draw, 1] = CodeFit.of(exp, first).error(exp, shares) / base
                row[f"nodes_{reports}"], row[f"codes_{reports}"] = ratios.mean(axis=0).tolist()
            rows.append(row | {"bound": bound(exp, shares) / base})
    return rows


def cross_fitted(runs: int, rng: np.random.Generator) -> dict:
    """The second pass for real: each half of the reports is weighed by what the other half found."""
    exp, shares, reports = chosen(256, 2_000_000), skewed(256), 100_000
    errors, mean = np.empty((runs, 2)), np.zeros((2, 256))
    for run in range(runs):
        halves = [vectorised.histogram(exp, rng.multinomial(reports // 2, shares), rng) for _ in range(2)]
        first = [simplex(estimate(exp, half).frequencies) for half in halves]
        fits = [CodeFit.of(exp, f) for f in first]
        twice = (fits[1].frequencies(exp, halves[0]) + fits[0].frequencies(exp, halves[1])) / 2
        once = estimate(exp, halves[0] + halves[1]).frequencies
        errors[run] = mean_over_ranges(once - shares), mean_over_ranges(twice - shares)
        mean += once - shares, twice - shares
    ratio = errors[:, 1].mean() / errors[:, 0].mean()
    deviation = np.std(errors[:, 1] - ratio * errors[:, 0], ddof=1) / np.sqrt(runs) / errors[:, 0].mean()
    bias = [mean_over_ranges(m / runs) * runs / errors[:, i].mean() for i, m in enumerate(mean)]
    result = {"epsilon": 2.0, "population": "skewed", "reports": reports, "runs": runs, "ratio": ratio}
    return result | {"monte_carlo_error": deviation, "squared_mean_error_over_variance_of_it": bias}


def over_domains() -> dict[str, list]:
    """Variance times reports over all ranges at ε = 1, for the plot."""
    domains = sorted({round(16 * 2 ** (i / 8)) for i in range(65)} | {4**i + 1 for i in range(2, 7)})
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


def show(console: Console, result: dict) -> None:
    title = "Mean squared error over all ranges, 256 values, e^ε = 3, 1e-6 at N = 2^26, against the sample"
    table = Table(
        "plan", "published", "formula", "even", "±", "skewed", "±", "concentrated", "±", title=title
    )
    for row in result["published"]:
        cells = [row["plan"]] + [
            f"{row[k]:.4f}" if row.get(k) else "" for k in ("published_1e-6", "formula_1e-6")
        ]
        for population in ("even", "skewed", "concentrated"):
            cells += [f"{row[population][k]:.4f}" for k in ("against_sample_1e-6", "monte_carlo_error_1e-6")]
        table.add_row(*cells)
    console.print(table)
    for kind in ("ranges", "prefixes"):
        title = f"Mean variance over all {kind}, % of fanout 4 with equal weights, by formula"
        table = Table("values", *(f"ε = {e / 1e6:g}" for e in EPSILONS), "tree at ε = 1", title=title)
        for domain in DOMAINS:
            rows = [r for r in result["gains"] if r["workload"] == kind and r["domain"] == domain]
            one = rows[1]
            tree = f"{one['fanout']}: {' '.join(str(w) for w in one['weights'])}"
            table.add_row(str(domain), *(f"{100 * r['of_fanout_4']:.1f}" for r in rows), tree)
        console.print(table)
    table = Table(
        "values", "ε", "measured", "±", "formula", "exact", "rare", title="The same, all ranges, measured"
    )
    for r in result["measured_gains"]:
        numbers = (
            f"{100 * r[k]:.1f}" for k in ("measured", "monte_carlo_error", "formula", "exact", "exact_rare")
        )
        table.add_row(str(r["domain"]), f"{r['epsilon']:g}", *numbers)
    console.print(table)
    table = Table(
        "values", "chosen", "fanout 2", "4", "16", title="Variance times reports, e^ε = 3, all ranges"
    )
    for r in result["beside_powers"]:
        table.add_row(
            str(r["domain"]), *(f"{r[k]:.2f}" for k in ("chosen", "fanout_2", "fanout_4", "fanout_16"))
        )
    console.print(table)
    columns = ("rare", "nodes_10000", "nodes_1000000", "codes_10000", "codes_1000000", "bound")
    heads = ("rare values", "nodes, 10^4", "nodes, 10^6", "codes, 10^4", "codes, 10^6", "bound")
    table = Table("ε", "population", *heads, title="Variance over that of the weights in use, D = 256")
    for r in result["second_pass"]:
        table.add_row(f"{r['epsilon']:g}", r["population"], *(f"{r[k]:.3f}" for k in columns))
    console.print(table)
    console.print(result["cross_fitted"])


def main() -> None:
    parser = argparse.ArgumentParser(description="Errors of ranges.")
    parser.add_argument("--quick", action="store_true", help="a few of the runs; writes no file")
    quick = parser.parse_args().quick
    rng = np.random.default_rng(20_261)
    console = Console(width=140)
    start = time.perf_counter()
    result = {
        "machine": machine(),
        "published": over_published(40 if quick else 4000, rng),
        "gains": gains(),
        "measured_gains": measured_gains(20 if quick else 1600, rng),
        "beside_powers": beside_powers(),
        "over_domains": over_domains(),
        "second_pass": second_pass(1 if quick else 2, rng),
        "cross_fitted": cross_fitted(4 if quick else 100, rng),
    }
    show(console, result)
    result["seconds"] = round(time.perf_counter() - start)
    console.print(f"{result['seconds']} s")
    if not quick:
        write("ranges.json", result)
        plot(result["over_domains"], result["published"])


if __name__ == "__main__":
    main()
