"""Means: the square wave beside trees, one bit, the piecewise mechanism, and no privacy at all.

    python benchmarks/means.py [table|fleets|coverage|distributions|times ...] [--quick]

table          standard deviation of the mean times the root of the reports, a part of the range: exact, from
               the law of each mechanism's codes or from its formula. 16 to 4,096 values, ε 0.5 to 4, three
               populations: normal (mean 0.45, deviation 1/16 of the range), beta(5, 2), skewed (the 1.1th
               power of 1/rank). Trees are the planner's, of least error for ranges, quantiles and the mean.
fleets         the same measured, at 64 values: fleets of 10,000 boards, drawn with the boards' own channel or
               by the peer's published algorithm; 1,000 fleets of each, 250 of trees.
coverage       95 % intervals of the mean: of a window, of two versions with other reaches in one pool, of a
               change; also where 98 of 100 readings are 0. 2,000 fleets a row. Where intervals are right, one
               of all rows lies outside of the band that is printed with a chance below 1e-9.
distributions  error of all ranges of the distribution from the same codes: ems and smooth of the square wave,
               smooth of a tree. 256 values, ε = 1, 100,000 reports, 40 fleets.
times          from a histogram to a mean with its interval; the choice of a mechanism for it.

Peers: one bit (Duchi, Jordan, Wainwright, JASA 2018), piecewise (Wang et al., ICDE 2019). Prints tables and
writes its parts of benchmarks/results/means.json; --quick draws a tenth and writes nothing.
"""

import argparse
import json
import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from results_file import RESULTS, machine, write
from rich.console import Console
from rich.table import Table
from scipy import stats

from hushmote.device.ldp_client import Experiment
from hushmote.server.answers import moments
from hushmote.server.epsilon import MICRO
from hushmote.server.estimate import Estimate, estimate
from hushmote.server.estimate.pooling import pool
from hushmote.server.estimate.postprocess import METHODS
from hushmote.server.estimate.statistic import Statistic, difference
from hushmote.server.experiments.payload import experiment_over
from hushmote.server.mechanisms import mechanism_of
from hushmote.server.mechanisms.choose import choose, designs
from hushmote.server.mechanisms.sw import best_reach
from hushmote.server.mechanisms.workload import ALL_RANGES, MEAN, PREFIXES, Workload
from hushmote.simulator import vectorised

DOMAINS = (16, 64, 256, 1024, 4096)
EPSILONS = (0.5, 1.0, 2.0, 4.0)
BOARDS = 10_000
FALSE_ALARM = 1e-9

Row = dict[str, Any]
Fleets = Callable[[np.ndarray, int, np.random.Generator], float]


def positions(domain: int) -> np.ndarray:
    """Middles of the values, parts of the range."""
    return (np.arange(domain) + 0.5) / domain


def populations(domain: int) -> dict[str, np.ndarray]:
    """Shares of the values, by name."""
    edges = np.arange(domain + 1) / domain
    shares = {
        "normal": np.diff(stats.norm.cdf(edges, 0.45, 1 / 16)),
        "beta(5, 2)": np.diff(stats.beta.cdf(edges, 5, 2)),
        "skewed": 1 / np.arange(1, domain + 1) ** 1.1,
    }
    return {name: f / f.sum() for name, f in shares.items()}


def mostly_zero(domain: int) -> np.ndarray:
    """98 of 100 in the lowest bin, the rest anywhere."""
    shares = np.full(domain, 0.02 / domain)
    shares[0] += 0.98
    return shares


def made_for(workload: Workload, domain: int, epsilon: float) -> Experiment:
    """What the planner takes for a workload."""
    micro = round(epsilon * MICRO)
    return experiment_over(domain, micro, choose(domain, micro, workload).fields())


def tree_for_mean(domain: int, epsilon: float) -> Experiment:
    """The planner's tree of least error of the mean."""
    micro = round(epsilon * MICRO)
    (choice,) = designs(domain, micro, MEAN, "hh")
    return experiment_over(domain, micro, choice.fields())


def deviation(experiment: Experiment, shares: np.ndarray) -> float:
    """Standard deviation of the mean times the root of the reports, a part of the range."""
    statistic = positions(experiment.domain)[:, None]
    return math.sqrt(mechanism_of(experiment).variances(statistic, shares)[0])


def spread(shares: np.ndarray) -> tuple[float, float]:
    """Mean and variance of a population, parts of the range."""
    x = positions(len(shares))
    mean = float(shares @ x)
    return mean, float(shares @ (x - mean) ** 2)


def one_bit(epsilon: float, shares: np.ndarray) -> float:
    """The same of Duchi's: -C or C, of a reading t in -1..1 with a chance that makes the mean t."""
    mean, _ = spread(shares)
    c = 1 / math.tanh(epsilon / 2)
    return math.sqrt(c * c - (2 * mean - 1) ** 2) / 2


def piecewise(epsilon: float, shares: np.ndarray) -> float:
    """The same of Wang et al.'s, from the variance that they give for a reading t in -1..1."""
    mean, variance = spread(shares)
    a = math.exp(epsilon / 2)
    square = 4 * variance + (2 * mean - 1) ** 2
    return math.sqrt((square / (a - 1) + (a + 3) / (3 * (a - 1) ** 2)) / 4 + variance)


def table(console: Console, rows: list[Row]) -> None:
    shown = Table(
        "D", "ε", "population", "ranges", "quantiles", "tree", "one bit", "piecewise", "sw", "codes"
    )
    shown.add_column("none")
    shown.add_column("reports")
    for domain in DOMAINS:
        for epsilon in EPSILONS:
            wave = made_for(MEAN, domain, epsilon)
            trees = {
                "ranges": made_for(ALL_RANGES, domain, epsilon),
                "quantiles": made_for(PREFIXES, domain, epsilon),
                "tree": tree_for_mean(domain, epsilon),
            }
            for name, shares in populations(domain).items():
                row: Row = {"domain": domain, "epsilon": epsilon, "population": name}
                row |= {kind: deviation(tree, shares) for kind, tree in trees.items()}
                row |= {"one_bit": one_bit(epsilon, shares), "piecewise": piecewise(epsilon, shares)}
                row |= {"mechanism": wave.mechanism, "sw": deviation(wave, shares), "codes": wave.code_count}
                row["none"] = math.sqrt(spread(shares)[1])
                row["reports_saved"] = (min(row["ranges"], row["quantiles"]) / row["sw"]) ** 2
                row["reports_saved_best_tree"] = (row["tree"] / row["sw"]) ** 2
                rows.append(row)
                figures = (row[k] for k in ("ranges", "quantiles", "tree", "one_bit", "piecewise", "sw"))
                texts = [f"{figure:.3f}" for figure in figures]
                saved = f"{row['reports_saved']:.2f}"
                shown.add_row(
                    str(domain), f"{epsilon:g}", name, *texts, str(row["codes"]), f"{row['none']:.3f}", saved
                )
    console.print(shown)
    console.print(
        "reports: of the better tree for ranges or quantiles, for the same error, times those of sw"
    )


def fleet_of(experiment: Experiment) -> Fleets:
    """The mean that one fleet's codes give."""

    def mean(shares: np.ndarray, boards: int, rng: np.random.Generator) -> float:
        counts = vectorised.histogram(experiment, rng.multinomial(boards, shares), rng)
        return estimate(experiment, counts).linear(positions(experiment.domain)).value

    return mean


def readings(shares: np.ndarray, boards: int, rng: np.random.Generator) -> np.ndarray:
    """Readings of a fleet in -1..1."""
    return 2 * positions(len(shares))[rng.choice(len(shares), boards, p=shares)] - 1


def one_bit_fleet(epsilon: float) -> Fleets:
    c = 1 / math.tanh(epsilon / 2)

    def mean(shares: np.ndarray, boards: int, rng: np.random.Generator) -> float:
        t = readings(shares, boards, rng)
        return float((np.where(rng.random(boards) < 0.5 + t / (2 * c), c, -c).mean() + 1) / 2)

    return mean


def piecewise_fleet(epsilon: float) -> Fleets:
    a = math.exp(epsilon / 2)
    c = (a + 1) / (a - 1)

    def mean(shares: np.ndarray, boards: int, rng: np.random.Generator) -> float:
        t = readings(shares, boards, rng)
        left = (c + 1) / 2 * t - (c - 1) / 2
        inside = left + (c - 1) * rng.random(boards)
        outside = -c + (c + 1) * rng.random(boards)
        outside += (c - 1) * (outside > left)
        return float((np.where(rng.random(boards) < a / (a + 1), inside, outside).mean() + 1) / 2)

    return mean


def fleets(console: Console, rows: list[Row], part: int, rng: np.random.Generator) -> None:
    """Measured over predicted, for each mechanism."""
    shown = Table("ε", "population", "mechanism", "fleets", "predicted", "measured", "±")
    for epsilon in EPSILONS:
        wave, tree = made_for(MEAN, 64, epsilon), made_for(PREFIXES, 64, epsilon)
        for name, shares in populations(64).items():
            ways: dict[str, tuple[Fleets, float, int]] = {
                "sw": (fleet_of(wave), deviation(wave, shares), 1000),
                "tree for quantiles": (fleet_of(tree), deviation(tree, shares), 250),
                "one bit": (one_bit_fleet(epsilon), one_bit(epsilon, shares), 1000),
                "piecewise": (piecewise_fleet(epsilon), piecewise(epsilon, shares), 1000),
            }
            truth = spread(shares)[0]
            for way, (draw, predicted, many) in ways.items():
                many //= part
                off = np.array([draw(shares, BOARDS, rng) - truth for _ in range(many)])
                measured = math.sqrt(float((off**2).mean()) * BOARDS)
                row = {"epsilon": epsilon, "population": name, "mechanism": way, "fleets": many}
                row |= {"predicted": predicted, "measured": measured}
                row["standard_error"] = measured / math.sqrt(2 * many)
                rows.append(row)
                shown.add_row(
                    f"{epsilon:g}",
                    name,
                    way,
                    f"{many:,}",
                    f"{predicted:.3f}",
                    f"{measured:.3f}",
                    f"{row['standard_error']:.3f}",
                )
    console.print(shown)


def _drawn(
    versions: tuple[Experiment, Experiment],
    laws: dict[str, list[np.ndarray]],
    reports: int,
    rng: np.random.Generator,
    number: int,
    name: str,
) -> Estimate:
    """What one fleet with a population says of one version."""
    law = laws[name][number]
    return estimate(versions[number], rng.multinomial(reports, law / law.sum()))


def _statistic(kind: str, name: str, of: Callable[[int, str], Estimate], x: np.ndarray) -> Statistic:
    """The mean of a window or of two versions, or its change."""
    if kind == "window":
        return of(0, name).linear(x)
    if kind == "two versions":
        return pool([of(0, name), of(1, name)]).linear(x)
    return difference(of(0, name).linear(x), of(1, "normal").linear(x))


def coverage(console: Console, rows: list[Row], part: int, rng: np.random.Generator) -> None:
    """How often intervals hold the population's mean, or the change of it."""
    many = 2000 // part
    for domain, epsilon, reports in (
        (64, 0.5, 1_000),
        (64, 1.0, 300),
        (64, 1.0, 10_000),
        (64, 2.0, 1_000),
        (64, 4.0, 300),
        (64, 4.0, 10_000),
        (16, 1.0, 1_000),
        (1024, 1.0, 1_000),
    ):
        named = populations(domain) | {"mostly 0": mostly_zero(domain)}
        wave = made_for(MEAN, domain, epsilon)
        other = experiment_over(domain, wave.epsilon * 3 // 4, {"mechanism": "sw", "reach": domain // 3})
        laws = {name: [mechanism_of(e).code_law(f) for e in (wave, other)] for name, f in named.items()}

        x = positions(domain)
        of = partial(_drawn, (wave, other), laws, reports, rng)
        truths = {name: spread(f)[0] for name, f in named.items()}
        for name in named:
            truth = {"window": truths[name], "two versions": truths[name]}
            truth["change"] = truths[name] - truths["normal"]
            for kind in truth:
                hits = 0
                for _ in range(many):
                    low, high = _statistic(kind, name, of, x).interval(0.95)
                    hits += low <= truth[kind] <= high
                row = {"domain": domain, "epsilon": epsilon, "reports": reports, "population": name}
                rows.append(row | {"kind": kind, "fleets": many, "covered": hits / many})
    tails = FALSE_ALARM / len(rows) / 2
    band = stats.binom.ppf((tails, 1 - tails), many, 0.95) / many
    shown = Table("D", "ε", "reports", "population", "window", "two versions", "change")
    for i in range(0, len(rows), 3):
        row = rows[i]
        shown.add_row(
            *(str(row["domain"]), f"{row['epsilon']:g}", f"{row['reports']:,}", row["population"]),
            *(f"{one['covered']:.1%}" for one in rows[i : i + 3]),
        )
    console.print(shown)
    covered = [row["covered"] for row in rows]
    text = f"{len(rows)} rows of {many:,} fleets: {min(covered):.1%} to {max(covered):.1%}, mean"
    console.print(f"{text} {np.mean(covered):.2%}; right intervals lie within {band[0]:.1%} to {band[1]:.1%}")


def range_error(shares: np.ndarray, truth: np.ndarray) -> float:
    """Mean squared error over all ranges."""
    off = np.append(0.0, np.cumsum(shares - truth))
    n = len(off)
    return float((n * (off @ off) - off.sum() ** 2) / (n * (n - 1) / 2))


def distributions(console: Console, rows: list[Row], part: int, rng: np.random.Generator) -> None:
    """Root mean squared error over all ranges of what post-processing makes of the codes."""
    domain, epsilon, reports, many = 256, 1.0, 100_000, 40 // part
    # The reach that is best for distributions, by Li et al.'s formula.
    e = math.exp(epsilon)
    reach = round(domain * (epsilon * e - e + 1) / (2 * e * (e - 1 - epsilon)))
    tree = made_for(ALL_RANGES, domain, epsilon)
    mean = made_for(MEAN, domain, epsilon)
    wave = experiment_over(domain, mean.epsilon, {"mechanism": "sw", "reach": reach})
    ways = {
        "ems, reach of Li et al.": (wave, "ems"),
        "ems, reach for the mean": (mean, "ems"),
        "smooth, reach of Li et al.": (wave, "smooth"),
        "smooth, reach for the mean": (mean, "smooth"),
        "smooth, tree for ranges": (tree, "smooth"),
    }
    shown = Table("population", *ways, title="RMSE over all ranges, 1e-3")
    named = populations(domain) | {"even": np.full(domain, 1 / domain), "mostly 0": mostly_zero(domain)}
    for name, shares in named.items():
        texts = []
        for way, (experiment, method) in ways.items():
            law = mechanism_of(experiment).code_law(shares)
            errors = []
            for _ in range(many):
                made = estimate(experiment, rng.multinomial(reports, law / law.sum()))
                errors.append(range_error(METHODS[method](made).frequencies, shares))
            error = math.sqrt(np.mean(errors))
            uncertain = float(np.std(errors)) / math.sqrt(many) / (2 * error)
            row = {"population": name, "way": way, "codes": experiment.code_count, "fleets": many}
            rows.append(row | {"rmse": error, "standard_error": uncertain})
            texts.append(f"{1e3 * error:.1f} ({1e3 * uncertain:.1f})")
        shown.add_row(name, *texts)
    console.print(shown)


def times(console: Console, rows: list[Row]) -> None:
    """Seconds, the best of several."""
    shown = Table("D", "choice of the mechanism", "mean with interval, sw", "the same, tree for quantiles")
    for domain in (64, 1024, 4096, 65_536):
        micro = 1_000_000
        for cached in (choose, designs, best_reach):
            cached.cache_clear()
        start = time.perf_counter()
        wave = made_for(MEAN, domain, 1.0)
        chosen = time.perf_counter() - start
        seconds = []
        for experiment in (wave, made_for(PREFIXES, domain, 1.0)):
            law = mechanism_of(experiment).code_law(np.full(domain, 1 / domain))
            counts = np.random.default_rng(1).multinomial(1_000_000, law / law.sum())
            best = math.inf
            for _ in range(5):
                start = time.perf_counter()
                moments.mean(estimate(experiment, counts)).interval()
                best = min(best, time.perf_counter() - start)
            seconds.append(best)
        row = {"domain": domain, "epsilon": micro / MICRO, "choice": chosen}
        rows.append(row | {"sw": seconds[0], "tree": seconds[1]})
        shown.add_row(f"{domain:,}", *(f"{1e3 * s:.2f} ms" for s in (chosen, *seconds)))
    console.print(shown)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    names = ("table", "fleets", "coverage", "distributions", "times")
    parser.add_argument("parts", nargs="*", choices=(*names, []), help="all, if none is named")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    console = Console(width=120)
    part = 10 if options.quick else 1
    rng = np.random.default_rng(16)
    parts: dict[str, Callable[[list[Row]], None]] = {
        "table": lambda rows: table(console, rows),
        "fleets": lambda rows: fleets(console, rows, part, rng),
        "coverage": lambda rows: coverage(console, rows, part, rng),
        "distributions": lambda rows: distributions(console, rows, part, rng),
        "times": lambda rows: times(console, rows),
    }
    result: dict[str, list[Row]] = {}
    for name in options.parts or names:
        console.rule(name)
        result[name] = []
        parts[name](result[name])
    if not options.quick:
        path = RESULTS / "means.json"
        before = json.loads(path.read_text()) if path.exists() else {}
        write("means.json", before | {"machine": machine(), **result})


if __name__ == "__main__":
    main()
