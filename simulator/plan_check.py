"""A plan against simulated fleets: errors that were predicted beside errors that were measured.

Fleets of the plan's size are drawn with the boards' own channel and estimated as real ones are. What is
measured is the error against the population that the fleets were drawn from.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..server.arrays import Floats
from ..server.estimate.estimate import estimate
from ..server.experiments.payload import choice_fields, experiment_over
from ..server.planning.devices import Plan, Z
from ..server.planning.expected_error import Design, Question, even_ranges, parabola
from ..server.planning.lifetime import LifetimePlan, Spending
from . import vectorised

MOST_REPORTS = 20_000_000  # in all fleets of one check
_FEWEST_FLEETS = 20
_FEWEST_REPORTS = 30  # below, a window shows nothing that could be measured


@dataclass(frozen=True)
class PlanCheck:
    """Half-widths of 95 % intervals, shares of devices; uncertainty: standard error of the measured one.

    reports, fleets: drawn, on average for a fleet; population: what devices held, in words.
    """

    name: str
    reports: float
    fleets: int
    population: str
    predicted: float
    measured: float
    uncertainty: float

    @property
    def agrees(self) -> bool:
        """Whether the two are within 4 uncertainties, or within 2 %."""
        return abs(self.measured - self.predicted) <= max(4 * self.uncertainty, 0.02 * self.predicted)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self) | {"agrees": self.agrees}


@dataclass(frozen=True)
class _Target:
    population: Floats
    words: str
    variance: float  # times reports
    squared_error: Callable[[Floats], float]  # of estimated shares of the indices


def check(
    design: Design,
    question: Question,
    reports: float,
    draw_reports: Callable[[np.random.Generator], int],
    fleets: int,
    rng: np.random.Generator,
    name: str,
) -> PlanCheck:
    """Draw fleets and compare. reports: expected of one; draw_reports: how many a fleet makes."""
    target = _target(design, question)
    experiment = experiment_over(design.domain, design.epsilon, choice_fields(design.choice))
    squares = np.empty(fleets)
    made = np.empty(fleets)
    for i in range(fleets):
        made[i] = n = max(2, draw_reports(rng))
        counts = vectorised.histogram(experiment, rng.multinomial(n, target.population), rng)
        squares[i] = target.squared_error(estimate(experiment, counts).frequencies)
    rms, uncertainty = root_mean(squares)
    predicted = Z * math.sqrt(target.variance / reports)
    return PlanCheck(name, float(made.mean()), fleets, target.words, predicted, Z * rms, Z * uncertainty)


def root_mean(squares: Floats) -> tuple[float, float]:
    """Root of the mean, and its standard error."""
    root = math.sqrt(squares.mean())
    return root, float(squares.std(ddof=1)) / math.sqrt(len(squares)) / (2 * root)


def affordable(reports: float, fleets: int) -> tuple[int, float]:
    """Fleets, and the share of each to draw, so that a check takes seconds: fewer first, then smaller."""
    fleets = min(fleets, max(_FEWEST_FLEETS, int(MOST_REPORTS / max(reports, 1))))
    return fleets, min(1.0, MOST_REPORTS / (fleets * max(reports, 1)))


def window_reports(spending: Spending, devices: int, days: float) -> Callable[[np.random.Generator], int]:
    """How many reports a fleet makes in its last `days` days, board by board: coin, cap and all."""
    rhythm = spending.rhythm
    calls = rhythm.calls_in(days)
    whole = min(max(1, round(calls)), rhythm.calls)
    calling = min(1.0, calls / whole)  # of boards that call more rarely than once in these days

    def draw(rng: np.random.Generator) -> int:
        p = 1 / spending.every
        boards = devices if calling == 1 else int(rng.binomial(devices, calling))
        before = rng.binomial(rhythm.calls - whole, p, boards)
        left = spending.cap - np.minimum(before, spending.cap)
        return int(np.minimum(rng.binomial(whole, p, boards), left).sum())

    return draw


def _target(design: Design, question: Question) -> _Target:
    """A population that the question's prediction holds for exactly, and the error to measure in it."""
    domain = design.domain
    if question.all_ranges and domain > 2:
        even = np.full(domain, 1 / domain)

        def over_ranges(shares: Floats) -> float:
            off = np.cumsum(shares - even)
            return float((domain + 1) * (off @ off) - off.sum() ** 2) / (domain * (domain + 1) / 2)

        return _Target(even, "even", even_ranges(design), over_ranges)
    low, high = _place(design, question)
    asked = np.zeros(domain)
    asked[low:high] = 1
    variances = parabola(design, asked[:, None])
    share = float(variances.worst_share[0]) if question.share is None else question.share
    population = share * asked / asked.sum() + (1 - share) * (1 - asked) / (1 - asked).sum()
    words = f"{share:.0%} hold value {low}" if high == low + 1 else f"{share:.0%} in values {low}:{high}"
    variance = float(variances.at(share)[0])
    return _Target(population, words, variance, lambda shares: float(asked @ shares - share) ** 2)


def _place(design: Design, question: Question) -> tuple[int, int]:
    """The range to measure: of a list the one with the largest error, else one in the middle."""
    domain = design.domain
    if question.ranges:
        errors = []
        for low, high in question.ranges:
            asked = np.zeros((domain, 1))
            asked[low:high] = 1
            errors.append(float(parabola(design, asked).at(question.share)[0]))
        return question.ranges[int(np.argmax(errors))]
    if domain == 2:
        return 1, 2
    if question.kind == "quantile":
        return 0, domain // 2
    width = (question.width or 1) if question.kind == "range" else 1
    low = min(domain // 3, domain - width)
    return low, low + width


def check_plan(plan: Plan, fleets: int, seed: int | None = None) -> list[PlanCheck]:
    """The plan's error, measured; with fewer devices where the whole fleets would take too long."""
    fleets, part = affordable(plan.devices, fleets)
    devices = max(2, int(plan.devices * part))
    rng = np.random.default_rng(seed)
    name = "" if part == 1 else "a part of them"
    return [check(plan.design, plan.question, devices, lambda _: devices, fleets, rng, name)]


def check_lifetime(life: LifetimePlan, fleets: int, seed: int | None = None) -> list[PlanCheck]:
    """The errors of the horizon's last day, week and 30 days, measured; with the coin and the cap."""
    rng = np.random.default_rng(seed)
    checks = []
    for name, days in life.windows().items():
        per_device = life.best.per_device(days)
        if per_device * life.devices < _FEWEST_REPORTS:
            continue
        some, part = affordable(max(1.0, per_device) * life.devices, fleets)
        devices = max(2, int(life.devices * part))
        draw = window_reports(life.best, devices, days)
        name = name if part == 1 else f"{name}, a part"
        checks.append(check(life.best.design, life.question, per_device * devices, draw, some, rng, name))
    return checks
