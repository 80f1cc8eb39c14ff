"""What devices can still report, in words: of the ledger's table, and of the page's views and tiles."""

import datetime

from ..accounting import Guarantee
from ..epsilon import nats
from ..words.epsilon import ALL_SEEN, belief, within
from ..words.numbers import ENGLISH, Numbers, counted
from .forecast import DRY
from .policy import Policy, guarantee_of
from .remaining import Remaining

HEADINGS = ("reports left", "used-up devices", "reports a day", "half used by", f"{1 - DRY:.0%} used by")
"""Of the columns that cells() fills."""

COUNTED = "Counted from the reports that arrived; the devices' own ledgers may be further."
NO_POLICY = "The devices' policy may allow less: give their firmware file as --policy."

_NEARLY_SPENT = 0.1  # of the devices can still report


def count(reports: int | None) -> str:
    """Return a number of reports that a budget still holds; None is without limit."""
    return "no cap" if reports is None else f"{reports:,}"


def cells(line: Remaining) -> tuple[str, ...]:
    """Return an experiment's row under HEADINGS."""
    state = line.budget.state
    left = "0 (once)" if line.holds == 1 and not line.left else count(line.left)
    return (
        left if state == "current" else state,
        f"{line.silent:,}",
        "" if line.per_day is None else f"{line.per_day:,.1f}",
        str(line.half or ""),
        str(line.dry or ""),
    )


def sentences(fleet: str, line: Remaining, today: datetime.date) -> tuple[str, ...]:
    """Return what devices can still give to one experiment, the most important sentence first."""
    return (_left(fleet, line), *_dates(line, today), *_devices(line))


def warning(line: Remaining, write: Numbers = ENGLISH) -> str:
    """Return a sentence where few devices can still report, else an empty text."""
    able = line.able_share
    if able is None or able >= _NEARLY_SPENT:
        return ""
    if not able:
        return "The budget is spent: no device that has reported can report again."
    return f"The budget is nearly spent: {write.percent(able, 0)} of devices can still report."


def life(policy: Policy | None) -> tuple[str, ...]:
    """Return what a device's firmware allows over its whole life, and what that promises."""
    if policy is None:
        return ()
    allowed = f"Σε up to {nats(policy.sum)}"
    if policy.squares:
        allowed += f", or Σε² up to {policy.squares / 1e12:.6g}, whichever lets more through"
    return (
        f"The firmware allows {allowed}, over a device's whole life and all experiments; and"
        f" ε = {nats(policy.epsilon)} for one report. No server can raise this.",
        promise(guarantee_of(policy)),
    )


def notes(policy: Policy | None, experiments: int) -> tuple[str, ...]:
    """Return what to know of these numbers; experiments: how many share a device's life."""
    shared = "Experiments share a device's life, so together they give less than each of them alone."
    if policy is not None:
        shared += " The dates are for devices that take part in all of them."
    return (COUNTED, *(() if policy else (NO_POLICY,)), *((shared,) if experiments > 1 else ()))


def promise(promised: Guarantee) -> str:
    """Return what a guarantee means, and then what it says; where it may fail, the other way round."""
    told = belief(promised.epsilon, seen=ALL_SEEN)
    if promised.delta:
        return f"{promised.words} {within(promised.delta, told)}"
    return f"{told} {promised.words}"


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
    """Return when devices fall silent at the present rate; where each is asked once, they are meant to."""
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
    dry = f", and {1 - DRY:.0%} by {line.dry}" if line.dry else ""
    return [f"{rate}, {half}{dry}."]


def _rate(per_day: float) -> str:
    return counted(round(per_day)) if per_day >= 10 else f"{per_day:.1f} reports"


def _devices(line: Remaining) -> list[str]:
    """Return how many devices have nothing left, and what a new one gives."""
    if line.budget.state != "current" or line.left is None:
        return []
    e = line.budget.experiment
    silent = f"{line.silent:,} of {line.boards:,} devices have nothing left to give."
    new = f"A new device gives at most {counted(line.holds or 0)} of ε = {nats(e.epsilon)}"
    coin = "" if e.every == 1 else f", one for every {e.every:,} readings on average"
    return [*([silent] if line.boards and line.holds != 1 else []), f"{new}{coin}."]
