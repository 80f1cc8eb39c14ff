"""A lifetime of reports: a few large ones compared with many small ones, predicted and measured.

For a year, a fleet reports frequencies for each day, or for each 31 days, and every board must stay within a
lifetime budget. The study compares four ways to do that, by formula and by simulating fleets:

    once     one report per lifetime at the full budget, on a random day
    coin     the same by `every`'s random draw, without a calendar: one call in 365 makes the report
    basic    a report a day, with the budget divided by basic composition
    optimal  a report a day, with the budget divided by optimal composition at delta

The error is the root mean square, over values and days, of the estimates minus the population's shares,
including the error from sampling the population.
"""

import itertools
import math
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from pydantic import Field

from ..planning.devices import PlanError, best_design
from ..planning.expected_error import Design, Kind, Question, mean_variance, variance
from ..planning.lifetime import reports_made
from ..server.accounting import optimal_epsilon
from ..server.arrays import Floats
from ..server.epsilon import MICRO
from ..server.estimate.estimate import estimate
from ..server.mechanisms import choose as oracle
from ..server.mechanisms.workload import FREQUENCIES
from ..server.words.text_table import TextTable
from ..simulator import population, vectorised
from .frame import Row, RunContext, StudyParameters, StudyResult

DOMAIN = 64
DAYS = 365
POOLED_DAYS = 31
LIFETIMES = (1, 2, 4, 8)
DELTA = 1e-6
FLEETS = (1_000_000, 100_000)
WAYS = {  # headings in tables, and labels in figures
    "once": ("one report", "one report for life, a day"),
    "once, 31 days": ("31 days", "the same, 31 days pooled"),
    "coin": ("by every", "the same by the draw of `every`, a day"),
    "basic": ("365 basic", "365 small reports, basic"),
    "optimal": ("365 optimal", "365 small reports, optimal, δ = 1e-6"),
}
SPLITS = (1, 2, 3, 4)
SPLIT_DOMAINS = (16, 64, 256)
KINDS: tuple[Kind, ...] = ("frequency", "range", "quantile")
BUDGET_REPORTS = (1, 4, 10)


def shares() -> Floats:
    """Return the distribution of readings: value i has weight 1 / (i + 1)."""
    weights = population.zipf(1).weights(DOMAIN)
    return weights / weights.sum()


@lru_cache(maxsize=256)
def flat_design(epsilon: int) -> Design:
    """Return the best design for frequencies; epsilon is in micro-nats."""
    return Design(DOMAIN, epsilon, oracle.choose(DOMAIN, epsilon, FREQUENCIES))


def predicted_error(design: Design, distribution: Floats, reports: float) -> float:
    """Return the root mean square error over values with `reports` reports."""
    return math.sqrt(mean_variance(design, distribution, np.eye(design.domain)) / reports)


def squared_error(design: Design, distribution: Floats, reports: int, rng: np.random.Generator) -> float:
    """Return one simulated window's mean squared error over values."""
    counts = vectorised.histogram(design.experiment, rng.multinomial(reports, distribution), rng)
    off = estimate(design.experiment, counts).frequencies - distribution
    return float(off @ off) / len(distribution)


def root_mean(squares: Floats) -> tuple[float, float]:
    """Return the root of the mean, and its standard error."""
    root = math.sqrt(squares.mean())
    return root, float(squares.std(ddof=1)) / math.sqrt(len(squares)) / (2 * root)


def epsilon_of(way: str, lifetime: int) -> int:
    """Return a report's epsilon in micro-nats, rounded down."""
    if way == "basic":
        return lifetime * MICRO // DAYS
    if way == "optimal":
        return int(optimal_epsilon(DAYS, lifetime, DELTA) * MICRO)
    return lifetime * MICRO


def cell(devices: int, lifetime: int, way: str, repeats: int, windows: int, rng: np.random.Generator) -> Row:
    """Predict and measure a cell, over `repeats` years for `once` and `coin` and `windows` days otherwise.

    Errors are root mean squares of shares of devices. In the row, `epsilon` is a report's ε in nats,
    `reports` the mean number of reports per window, `uncertainty` the standard error of `measured`, and `off`
    is measured / predicted - 1.
    """
    distribution = shares()
    epsilon = epsilon_of(way, lifetime)
    design = flat_design(epsilon)
    squares: list[float] = []
    if way in ("basic", "optimal"):
        reports = float(devices)
        predicted = predicted_error(design, distribution, reports)
        squares = [squared_error(design, distribution, devices, rng) for _ in range(windows)]
    elif way == "coin":
        by_day = devices * np.diff(reports_made(np.arange(DAYS + 1), DAYS, 1))
        reports = float(by_day.mean())
        predicted = predicted_error(design, distribution, 1 / float(np.mean(1 / by_day)))
        for _ in range(repeats):
            daily_reports = rng.multinomial(devices, np.append(by_day, devices - by_day.sum()) / devices)[:-1]
            squares += [squared_error(design, distribution, int(n), rng) for n in daily_reports]
    else:
        length = POOLED_DAYS if way == "once, 31 days" else 1
        count = DAYS // length
        reports = devices * length / DAYS
        predicted = predicted_error(design, distribution, reports)
        for _ in range(repeats * length):
            remainder = 1 - count * length / DAYS
            window_reports = rng.multinomial(devices, [*[length / DAYS] * count, max(remainder, 0)])[:-1]
            squares += [squared_error(design, distribution, int(n), rng) for n in window_reports]
    measured, uncertainty = root_mean(np.array(squares))
    mechanism = " ".join(map(str, (design.choice.mechanism, *dict(design.choice.parameters).values())))
    row: Row = {"devices": devices, "lifetime": lifetime, "way": way, "epsilon": epsilon / MICRO}
    row |= {"mechanism": mechanism, "reports": reports, "predicted": predicted, "measured": measured}
    return row | {"uncertainty": uncertainty, "off": measured / predicted - 1}


def split(lifetime: int, domain: int, kind: Kind) -> Row:
    """Compare, by formula, the errors if a budget is split into 1 to 4 reports, relative to one report.

    In the row, `coin` is the same comparison on the last day of a year, with the best `every`; `best` and
    `best_coin` are the numbers of reports with the smallest error.
    """
    question = Question(kind, {"frequency": 1 / domain, "range": None, "quantile": 0.5}[kind])
    variances = [variance(best_design(domain, lifetime * MICRO // m, question), question) for m in SPLITS]
    errors = [math.sqrt(v / m) for m, v in zip(SPLITS, variances, strict=True)]
    last_day_errors = [math.sqrt(v / best_last_day(m)) for m, v in zip(SPLITS, variances, strict=True)]
    relative, coin = ([e / row[0] for e in row] for row in (errors, last_day_errors))
    best, best_coin = (SPLITS[int(np.argmin(row))] for row in (relative, coin))
    row: Row = {"lifetime": lifetime, "domain": domain, "kind": kind, "relative": relative, "coin": coin}
    return row | {"best": best, "best_coin": best_coin}


@lru_cache(maxsize=16)
def best_last_day(cap: int) -> float:
    """Return a board's reports on the last of DAYS days, one call a day, with the best `every`."""
    every = np.arange(1, 2 * DAYS)
    return float((reports_made(DAYS, every, cap) - reports_made(DAYS - 1, every, cap)).max())


def splits() -> list[Row]:
    """Return the 36 cases: four lifetimes, three domains, three questions."""
    return [split(e, d, k) for e in LIFETIMES for d in SPLIT_DOMAINS for k in KINDS]


def budget_use(reports: int, boards: int, rng: np.random.Generator) -> Row:
    """Predict and measure the share of a budget of `reports` reports that is used with every = 365."""
    calls = reports * DAYS
    used = np.minimum(rng.binomial(calls, 1 / DAYS, boards), reports) / reports
    predicted = float(reports_made(calls, DAYS, reports)) / reports
    row: Row = {"reports": reports, "predicted": predicted, "measured": float(used.mean())}
    return row | {"uncertainty": float(used.std(ddof=1)) / math.sqrt(boards)}


_Part = tuple[int, int, str, np.random.SeedSequence]
"""The arguments of cell(), and the seed of its draws."""


def _cell(part: _Part, repeats: int, windows: int) -> Row:
    devices, lifetime, way, seed = part
    return cell(devices, lifetime, way, repeats, windows, np.random.default_rng(seed))


class LifetimeParameters(StudyParameters):
    """The fleets to simulate."""

    devices: tuple[int, ...] = Field(
        (), description="Devices of each fleet; without any 1000000,100000, or 20000 if quick."
    )
    quick: bool = Field(False, description="Fewer days of 20,000 devices: seconds instead of minutes.")


def run(parameters: LifetimeParameters, context: RunContext) -> StudyResult:
    """Compare the ways by formula and by simulated fleets, on the context's workers."""
    fleets = parameters.devices or ((20_000,) if parameters.quick else FLEETS)
    if min(fleets) < 10_000 or max(fleets) > 10_000_000:
        raise PlanError(f"the study draws fleets of 10,000 to 10,000,000 devices, not {min(fleets):,}")
    repeats, windows = (1, 20) if parameters.quick else (4, 60)
    combinations = list(itertools.product(fleets, LIFETIMES, WAYS))
    *seeds, last = np.random.SeedSequence(context.seed).spawn(len(combinations) + 1)
    todo = [(*arguments, seed) for arguments, seed in zip(combinations, seeds, strict=True)]
    results = context.workers.map(
        _cell, todo, repeats, windows, advance=lambda _: context.advance(1 / len(todo))
    )
    cells, rng = list(results), np.random.default_rng(last)
    uses = [budget_use(m, 100_000, rng) for m in BUDGET_REPORTS]
    cases = splits()
    json = {"domain": DOMAIN, "days": DAYS, "delta": DELTA, "cells": cells, "splits": cases}
    output = [part for count in fleets for part in _shown_cells(count, cells)]
    others = [s | {"gain": 1 - min(s["relative"])} for s in cases if s["best"] != 1]
    output += [
        "",
        f"# one report is the best of 1, 2, 3, 4 in {len(cases) - len(others)} of {len(cases)} cases",
    ]
    worse = "  not for ε {lifetime:g}, {domain} values, {kind}: {best} gain {gain:.0%}"
    output += map(worse.format_map, others)
    used = (
        "budget of {reports} reports, {reports} × every calls: {predicted:.1%} used, measured {measured:.1%}"
    )
    output += map(used.format_map, uses)
    return StudyResult(json | {"budget_use": uses}, output, (cells, cases), cells)


def _shown_cells(devices: int, cells: Sequence[Row]) -> list[TextTable | str]:
    fleet_cells = [cell for cell in cells if cell["devices"] == devices]
    rows = []
    for lifetime in LIFETIMES:
        by_way = {cell["way"]: cell for cell in fleet_cells if cell["lifetime"] == lifetime}
        for first, error in ((f"{lifetime:g}", "predicted"), ("", "measured")):
            rows.append((first, error, *(f"{100 * by_way[way][error]:.3g}" for way in WAYS)))
    worst = max(fleet_cells, key=lambda cell: abs(cell["off"]))
    return [
        "",
        f"# {devices:,} devices, 365 days, 64 values: RMSE of a day's frequencies, in %",
        TextTable("", ("ε for life", "", *(heading for heading, _ in WAYS.values())), rows, (0, 1)),
        f"  measured is off by at most {abs(worst['off']):.1%} (its own standard error "
        f"{worst['uncertainty'] / worst['measured']:.1%}); optimal composition at δ = {DELTA:g}",
    ]


def draw(path: Path, figure_data: tuple[list[Row], list[Row]]) -> None:
    """Plot errors against the lifetime budget, and the cost of splitting it."""
    from .drawing import COLOURS, curve, figure, panel

    rows, cases = figure_data
    devices = rows[0]["devices"]
    with figure(path, columns=2) as (_, (left_axes, right_axes)):
        for (way, (_, label)), colour in zip(WAYS.items(), COLOURS, strict=False):
            cells = [c for c in rows if (c["way"], c["devices"]) == (way, devices)]
            predicted, measured = ([100 * c[error] for c in cells] for error in ("predicted", "measured"))
            curve(left_axes, [c["lifetime"] for c in cells], predicted, measured, colour, label, 5)
        left_axes.set_xscale("log", base=2)
        note = f"{devices:,} devices, 64 frequencies; lines predicted, dots measured"
        words = "Few large reports, or many small", note, "ε for life, nats", "RMSE of frequencies, %"
        panel(left_axes, words, "y", "{:g}", "{:g}", fontsize=8.5, loc="upper right")
        low, high = left_axes.get_ylim()
        left_axes.set_ylim(low, high * 6)
        for lifetime, colour in zip(LIFETIMES, COLOURS, strict=False):
            for number, s in enumerate(s for s in cases if s["lifetime"] == lifetime):
                label = f"ε = {lifetime} for life" if number == 0 else None
                right_axes.plot(
                    SPLITS, s["relative"], "-o", color=colour, lw=1, ms=4, alpha=0.75, label=label
                )
        right_axes.axhline(1, color="#888888", lw=1, ls="--")
        right_axes.set_xticks(SPLITS)
        right_axes.set_yscale("log", base=2)
        note = "16, 64 and 256 values; frequency, range and quantile"
        words = "What splitting the budget costs", note, "reports for life", "error, one report = 1"
        panel(right_axes, words, y="{:g}", loc="best")
