"""What a fleet's devices can still give, in sentences and series; pure."""

import datetime
from dataclasses import dataclass

import numpy as np

from ...server.accounting import Guarantee
from ...server.budgets.policy import Policy, guarantee_of
from ...server.budgets.remaining import COUNTED, FleetLedger, Remaining, shown_days
from ...server.epsilon import nats
from ...server.experiments.budget import rule_guarantee
from ...server.words.epsilon import ALL_SEEN, belief, within
from ...server.words.numbers import counted

_POINTS = 80
_MOST_DAYS = 1_000_000.0  # what comes later has no date
Series = tuple[tuple[str, float], ...]
"""Days or moments, ISO 8601 UTC, and numbers."""

ALONE = "This is for each experiment alone; they share a device's life, so together they give less."
NO_POLICY = (
    "The devices' own policy may allow less than their experiments do. The page does not know it: start the"
    " page with --policy and the firmware's file."
)


@dataclass(frozen=True)
class ExperimentSupply:
    """What devices can still give to one experiment.

    said: sentences, the most important one first. promise: what holds for all of a device's reports to it.
    line: its numbers. counted: reports on each full day. forecast: reports a day from now on. able: share of
    the devices, %, that can still report.
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
    def able_share(self) -> float | None:
        """The share of devices that can still report, 0 to 1; None where it is asked once or without end."""
        line = self.line
        if line.budget.state != "current" or line.holds in (None, 1) or not line.boards:
            return None
        return 1 - line.silent / line.boards

    @property
    def left(self) -> int | None:
        """Reports that devices may still send; None where nothing limits them."""
        return self.line.left if self.line.budget.state == "current" else 0


@dataclass(frozen=True)
class FleetSupply:
    """A fleet's devices and budgets. life: what is known of a device's whole life, in sentences."""

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
        _series(today, near, forecast.reports_a_day(near)) if forecast and line.holds != 1 else (),
        _series(today, later, 100 * forecast.able(later)) if forecast and line.holds != 1 else (),
    )


def _left(fleet: str, line: Remaining) -> str:
    name, state = line.budget.experiment.name, line.budget.state
    if state == "refused":
        return f"The devices' policy refuses {name}: devices of {fleet} send no report to it."
    if state != "current":
        sent = counted(line.budget.accepted)
        return f"{name} is {state}: devices of {fleet} send no more to it. They sent {sent}."
    if line.left is None:
        return f"Nothing limits how many reports devices of {fleet} send to {name}: its budget has no cap."
    if not line.boards:
        return f"No device has reported to {name} yet."
    if line.holds == 1:
        answered = counted(line.silent, "device")
        return f"{name} asks each device once: {answered} {'has' if line.silent == 1 else 'have'} answered."
    if not line.left:
        return f"No device of {fleet} heard from so far can send anything more to {name}."
    return f"Devices of {fleet} can still send {counted(line.left)} to {name}."


def _dates(line: Remaining, today: datetime.date) -> list[str]:
    """When devices fall silent, at the present rate; where each is asked once, they are meant to."""
    if line.budget.state != "current" or line.left == 0 or line.holds == 1:
        return []
    if line.per_day is None:
        return ["No full day has been counted yet, so it is not known when they fall silent."]
    if line.forecast is None:
        return ["No report arrived in the last full days: at this rate they never fall silent."]
    if line.left is None:
        return [f"They send {_rate(line.per_day)} a day, and never fall silent."]
    rate = f"At the present rate of {_rate(line.per_day)} a day"
    if line.half is None:
        return [f"{rate}, half of them are silent only after more than a lifetime."]
    half = "half of them are silent already" if line.half <= today else f"half are silent by {line.half}"
    dry = f", and all but 5 % by {line.dry}" if line.dry else ""
    return [f"{rate}, {half}{dry}."]


def _rate(per_day: float) -> str:
    return counted(round(per_day)) if per_day >= 10 else f"{per_day:.1f} reports"


def _boards(line: Remaining) -> list[str]:
    """How many devices have nothing left, and what a new one gives."""
    if line.budget.state != "current" or line.left is None:
        return []
    e = line.budget.experiment
    silent = f"{line.silent:,} of {line.boards:,} devices have nothing left to give."
    new = f"A new device gives at most {counted(line.holds or 0)} of ε = {nats(e.epsilon)}"
    coin = "" if e.every == 1 else f", one for every {e.every:,} readings on average"
    return [*([silent] if line.boards and line.holds != 1 else []), f"{new}{coin}."]


def _series(today: datetime.date, days: np.ndarray, values: np.ndarray) -> Series:
    start = datetime.datetime.combine(today, datetime.time(), datetime.UTC)
    return tuple(
        ((start + datetime.timedelta(days=float(day))).isoformat(), round(float(value), 3))
        for day, value in zip(days, values, strict=True)
        if day < _MOST_DAYS
    )


def _life(policy: Policy | None, experiments: int) -> tuple[str, ...]:
    """What a device's firmware allows over its whole life, and what that promises."""
    if policy is None:
        return (NO_POLICY, *((ALONE,) if experiments > 1 else ()), COUNTED)
    allowed = f"Σε up to {nats(policy.sum)}"
    if policy.squares:
        allowed += f", or Σε² up to {policy.squares / 1e12:.6g}, whichever lets more through"
    together = "The dates are for devices that take part in all experiments at once."
    return (
        f"The firmware allows {allowed}, over a device's whole life and all experiments; and"
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
