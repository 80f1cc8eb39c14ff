"""Coverage of every kind of interval, over newly drawn fleets.

    python benchmarks/interval_coverage.py [--quick] [--minutes 20] [--workers N|URL]

Designs grr (16 values), olh and hh (128), rr at ε 0.5 to 7 with 1,000 to 1,000,000 reports; wide and thin,
olh and hh (4,096) at ε 1 to 4 with 1,000 and 3,000 reports. Populations uniform, skewed, Zipf 1.5,
concentrated, sparse (five values), two spikes, a sawtooth, all in the last bin and real (air temperatures).
Every fleet is drawn from the population, so the intervals are compared with the population.

Each configuration has few fleets, so some kinds of intervals fall below 92% by chance. Those configurations
are drawn again with fresh seeds, lowest first, until coverage is clearly above 92% (2.6 standard errors),
600 fleets are drawn, or --minutes have passed; their coverage then counts only the fresh fleets.

Writes benchmarks/results/interval_coverage.json; --quick uses a tenth of the fleets and redraws none.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np
from draws import POPULATIONS, Tally, clear_quantiles, count_intervals, counts, shares, some_ranges
from draws import counts_by_law as by_law
from published import experiment
from results_file import CONSOLE, Options, run, show
from rich.progress import Progress

from hushmote.device.ldp_client import Experiment
from hushmote.server.answers import change as compare
from hushmote.server.estimate import estimate
from hushmote.server.estimate.estimate import Estimates
from hushmote.server.estimate.pooling import pool
from hushmote.server.experiments import units
from hushmote.server.mechanisms import decoded_histogram
from hushmote.simulator.worker_pool import Workers
from hushmote.simulator.workers import workers

EPSILONS = (0.5, 1.0, 2.0, 4.0, 7.0)
FLEETS = {1_000: 16, 10_000: 12, 100_000: 8, 1_000_000: 4}
DESIGNS = (("rr", 2), ("grr", 16), ("olh", 128), ("hh", 128))
WIDE, WIDE_FLEETS = (("olh", 4096), ("hh", 4096)), 4
WIDE_EPSILONS, WIDE_SIZES = (1.0, 2.0, 3.0, 4.0), (1_000, 3_000)
MIN_COVERAGE = 0.92  # required coverage for each kind in each configuration
CLEARLY = 2.6  # standard errors above MIN_COVERAGE at which redrawing stops
CHUNK, MAX_AGAIN = 40, 600
DISCRETE = ("quantile", "change of a quantile")
KINDS = ("frequency", "range", "above or below", "cdf", "quantile", "mean", "standard deviation")
KINDS += ("change of a share", "change of the mean", "change of a quantile", "sum of two windows")
KINDS += ("pool of two versions",)


def tallies(exp: Experiment, f: np.ndarray, reports: int, fleets: int, rng: np.random.Generator):
    """Yield the intervals of each fleet."""
    # The comparison's other population has the same shape, but 30% of the fleet is shifted by one value.
    g = 0.7 * f + 0.3 * np.roll(f, 1)
    weaker = experiment(exp.mechanism, exp.domain, exp.epsilon // 2)
    quantiles, x = clear_quantiles(f, g), units.bin_middles(exp)
    cdf, other_cdf = np.cumsum(f), np.cumsum(g)
    ranges = [r for some in some_ranges(exp.domain) for r in some]
    low, high = np.array(ranges).T
    every = [units.IndexRange(a, b, "") for a, b in ranges]

    def draw(f: np.ndarray, e: Experiment = exp) -> Estimates:
        # Draw from the same distribution code by code if that is cheaper than board by board.
        method = by_law if reports > 2 * e.code_count else counts
        return estimate(e, method(e, f, reports, rng))

    for _ in range(fleets):
        tally = Tally()
        one, other = draw(f), draw(g)
        count_intervals(tally, one, f, quantiles)
        for row, r in zip(compare.changed_shares(one, other, every).rows, every, strict=True):
            tally.count("change of a share", (row.low, row.high), (g - f)[r.low : r.high].sum())
        changed = compare.changed_readings(one, other, quantiles).rows
        tally.count("change of the mean", (changed[0].low, changed[0].high), (g - f) @ x)
        for row, q in zip(changed[2:], quantiles, strict=True):
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
        """Yield the intervals of new fleets."""
        exp = experiment(self.mechanism, self.domain, round(self.epsilon * 1e6))
        return tallies(exp, shares(self.population, self.domain), self.reports, fleets, rng)


def tally_first(case: tuple[Configuration, int, np.random.SeedSequence]) -> Tally:
    """Return the combined tally of a case's fleets."""
    configuration, fleets, seed = case
    total = Tally()
    for tally in configuration.tallies(fleets, np.random.default_rng(seed)):
        total.add(tally)
    return total


def draw_again(case: tuple[Configuration, list[str], np.random.SeedSequence], until: float) -> list[dict]:
    """Return each kind's number of new fleets, their coverage and its standard error.

    After `until`, a time.time(), return an empty list.
    """
    configuration, kinds, seed = case
    rng, rates = np.random.default_rng(seed), []
    while time.time() < until:
        rates += [[tally.of(kind) for kind in kinds] for tally in configuration.tallies(CHUNK, rng)]
        n, mean = len(rates), np.mean(rates, axis=0)
        error = np.maximum(np.std(rates, axis=0), 1 / n) / np.sqrt(n)
        if n >= MAX_AGAIN or (mean - CLEARLY * error > MIN_COVERAGE).all():
            statistics = zip(kinds, mean.tolist(), error.tolist(), strict=True)
            about = asdict(configuration) | {"fleets": n}
            return [about | {"kind": kind, "coverage": m, "error": e} for kind, m, e in statistics]
    return []


def configurations(part: float) -> Iterator[tuple[Configuration, int]]:
    """Yield every configuration with its number of fleets, the slowest first."""
    for design, epsilon, reports, name in product(WIDE, reversed(WIDE_EPSILONS), WIDE_SIZES, POPULATIONS):
        yield Configuration(*design, epsilon, reports, name), max(1, round(WIDE_FLEETS * part))
    for reports, design, epsilon, name in product(reversed(FLEETS), DESIGNS, EPSILONS, POPULATIONS):
        yield Configuration(*design, epsilon, reports, name), max(1, round(FLEETS[reports] * part))


def mixture(rng: np.random.Generator, fleets: int) -> dict[str, float]:
    """Return the coverage of frequency intervals over sparse histograms, by the variance's source."""
    exp = experiment("hh", 1024, 4_000_000)
    f, coverage, saved_share = shares("skewed", exp.domain), Tally(), decoded_histogram.IMPLIED_SHARE
    names = {"histogram alone": 0.0, "half of each": 0.5, "implied alone": 1.0}
    for name, decoded_histogram.IMPLIED_SHARE in names.items():
        for _ in range(fleets):
            coverage.count(name, estimate(exp, counts(exp, f, 300, rng)).frequency_intervals(), f)
    decoded_histogram.IMPLIED_SHARE = saved_share
    return {name: coverage.of(name) for name in names}


def mapped(worker_pool: Workers, function: Callable, cases: list, *more: object) -> list:
    """Return the function's result for each case, computed by workers, with a progress bar."""
    with Progress(console=CONSOLE) as bar:
        task = bar.add_task(function.__name__, total=len(cases))
        return list(worker_pool.map(function, cases, *more, advance=lambda case: bar.advance(task)))


def rates(pooled: dict[str, Tally], kinds: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return coverage by group and kind."""
    return {name: {kind: tally.of(kind) for kind in kinds} for name, tally in pooled.items()}


def covered(
    todo: list[tuple[Configuration, int]], kinds: Sequence[str], options: Options
) -> tuple[dict[str, Tally], list[list[str]], list[dict]]:
    """Draw all fleets; unless --quick, redraw the configurations below 92%, lowest first.

    Returns:
        Tallies in total and by population, N, ε and design; the kinds below 92% in each configuration; and
        the rows that were drawn again.
    """
    until, seeds = time.time() + 60 * options.minutes, np.random.SeedSequence(20_262).spawn(2 * len(todo))
    cases = [(*case, seed) for case, seed in zip(todo, seeds, strict=False)]
    pooled, low, redrawn = defaultdict(Tally), [], []
    with workers(options.workers, cores=True) as worker_pool:
        for (c, _), tally in zip(todo, mapped(worker_pool, tally_first, cases), strict=True):
            design = c.mechanism if c.domain < 4096 else f"{c.mechanism} {c.domain:,}"
            for group in ("all", c.population, f"N = {c.reports:,}", f"ε = {c.epsilon:g}", design):
                pooled[group].add(tally)
            if wrong := [kind for kind in kinds if tally.of(kind) < MIN_COVERAGE]:
                low.append((min(map(tally.of, wrong)), c, wrong))
        low = [(c, wrong) for _, c, wrong in sorted(low, key=lambda row: row[0])]
        if not options.quick:
            doubtful = [(*case, seed) for case, seed in zip(low, seeds[len(todo) :], strict=False)]
            redrawn = [row for some in mapped(worker_pool, draw_again, doubtful, until) for row in some]
    return pooled, [wrong for _, wrong in low], sorted(redrawn, key=lambda row: row["coverage"])


def coverage(options: Options) -> dict:
    start, todo = time.perf_counter(), list(configurations(1 / 10 if options.quick else 1.0))
    pooled, low, drawn_again = covered(todo, KINDS, options)
    table = rates(pooled, KINDS)
    columns = ("all", *POPULATIONS)
    show("coverage of 95% intervals", [{"kind": k} | {n: table[n][k] for n in columns} for k in KINDS])
    result = {"seconds": time.perf_counter() - start, "confidence": 0.95, "discrete": DISCRETE}
    result |= {"configurations": len(todo), "below_at_first": len(low)}
    result["pairs"] = {kind: int(pooled["all"][kind][1]) for kind in KINDS}
    thin = mixture(np.random.default_rng(1), 20 if options.quick else 200)
    return result | {"coverage": table, "drawn_again": drawn_again, "thin": thin}


def worker_options() -> dict[str, Any]:
    """Return the options of the benchmarks that draw intervals."""
    minutes = {"type": float, "default": 20.0, "help": "time limit for redrawing"}
    text = "number of processes (default: one per core), or the URL of a Dask scheduler whose workers have "
    processes = {"metavar": "N|URL", "help": text + "benchmarks/ in PYTHONPATH; the results are the same"}
    return {"minutes": minutes, "workers": processes}


def main() -> None:
    run(__doc__, "interval_coverage.json", {"": coverage}, **worker_options())


if __name__ == "__main__":
    import interval_coverage  # workers import this module by its name

    interval_coverage.main()
