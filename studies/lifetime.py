"""Study of a life of reports: few large ones against many small ones, predicted and measured.

A fleet is asked for the frequencies of one day for a year, or of 31 days of it, and every board must stay
within a lifetime budget. Four ways to live with that are compared, by formula and by drawing the fleets:

    once     one report in a life at the full budget, on a day drawn at random
    coin     the same by the coin of `every`, which knows no calendar: a call in 365 makes the report
    basic    a report a day, the budget shared by adding up
    optimal  a report a day, the budget shared by optimal composition at delta

The error is the root mean square, over values and days, of what is estimated against the population's
shares; the sampling of the population is part of it.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from pydantic import Field

from ..server.accounting import optimal_epsilon
from ..server.arrays import Floats
from ..server.epsilon import MICRO
from ..server.estimate.estimate import estimate
from ..server.mechanisms import choose as oracle
from ..server.mechanisms.workload import FREQUENCIES
from ..server.plain import plain
from ..server.planning.devices import PlanError, best_design
from ..server.planning.expected_error import Design, Kind, Question, mean_variance, variance
from ..server.planning.lifetime import reports_made
from ..simulator import population, vectorised
from .frame import Running, StudyParameters, StudyResult, StudyTable

DOMAIN = 64
DAYS = 365
POOLED_DAYS = 31
LIFETIMES = (1, 2, 4, 8)
DELTA = 1e-6
FLEETS = (1_000_000, 100_000)
WAYS = {  # their headings in tables, and their labels in pictures
    "once": ("one report", "one report for life, a day"),
    "once, 31 days": ("31 days", "the same, 31 days pooled"),
    "coin": ("by coin", "the same by the coin of `every`, a day"),
    "basic": ("365 basic", "365 small reports, basic"),
    "optimal": ("365 optimal", "365 small reports, optimal, δ = 1e-6"),
}
SPLITS = (1, 2, 3, 4)
SPLIT_DOMAINS = (16, 64, 256)
KINDS: tuple[Kind, ...] = ("frequency", "range", "quantile")
BUDGET_REPORTS = (1, 4, 10)


@dataclass(frozen=True)
class LifetimeCell:
    """Error of one way at one lifetime epsilon: root mean squares, shares of devices.

    epsilon: of a report, nats. reports: in a window, on average. uncertainty: standard error of measured.
    """

    devices: int
    lifetime: float
    way: str
    epsilon: float
    mechanism: str
    reports: float
    predicted: float
    measured: float
    uncertainty: float

    @property
    def off(self) -> float:
        """Measured over predicted, less 1."""
        return self.measured / self.predicted - 1


@dataclass(frozen=True)
class Split:
    """Error of splitting a budget in m = 1, 2, 3, 4 reports, relative to one, each board making all m.

    coin: the same on the last day of a year, by the coin of the best `every`.
    """

    lifetime: float
    domain: int
    kind: str
    relative: tuple[float, ...]
    coin: tuple[float, ...]

    @property
    def best(self) -> int:
        """Reports of the best split."""
        return SPLITS[int(np.argmin(self.relative))]

    @property
    def best_coin(self) -> int:
        """The same by the coin."""
        return SPLITS[int(np.argmin(self.coin))]


@dataclass(frozen=True)
class Use:
    """Share of a budget of m reports that the coin uses in m * every calls."""

    reports: int
    predicted: float
    measured: float
    uncertainty: float


@dataclass(frozen=True)
class LifetimeStudy:
    """All results."""

    cells: tuple[LifetimeCell, ...]
    splits: tuple[Split, ...]
    uses: tuple[Use, ...]


def shares() -> Floats:
    """The readings of the simulated devices: value i with a weight of 1 / (i + 1)."""
    weights = population.zipf(1).weights(DOMAIN)
    return weights / weights.sum()


@lru_cache(maxsize=256)
def flat_design(epsilon: int) -> Design:
    """Mechanism for the frequencies; epsilon in micro-nats."""
    return Design(DOMAIN, epsilon, oracle.choose(DOMAIN, epsilon, FREQUENCIES))


def predicted_error(design: Design, held: Floats, reports: float) -> float:
    """Root mean square over values of the error of `reports` reports, held being the values' shares."""
    return math.sqrt(mean_variance(design, held, np.eye(design.domain)) / reports)


def squared_error(design: Design, held: Floats, reports: int, rng: np.random.Generator) -> float:
    """Mean square over values of one drawn window's error."""
    counts = vectorised.histogram(design.experiment, rng.multinomial(reports, held), rng)
    off = estimate(design.experiment, counts).frequencies - held
    return float(off @ off) / len(held)


def root_mean(squares: Floats) -> tuple[float, float]:
    """Root of the mean, and its standard error."""
    root = math.sqrt(squares.mean())
    return root, float(squares.std(ddof=1)) / math.sqrt(len(squares)) / (2 * root)


def epsilon_of(way: str, lifetime: int) -> int:
    """Epsilon of one report, micro-nats rounded down."""
    if way == "basic":
        return lifetime * MICRO // DAYS
    if way == "optimal":
        return int(optimal_epsilon(DAYS, lifetime, DELTA) * MICRO)
    return lifetime * MICRO


def cell(
    devices: int, lifetime: int, way: str, repeats: int, windows: int, rng: np.random.Generator
) -> LifetimeCell:
    """Predict and measure one cell: repeats years of `once` and `coin`, windows days of the others."""
    held = shares()
    epsilon = epsilon_of(way, lifetime)
    design = flat_design(epsilon)
    squares: list[float] = []
    if way in ("basic", "optimal"):
        reports = float(devices)
        predicted = predicted_error(design, held, reports)
        squares = [squared_error(design, held, devices, rng) for _ in range(windows)]
    elif way == "coin":
        by_day = devices * np.diff(reports_made(np.arange(DAYS + 1), DAYS, 1))
        reports = float(by_day.mean())
        predicted = predicted_error(design, held, 1 / float(np.mean(1 / by_day)))
        for _ in range(repeats):
            spoken = rng.multinomial(devices, np.append(by_day, devices - by_day.sum()) / devices)[:-1]
            squares += [squared_error(design, held, int(n), rng) for n in spoken]
    else:
        length = POOLED_DAYS if way == "once, 31 days" else 1
        count = DAYS // length
        reports = devices * length / DAYS
        predicted = predicted_error(design, held, reports)
        for _ in range(repeats * length):
            rest = 1 - count * length / DAYS
            spoken = rng.multinomial(devices, [*[length / DAYS] * count, max(rest, 0)])[:-1]
            squares += [squared_error(design, held, int(n), rng) for n in spoken]
    measured, uncertainty = root_mean(np.array(squares))
    mechanism = " ".join(map(str, (design.choice.mechanism, *dict(design.choice.parameters).values())))
    return LifetimeCell(
        devices, lifetime, way, epsilon / MICRO, mechanism, reports, predicted, measured, uncertainty
    )


def split(lifetime: int, domain: int, kind: Kind) -> Split:
    """Compare one to four reports by formula."""
    question = Question(kind, {"frequency": 1 / domain, "range": None, "quantile": 0.5}[kind])
    variances = [variance(best_design(domain, lifetime * MICRO // m, question), question) for m in SPLITS]
    errors = [math.sqrt(v / m) for m, v in zip(SPLITS, variances, strict=True)]
    last = [best_last_day(m) for m in SPLITS]
    by_coin = [math.sqrt(v / n) for v, n in zip(variances, last, strict=True)]
    relative, coin = (tuple(e / each[0] for e in each) for each in (errors, by_coin))
    return Split(lifetime, domain, kind, relative, coin)


@lru_cache(maxsize=16)
def best_last_day(cap: int) -> float:
    """Reports of a board on the last of DAYS days, a call a day, by the best `every`."""
    every = np.arange(1, 2 * DAYS)
    return float((reports_made(DAYS, every, cap) - reports_made(DAYS - 1, every, cap)).max())


def splits() -> tuple[Split, ...]:
    """The 36 cases: four lifetimes, three domains, three questions."""
    return tuple(split(e, d, k) for e in LIFETIMES for d in SPLIT_DOMAINS for k in KINDS)


def budget_use(reports: int, boards: int, rng: np.random.Generator) -> Use:
    """Predict and measure how much of a budget the coin uses, every = 365."""
    calls = reports * DAYS
    drawn = np.minimum(rng.binomial(calls, 1 / DAYS, boards), reports) / reports
    predicted = float(reports_made(calls, DAYS, reports)) / reports
    return Use(reports, predicted, float(drawn.mean()), float(drawn.std(ddof=1)) / math.sqrt(boards))


_Part = tuple[
    int, int, str, np.random.SeedSequence
]  # what cell() is asked, and the seed of all that it draws


def _cell(part: _Part, repeats: int, windows: int) -> LifetimeCell:
    devices, lifetime, way, seed = part
    return cell(devices, lifetime, way, repeats, windows, np.random.default_rng(seed))


class LifetimeParameters(StudyParameters):
    """Fleets that are drawn."""

    devices: tuple[int, ...] = Field(
        (), description="Devices of each fleet; without any 1000000,100000, or 20000 if quick."
    )
    quick: bool = Field(False, description="Fewer days of 20,000 devices: seconds instead of minutes.")


def run(asked: LifetimeParameters, running: Running) -> StudyResult:
    """Compare the ways by formula and by drawn fleets, on the running's workers."""
    fleets = asked.devices or ((20_000,) if asked.quick else FLEETS)
    if min(fleets) < 10_000 or max(fleets) > 10_000_000:
        raise PlanError(f"the study draws fleets of 10,000 to 10,000,000 devices, not {min(fleets):,}")
    repeats, windows = (1, 20) if asked.quick else (4, 60)
    ways = list(itertools.product(fleets, LIFETIMES, WAYS))
    *seeds, last = np.random.SeedSequence(running.seed).spawn(len(ways) + 1)
    todo = [(*what, one) for what, one in zip(ways, seeds, strict=True)]
    done = running.workers.map(
        _cell, todo, repeats, windows, advance=lambda _: running.advance(1 / len(todo))
    )
    cells, rng = tuple(done), np.random.default_rng(last)
    uses = tuple(budget_use(m, 100_000, rng) for m in BUDGET_REPORTS)
    found = LifetimeStudy(cells, splits(), uses)
    rows = [plain(cell) | {"off": cell.off} for cell in cells]
    json = {
        "domain": DOMAIN,
        "days": DAYS,
        "delta": DELTA,
        "cells": rows,
        "splits": [plain(s) | {"best": s.best, "best_coin": s.best_coin} for s in found.splits],
        "budget_use": plain(uses),
    }
    shown = [part for count in fleets for part in _shown_cells(count, cells)]
    best = [s for s in found.splits if s.best == 1]
    shown += ["", f"# one report is the best of 1, 2, 3, 4 in {len(best)} of {len(found.splits)} cases"]
    shown += [
        f"  not for ε {s.lifetime:g}, {s.domain} values, {s.kind}: {s.best} gain {1 - min(s.relative):.0%}"
        for s in found.splits
        if s.best != 1
    ]
    shown += [
        f"budget of {use.reports} reports, {use.reports} × every calls: {use.predicted:.1%} used, measured "
        f"{use.measured:.1%}"
        for use in uses
    ]
    return StudyResult(json, shown, found, rows)


def _shown_cells(devices: int, cells: Sequence[LifetimeCell]) -> list[StudyTable | str]:
    here = [cell for cell in cells if cell.devices == devices]
    rows = []
    for lifetime in LIFETIMES:
        row = {cell.way: cell for cell in here if cell.lifetime == lifetime}
        rows.append((f"{lifetime:g}", "predicted", *(f"{100 * row[way].predicted:.3g}" for way in WAYS)))
        rows.append(("", "measured", *(f"{100 * row[way].measured:.3g}" for way in WAYS)))
    worst = max(here, key=lambda cell: abs(cell.off))
    return [
        "",
        f"# {devices:,} devices, 365 days, 64 values: RMSE of a day's frequencies, in %",
        StudyTable(None, ("ε for life", "", *(heading for heading, _ in WAYS.values())), rows, (0, 1)),
        f"  measured is off by at most {abs(worst.off):.1%} (its own standard error "
        f"{worst.uncertainty / worst.measured:.1%}); optimal composition at δ = {DELTA:g}",
    ]


def draw(path: Path, study: LifetimeStudy) -> None:
    """Write errors against the lifetime budget, and what splitting it costs."""
    from .drawing import COLOURS, curve, figure, panel

    devices = study.cells[0].devices
    with figure(path, columns=2) as (_, (left, right)):
        for (way, (_, label)), colour in zip(WAYS.items(), COLOURS, strict=False):
            cells = [c for c in study.cells if c.way == way and c.devices == devices]
            predicted, measured = [100 * c.predicted for c in cells], [100 * c.measured for c in cells]
            curve(left, [c.lifetime for c in cells], predicted, measured, colour, label, 5)
        left.set_xscale("log", base=2)
        note = f"{devices:,} devices, 64 frequencies; lines predicted, dots measured"
        words = "Few large reports, or many small", note, "ε for life, nats", "RMSE of frequencies, %"
        panel(left, words, "y", "{:g}", "{:g}", fontsize=8.5, loc="upper right")
        low, high = left.get_ylim()
        left.set_ylim(low, high * 6)
        for lifetime, colour in zip(LIFETIMES, COLOURS, strict=False):
            for number, s in enumerate(s for s in study.splits if s.lifetime == lifetime):
                label = f"ε = {lifetime} for life" if number == 0 else None
                right.plot(SPLITS, s.relative, "-o", color=colour, lw=1, ms=4, alpha=0.75, label=label)
        right.axhline(1, color="#888888", lw=1, ls="--")
        right.set_xticks(SPLITS)
        right.set_yscale("log", base=2)
        note = "16, 64 and 256 values; frequency, range and quantile"
        words = "What splitting the budget costs", note, "reports for life", "error, one report = 1"
        panel(right, words, y="{:g}", loc="best")
