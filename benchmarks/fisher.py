"""Weights by Fisher scoring: do intervals hold what they say, what is gained, and is there a bias.

    nice python benchmarks/fisher.py [--quick]

1. Coverage of 95 % intervals: olh and hh over 128 values, ε 0.5 to 7, N 1,000 to 1,000,000, nine populations.
   A configuration is a design, an ε, an N, a population and a kind of interval, 50 fleets. Those below 92 %
   are drawn anew with other seeds, 100 fleets, and if they are below again 600; the last counts. A third of
   all these of olh at ε = 7, which has 2 million codes.
2. Gain: variance over that of the ordinary weights, of single values and over all ranges, exact given the
   pilots that a drawn fleet gives. "Bound": the pilot is the population, which no unbiased estimate beats.
3. Bias: squared mean error over what chance makes of it (1 without bias), of cross-fitting, and of a pilot
   from the very reports that it weighs; and what the halves' correlation adds to the variance.
4. Forged reports: the most that one report moves a share, in reports.

Prints tables and writes benchmarks/results/fisher.json.
"""

import argparse
import json
import time
from collections.abc import Iterator, Mapping
from functools import cache

import interval_coverage as coverage
import numpy as np
from accuracy import experiment
from results_file import RESULTS, machine, write
from rich.console import Console
from rich.progress import track
from rich.table import Table

from hushmote.device.ldp_client import Experiment
from hushmote.server.answers import moments
from hushmote.server.estimate import estimate
from hushmote.server.estimate.estimate import Estimate, Estimates
from hushmote.server.estimate.fisher import FEWEST_REPORTS, fisher, pilot
from hushmote.server.estimate.pooling import Pool
from hushmote.server.experiments import units
from hushmote.server.mechanisms import mechanism_of
from hushmote.server.mechanisms.decoded import Decoded
from hushmote.server.mechanisms.scored import Scored
from hushmote.simulator import vectorised

DOMAIN = 128
DESIGNS = ("hh", "olh")
EPSILONS = (0.5, 1.0, 2.0, 4.0, 7.0)
SIZES = (1_000, 10_000, 100_000, 1_000_000)
ROUNDS, ROUND = 5, 10  # of fleets
AGAIN = (100, 600)
SLOW = ("olh", 7.0)
LEAST = 0.92
POPULATIONS = ("uniform", "skewed", "concentrated", "sparse", "real", "zipf", "sawtooth", "spikes", "last")
KINDS = ("frequency", "range", "cdf", "quantile", "mean", "standard deviation")

Cell = tuple[str, float, int, str]


def shares(name: str, exp: Experiment) -> np.ndarray:
    """A population's shares of the values, shape (domain,)."""
    index = np.arange(exp.domain)
    if name == "zipf":
        out = 1 / (1.0 + index) ** 1.5
    elif name == "sawtooth":
        out = 1.0 + index % 8
    elif name == "spikes":
        out = np.isin(index, (exp.domain // 4, 3 * exp.domain // 4)).astype(float)
    elif name == "last":
        out = (index == exp.domain - 1).astype(float)
    else:
        return coverage.shares(name, exp)
    return out / out.sum()


def draw(exp: Experiment, f: np.ndarray, reports: int, rng: np.random.Generator) -> np.ndarray:
    """A fleet's histogram of codes."""
    return vectorised.histogram(exp, rng.multinomial(reports, f), rng)


def table(console: Console, title: str, rows: list[dict]) -> None:
    shown = Table(*rows[0], title=title)
    for row in rows:
        shown.add_row(*(f"{x:.3f}" if isinstance(x, float) else f"{x}" for x in row.values()))
    console.print(shown)


# --- Coverage -------------------------------------------------------------------------------------


def hits(exp: Experiment, f: np.ndarray, reports: int, fleets: int, rng: np.random.Generator) -> np.ndarray:
    """Hits and trials by kind, shape (kinds, 2)."""
    out = np.zeros((len(KINDS), 2))

    def count(kind: str, ends: tuple[object, object], truth: object) -> None:
        low, high = (np.asarray(end) for end in ends)
        inside = (low <= np.asarray(truth) + 1e-9) & (np.asarray(truth) <= high + 1e-9)
        out[KINDS.index(kind)] += inside.sum(), inside.size

    inner, ends = coverage._ranges(exp.domain)
    lows, highs = np.array(inner + ends).T
    edges = units.bin_edges(exp)
    x = (edges[:-1] + edges[1:]) / 2
    mean, cdf = f @ x, np.cumsum(f)
    deviation = np.sqrt(f @ (x - mean) ** 2)
    wanted = [q for q in coverage.QUANTILES if np.abs(cdf - q).min() > 1e-9]
    for _ in range(fleets):
        e = fisher(exp, draw(exp, f, reports, rng))
        count("frequency", e.frequency_intervals(), f)
        count("range", e.ranges(lows, highs).interval(), [f[a:b].sum() for a, b in inner + ends])
        low, high = e.cdf_intervals()
        count("cdf", (low[:-1], high[:-1]), cdf[:-1])
        for q in wanted:
            interval = e.quantile(q)
            count("quantile", (interval.low, interval.high), np.argmax(cdf >= q))
        count("mean", moments.mean(e).interval(), mean)
        count("standard deviation", moments.deviation(e).interval(), deviation)
    return out


def cells() -> Iterator[Cell]:
    """The configurations, whatever the kind."""
    for design in DESIGNS:
        for epsilon in EPSILONS:
            for reports in SIZES:
                for name in POPULATIONS:
                    yield design, epsilon, reports, name


def run(cell: Cell, fleets: int, seed: np.random.SeedSequence) -> np.ndarray:
    """Hits and trials of fleets of a configuration, whatever the kind."""
    design, epsilon, reports, name = cell
    exp = experiment_of(design, epsilon)
    if cell[:2] == SLOW:
        fleets = -(-fleets // 3)
    return hits(exp, shares(name, exp), reports, fleets, np.random.default_rng(seed))


@cache
def experiment_of(design: str, epsilon: float) -> Experiment:
    """The same object each time, for which the law of the codes is kept."""
    return experiment(design, DOMAIN, round(epsilon * 1e6))


def below(now: np.ndarray) -> list[int]:
    """Kinds that fewer intervals hold of than they may."""
    return [i for i in range(len(KINDS)) if now[i, 0] < LEAST * now[i, 1]]


def covered(quick: bool, console: Console) -> Iterator[dict]:
    """Coverage by kind, pooled and by column, after each round; last the configurations drawn anew."""
    seeds = np.random.SeedSequence(20_268)
    total: dict[Cell, np.ndarray] = {}
    found: dict = {}
    for number in range(1 if quick else ROUNDS):
        for cell in track(list(cells()), f"coverage, round {number + 1}", console=console):
            now = run(cell, 2 if quick else ROUND, seeds.spawn(1)[0])
            total[cell] = total.get(cell, 0) + now
        found = {"fleets": (number + 1) * ROUND, "pooled": pooled(total)}
        yield found
    table(console, "Coverage of 95 % intervals", [{"": name} | row for name, row in found["pooled"].items()])
    if quick:
        return
    suspects = {cell: below(now) for cell, now in total.items() if below(now)}
    again = []
    for cell, kinds in track(list(suspects.items()), "anew", console=console):
        for fleets in AGAIN:
            now = run(cell, fleets, seeds.spawn(1)[0])
            kinds = [i for i in kinds if i in below(now)]
            if not kinds:
                break
        row = dict(zip(("design", "epsilon", "reports", "population"), cell, strict=True))
        again += [row | {"kind": KINDS[i], "coverage": now[i, 0] / now[i, 1]} for i in kinds]
    console.print(again)
    drawn = sum(map(len, suspects.values()))
    yield found | {"configurations": len(total) * len(KINDS), "drawn_anew": drawn, "below": again}


def pooled(total: Mapping[Cell, np.ndarray]) -> dict[str, dict[str, float]]:
    """Coverage of each kind over all cells, and over those of a design, an ε, an N, a population."""
    groups: dict[str, tuple[int | None, object]] = {"all": (None, None)}
    groups |= {design: (0, design) for design in DESIGNS} | {f"ε = {e:g}": (1, e) for e in EPSILONS}
    groups |= {f"N = {n:,}": (2, n) for n in SIZES} | {name: (3, name) for name in POPULATIONS}
    result = {}
    for name, (column, value) in groups.items():
        both = np.sum([now for cell, now in total.items() if column is None or cell[column] == value], axis=0)
        result[name] = dict(zip(KINDS, (both[:, 0] / both[:, 1]).tolist(), strict=True))
    return result


# --- Gain -----------------------------------------------------------------------------------------


def true_variances(e: Estimates, f: np.ndarray) -> tuple[float, float]:
    """Mean variance over single values, and over all ranges, of estimates with these weights; exact."""
    parts = e.estimates if isinstance(e, Pool) else [e]
    for part in parts:
        assert isinstance(part, Estimate)
        decoded = part.decoded
        decoded.__dict__["shares"] = decoded.mechanism.law(f)  # what moments are taken over
    prefixes = np.triu(np.ones((len(f), len(f))))
    both = np.column_stack([prefixes, prefixes.sum(axis=1)])
    *single, total = np.square(e.linear_many(both).stderr)
    points = len(f) + 1
    over_ranges = (points * sum(single) - total) / (points * (points - 1) / 2)
    return float(np.mean(np.square(e.linear_many(np.eye(len(f))).stderr))), float(over_ranges)


def ordinary(exp: Experiment, counts: np.ndarray) -> Estimate:
    """The ordinary estimate, with moments by the general way."""
    mechanism = mechanism_of(exp)
    return Estimate(exp, Decoded(mechanism, mechanism.collapse(counts)))


def gain(
    mechanism: str, domain: int, epsilon: float, name: str, draws: int, rng: np.random.Generator
) -> dict:
    """Variances over those of the ordinary weights; the bound's pilot is the population."""
    exp = experiment(mechanism, domain, round(epsilon * 1e6))
    f = shares(name, exp)
    row: dict = {"mechanism": mechanism, "domain": domain, "epsilon": epsilon, "population": name}
    law = mechanism_of(exp).law(np.eye(domain))
    counts, base = np.zeros(exp.code_count, int), np.ones(2)
    for reports in (1_000, 10_000, 100_000):
        ratios = []
        for _ in range(draws):
            counts = draw(exp, f, reports, rng)
            base = np.array(true_variances(ordinary(exp, counts), f))
            ratios.append(true_variances(fisher(exp, counts), f) / base)
        row[f"values {reports}"], row[f"ranges {reports}"] = np.mean(ratios, axis=0)
    best = Estimate(exp, Scored(ordinary(exp, counts).decoded, np.maximum(f, 1e-12), law))
    row["values bound"], row["ranges bound"] = (np.array(true_variances(best, f)) / base).tolist()
    return row


def designs() -> list[tuple[str, int, float]]:
    """Mechanism, values and ε; the last is the demo's, and its "real" population the demo's."""
    found = [("hh", DOMAIN, e) for e in EPSILONS] + [("olh", DOMAIN, e) for e in EPSILONS[:4]]
    return [*found, ("hh", 64, 2.0)]


def gains(quick: bool, console: Console) -> Iterator[dict]:
    """Of all designs and populations."""
    rng, draws = np.random.default_rng(20_269), 1 if quick else 2
    rows = [gain(*design, name, draws, rng) for design in designs() for name in POPULATIONS]
    table(console, "Variance over that of the ordinary weights", rows)
    yield {"rows": rows}


# --- Bias -----------------------------------------------------------------------------------------


def bias(exp: Experiment, name: str, reports: int, runs: int, rng: np.random.Generator) -> dict:
    """Squared mean error over its expectation without bias, and what the halves' correlation adds."""
    f, law = shares(name, exp), mechanism_of(exp).law(np.eye(exp.domain))
    errors: dict[str, list[np.ndarray]] = {"ordinary": [], "cross_fitted": [], "own_pilot": []}
    cross = np.zeros(exp.domain)
    for _ in range(runs):
        counts = draw(exp, f, reports, rng)
        once, twice = estimate(exp, counts), fisher(exp, counts)
        own = Estimate(exp, Scored(once.decoded, pilot(once), law))
        for kind, e in zip(errors, (once, twice, own), strict=True):
            errors[kind].append(e.frequencies - f)
        assert isinstance(twice, Pool)
        one, other = (w * (e.frequencies - f) for w, e in zip(twice.weights, twice.estimates, strict=True))
        cross += 2 * one * other
    row: dict = {"mechanism": exp.mechanism, "epsilon": exp.epsilon / 1e6, "population": name}
    row |= {"reports": reports, "runs": runs}
    for kind, values in errors.items():
        off = np.array(values)
        row[kind] = float((off.mean(axis=0) ** 2).sum() * runs / off.var(axis=0, ddof=1).sum())
    variance = np.var(errors["cross_fitted"], axis=0).sum() * runs
    return row | {"correlation_adds": float(cross.sum() / variance)}


def biases(quick: bool, console: Console) -> Iterator[dict]:
    """Of populations where weights differ most, and of even ones; with the fewest reports that it takes."""
    rng, runs = np.random.default_rng(20_270), 20 if quick else 500
    experiments = [
        experiment(m, DOMAIN, e) for m, e in (("hh", 2_000_000), ("hh", 4_000_000), ("olh", 2_000_000))
    ]
    rows = [
        bias(exp, name, FEWEST_REPORTS, runs, rng)
        for exp in experiments
        for name in ("uniform", "concentrated")
    ]
    table(console, "Squared mean error over its expectation without bias", rows)
    yield {"rows": rows}


# --- Forged reports -------------------------------------------------------------------------------


def moved(e: Estimate, f: np.ndarray) -> tuple[float, float]:
    """The most that one report moves the share of a value, and of all values up to one; in reports."""
    most = np.zeros((2, len(f)))
    for which, statistic in enumerate((np.eye(len(f)), np.triu(np.ones((len(f), len(f)))))):
        weights, _ = e.decoded.weights(statistic)
        laws = e.decoded.mechanism.law(f)
        for w, law, n in zip(weights, laws, e.decoded.reports, strict=True):
            if w is not None:
                most[which] = np.maximum(most[which], np.abs(w - law @ w).max(axis=0) * e.reports / n)
    return float(most[0].max()), float(most[1, :-1].max())


def forged(quick: bool, console: Console) -> Iterator[dict]:
    """How much more one report moves than with the ordinary weights; the pilot is that of many reports."""
    rng, rows = np.random.default_rng(20_271), []
    for mechanism, domain, epsilon in designs()[: 3 if quick else None]:
        exp = experiment(mechanism, domain, round(epsilon * 1e6))
        law = mechanism_of(exp).law(np.eye(domain))
        for name in POPULATIONS:
            f = shares(name, exp)
            once = ordinary(exp, draw(exp, f, 100_000, rng))
            scored = Scored(once.decoded, 0.95 * f + 0.05 / domain, law)
            before, after = moved(once, f), moved(Estimate(exp, scored), f)
            row = {"mechanism": mechanism, "domain": domain, "epsilon": epsilon, "population": name}
            row |= {"value": before[0], "value weighed": after[0], "value ratio": after[0] / before[0]}
            row |= {"range": before[1], "range weighed": after[1], "range ratio": after[1] / before[1]}
            rows.append(row)
    table(console, "Reports that one report counts for", rows)
    yield {"rows": rows}


PARTS = {"gain": gains, "bias": biases, "forged": forged, "coverage": covered}


def main() -> None:
    parser = argparse.ArgumentParser(description="Weights by Fisher scoring.")
    parser.add_argument("--quick", action="store_true", help="a few of the fleets; writes no file")
    parser.add_argument("--only", choices=PARTS, help="one part, the others stay as they were")
    options = parser.parse_args()
    console, file = Console(width=150), RESULTS / "fisher.json"
    for name, part in PARTS.items():
        if options.only in (None, name):
            start = time.perf_counter()
            for found in part(options.quick, console):
                seconds = round(time.perf_counter() - start)
                if not options.quick:
                    kept = json.loads(file.read_text()) if file.exists() else {}
                    write("fisher.json", kept | {name: {"machine": machine(), "seconds": seconds} | found})
            console.print(f"{name}: {seconds} s")


if __name__ == "__main__":
    main()
