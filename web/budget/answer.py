"""What a fleet's boards can still give, in sentences and series; pure."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

import numpy as np

from ...server.accounting import Guarantee
from ...server.epsilon import nats
from ...server.experiments.budget import rule_guarantee
from ...server.planning.policy import Policy, guarantee_of
from ...server.planning.remaining import COUNTED, FleetLedger, Remaining, shown_days
from ...server.words.epsilon import ALL_SEEN, belief, within
from ...server.words.numbers import counted

_POINTS = 80
_MOST_DAYS = 1_000_000.0  # what comes later has no date
Series = tuple[tuple[str, float], ...]
"""Days or moments, ISO 8601 UTC, and numbers."""

ALONE = "This is for each experiment alone; they share a board's life, so that together they give less."
NO_POLICY = (
    "The boards' own policy may hold less than their experiments allow. The page was not told it: start it"
    " with --policy and the boards' firmware file."
)


@dataclass(frozen=True)
class ExperimentSupply:
    """What boards can still give to one experiment.

    said: sentences, the most important one first. promise: what holds for all reports of a board to it. line:
    its numbers. counted: reports on each full day. forecast: reports a day from now on. able: share of the
    boards, %, that can still report.
    """

    said: tuple[str, ...]
    promise: str
    line: Remaining
    counted: Series
    forecast: Series
    able: Series

    @property
    def name(self) -> str:
        """The experiment's."""
        return self.line.budget.experiment.name

    @property
    def left(self) -> int | None:
        """Reports that boards may still send; None where nothing limits them."""
        return self.line.left if self.line.budget.state == "current" else 0


@dataclass(frozen=True)
class FleetSupply:
    """A fleet's boards and budgets. life: what is known of a board's whole life, in sentences."""

    fleet: str
    boards: int
    experiments: tuple[ExperimentSupply, ...]
    life: tuple[str, ...]


def fleet_supply(ledger: FleetLedger, today: datetime.date) -> FleetSupply:
    """Return what the Budget view shows of a ledger."""
    lines = ledger.lines(today)
    spans = [np.linspace(0, days, _POINTS) for days in shown_days(lines, today)]
    experiments = tuple(_experiment(ledger.fleet, line, today, *spans) for line in lines)
    boards = sum(ledger.profiles.values())
    return FleetSupply(ledger.fleet, boards, experiments, _life(ledger.policy, len(lines)))


def _experiment(
    fleet: str, line: Remaining, today: datetime.date, near: np.ndarray, later: np.ndarray
) -> ExperimentSupply:
    e, forecast = line.budget.experiment, line.forecast
    promised = rule_guarantee(e.rule, e.cap, line.budget.dearest)
    return ExperimentSupply(
        (_left(fleet, line), *_dates(line, today), *_boards(line)),
        promised.words if e.rule == "unlimited" else _promise(promised),
        line,
        tuple((day.isoformat(), float(n)) for day, n in line.budget.days.items()),
        _series(today, near, forecast.reports_a_day(near)) if forecast else (),
        _series(today, later, 100 * forecast.able(later)) if forecast else (),
    )


def _left(fleet: str, line: Remaining) -> str:
    name, state = line.budget.experiment.name, line.budget.state
    if state == "refused":
        return f"The boards' policy refuses {name}: boards of {fleet} send no report to it."
    if state != "current":
        sent = counted(line.budget.accepted)
        return f"{name} is {state}: boards of {fleet} send no more to it. They sent {sent}."
    if line.left is None:
        return f"Nothing limits how many reports boards of {fleet} send to {name}: its budget has no cap."
    if not line.boards:
        return f"No board has reported to {name} yet."
    if not line.left:
        return f"No board of {fleet} that was heard from can send anything more to {name}."
    return f"Boards of {fleet} can still send {counted(line.left)} to {name}."


def _dates(line: Remaining, today: datetime.date) -> list[str]:
    """When boards fall silent, at the present rate."""
    if line.budget.state != "current" or line.left == 0:
        return []
    if line.per_day is None:
        return ["When they fall silent cannot be said yet: no full day has been counted."]
    if line.forecast is None:
        return ["No report arrived in the last full days: at this rate they never fall silent."]
    if line.left is None:
        return [f"They send {_rate(line.per_day)} a day, and never fall silent."]
    rate = f"At the present rate of {_rate(line.per_day)} a day"
    if line.half is None:
        return [f"{rate} it takes more than a lifetime until half of them are silent."]
    half = "half of them are silent already" if line.half <= today else f"half are silent by {line.half}"
    dry = f", and all but 5 % by {line.dry}" if line.dry else ""
    return [f"{rate}, {half}{dry}."]


def _rate(per_day: float) -> str:
    return counted(round(per_day)) if per_day >= 10 else f"{per_day:.1f} reports"


def _boards(line: Remaining) -> list[str]:
    """How many boards have nothing left, and what a new one gives."""
    if line.budget.state != "current" or line.left is None:
        return []
    e = line.budget.experiment
    silent = f"{line.silent:,} of {line.boards:,} boards have nothing left to give."
    new = f"A new board gives at most {counted(line.holds or 0)} of ε = {nats(e.epsilon)}"
    coin = "" if e.every == 1 else f", one in {e.every:,} times that it looks at its reading"
    return [*([silent] if line.boards else []), f"{new}{coin}."]


def _series(today: datetime.date, days: np.ndarray, values: np.ndarray) -> Series:
    start = datetime.datetime.combine(today, datetime.time(), datetime.UTC)
    return tuple(
        ((start + datetime.timedelta(days=float(day))).isoformat(), round(float(value), 3))
        for day, value in zip(days, values, strict=True)
        if day < _MOST_DAYS
    )


def _life(policy: Policy | None, experiments: int) -> tuple[str, ...]:
    """What a board's firmware allows over its whole life, and what that promises."""
    if policy is None:
        return (NO_POLICY, *((ALONE,) if experiments > 1 else ()), COUNTED)
    allowed = f"Σε up to {nats(policy.sum)}"
    if policy.squares:
        allowed += f", or Σε² up to {policy.squares / 1e12:.6g}, whichever lets more through"
    together = "The dates are for boards that take part in all experiments at once."
    return (
        f"The boards' firmware allows {allowed}, over a board's whole life and all experiments; and"
        f" ε = {nats(policy.epsilon)} for one report. No server can raise this.",
        _promise(guarantee_of(policy)),
        *((together,) if experiments > 1 else ()),
        COUNTED,
    )


def _promise(promised: Guarantee) -> str:
    """What a guarantee means, and then what it says; where it may fail, the other way round."""
    told = belief(promised.epsilon, seen=ALL_SEEN)
    if promised.delta:
        return f"{promised.words} {within(promised.delta, told)}"
    return f"{told} {promised.words}"
