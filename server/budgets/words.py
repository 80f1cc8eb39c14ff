"""The remaining budgets in words, for the ledger's table and for the page."""

import datetime

from ..accounting import Guarantee
from ..epsilon import nats
from ..words.epsilon import ALL_SEEN, belief, within
from ..words.numbers import ENGLISH, Numbers, counted
from .forecast import DRY
from .policy import Policy, guarantee_of
from .remaining import Remaining

HEADINGS = ("reports left", "used-up devices", "reports a day", "half used by", f"{1 - DRY:.0%} used by")
"""The headings of the columns of cells()."""

COUNTED = "Counted from the reports that arrived; the devices' own ledgers may be further."
NO_POLICY = "The devices' policy may allow less: give their firmware file as --policy."

_NEARLY_SPENT = 0.1  # share of the devices that can still report


def count(reports: int | None) -> str:
    """Return a number of reports left in a budget as text; None means there is no limit."""
    return "no cap" if reports is None else f"{reports:,}"


def cells(line: Remaining) -> tuple[str, ...]:
    """Return an experiment's row under HEADINGS."""
    state = line.budget.state
    reports_left = "0 (once)" if line.holds == 1 and not line.total_left else count(line.total_left)
    return (
        reports_left if state == "current" else state,
        f"{line.silent:,}",
        "" if line.per_day is None else f"{line.per_day:,.1f}",
        str(line.half or ""),
        str(line.dry or ""),
    )


def sentences(fleet: str, line: Remaining, today: datetime.date) -> tuple[str, ...]:
    """Return sentences on the reports left for one experiment, the most important one first."""
    return (_left_sentence(fleet, line), *_dates(line, today), *_devices(line))


def warning(line: Remaining, write: Numbers = ENGLISH) -> str:
    """Return a sentence if few devices can still report, otherwise ""."""
    able = line.able_share
    if able is None or able >= _NEARLY_SPENT:
        return ""
    if not able:
        return "The budget is spent: no device that has reported can report again."
    return f"The budget is nearly spent: {write.percent(able, 0)} of devices can still report."


def lifetime_sentences(policy: Policy | None) -> tuple[str, ...]:
    """Return sentences on what a device's firmware allows over its lifetime, and on the guarantee."""
    if policy is None:
        return ()
    allowed = f"Σε up to {nats(policy.sum)}"
    if policy.squares:
        allowed += f", or Σε² up to {policy.squares / 1e12:.6g}, whichever lets more through"
    return (
        f"The firmware allows {allowed}, over a device's lifetime and all experiments; and"
        f" ε = {nats(policy.epsilon)} for one report. No server can raise this.",
        guarantee_sentence(guarantee_of(policy)),
    )


def notes(policy: Policy | None, experiments: int) -> tuple[str, ...]:
    """Return notes on these numbers.

    Args:
        policy: The policy, if it is known.
        experiments: How many experiments share a device's lifetime budget.
    """
    shared = (
        "Experiments share a device's lifetime budget, so together they give less than each of them alone."
    )
    if policy is not None:
        shared += " The dates are for devices that take part in all of them."
    return (COUNTED, *(() if policy else (NO_POLICY,)), *((shared,) if experiments > 1 else ()))


def guarantee_sentence(promised: Guarantee) -> str:
    """Return the meaning of a guarantee, then the guarantee; if it may fail, in the opposite order."""
    sentence = belief(promised.epsilon, reports=ALL_SEEN)
    if promised.delta:
        return f"{promised.words} {within(promised.delta, sentence)}"
    return f"{sentence} {promised.words}"


def _left_sentence(fleet: str, line: Remaining) -> str:
    name, state = line.budget.experiment.name, line.budget.state
    if state == "refused":
        return f"The devices' policy refuses {name}: devices of {fleet} send no report to it."
    if state != "current":
        sent = counted(line.budget.accepted)
        return f"{name} is {state}: devices of {fleet} send no more to it. They sent {sent}."
    if line.total_left is None:
        return f"Nothing limits how many reports devices of {fleet} send to {name}: its budget has no cap."
    if not line.boards:
        return f"No device has reported to {name} yet."
    if line.holds == 1:
        answered = counted(line.silent, "device")
        return f"{name} asks each device once: {answered} {'has' if line.silent == 1 else 'have'} answered."
    if not line.total_left:
        return f"No device of {fleet} heard from so far can send anything more to {name}."
    return f"Devices of {fleet} can still send {counted(line.total_left)} to {name}."


def _dates(line: Remaining, today: datetime.date) -> list[str]:
    """Return when devices fall silent at the present rate, or an empty list if each is asked only once."""
    if line.budget.state != "current" or line.total_left == 0 or line.holds == 1:
        return []
    if line.per_day is None:
        return ["No full day has been counted yet, so it is not known when they fall silent."]
    if line.forecast is None:
        return ["No report arrived in the last full days: at this rate they never fall silent."]
    if line.total_left is None:
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
    """Return how many devices have no reports left, and how many a new one has."""
    if line.budget.state != "current" or line.total_left is None:
        return []
    e = line.budget.experiment
    silent = f"{line.silent:,} of {line.boards:,} devices have nothing left to give."
    new = f"A new device gives at most {counted(line.holds or 0)} of ε = {nats(e.epsilon)}"
    rate = "" if e.every == 1 else f", one for every {e.every:,} readings on average"
    return [*([silent] if line.boards and line.holds != 1 else []), f"{new}{rate}."]
