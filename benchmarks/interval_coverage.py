"""Do intervals hold what they say: coverage of every kind of interval, over fleets drawn anew.

    python benchmarks/interval_coverage.py [--quick] [--minutes 20] [--workers N|URL]

Designs grr (16 values), olh and hh (128), rr at ε 0.5 to 7 with 1,000 to 1,000,000 reports; wide and thin,
olh and hh (4,096) at ε 1 to 4 with 1,000 and 3,000 reports. Populations uniform, skewed, Zipf 1.5,
concentrated, sparse (five values), two spikes, a sawtooth, all in the last bin and real (air temperatures).
Every fleet is drawn from the population, so the intervals are judged as what they are: the population's.

A configuration has few fleets, so that some of its kinds of intervals fall below 92 % by chance. Those are
drawn again with fresh seeds, lowest first, until 92 % are clearly reached (2.6 standard errors) or 600 fleets
are through, for as long as --minutes allow; the fresh fleets alone count there.

Writes benchmarks/results/interval_coverage.json; --quick takes a tenth of the fleets and draws none again.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import product

import numpy as np
from draws import Tally, clear_quantiles, count_intervals, counts, counts_by_law, middles, some_ranges
from draws import shares as shares_of
from published import experiment
from results_file import CONSOLE, run, show
from rich.progress import Progress

from hushmote.device.ldp_client import Experiment
from hushmote.server.answers import change as compare
from hushmote.server.estimate import estimate
from hushmote.server.estimate.estimate import Estimates
from hushmote.server.estimate.pooling import pool
from hushmote.server.experiments import units
from hushmote.server.mechanisms import decoded
from hushmote.simulator.crew import Workers
from hushmote.simulator.workers import workers

EPSILONS = (0.5, 1.0, 2.0, 4.0, 7.0)
FLEETS = {1_000: 16, 10_000: 12, 100_000: 8, 1_000_000: 4}
DESIGNS = (("rr", 2), ("grr", 16), ("olh", 128), ("hh", 128))
WIDE, WIDE_FLEETS = (("olh", 4096), ("hh", 4096)), 4
WIDE_EPSILONS, WIDE_SIZES = (1.0, 2.0, 3.0, 4.0), (1_000, 3_000)
POPULATIONS = (
    "uniform",
    "skewed",
    "zipf 1.5",
    "concentrated",
    "sparse",
    "two spikes",
    "sawtooth",
    "last bin",
)
POPULATIONS += ("real",)
LEAST = 0.92  # coverage of each kind in each configuration
CLEARLY = 2.6  # standard errors above it at which no more fleets are drawn again
CHUNK, MOST_AGAIN = 40, 600
DISCRETE = ("quantile", "change of a quantile")
KINDS = ("frequency", "range", "above or below", "cdf", "quantile", "mean", "standard deviation")
KINDS += ("change of a share", "change of the mean", "change of a quantile", "sum of two windows")
KINDS += ("pool of two versions",)


def tallies(exp: Experiment, f: np.ndarray, reports: int, fleets: int, rng: np.random.Generator):
    """The intervals of each fleet."""
    # The other side of a comparison: the same shape, one value further for a part of the fleet.
    g = 0.7 * f + 0.3 * np.roll(f, 1)
    weaker = experiment(exp.mechanism, exp.domain, exp.epsilon // 2)
    wanted, x = clear_quantiles(f, g), middles(exp)
    cdf, other_cdf = np.cumsum(f), np.cumsum(g)
    ranges = [r for some in some_ranges(exp.domain) for r in some]
    low, high = np.array(ranges).T
    every = [units.IndexRange(a, b, "") for a, b in ranges]

    def draw(f: np.ndarray, e: Experiment = exp) -> Estimates:
        # The same distribution, code by code where that is less than board by board.
        way = counts_by_law if reports > 2 * e.code_count else counts
        return estimate(e, way(e, f, reports, rng))

    for _ in range(fleets):
        tally = Tally()
        one, other = draw(f), draw(g)
        count_intervals(tally, one, f, wanted)
        for row, r in zip(compare.changed_shares(one, other, every).rows, every, strict=True):
            tally.count("change of a share", (row.low, row.high), (g - f)[r.low : r.high].sum())
        changed = compare.changed_readings(one, other, wanted).rows
        tally.count("change of the mean", (changed[0].low, changed[0].high), (g - f) @ x)
        for row, q in zip(changed[2:], wanted, strict=True):
            truth = x[np.argmax(other_cdf >= q)] - x[np.argmax(cdf >= q)]
            tally.count("change of a quantile", (row.low, row.high), truth)
        half = [(f + g)[a:b].sum() / 2 for a, b in ranges]
        tally.count("sum of two windows", pool([one, other]).ranges(low, high).interval(), half)
        versions = pool([one, draw(f, weaker)], by="variance")
        truth = [f[a:b].sum() for a, b in ranges]
        tally.count("pool of two versions", versions.ranges(low, high).interval(), truth)
        yield tally


@dataclass(frozen=True)
class Configuration:
    """A design, an ε, a number of reports and a population."""

    mechanism: str
    domain: int
    epsilon: float
    reports: int
    population: str

    def tallies(self, fleets: int, rng: np.random.Generator) -> Iterator[Tally]:
        """Of fresh fleets."""
        exp = experiment(self.mechanism, self.domain, round(self.epsilon * 1e6))
        return tallies(exp, shares_of(self.population, exp), self.reports, fleets, rng)


def first(case: tuple[Configuration, int, np.random.SeedSequence]) -> Tally:
    """All fleets of a case together."""
    configuration, fleets, seed = case
    total = Tally()
    for tally in configuration.tallies(fleets, np.random.default_rng(seed)):
        total.add(tally)
    return total


def again(case: tuple[Configuration, list[str], np.random.SeedSequence], until: float) -> list[dict]:
    """For each kind the fleets drawn again, their coverage and its standard error.

    until: seconds of time.time() at which what is not done is left; then there are none.
    """
    configuration, kinds, seed = case
    rng, rates = np.random.default_rng(seed), []
    while time.time() < until:
        rates += [[tally.of(kind) for kind in kinds] for tally in configuration.tallies(CHUNK, rng)]
        n, mean = len(rates), np.mean(rates, axis=0)
        error = np.maximum(np.std(rates, axis=0), 1 / n) / np.sqrt(n)
        if n >= MOST_AGAIN or (mean - CLEARLY * error > LEAST).all():
            found = zip(kinds, mean.tolist(), error.tolist(), strict=True)
            about = asdict(configuration) | {"fleets": n}
            return [about | {"kind": kind, "coverage": m, "error": e} for kind, m, e in found]
    return []


def configurations(part: float) -> Iterator[tuple[Configuration, int]]:
    """Every configuration with its number of fleets; those that take longest first."""
    for design in WIDE:
        for epsilon, reports, name in product(reversed(WIDE_EPSILONS), WIDE_SIZES, POPULATIONS):
            yield Configuration(*design, epsilon, reports, name), max(1, round(WIDE_FLEETS * part))
    for reports in reversed(FLEETS):
        for design, epsilon, name in product(DESIGNS, EPSILONS, POPULATIONS):
            yield Configuration(*design, epsilon, reports, name), max(1, round(FLEETS[reports] * part))


def mixture(rng: np.random.Generator, fleets: int) -> dict[str, float]:
    """Coverage of frequencies in thin histograms by what the variance is taken over."""
    exp = experiment("hh", 1024, 4_000_000)
    f, coverage, kept = shares_of("skewed", exp), Tally(), decoded.IMPLIED_SHARE
    names = {"histogram alone": 0.0, "half of each": 0.5, "implied alone": 1.0}
    for name, decoded.IMPLIED_SHARE in names.items():
        for _ in range(fleets):
            coverage.count(name, estimate(exp, counts(exp, f, 300, rng)).frequency_intervals(), f)
    decoded.IMPLIED_SHARE = kept
    return {name: coverage.of(name) for name in names}


def below(results: list[tuple[Configuration, Tally]]) -> list[tuple[Configuration, list[str]]]:
    """Configurations with the kinds whose first coverage was below 92 %, the lowest first."""
    found = [(c, [k for k in KINDS if tally.of(k) < LEAST], tally) for c, tally in results]
    found = [(min(map(tally.of, kinds)), c, kinds) for c, kinds, tally in found if kinds]
    return [(c, kinds) for _, c, kinds in sorted(found, key=lambda row: row[0])]


def in_groups(results: list[tuple[Configuration, Tally]]) -> dict[str, Tally]:
    """All together; by population, N, ε and design."""
    groups: dict[str, Callable[[Configuration], bool]] = {"all": lambda c: True}
    groups |= {name: lambda c, x=name: c.population == x for name in POPULATIONS}
    groups |= {f"N = {n:,}": lambda c, x=n: c.reports == x for n in sorted({*FLEETS, *WIDE_SIZES})}
    groups |= {f"ε = {e:g}": lambda c, x=e: c.epsilon == x for e in sorted({*EPSILONS, *WIDE_EPSILONS})}
    groups |= {m: lambda c, x=m: c.mechanism == x and c.domain < 4096 for m, _ in DESIGNS}
    groups |= {f"{m} {d:,}": lambda c, x=(m, d): (c.mechanism, c.domain) == x for m, d in WIDE}
    pooled = {name: Tally() for name in groups}
    for c, tally in results:
        for name, wanted in groups.items():
            if wanted(c):
                pooled[name].add(tally)
    return pooled


def mapped(crew: Workers, function: Callable, cases: list, *more: object) -> list:
    """The function of each case, by the workers, with a bar."""
    with Progress(console=CONSOLE) as bar:
        task = bar.add_task(function.__name__, total=len(cases))
        return list(crew.map(function, cases, *more, advance=lambda case: bar.advance(task)))


def coverage(options: argparse.Namespace) -> dict:
    start, began, quick = time.perf_counter(), time.time(), options.quick
    todo = list(configurations(1 / 10 if quick else 1.0))
    seeds = np.random.SeedSequence(20_262).spawn(2 * len(todo))
    cases = [(*case, seed) for case, seed in zip(todo, seeds, strict=False)]
    rows: list[dict] = []
    with workers(options.workers, cores=True) as crew:
        found = zip((case[0] for case in cases), mapped(crew, first, cases), strict=True)
        low = below(results := list(found))
        if not quick:
            doubtful = [(*case, seed) for case, seed in zip(low, seeds[len(todo) :], strict=False)]
            until = began + 60 * options.minutes
            rows = [row for some in mapped(crew, again, doubtful, until) for row in some]
    pooled = in_groups(results)
    table = {name: {kind: tally.of(kind) for kind in KINDS} for name, tally in pooled.items()}
    show("95 % intervals that hold", [{"of": k} | {n: table[n][k] for n in [*table][:10]} for k in KINDS])
    return {
        "seconds": time.perf_counter() - start,
        "confidence": 0.95,
        "discrete": DISCRETE,
        "configurations": len(todo),
        "below_at_first": len(low),
        "pairs": {kind: int(pooled["all"][kind][1]) for kind in KINDS},
        "coverage": table,
        "drawn_again": sorted(rows, key=lambda row: row["coverage"]),
        "thin": mixture(np.random.default_rng(1), 20 if quick else 200),
    }


def main() -> None:
    minutes = {"type": float, "default": 20.0, "help": "after which nothing is drawn again"}
    where = "processes (without it one for each core), or a Dask scheduler's URL, whose workers have "
    crew = {"metavar": "N|URL", "help": where + "benchmarks/ in PYTHONPATH; the numbers are the same"}
    run(__doc__, "interval_coverage.json", {"": coverage}, minutes=minutes, workers=crew)


if __name__ == "__main__":
    import interval_coverage  # by this name workers find its functions

    interval_coverage.main()
