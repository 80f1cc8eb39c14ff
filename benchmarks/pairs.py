"""Pairs: the cost and gain of views compared with the alternatives, and the intervals' coverage.

    python benchmarks/pairs.py [--quick] [--processes 2]

The first table is computed, not simulated: the variance per report over 16 x 16 values at ε = 2, for an even
population and for a cell that nobody has. The second is the coverage of 95% intervals over newly drawn
fleets: crashes by version (5 versions and "other", crash rates from 2 to 12%) and delay by airline (8
airlines and "other", 16 bins), each with the mechanisms planned for the joint table, for one part given the
other, and for all tables at once; ε 1, 2 and 4; 3,000, 30,000 and 300,000 reports. Ratios are grouped by the
number of standard errors by which their denominator exceeds 0; those below the lowest bound are never shown
to users, and are counted separately.

Writes benchmarks/results/pairs.json; --quick runs a sixth of the configurations with a twentieth of the
fleets.
"""

import json
import math
import multiprocessing
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np
from draws import Tally, counts
from results_file import CONSOLE, Options, machine, run
from rich.progress import track

from hushmote.device.ldp_client import Experiment
from hushmote.server.answers import pair_tables
from hushmote.server.answers.pair_tables import PairStatistic, PairTable
from hushmote.server.arrays import Floats
from hushmote.server.estimate import estimate
from hushmote.server.estimate.conditional import MIN_ERRORS, Ratio, RatioDifference, independent_difference
from hushmote.server.estimate.estimate import Estimates
from hushmote.server.estimate.pooling import pool
from hushmote.server.estimate.statistic import Statistic
from hushmote.server.experiments.payload import chosen_fields
from hushmote.server.mechanisms import mechanism_of
from hushmote.server.mechanisms.views import factors
from hushmote.server.mechanisms.views.factors import parts_of
from hushmote.server.mechanisms.workload import FREQUENCIES, Workload

EPSILONS = (1.0, 2.0, 4.0)
SIZES = (3_000, 30_000, 300_000)
FLEETS = 200
BANDS = (MIN_ERRORS, 6.0, 10.0)
"""Bounds, in standard errors of the denominator above 0, between the groups of ratios."""

VERSIONS = {"name": "version", "type": "choice", "labels": ["1.0", "1.1", "1.2", "1.3", "1.4"]}
CRASHED = {"name": "crashed", "type": "bool"}
AIRLINES = {"name": "airline", "type": "choice", "labels": list("ABCDEFGH")}
DELAY = {"name": "delay", "type": "number", "low": -20_000, "high": 140_000, "bins": 16}


def pair(of: tuple[dict, dict], mechanism: dict, epsilon: float) -> Experiment:
    """Return an experiment over two readings."""
    fields = {"v": 1, "name": "pair", "type": "pair", "of": list(of), **mechanism}
    fields |= _COMMON | {"epsilon": round(epsilon * 1e6)}
    return Experiment.parse(json.dumps(fields, separators=(",", ":")).encode())


# --- Cost -----------------------------------------------------------------------------------------


def costs() -> list[dict]:
    """Return each design's variance per report for a joint cell and a marginal, 16 x 16 at ε = 2."""
    number = {"type": "number", "low": 0, "high": 16_000, "bins": 16}
    readings = ({"name": "a", **number}, {"name": "b", **number})
    shape = (16, 16)
    statistics = {
        "joint table alone": FREQUENCIES,
        "one marginal alone": Workload("marginals", shape=shape, of_parts=(0,)),
        "each marginal": Workload("marginals", shape=shape),
        "one part given the other": Workload("conditional", shape=shape, of_parts=(1,), given=(0,)),
        "the difference of two such": Workload("differences", shape=shape, of_parts=(1,), given=(0,)),
    }
    rows = []
    for name, workload in statistics.items():
        mechanism = chosen_fields(256, 2_000_000, workload)
        experiment = pair(readings, mechanism, 2.0)
        row = {"asked": name, "design": mechanism_of(experiment).words(), "codes": experiment.code_count}
        rows.append(row | _variances(experiment, shape))
    fields = chosen_fields(16, 1_000_000, FREQUENCIES)
    half = Experiment.parse(json.dumps({"v": 1, "name": "n", **number, **fields, **_COMMON}).encode())
    alone = float(mechanism_of(half).variances(np.eye(16, 1), np.full(16, 1 / 16))[0])
    row = {"asked": "two experiments, ε / 2 each", "design": half.mechanism, "codes": half.code_count}
    return [*rows, row | {"cell": None, "marginal": alone, "cell_of_nobody": None}]


_COMMON = {"epsilon": 1_000_000, "budget": {"rule": "unlimited"}, "window": "day"}


def _variances(experiment: Experiment, shape: tuple[int, ...]) -> dict[str, float | None]:
    mechanism = mechanism_of(experiment)
    even = np.full(256, 1 / 256)
    without = np.append(0.0, np.full(255, 1 / 255))
    cell, part = np.eye(256, 1), factors.spread_out(np.eye(16, 1), shape, (0,))

    def variance(statistic: Floats, shares: Floats) -> float | None:
        unknown = mechanism.unknown(statistic, mechanism.stratum_chances)
        return None if unknown else float(mechanism.variances(statistic, shares)[0])

    statistics = {"cell": (cell, even), "marginal": (part, even), "cell_of_nobody": (cell, without)}
    return {name: variance(*of) for name, of in statistics.items()}


# --- Coverage -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Configuration:
    """A kind of fleet to draw repeatedly."""

    question: str
    design: str
    epsilon: float
    reports: int
    fleets: int

    @property
    def of(self) -> tuple[dict, dict]:
        """The two readings."""
        return (VERSIONS, CRASHED) if self.question == "crashes" else (AIRLINES, DELAY)

    def experiment(self) -> Experiment:
        """Return the experiment with the chosen mechanism."""
        shape = (6, 2) if self.question == "crashes" else (9, 16)
        workload = {
            "flat": FREQUENCIES,
            "views": Workload("conditional", shape=shape, of_parts=(1,), given=(0,)),
            "marginals too": Workload("tables", shape=shape),
        }[self.design]
        mechanism = chosen_fields(math.prod(shape), round(self.epsilon * 1e6), workload)
        return pair(self.of, mechanism, self.epsilon)

    def population(self) -> Floats:
        """Return the joint table's shares, shape (domain,)."""
        if self.question == "crashes":
            versions = np.array([0.03, 0.12, 0.25, 0.35, 0.2, 0.05])
            rates = np.array([0.12, 0.08, 0.05, 0.02, 0.03, 0.05])
            table = np.stack([versions * (1 - rates), versions * rates], axis=1)
        else:
            airlines = 1 / np.arange(1, 10) ** 0.8
            bins = np.arange(16)
            late = np.exp(-bins[None, :] / np.linspace(1.0, 4.0, 9)[:, None])
            table = (airlines / airlines.sum())[:, None] * late / late.sum(axis=1, keepdims=True)
        return (table / table.sum()).ravel()


def _tables(experiment: Experiment, question: str) -> dict[str, PairTable]:
    statistic = "crashed=yes" if question == "crashes" else "delay"
    part = parts_of(experiment)[0]
    first, second = (f"{part.name}={label}" for label in part.labels[:2])
    _, less = pair_tables.difference(experiment, statistic, (first, second))
    return {
        "joint cell": pair_tables.joint(experiment, 16),
        "marginal": pair_tables.marginal(experiment, part.name, 16),
        "given" if question == "crashes" else "mean given": pair_tables.conditional(
            experiment, statistic, "", 16
        ),
        "difference" if question == "crashes" else "difference of means": less,
    }


def _band(statistic: Statistic) -> str:
    """Return the band of the smallest denominator, or "" for a statistic without one."""
    if isinstance(statistic, RatioDifference):
        return min(_band(statistic.first), _band(statistic.second), key=_NAMES.index)
    if not isinstance(statistic, Ratio):
        return ""
    errors = statistic.denominator.value / statistic.denominator.stderr
    return _NAMES[sum(errors > bound for bound in BANDS)]


_NAMES = [f"below {BANDS[0]:g}", *(f"{a:g} to {b:g}" for a, b in pairwise(BANDS)), f"above {BANDS[-1]:g}"]


def cover(configuration: Configuration) -> Tally:
    """Return a configuration's tally by kind and band."""
    experiment, shares = configuration.experiment(), configuration.population()
    words = [len(configuration.design), len(configuration.question)]
    rng = np.random.default_rng([round(configuration.epsilon * 10), configuration.reports, *words])
    tally = Tally()
    tables = _tables(experiment, configuration.question)

    def draw() -> Estimates:
        return estimate(experiment, counts(experiment, shares, configuration.reports, rng))

    def count(kind: str, one: PairStatistic, statistic: Statistic, truth: float | None = None) -> None:
        true = one.of_truth(shares) if truth is None else truth
        tally.count((kind, _band(statistic)), statistic.interval(), true)

    for _ in range(configuration.fleets):
        fleet, other = draw(), draw()
        for kind, table in tables.items():
            statistics = pair_tables.statistics(fleet, table.statistics)
            for one, statistic in zip(table.statistics, statistics, strict=True):
                count(kind, one, statistic)
            if kind.endswith("given"):
                pooled = pair_tables.statistics(pool([fleet, other]), table.statistics)
                other_statistics = pair_tables.statistics(other, table.statistics)
                for one, a, b, both in zip(
                    table.statistics, statistics, other_statistics, pooled, strict=True
                ):
                    assert isinstance(a, Ratio)
                    assert isinstance(b, Ratio)
                    count(f"{kind}, change", one, independent_difference(a, b), 0.0)
                    count(f"{kind}, two versions pooled", one, both)
    return tally


def coverage(options: Options) -> list[dict]:
    """Return each kind's coverage over all configurations, by how far the denominator is above 0."""
    grid = product(("crashes", "delays"), ("flat", "views", "marginals too"), EPSILONS, SIZES)
    fleets = FLEETS // 20 if options.quick else FLEETS
    configurations = [Configuration(*one, fleets) for one in grid][:: 6 if options.quick else 1]
    total, worst = Tally(), {}
    with multiprocessing.Pool(options.processes) as workers:
        tallies = track(workers.imap(cover, configurations), total=len(configurations), console=CONSOLE)
        for c, tally in zip(configurations, tallies, strict=True):
            total.add(tally)
            for kind in {kind for kind, _ in tally}:
                hits, n = _hits(tally, kind)
                if n >= 100:
                    now = hits / n, f"{c.question}, {c.design}, ε {c.epsilon:g}, {c.reports:,}"
                    worst[kind] = min(worst.get(kind, (1.0, "")), now)
    rows = []
    for kind in dict.fromkeys(kind for kind, _ in total):
        (hits, n), least = _hits(total, kind), worst.get(kind, (math.nan, ""))
        refused = int(total.get((kind, _NAMES[0]), (0, 0))[1])
        row = {"kind": kind, "intervals": int(n), "covered": hits / n if n else None, "not_shown": refused}
        row |= {"least": least[0], "least_of": least[1]}
        rows.append(row | {band: total.of((kind, band)) for band in _NAMES if (kind, band) in total})
    return rows


def _hits(tally: Tally, kind: str) -> tuple[float, float]:
    """Return how many of a kind's intervals contain the truth, and how many there are, in shown bands."""
    rows = [both for (name, band), both in tally.items() if name == kind and band != _NAMES[0]]
    hits, n = np.sum([np.zeros(2), *rows], axis=0)
    return hits, n


def measure(options: Options) -> dict:
    settings = {"epsilons": EPSILONS, "reports": SIZES, "fleets": FLEETS, "confidence": 0.95}
    return machine() | {"settings": settings, "variances": costs(), "coverage": coverage(options)}


if __name__ == "__main__":
    run(__doc__, "pairs.json", {"": measure}, head={}, processes={"type": int, "default": 1})
