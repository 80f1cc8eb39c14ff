"""Do intervals hold what they say: coverage of every kind of interval, over fleets drawn anew.

    python benchmarks/interval_coverage.py [--quick] [--minutes 20] [--workers N | --dask URL]

Designs grr (16 values), olh and hh (128), rr at ε 0.5 to 7 with 1,000 to 1,000,000 reports; wide and thin,
olh and hh (4,096) at ε 1 to 4 with 1,000 and 3,000 reports. Populations uniform, skewed, Zipf 1.5,
concentrated, sparse (five values), two spikes, a sawtooth, all in the last bin and real (air temperatures).
Every fleet is drawn from the population, so the intervals are judged as what they are: the population's.

A configuration has few fleets, so that some of its kinds of intervals fall below 92 % by chance. Those are
drawn again with fresh seeds, lowest first, until 92 % are clearly reached (2.6 standard errors) or 600 fleets
are through, for as long as --minutes allow; the fresh fleets alone count there.

Prints tables and writes benchmarks/results/interval_coverage.json; --quick takes a tenth of the fleets, draws
none again and writes nothing.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from itertools import product
from typing import cast

import numpy as np
from accuracy import experiment
from results_file import machine, write
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from worker_options import add_worker_options, chosen_workers

from hushmote.device.ldp_client import Experiment
from hushmote.server.answers import change as compare
from hushmote.server.answers import moments
from hushmote.server.estimate import estimate
from hushmote.server.estimate.estimate import Estimates
from hushmote.server.estimate.pooling import pool
from hushmote.server.experiments import units
from hushmote.server.mechanisms import decoded, mechanism_of
from hushmote.simulator import vectorised
from hushmote.simulator.crew import Workers
from hushmote.simulator.demo import temperatures
from hushmote.simulator.population import Recorded

CONFIDENCE = 0.95
EPSILONS = (0.5, 1.0, 2.0, 4.0, 7.0)
SIZES = (1_000, 10_000, 100_000, 1_000_000)
FLEETS = {1_000: 16, 10_000: 12, 100_000: 8, 1_000_000: 4}
DESIGNS = (("rr", 2), ("grr", 16), ("olh", 128), ("hh", 128))
WIDE = (("olh", 4096), ("hh", 4096))
WIDE_FLEETS = 4
WIDE_EPSILONS = (1.0, 2.0, 3.0, 4.0)
WIDE_SIZES = (1_000, 3_000)
POPULATIONS = (
    "uniform",
    "skewed",
    "zipf 1.5",
    "concentrated",
    "sparse",
    "two spikes",
    "sawtooth",
    "last bin",
    "real",
)
LEAST = 0.92  # coverage of each kind in each configuration
CLEARLY = 2.6  # standard errors above it at which no more fleets are drawn again
CHUNK, MOST_AGAIN = 40, 600
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
    scaled = tuple(None if x is None else low + float(cast(float, x)) / 128 * (high - low) for x in readings)
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
    elif name == "zipf 1.5":
        out = 1 / (1 + index) ** 1.5
    elif name == "sawtooth":
        out = 1.0 + index % 16
    elif name == "two spikes":
        out = np.isin(index, (domain // 5, domain * 7 // 10)).astype(float)
    elif name == "last bin":
        out = (index == domain - 1).astype(float)
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
    """Hits and trials of each fleet by kind, shape (fleets, kinds, 2)."""
    out: list[np.ndarray] = []

    @cache
    def code_law(e: Experiment, other: bool) -> np.ndarray:
        law = mechanism_of(e).code_law(g if other else f)
        return law / law.sum()

    def draw(shares: np.ndarray, e: Experiment = exp) -> Estimates:
        if reports > 2 * e.code_count:  # the same distribution, code by code instead of board by board
            return estimate(e, rng.multinomial(reports, code_law(e, shares is g)))
        return estimate(e, vectorised.histogram(e, rng.multinomial(reports, shares), rng))

    def count(kind: str, low: object, high: object, truth: object) -> None:
        inside = (np.asarray(low) <= np.asarray(truth) + 1e-9) & (
            np.asarray(truth) <= np.asarray(high) + 1e-9
        )
        out[-1][KINDS.index(kind)] += inside.sum(), inside.size

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
        out.append(np.zeros((len(KINDS), 2)))
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
    return np.array(out)


@dataclass(frozen=True)
class Configuration:
    """A design, an ε, a number of reports and a population."""

    mechanism: str
    domain: int
    epsilon: float
    reports: int
    population: str

    def hits(self, fleets: int, rng: np.random.Generator) -> np.ndarray:
        """Hits and trials of fresh fleets by kind, shape (fleets, kinds, 2)."""
        exp = experiment(self.mechanism, self.domain, round(self.epsilon * 1e6))
        return _hits(exp, shares(self.population, exp), self.reports, fleets, rng)


Case = tuple[Configuration, int, np.random.SeedSequence]
"""A configuration, how many fleets of it, and their seed."""


def first_hits(case: Case) -> np.ndarray:
    """Hits and trials of all of a case's fleets by kind, shape (kinds, 2)."""
    configuration, fleets, seed = case
    return configuration.hits(fleets, np.random.default_rng(seed)).sum(axis=0)


def rates_again(
    case: tuple[Configuration, list[int], np.random.SeedSequence], until: float
) -> list[tuple[int, int, float, float]]:
    """For each kind: its number, fleets drawn again, their coverage and its standard error.

    until: seconds of time.time() at which what is not done is left; then there are none.
    """
    configuration, kinds, seed = case
    rng, rates = np.random.default_rng(seed), np.empty((0, len(kinds)))
    while time.time() < until:
        hits = configuration.hits(CHUNK, rng)[:, kinds]
        rates = np.concatenate([rates, hits[..., 0] / hits[..., 1]])
        n = len(rates)
        mean, error = rates.mean(axis=0), np.maximum(rates.std(axis=0), 1 / n) / np.sqrt(n)
        if n >= MOST_AGAIN or (mean - CLEARLY * error > LEAST).all():
            return [(k, n, float(m), float(e)) for k, m, e in zip(kinds, mean, error, strict=True)]
    return []


def configurations(part: float) -> Iterator[tuple[Configuration, int]]:
    """Every configuration with its number of fleets; those that take longest first."""
    for design in WIDE:
        for epsilon, reports, name in product(reversed(WIDE_EPSILONS), WIDE_SIZES, POPULATIONS):
            yield Configuration(*design, epsilon, reports, name), max(1, round(WIDE_FLEETS * part))
    for reports in reversed(SIZES):
        for design, epsilon, name in product(DESIGNS, EPSILONS, POPULATIONS):
            yield Configuration(*design, epsilon, reports, name), max(1, round(FLEETS[reports] * part))


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


def flagged(results: list[tuple[Configuration, np.ndarray]]) -> list[tuple[Configuration, list[int]]]:
    """Configurations with the kinds whose first coverage was below 92 %, the lowest first."""
    found = []
    for configuration, hits in results:
        with np.errstate(invalid="ignore"):
            coverage = hits[:, 0] / hits[:, 1]
        kinds = np.flatnonzero(coverage < LEAST).tolist()
        if kinds:
            found.append((coverage[kinds].min(), configuration, kinds))
    found.sort(key=lambda row: row[0])
    return [(configuration, kinds) for _, configuration, kinds in found]


def drawn_again(
    todo: list[tuple[Configuration, list[int]]], seeds: list, until: float, crew: Workers, console: Console
) -> list[dict]:
    """Fresh coverage of what was below 92 %, as far as time allows."""
    rows: list[dict] = []
    cases = [(*case, seed) for case, seed in zip(todo, seeds, strict=False)]
    with Progress(console=console) as bar:
        task = bar.add_task("drawn again", total=len(cases))
        for (configuration, *_), again in zip(
            cases, crew.map(rates_again, cases, until, advance=lambda case: bar.advance(task)), strict=True
        ):
            for kind, fleets, coverage, error in again:
                row = asdict(configuration) | {"kind": KINDS[kind], "fleets": fleets}
                rows.append(row | {"coverage": coverage, "error": error})
    return sorted(rows, key=lambda row: row["coverage"])


def main() -> None:
    parser = argparse.ArgumentParser(description="Coverage of every kind of interval.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the fleets; writes no file")
    parser.add_argument("--minutes", type=float, default=20.0, help="after which nothing is drawn again")
    add_worker_options(parser)
    arguments = parser.parse_args()
    quick = arguments.quick
    console, start, began = Console(width=120), time.perf_counter(), time.time()
    todo = list(configurations(1 / 10 if quick else 1.0))
    seeds = np.random.SeedSequence(20_262).spawn(2 * len(todo))
    cases = [(*case, seed) for case, seed in zip(todo, seeds, strict=False)]
    again: list[dict] = []
    with chosen_workers(arguments) as crew:
        with Progress(console=console) as bar:
            task = bar.add_task("fleets", total=len(cases))
            hits = list(crew.map(first_hits, cases, advance=lambda case: bar.advance(task)))
        results = [(case[0], found) for case, found in zip(cases, hits, strict=True)]
        below = flagged(results)
        if not quick:
            until = began + 60 * arguments.minutes
            again = drawn_again(below, seeds[len(todo) :], until, crew, console)

    def pooled(wanted: Callable[[Configuration], bool]) -> np.ndarray:
        """Hits and trials of the configurations that are wanted."""
        return np.sum([hits for configuration, hits in results if wanted(configuration)], axis=0)

    usual = [x for x, _ in DESIGNS]
    groups: dict[str, Callable[[Configuration], bool]] = {"all": lambda c: True}
    groups |= {name: lambda c, x=name: c.population == x for name in POPULATIONS}
    groups |= {f"N = {n:,}": lambda c, x=n: c.reports == x for n in sorted({*SIZES, *WIDE_SIZES})}
    groups |= {f"ε = {e:g}": lambda c, x=e: c.epsilon == x for e in sorted({*EPSILONS, *WIDE_EPSILONS})}
    groups |= {m: lambda c, x=m: c.mechanism == x and c.domain < 4096 for m in usual}
    groups |= {f"{m} {d:,}": lambda c, x=(m, d): (c.mechanism, c.domain) == x for m, d in WIDE}
    table = {name: pooled(wanted) for name, wanted in groups.items()}
    names = list(groups)
    for part in (names[:6], names[6:10], names[10:15], names[15:21], names[21:]):
        shown = Table("95 % interval of", *part, *(["pairs"] if "all" in part else []))
        for i, kind in enumerate(KINDS):
            cells = [f"{table[name][i, 0] / table[name][i, 1]:.3f}" for name in part]
            shown.add_row(kind, *cells, *([f"{int(table['all'][i, 1]):,}"] if "all" in part else []))
        console.print(shown)
    console.print(f"below {LEAST:.0%} at first: {len(below)} of {len(todo)} configurations")
    if again:
        worst = Table("mechanism", "D", "ε", "N", "population", "interval of", "fleets", "drawn again")
        for row in again[:20]:
            head = (row["mechanism"], f"{row['domain']:,}", f"{row['epsilon']:g}", f"{row['reports']:,}")
            value = f"{row['coverage']:.3f} ± {row['error']:.3f}"
            worst.add_row(*head, row["population"], row["kind"], str(row["fleets"]), value)
        console.print(worst)
        done = {(r["mechanism"], r["domain"], r["epsilon"], r["reports"], r["population"]) for r in again}
        console.print(f"drawn again: {len(done)} configurations, {len(again)} of their kinds")
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
            "configurations": len(todo),
            "below_at_first": len(below),
            "pairs": {kind: int(table["all"][i, 1]) for i, kind in enumerate(KINDS)},
            "coverage": {
                name: {kind: hits[i, 0] / hits[i, 1] for i, kind in enumerate(KINDS)}
                for name, hits in table.items()
            },
            "drawn_again": again,
            "thin": thin,
        }
        write("interval_coverage.json", result)


if __name__ == "__main__":
    import interval_coverage  # by this name workers find its functions

    interval_coverage.main()
