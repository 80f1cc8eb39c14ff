"""Do intervals hold what they say: coverage of every kind of interval, over fleets drawn anew.

    python benchmarks/interval_coverage.py [--quick]

Designs grr (16 values), olh and hh (128), rr; ε 0.5 to 7; N 1,000 to 1,000,000; populations uniform, skewed,
concentrated, sparse (five values) and real (air temperatures). Every fleet is drawn from the population, so
the intervals are judged as what they are: the population's. Prints tables and writes
benchmarks/results/interval_coverage.json; --quick takes a twentieth of the fleets and writes nothing.
"""

import argparse
import multiprocessing
import time
from collections.abc import Iterator
from functools import cache

import numpy as np
from accuracy import experiment
from results_file import machine, write
from rich.console import Console
from rich.progress import track
from rich.table import Table

from hushmote.device.ldp_client import Experiment
from hushmote.server.answers import change as compare
from hushmote.server.answers import moments
from hushmote.server.estimate import estimate
from hushmote.server.estimate.estimate import Estimates
from hushmote.server.estimate.pooling import pool
from hushmote.server.experiments import units
from hushmote.server.mechanisms import decoded
from hushmote.simulator import vectorised
from hushmote.simulator.demo import temperatures
from hushmote.simulator.population import Recorded

CONFIDENCE = 0.95
EPSILONS = (0.5, 1.0, 2.0, 4.0, 7.0)
SIZES = (1_000, 10_000, 100_000, 1_000_000)
FLEETS = {1_000: 70, 10_000: 60, 100_000: 50, 1_000_000: 30}
DESIGNS = (("rr", 2), ("grr", 16), ("olh", 128), ("hh", 128))
POPULATIONS = ("uniform", "skewed", "concentrated", "sparse", "real")
QUANTILES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
KINDS = (
    "frequency",
    "range",
    "above or below",
    "cdf",
    "quantile",
    "mean",
    "standard deviation",
    "change of a share",
    "change of the mean",
    "change of a quantile",
    "sum of two windows",
    "pool of two versions",
)
DISCRETE = ("quantile", "change of a quantile")


@cache
def _temperatures(exp: Experiment) -> np.ndarray:
    readings = temperatures()
    low, high = exp.low / 1000, exp.high / 1000
    scaled = tuple(None if x is None else low + float(x) / 128 * (high - low) for x in readings)
    counts = Recorded(scaled).counts(exp)[:-1]
    return counts / counts.sum()


def shares(name: str, exp: Experiment) -> np.ndarray:
    """A population's shares of the values, shape (domain,)."""
    domain = exp.domain
    index = np.arange(domain)
    if name == "real":
        return _temperatures(exp)
    if name == "uniform":
        out = np.ones(domain)
    elif name == "skewed":
        out = 1 / (1 + index) ** 1.3
    elif name == "concentrated":
        out = np.full(domain, 0.05 / domain)
        out[domain // 3] += 0.75
        out[min(domain // 3 + 2, domain - 1)] += 0.2
    else:
        out = np.zeros(domain)
        np.add.at(
            out, (np.array([0.05, 0.2, 0.45, 0.7, 0.95]) * domain).astype(int), [0.1, 0.3, 0.05, 0.35, 0.2]
        )
    return out / out.sum()


def _ranges(domain: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Ranges inside the domain, and those that reach to an end."""
    if domain == 2:
        return [(0, 1), (1, 2)], [(1, 2)]
    inner = [(domain // 4, domain // 3 + 1), (domain // 3 - 1, domain // 3 + 2), (1, domain - 1)]
    inner += [(domain // 8, domain // 8 * 3), (2, 9)]
    return inner, [(0, domain // 2), (0, domain // 10 + 1), (domain - domain // 5 - 1, domain)]


def _hits(exp: Experiment, f: np.ndarray, reports: int, fleets: int, rng: np.random.Generator) -> np.ndarray:
    """Hits and trials by kind, shape (kinds, 2)."""
    out = np.zeros((len(KINDS), 2))

    def draw(shares: np.ndarray, e: Experiment = exp, n: int = reports) -> Estimates:
        return estimate(e, vectorised.histogram(e, rng.multinomial(n, shares), rng))

    def count(kind: str, low: object, high: object, truth: object) -> None:
        inside = (np.asarray(low) <= np.asarray(truth) + 1e-9) & (
            np.asarray(truth) <= np.asarray(high) + 1e-9
        )
        out[KINDS.index(kind)] += inside.sum(), inside.size

    inner, ends = _ranges(exp.domain)
    # The other side of a comparison: the same shape, one value further for a part of the fleet.
    g = 0.7 * f + 0.3 * np.roll(f, 1)
    edges = units.bin_edges(exp)
    x = (edges[:-1] + edges[1:]) / 2
    mean = f @ x
    deviation = np.sqrt(f @ (x - mean) ** 2)
    # A quantile is an index where the cdf passes q clearly: where it only touches it there are two answers.
    cdf, other_cdf = np.cumsum(f), np.cumsum(g)
    wanted = [q for q in QUANTILES if min(np.abs(cdf - q).min(), np.abs(other_cdf - q).min()) > 1e-9]
    weaker = experiment(exp.mechanism, exp.domain, exp.epsilon // 2)
    for _ in range(fleets):
        e, other = draw(f), draw(g)
        count("frequency", *e.frequency_intervals(CONFIDENCE), f)
        for kind, ranges in (("range", inner), ("above or below", ends)):
            lo, hi = np.array(ranges).T
            truth = [f[a:b].sum() for a, b in ranges]
            count(kind, *e.ranges(lo, hi).interval(CONFIDENCE), truth)
        low, high = e.cdf_intervals(CONFIDENCE)
        count("cdf", low[:-1], high[:-1], cdf[:-1])
        for q in wanted:
            interval = e.quantile(q, CONFIDENCE)
            count("quantile", interval.low, interval.high, np.argmax(cdf >= q))
        count("mean", *moments.mean(e).interval(CONFIDENCE), mean)
        count("standard deviation", *moments.deviation(e).interval(CONFIDENCE), deviation)
        every = [units.IndexRange(a, b, "") for a, b in inner + ends]
        for row, r in zip(compare.changed_shares(e, other, every).rows, every, strict=True):
            count("change of a share", row.low, row.high, (g - f)[r.low : r.high].sum())
        changed = compare.changed_readings(e, other, wanted).rows
        count("change of the mean", changed[0].low, changed[0].high, (g - f) @ x)
        for row, q in zip(changed[2:], wanted, strict=True):
            truth = x[np.argmax(other_cdf >= q)] - x[np.argmax(cdf >= q)]
            count("change of a quantile", row.low, row.high, truth)
        both = pool([e, other])
        lo, hi = np.array(inner + ends).T
        half = [(f + g)[a:b].sum() / 2 for a, b in inner + ends]
        count("sum of two windows", *both.ranges(lo, hi).interval(CONFIDENCE), half)
        versions = pool([e, draw(f, weaker)], by="variance")
        truth = [f[a:b].sum() for a, b in inner + ends]
        count("pool of two versions", *versions.ranges(lo, hi).interval(CONFIDENCE), truth)
    return out


def _case(case: tuple[tuple[str, int], float, int, str, int, np.random.SeedSequence]) -> tuple:
    (mechanism, domain), epsilon, reports, name, fleets, seed = case
    exp = experiment(mechanism, domain, round(epsilon * 1e6))
    hits = _hits(exp, shares(name, exp), reports, fleets, np.random.default_rng(seed))
    return mechanism, epsilon, reports, name, hits


def cases(part: float) -> Iterator[tuple]:
    """Every design, ε, N and population, with the number of fleets and a seed of its own."""
    seeds = iter(np.random.SeedSequence(20_261).spawn(1000))
    for reports in reversed(SIZES):
        for design in DESIGNS:
            for epsilon in EPSILONS:
                for name in POPULATIONS:
                    yield design, epsilon, reports, name, max(1, round(FLEETS[reports] * part)), next(seeds)


def mixture(rng: np.random.Generator, fleets: int) -> dict[str, float]:
    """Coverage of frequencies in thin histograms by what the variance is taken over."""
    exp = experiment("hh", 1024, 4_000_000)
    f, coverage = shares("skewed", exp), {}
    kept = decoded.IMPLIED_SHARE
    for name, share in (("histogram alone", 0.0), ("half of each", 0.5), ("implied alone", 1.0)):
        decoded.IMPLIED_SHARE = share
        hits = 0
        for _ in range(fleets):
            e = estimate(exp, vectorised.histogram(exp, rng.multinomial(300, f), rng))
            low, high = e.frequency_intervals(CONFIDENCE)
            hits += int(((low <= f) & (f <= high)).sum())
        coverage[name] = hits / fleets / exp.domain
    decoded.IMPLIED_SHARE = kept
    return coverage


def main() -> None:
    parser = argparse.ArgumentParser(description="Coverage of every kind of interval.")
    parser.add_argument("--quick", action="store_true", help="a twentieth of the fleets; writes no file")
    quick = parser.parse_args().quick
    console, start = Console(width=120), time.perf_counter()
    todo = list(cases(1 / 20 if quick else 1.0))
    with multiprocessing.Pool() as workers:
        results = list(track(workers.imap_unordered(_case, todo), "fleets", total=len(todo), console=console))

    def pooled(column: int | None, value: object) -> np.ndarray:
        """Hits and trials of the cases with a value in a column of theirs."""
        return np.sum([r[4] for r in results if column is None or r[column] == value], axis=0)

    groups: dict[str, tuple[int | None, object]] = {"all": (None, None)}
    groups |= {name: (3, name) for name in POPULATIONS}
    groups |= {f"N = {n:,}": (2, n) for n in SIZES}
    groups |= {f"ε = {e:g}": (1, e) for e in EPSILONS}
    groups |= {m: (0, m) for m, _ in DESIGNS}
    table = {name: pooled(*which) for name, which in groups.items()}
    for names in (list(groups)[:6], list(groups)[6:10], list(groups)[10:15], list(groups)[15:]):
        shown = Table("95 % interval of", *names, *(["pairs"] if "all" in names else []))
        for i, kind in enumerate(KINDS):
            cells = [f"{table[name][i, 0] / table[name][i, 1]:.3f}" for name in names]
            shown.add_row(kind, *cells, *([f"{int(table['all'][i, 1]):,}"] if "all" in names else []))
        console.print(shown)
    thin = mixture(np.random.default_rng(1), 20 if quick else 200)
    console.print("hh, 1,024 values, ε = 4, 300 reports:", thin)
    seconds = time.perf_counter() - start
    console.print(f"{seconds:.0f} s")
    if not quick:
        result = {
            "machine": machine(),
            "seconds": seconds,
            "confidence": CONFIDENCE,
            "discrete": DISCRETE,
            "pairs": {kind: int(table["all"][i, 1]) for i, kind in enumerate(KINDS)},
            "coverage": {
                name: {kind: hits[i, 0] / hits[i, 1] for i, kind in enumerate(KINDS)}
                for name, hits in table.items()
            },
            "thin": thin,
        }
        write("interval_coverage.json", result)


if __name__ == "__main__":
    main()
