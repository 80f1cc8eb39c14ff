"""Means: the square wave compared with trees, one bit, the piecewise mechanism, and no privacy.

    python benchmarks/means.py [table|fleets|coverage|distributions|times ...] [--quick]

table          standard deviation of the mean times the root of the reports, relative to the range; exact,
               from each mechanism's code law or formula. 16 to 4,096 values, ε 0.5 to 4, three populations:
               normal (mean 0.45, deviation 1/16 of the range), beta(5, 2), skewed (the 1.1th power of
               1/rank). Trees are the planner's choices for ranges, quantiles and the mean. reports_saved: how
               many times more reports the better tree for ranges or quantiles needs than sw for the same
               error.
fleets         the same, measured at 64 values: fleets of 10,000 boards, drawn with the boards' real channel
               or by the peer's published algorithm; 1,000 fleets per row, 250 for trees.
coverage       95% intervals of the mean: over a window, over a pool of two versions with different reaches,
               and for a change; also where 98 of 100 readings are 0. 2,000 fleets per row. If the intervals
               are right, the chance that any row lies outside the printed band is below 1e-9.
distributions  error of all ranges after smoothing, for the square wave and a tree. 256 values, ε = 1, 100,000
               reports, 40 fleets.
times          from a histogram to a mean with its interval.

Peers: one bit (Duchi, Jordan, Wainwright, JASA 2018), piecewise (Wang et al., ICDE 2019). Writes its parts of
benchmarks/results/means.json; --quick draws a tenth of the fleets.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from draws import Tally, band, counts_by_law, estimates, mean_and_error, mean_over_ranges
from results_file import CONSOLE, Options, min_cpu_s, run
from scipy import stats

from hushmote.device.ldp_client import Experiment
from hushmote.server.answers import moments
from hushmote.server.epsilon import MICRO
from hushmote.server.estimate import Estimate, estimate
from hushmote.server.estimate.pooling import pool
from hushmote.server.estimate.postprocess import smooth
from hushmote.server.estimate.statistic import difference
from hushmote.server.experiments.payload import experiment_over
from hushmote.server.mechanisms import mechanism_of
from hushmote.server.mechanisms.choose import choose, designs
from hushmote.server.mechanisms.workload import ALL_RANGES, MEAN, PREFIXES, Workload

DOMAINS = (16, 64, 256, 1024, 4096)
EPSILONS = (0.5, 1.0, 2.0, 4.0)
BOARDS = 10_000

Row = dict[str, Any]
Fleets = Callable[[np.ndarray, int, np.random.Generator], float]


def positions(domain: int) -> np.ndarray:
    """Return the midpoints of the bins, as fractions of the range."""
    return (np.arange(domain) + 0.5) / domain


def populations(domain: int) -> dict[str, np.ndarray]:
    """Return shares of the values, by name."""
    edges = np.arange(domain + 1) / domain
    shares = {
        "normal": np.diff(stats.norm.cdf(edges, 0.45, 1 / 16)),
        "beta(5, 2)": np.diff(stats.beta.cdf(edges, 5, 2)),
        "skewed": 1 / np.arange(1, domain + 1) ** 1.1,
    }
    return {name: f / f.sum() for name, f in shares.items()}


def mostly_zero(domain: int) -> np.ndarray:
    """Return a population with 98% in the lowest bin and the rest spread evenly."""
    shares = np.full(domain, 0.02 / domain)
    shares[0] += 0.98
    return shares


def made_for(workload: Workload, domain: int, epsilon: float, mechanism: str | None = None) -> Experiment:
    """Return the planner's choice for a workload, among all mechanisms or for a given one."""
    micro = round(epsilon * MICRO)
    if mechanism is None:
        return experiment_over(domain, micro, choose(domain, micro, workload).fields())
    (choice,) = designs(domain, micro, workload, mechanism)
    return experiment_over(domain, micro, choice.fields())


def deviation(experiment: Experiment, shares: np.ndarray) -> float:
    """Return the standard deviation of the mean times the root of the reports, as a part of the range."""
    statistic = positions(experiment.domain)[:, None]
    return math.sqrt(mechanism_of(experiment).variances(statistic, shares)[0])


def spread(shares: np.ndarray) -> tuple[float, float]:
    """Return a population's mean and variance, relative to the range."""
    x = positions(len(shares))
    mean = float(shares @ x)
    return mean, float(shares @ (x - mean) ** 2)


def one_bit(epsilon: float, shares: np.ndarray) -> float:
    """Return the deviation for Duchi's mechanism: -C or C, with mean t for a reading t in -1..1."""
    mean, _ = spread(shares)
    c = 1 / math.tanh(epsilon / 2)
    return math.sqrt(c * c - (2 * mean - 1) ** 2) / 2


def piecewise(epsilon: float, shares: np.ndarray) -> float:
    """Return the deviation for Wang et al.'s mechanism, from their variance for a reading t in -1..1."""
    mean, variance = spread(shares)
    a = math.exp(epsilon / 2)
    square = 4 * variance + (2 * mean - 1) ** 2
    return math.sqrt((square / (a - 1) + (a + 3) / (3 * (a - 1) ** 2)) / 4 + variance)


def table(options: Options) -> list[Row]:
    rows = []
    for domain in DOMAINS[: 2 if options.quick else None]:
        for epsilon in EPSILONS:
            wave = made_for(MEAN, domain, epsilon)
            trees = {
                "ranges": made_for(ALL_RANGES, domain, epsilon),
                "quantiles": made_for(PREFIXES, domain, epsilon),
                "tree": made_for(MEAN, domain, epsilon, "hh"),
            }
            for name, shares in populations(domain).items():
                row: Row = {"domain": domain, "epsilon": epsilon, "population": name}
                row |= {kind: deviation(tree, shares) for kind, tree in trees.items()}
                row |= {"one_bit": one_bit(epsilon, shares), "piecewise": piecewise(epsilon, shares)}
                row |= {"mechanism": wave.mechanism, "sw": deviation(wave, shares), "codes": wave.code_count}
                saved = (min(row["ranges"], row["quantiles"]) / row["sw"]) ** 2
                rows.append(row | {"none": math.sqrt(spread(shares)[1]), "reports_saved": saved})
    return rows


def fleet_of(experiment: Experiment) -> Fleets:
    """Return a function that draws a fleet and estimates its mean."""

    def mean(shares: np.ndarray, boards: int, rng: np.random.Generator) -> float:
        (result,) = estimates(experiment, shares, boards, 1, rng)
        return result.linear(positions(experiment.domain)).value

    return mean


def peers(epsilon: float) -> dict[str, Fleets]:
    """Return functions that estimate a fleet's mean by the peers' published algorithms."""
    bit, a = 1 / math.tanh(epsilon / 2), math.exp(epsilon / 2)
    c = (a + 1) / (a - 1)

    def one_bit(t: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.where(rng.random(len(t)) < 0.5 + t / (2 * bit), bit, -bit)

    def piecewise(t: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        lower = (c + 1) / 2 * t - (c - 1) / 2
        inside = lower + (c - 1) * rng.random(len(t))
        outside = -c + (c + 1) * rng.random(len(t))
        outside += (c - 1) * (outside > lower)
        return np.where(rng.random(len(t)) < a / (a + 1), inside, outside)

    def mean_of(draw: Callable[[np.ndarray, np.random.Generator], np.ndarray]) -> Fleets:
        def mean(shares: np.ndarray, boards: int, rng: np.random.Generator) -> float:
            t = 2 * positions(len(shares))[rng.choice(len(shares), boards, p=shares)] - 1
            return float(draw(t, rng).mean() + 1) / 2

        return mean

    return {"one bit": mean_of(one_bit), "piecewise": mean_of(piecewise)}


def fleets(options: Options) -> list[Row]:
    """Return each mechanism's predicted and measured errors."""
    rng, rows = np.random.default_rng(16), []
    for epsilon in EPSILONS:
        wave, tree = made_for(MEAN, 64, epsilon), made_for(PREFIXES, 64, epsilon)
        for name, shares in populations(64).items():
            ways: dict[str, tuple[Fleets, float, int]] = {
                "sw": (fleet_of(wave), deviation(wave, shares), 1000),
                "tree for quantiles": (fleet_of(tree), deviation(tree, shares), 250),
                "one bit": (peers(epsilon)["one bit"], one_bit(epsilon, shares), 1000),
                "piecewise": (peers(epsilon)["piecewise"], piecewise(epsilon, shares), 1000),
            }
            for way, (draw, predicted, many) in ways.items():
                many //= 10 if options.quick else 1
                off = np.array([draw(shares, BOARDS, rng) - spread(shares)[0] for _ in range(many)])
                measured = math.sqrt(float((off**2).mean()) * BOARDS)
                row = {"epsilon": epsilon, "population": name, "mechanism": way, "fleets": many}
                row |= {"predicted": predicted, "measured": measured}
                rows.append(row | {"standard_error": measured / math.sqrt(2 * many)})
    return rows


COVERED = ((64, 0.5, 1_000), (64, 1.0, 300), (64, 1.0, 10_000), (64, 2.0, 1_000), (64, 4.0, 300))
COVERED += ((64, 4.0, 10_000), (16, 1.0, 1_000), (1024, 1.0, 1_000))


def coverage(options: Options) -> list[Row]:
    """Return the share of intervals that contain the population's mean or its change."""
    rng, rows, run_count = np.random.default_rng(16), [], 200 if options.quick else 2000
    for domain, epsilon, reports in COVERED:
        named = populations(domain) | {"mostly 0": mostly_zero(domain)}
        wave, x = made_for(MEAN, domain, epsilon), positions(domain)
        other = experiment_over(domain, wave.epsilon * 3 // 4, {"mechanism": "sw", "reach": domain // 3})
        laws = {(e, name): mechanism_of(e).code_law(f) for e in (wave, other) for name, f in named.items()}

        def one(e: Experiment, name: str, laws=laws, reports=reports) -> Estimate:
            return estimate(e, rng.multinomial(reports, laws[e, name] / laws[e, name].sum()))

        for name, f in named.items():
            mean, tally = spread(f)[0], Tally()
            for _ in range(run_count):
                e = one(wave, name)
                changed = difference(e.linear(x), one(other, "normal").linear(x))
                tally.count("window", e.linear(x).interval(), mean)
                tally.count("two versions", pool([e, one(other, name)]).linear(x).interval(), mean)
                tally.count("change", changed.interval(), mean - spread(named["normal"])[0])
            row = {"domain": domain, "epsilon": epsilon, "reports": reports, "population": name}
            rows += [row | {"kind": kind, "fleets": run_count, "covered": tally.of(kind)} for kind in tally]
    low, high = band(len(rows), run_count)
    mean = np.mean([row["covered"] for row in rows])
    CONSOLE.print(f"{len(rows)} rows, mean {mean:.2%}; right intervals lie within {low:.1%} to {high:.1%}")
    return rows


def distributions(options: Options) -> list[Row]:
    """Return the root mean squared error over all ranges after post-processing."""
    domain, epsilon, many, rng = 256, 1.0, 4 if options.quick else 40, np.random.default_rng(16)
    # The best reach for distributions, by Li et al.'s formula.
    e = math.exp(epsilon)
    reach = round(domain * (epsilon * e - e + 1) / (2 * e * (e - 1 - epsilon)))
    mean = made_for(MEAN, domain, epsilon)
    wave = experiment_over(domain, mean.epsilon, {"mechanism": "sw", "reach": reach})
    variants = {
        "smooth, reach of Li et al.": wave,
        "smooth, reach for the mean": mean,
        "smooth, tree for ranges": made_for(ALL_RANGES, domain, epsilon),
    }
    named = populations(domain) | {"even": np.full(domain, 1 / domain), "mostly 0": mostly_zero(domain)}
    rows = []
    for name, shares in named.items():
        for variant, experiment in variants.items():
            estimated = estimates(experiment, shares, 100_000, many, rng, counts_by_law)
            square, uncertain = mean_and_error(
                mean_over_ranges(smooth(one).frequencies - shares) for one in estimated
            )
            row = {"population": name, "way": variant, "codes": experiment.code_count, "fleets": many}
            error = math.sqrt(square)
            rows.append(row | {"rmse": error, "standard_error": uncertain / (2 * error)})
    return rows


def times(options: Options) -> list[Row]:
    """Return the lowest CPU seconds of several runs."""
    rows = []
    for domain in (64, 1024) if options.quick else (64, 1024, 4096):
        row: Row = {"domain": domain, "epsilon": 1.0}
        for name, of in (("sw", made_for(MEAN, domain, 1.0)), ("tree", made_for(PREFIXES, domain, 1.0))):
            even = np.full(domain, 1 / domain)
            histogram = counts_by_law(of, even, 1_000_000, np.random.default_rng(1))
            row[name] = min_cpu_s(lambda of=of, h=histogram: moments.mean(estimate(of, h)).interval(), 5)
        rows.append(row)
    return rows


if __name__ == "__main__":
    parts = (table, fleets, coverage, distributions, times)
    run(__doc__, "means.json", {part.__name__: part for part in parts})
