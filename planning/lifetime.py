"""Plans a lifetime budget: the number of reports, their ε, and the accuracy of each day.

A device calls report() at a fixed rhythm, makes a report with probability 1/every at each call, and stops
permanently once it has made as many reports as its cap allows: of n calls, min(Binomial(n, 1/every), cap)
become reports. Therefore the first day is the most precise and the last day the least; `every` is chosen to
make the last day as precise as possible.

Few large reports are better than many small ones: a report's variance grows like 1/ε² or faster, while
splitting a budget in m gains only a factor m in reports. Composition that improves on summation (Kairouz, Oh,
Viswanath, ICML 2015) helps only with many reports, which is rare.
"""

import math
import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from ..device.ldp_client import EPSILON_MIN
from ..server import special
from ..server.accounting import AccountingError, optimal_epsilon, optimal_reports
from ..server.epsilon import MICRO, check_epsilon
from ..server.typed_numbers import typed_float
from .devices import (
    MAX_DEVICES,
    MAX_RANGE_VALUES,
    PlanError,
    Z,
    best_design,
    check_sizes,
    devices_for,
    half_width,
)
from .expected_error import Design, Question, variance

MAX_EVERY = 1 << 24
DEFAULT_LIMIT = 4 * MICRO  # the limit for one report in the example firmware's policy
DAY_S = 86_400
WINDOWS = {"a day": 1.0, "a week": 7.0, "30 days": 30.0}
FEW = (1, 2, 3, 4)

Composition = Literal["basic", "optimal"]

_UNITS_S = {"s": 1, "min": 60, "hour": 3600, "day": DAY_S, "week": 7 * DAY_S, "month": 30 * DAY_S}
_UNITS_S |= {"year": 365 * DAY_S}
_SHORT = {"h": "hour", "d": "day", "w": "week", "y": "year", "second": "s", "minute": "min"}
_DURATION = re.compile(r"\s*(\d[\d.,]*)?\s*([a-z]+?)s?\s*", re.ASCII)


def parse_duration(text: str, field: str = "") -> float:
    """Return the seconds of "10min", "hour", "2 years" or "90d"; a month has 30 days, a year 365.

    Args:
        text: The duration.
        field: The request field that it comes from.

    Raises:
        PlanError: If the text is malformed, or the duration is 0 or more than 100 years.
    """
    match = _DURATION.fullmatch(text.lower())
    unit = match and _SHORT.get(match[2], match[2])
    if not match or unit not in _UNITS_S:
        raise PlanError(f"a duration must be like 10min, hour, 1d, 26 weeks or 2y, not {text!r}", field)
    try:
        seconds = typed_float(match[1] or "1") * _UNITS_S[unit]
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 100 * _UNITS_S["year"]:
        raise PlanError(f"a duration must be above 0 and at most 100 years, not {text!r}", field)
    return seconds


def reports_made(calls: npt.ArrayLike, every: npt.ArrayLike, cap: int) -> npt.NDArray[np.float64]:
    """Return a device's expected number of reports, the mean of min(Binomial(calls, 1/every), cap).

    Args:
        calls: The number of calls, at least 0.
        every: The mean number of calls for one report.
        cap: The largest number of reports, at least 1.
    """
    n, p = np.broadcast_arrays(np.asarray(calls, float), 1 / np.asarray(every, float))
    below = n * p * _at_most(n - 1, p, cap - 2)  # the mean below the cap
    return below + cap * (1 - _at_most(n, p, cap - 1))


def _at_most(n: npt.NDArray[np.float64], p: npt.NDArray[np.float64], k: int) -> npt.NDArray[np.float64]:
    """Return the probability that Binomial(n, p) is at most k."""
    if k < 0:
        return np.zeros_like(n)
    chance = special.betainc(np.maximum(n - k, 1.0), k + 1.0, 1 - p)
    return np.where(n <= k, 1.0, chance)


@dataclass(frozen=True)
class Rhythm:
    """The interval at which a device calls report(), and the horizon, in seconds."""

    call_s: float
    horizon_s: float

    @property
    def calls(self) -> int:
        """The number of calls of one board over the horizon."""
        return int(self.horizon_s / self.call_s)

    @property
    def days(self) -> float:
        """The horizon in days."""
        return self.horizon_s / DAY_S

    def calls_in(self, days: float) -> float:
        """Return one device's mean number of calls in some days, which may be below 1."""
        return days * DAY_S / self.call_s

    def in_window(self, days: float, every: int, cap: int, end: int | None = None) -> float:
        """Return the expected number of reports from one board in a number of days.

        Args:
            days: The number of days.
            every: The mean number of calls for one report.
            cap: The largest number of reports.
            end: The 1-based index of the last call in these days; by default the last call of the horizon.
        """
        end = self.calls if end is None else end
        calls = self.calls_in(days)
        whole = min(max(1, round(calls)), end)
        reports = reports_made(np.array([end, end - whole]), every, cap)
        return float(reports[0] - reports[1]) * min(calls, end) / whole


@dataclass(frozen=True)
class LifetimeBudget:
    """A device's budget for its lifetime: epsilon in micro-nats, and delta, which is 0 for pure epsilon."""

    epsilon: int
    delta: float = 0.0


@dataclass(frozen=True)
class Spending:
    """One way to spend a budget.

    Attributes:
        composition: The composition theorem for the ε of reports.
        cap: The largest number of reports per board.
        epsilon: ε of each report, in micro-nats.
        every: One call in `every` makes a report.
        rhythm: The rhythm of the calls.
        design: The mechanism for the question.
    """

    composition: Composition
    cap: int
    epsilon: int
    every: int
    rhythm: Rhythm
    design: Design

    @property
    def rule(self) -> str:
        """The board's budget rule that enforces the budget."""
        return "sum" if self.composition == "basic" else "count"

    @cached_property
    def used(self) -> float:
        """The expected share of the cap that a board has used at the end."""
        return float(reports_made(self.rhythm.calls, self.every, self.cap)) / self.cap

    def per_device(self, days: float, first: bool = False) -> float:
        """Return the expected number of reports from one board in the last (or first) days of the horizon."""
        end = min(max(1, round(self.rhythm.calls_in(days))), self.rhythm.calls) if first else None
        return self.rhythm.in_window(days, self.every, self.cap, end)


@dataclass(frozen=True)
class RefusedSpending:
    """A way to spend the budget that devices do not accept, because its ε is below 0.001.

    Attributes:
        composition: The composition theorem for the ε of reports.
        cap: The largest number of reports per board.
        epsilon: ε of each report, in micro-nats.
    """

    composition: Composition
    cap: int
    epsilon: float


@dataclass(frozen=True)
class LifetimePlan:
    """Ways to spend a budget; the best is the one with the least error on the last day."""

    question: Question
    devices: int
    budget: LifetimeBudget
    rhythm: Rhythm
    spendings: tuple[Spending, ...]
    refused: tuple[RefusedSpending, ...]

    @cached_property
    def best(self) -> Spending:
        """The spending with the least half-width on the last day, preferring basic composition within 1%."""
        min_error = min(self.error(s, 1) for s in self.spendings)
        near = [s for s in self.spendings if self.error(s, 1) <= 1.01 * min_error]
        return min(near, key=lambda s: (s.composition != "basic", self.error(s, 1)))

    @property
    def design(self) -> Design:
        """The mechanism of the best spending."""
        return self.best.design

    def devices_for(self, days: float, error: float) -> int:
        """Return the smallest number of devices with which the last days reach an error."""
        return devices_for(self.best.design, self.question, error, self.best.per_device(days))

    def with_enough_devices(self, error: float) -> "LifetimePlan":
        """Return the same plan with the fewest devices that reach an error in the longest window at the end.

        How a device spends its budget does not depend on the number of devices.

        Raises:
            PlanError: If it takes more devices than are allowed.
        """
        longest = [*self.windows().values()][-1]
        needed = variance(self.design, self.question) * (Z / error) ** 2
        if needed > self.best.per_device(longest) * MAX_DEVICES:
            raise PlanError(
                f"±{error:g} takes more than {MAX_DEVICES:,} devices; allow a larger error or a larger budget"
            )
        return replace(self, devices=self.devices_for(longest, error))

    def error(
        self, spending: Spending, days: float, question: Question | None = None, first: bool = False
    ) -> float:
        """Return the half-width of the 95% interval of the last (or first) days, as in Plan.error."""
        reports = self.devices * spending.per_device(days, first)
        return half_width(reports, spending.design, question or self.question)

    def windows(self) -> dict[str, float]:
        """Return the names and days of windows that fit into the horizon, or the whole horizon."""
        fitting = {name: days for name, days in WINDOWS.items() if days <= self.rhythm.days}
        return fitting or {"all of it": self.rhythm.days}

    @cached_property
    def errors(self) -> dict[str, float]:
        """The best spending's half-widths over the last windows, by name; the longest is last."""
        return {name: self.error(self.best, days) for name, days in self.windows().items()}

    @cached_property
    def all_reports(self) -> float:
        """The best spending's half-width over all reports of the horizon together."""
        return half_width(self.devices * self.best.used * self.best.cap, self.design, self.question)

    def questions(self) -> dict[str, Question]:
        """Return the questions for which a plan shows errors: its own and some others."""
        kinds: dict[str, Question] = {"frequency": Question("frequency")}
        if 2 < self.best.design.domain <= MAX_RANGE_VALUES:
            kinds |= {"range": Question("range"), "quantile": Question("quantile", 0.5)}
        kinds = {kind: q for kind, q in kinds.items() if self.best.design.answers(q)}
        kinds[self.question.kind] = self.question
        return kinds


def choose_every(rhythm: Rhythm, cap: int) -> int:
    """Return the `every` with which the last day has the most reports."""
    calls = rhythm.calls
    if cap >= calls:
        return 1
    min_every = max(1.0, calls / (cap + 10 * math.sqrt(cap) + 10))
    max_every = min(2.0 * calls, MAX_EVERY)
    candidates = np.unique(np.geomspace(min(min_every, max_every), max_every, 4000).astype(np.int64))
    calls_before = calls - min(max(1, round(rhythm.calls_in(1))), calls)
    last_day = reports_made(calls, candidates, cap) - reports_made(calls_before, candidates, cap)
    return int(candidates[np.argmax(last_day)])


def plan_lifetime(
    question: Question,
    devices: int,
    domain: int,
    budget: LifetimeBudget,
    rhythm: Rhythm,
    limit: int = DEFAULT_LIMIT,
) -> LifetimePlan:
    """Compare the ways to spend a budget.

    The ways are one to four reports, the fewest that the limit allows if that is more, one per day, and one
    per call; with basic composition, and with a delta also optimal composition.

    Args:
        question: The question.
        devices: The number of devices.
        domain: The number of values.
        budget: The budget of a device.
        rhythm: The rhythm of its calls.
        limit: The largest ε of one report, in micro-nats.

    Raises:
        PlanError: If a number is out of range, or no way to spend the budget exists.
    """
    check_sizes(question, devices, domain)
    if not EPSILON_MIN <= budget.epsilon <= 1000 * MICRO:
        text = f"a lifetime epsilon must be from 0.001 to 1000, not {budget.epsilon / MICRO:g}"
        raise PlanError(text, "lifetime")
    if not 0 <= budget.delta < 1:
        raise PlanError(f"a lifetime delta must be from 0 to below 1 (1e-6, say), not {budget.delta:g}")
    check_epsilon(limit, PlanError, "the limit for one report")
    if not rhythm.calls:
        raise PlanError(
            "the horizon contains no call; use a longer horizon, or call report() more frequently"
        )
    if rhythm.calls > 2 * MAX_EVERY:
        raise PlanError(
            f"{rhythm.calls:,} calls are too many, because `every` is at most {MAX_EVERY:,}: let devices call"
            f" report() every {math.ceil(rhythm.horizon_s / (2 * MAX_EVERY))} seconds or less frequently"
        )
    spendings: list[Spending] = []
    refused: list[RefusedSpending] = []
    for composition, cap, epsilon in _ways(budget, rhythm, limit):
        if epsilon < EPSILON_MIN:
            exact = budget.epsilon / cap if composition == "basic" else epsilon
            refused.append(RefusedSpending(composition, cap, exact))
            continue
        design = best_design(domain, min(epsilon, limit), question)
        every = choose_every(rhythm, cap)
        spendings.append(Spending(composition, cap, min(epsilon, limit), every, rhythm, design))
    if not spendings:
        raise PlanError("no report fits because its ε would be below 0.001")
    return LifetimePlan(question, devices, budget, rhythm, tuple(spendings), tuple(refused))


def _ways(budget: LifetimeBudget, rhythm: Rhythm, limit: int) -> list[tuple[Composition, int, int]]:
    """Return composition, reports and epsilon of each way; epsilon in micro-nats, rounded down."""
    within = -(-budget.epsilon // limit)  # the fewest reports that can use the whole budget
    daily = int(rhythm.days) if rhythm.calls_in(1) >= 1 else rhythm.calls
    few = {*FEW, within, max(1, budget.epsilon // limit)}
    caps = sorted(m for m in {*few, daily, rhythm.calls} if 1 <= m <= rhythm.calls)
    ways: list[tuple[Composition, int, int]] = [("basic", m, budget.epsilon // m) for m in caps]
    if not budget.delta:
        return ways
    nats = budget.epsilon / MICRO
    try:
        by_limit = optimal_reports(limit / MICRO, nats, budget.delta)
        for m in sorted({m for m in (by_limit, daily, rhythm.calls) if max(FEW) < m <= rhythm.calls}):
            epsilon = int(optimal_epsilon(m, nats, budget.delta) * MICRO)
            if epsilon > budget.epsilon // m:
                ways.append(("optimal", m, epsilon))
    except AccountingError as e:
        raise PlanError(str(e)) from None
    return ways
