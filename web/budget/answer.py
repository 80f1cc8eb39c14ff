"""The Budget view's content, in sentences and series; pure functions."""

import datetime
from dataclasses import dataclass

import numpy as np

from ...server.budgets.remaining import FleetLedger, Remaining, picture_horizons
from ...server.budgets.words import guarantee_sentence, lifetime_sentences, notes, sentences
from ...server.experiments.budget import rule_guarantee

_POINTS = 80
_MAX_DAYS = 1_000_000.0  # the chart omits later dates
Series = tuple[tuple[str, float], ...]
"""Pairs of a day or time in ISO 8601, UTC, and a number."""


@dataclass(frozen=True)
class BudgetAnswer:
    """The reports that devices can still make for one experiment.

    Attributes:
        sentences: The sentences, the most important first.
        promise: The guarantee for all of a device's reports for the experiment.
        line: The experiment's numbers.
        counted: The number of reports counted on each full day.
        forecast: The forecast number of reports a day.
        able_percent: The percentage of devices that can still report.
    """

    sentences: tuple[str, ...]
    promise: str
    line: Remaining
    counted: Series
    forecast: Series
    able_percent: Series

    @property
    def name(self) -> str:
        """Name of the experiment."""
        return self.line.budget.experiment.name


@dataclass(frozen=True)
class FleetBudgets:
    """A fleet's device count and budgets; `lifetime` contains sentences about a device's lifetime budget."""

    fleet: str
    boards: int
    experiments: tuple[BudgetAnswer, ...]
    lifetime: tuple[str, ...]


def fleet_budgets(ledger: FleetLedger, today: datetime.date) -> FleetBudgets:
    """Return the Budget view's content for a ledger."""
    lines = ledger.lines(today)
    spans = [np.linspace(0, days, _POINTS) for days in picture_horizons(lines, today)]
    experiments = tuple(_experiment(ledger.fleet, line, today, *spans) for line in lines)
    boards = sum(ledger.profiles.values())
    lifetime_lines = (*lifetime_sentences(ledger.policy), *notes(ledger.policy, len(lines)))
    return FleetBudgets(ledger.fleet, boards, experiments, lifetime_lines)


def _experiment(
    fleet: str, line: Remaining, today: datetime.date, near: np.ndarray, later: np.ndarray
) -> BudgetAnswer:
    e, forecast = line.budget.experiment, line.forecast
    guarantee = rule_guarantee(e.rule, e.cap, line.budget.costliest)
    return BudgetAnswer(
        sentences(fleet, line, today),
        guarantee.words if e.rule == "unlimited" else guarantee_sentence(guarantee),
        line,
        tuple((day.isoformat(), float(n)) for day, n in line.budget.days.items()),
        _series(today, near, forecast.reports_a_day(near)) if forecast and line.holds != 1 else (),
        _series(today, later, 100 * forecast.share_able_to_report(later))
        if forecast and line.holds != 1
        else (),
    )


def _series(today: datetime.date, days: np.ndarray, values: np.ndarray) -> Series:
    start = datetime.datetime.combine(today, datetime.time(), datetime.UTC)
    return tuple(
        ((start + datetime.timedelta(days=float(day))).isoformat(), round(float(value), 3))
        for day, value in zip(days, values, strict=True)
        if day < _MAX_DAYS
    )
