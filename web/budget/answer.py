"""The Budget view's content, in sentences and series; pure functions."""

import datetime
from dataclasses import dataclass, replace

import numpy as np

from ...server.budgets.remaining import FleetLedger, Remaining, picture_horizons
from ...server.budgets.words import (
    HEADINGS as LEDGER_HEADINGS,
)
from ...server.budgets.words import (
    cells,
    count,
    guarantee_sentence,
    lifetime_sentences,
    notes,
    sentences,
)
from ...server.epsilon import nats
from ...server.experiments.budget import rule_guarantee
from ...server.overview.search import matches
from ...server.plain_text import visible
from ...server.words.experiment import thinning
from ...server.words.numbers import counted

HEADINGS = (*LEDGER_HEADINGS, "a new device sends")
"""The column headings for BudgetAnswer.cells."""

_POINTS = 80
_MAX_DAYS = 1_000_000.0  # the chart omits later dates
Series = tuple[tuple[str, float], ...]
"""Pairs of a day or time in ISO 8601, UTC, and a number."""


@dataclass(frozen=True)
class BudgetAnswer:
    """The reports that devices can still make for one experiment.

    Attributes:
        sentences: The sentences, the most important first.
        cells: The table row, in the order of HEADINGS.
        promise: The guarantee for all of a device's reports for the experiment.
        line: The experiment's numbers.
        counted: The number of reports counted on each full day.
        forecast: The forecast number of reports a day.
    """

    sentences: tuple[str, ...]
    cells: tuple[str, ...]
    promise: str
    line: Remaining
    counted: Series
    forecast: Series

    @property
    def name(self) -> str:
        """Name of the experiment."""
        return self.line.budget.experiment.name


@dataclass(frozen=True)
class FleetBudgets:
    """A fleet's device count and budgets.

    Attributes:
        lifetime: Sentences about a device's lifetime budget.
        unreadable: Sentences about experiments that are left out because they cannot be read here.
    """

    fleet: str
    today: datetime.date
    boards: int
    experiments: tuple[BudgetAnswer, ...]
    lifetime: tuple[str, ...]
    unreadable: tuple[str, ...] = ()

    @property
    def promises(self) -> tuple[str, ...]:
        """The guarantees for each experiment alone; experiments with the same guarantee share a sentence."""
        names: dict[str, list[str]] = {}
        for e in self.experiments:
            names.setdefault(e.promise, []).append(e.name)
        return tuple(f"{', '.join(same)} alone: {promise}" for promise, same in names.items())

    def select(self, search: str, most: int) -> "FleetBudgets":
        """Return the budgets of at most this many experiments.

        Args:
            search: Words in the names; "" for all experiments.
            most: If there are more experiments, those that run out first are selected.
        """
        if len(self.experiments) <= most:
            return self
        selected = [e for e in self.experiments if matches(search, e.name)]
        selected.sort(key=lambda e: e.line.half or datetime.date.max)
        return replace(self, experiments=tuple(selected[:most]))


def fleet_budgets(ledger: FleetLedger, today: datetime.date) -> FleetBudgets:
    """Return the Budget view's content for a ledger."""
    lines = ledger.lines(today)
    days = np.linspace(0, picture_horizons(lines, today)[0], _POINTS)
    experiments = tuple(_experiment(ledger.fleet, line, today, days) for line in lines)
    boards = sum(ledger.profiles.values())
    lifetime_lines = (*lifetime_sentences(ledger.policy), *notes(ledger.policy, len(lines)))
    unreadable = tuple(visible(e.words) for e in ledger.unreadable)
    return FleetBudgets(ledger.fleet, today, boards, experiments, lifetime_lines, unreadable)


def _experiment(fleet: str, line: Remaining, today: datetime.date, days: np.ndarray) -> BudgetAnswer:
    e, forecast = line.budget.experiment, line.forecast
    guarantee = rule_guarantee(e.rule, e.cap, line.budget.costliest)
    return BudgetAnswer(
        sentences(fleet, line, today),
        _cells(line, today),
        guarantee.words if e.rule == "unlimited" else guarantee_sentence(guarantee),
        line,
        tuple((day.isoformat(), float(n)) for day, n in line.budget.days.items()),
        _series(today, days, forecast.reports_a_day(days)) if forecast and line.holds != 1 else (),
    )


def _cells(line: Remaining, today: datetime.date) -> tuple[str, ...]:
    """Return an experiment's table row; a cell that does not apply is empty."""
    _, used_up, rate, half, dry = cells(line)
    is_current, is_limited, is_asked_once = (
        line.budget.state == "current",
        line.total_left is not None,
        line.holds == 1,
    )
    if not (is_current and is_limited and line.boards) or is_asked_once:
        used_up = ""
    else:
        used_up = f"{used_up} of {line.boards:,}"
    if not is_current or line.total_left == 0 or is_asked_once:
        half = dry = ""
    elif line.per_day is None:
        rate = "no full day yet"
    elif not is_limited:
        half = dry = "never"
    elif line.forecast is None:
        half = dry = "never at this rate"
    elif line.half is None:
        half = dry = "in more than a lifetime"
    elif line.half <= today:
        half = "already"
    return (_reports_left(line), used_up, rate, half, dry, _new_device(line))


def _reports_left(line: Remaining) -> str:
    state = line.budget.state
    if state == "refused":
        return "refused by the policy"
    if state != "current":
        return f"{state} after {counted(line.budget.accepted)}"
    if line.total_left is not None and not line.boards:
        return "no device has reported yet"
    if line.holds == 1:
        return f"asked once: {counted(line.silent, 'device')} answered"
    return count(line.total_left)


def _new_device(line: Remaining) -> str:
    e = line.budget.experiment
    if line.budget.state != "current":
        return ""
    number = "any number of reports" if e.rule == "unlimited" else f"at most {counted(line.holds or 0)}"
    frequency = f"; {text}" if (text := thinning(e)) else ""
    return f"{number} of ε = {nats(e.epsilon)}{frequency}"


def _series(today: datetime.date, days: np.ndarray, values: np.ndarray) -> Series:
    start = datetime.datetime.combine(today, datetime.time(), datetime.UTC)
    return tuple(
        ((start + datetime.timedelta(days=float(day))).isoformat(), round(float(value), 3))
        for day, value in zip(days, values, strict=True)
        if day < _MAX_DAYS
    )
