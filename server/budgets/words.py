"""Describe the remaining budgets, for the ledger's table and the page."""

import datetime

from ..accounting import Guarantee
from ..epsilon import nats
from ..words.epsilon import ALL_SEEN, belief, with_exception
from ..words.experiment import thinning
from ..words.numbers import ENGLISH, Numbers, counted
from .forecast import SPENT_SHARE
from .policy import Policy, guarantee_of
from .remaining import Remaining

HEADINGS = (
    "reports left",
    "used-up devices",
    "reports a day",
    "half used by",
    f"{1 - SPENT_SHARE:.0%} used by",
)
"""The column headings for cells()."""

COUNTED = "Counted from the reports that arrived; the devices' own ledgers may show more."
NO_POLICY = "The devices' policy may allow less; pass their firmware file as --policy."

_NEARLY_SPENT = 0.1  # share of the devices that can still report


def count(reports: int | None) -> str:
    """Format the number of reports left in a budget; None means that there is no limit."""
    return "no cap" if reports is None else f"{reports:,}"


def cells(line: Remaining) -> tuple[str, ...]:
    """Return an experiment's table row, in the order of HEADINGS."""
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
    """Return sentences on the reports left for an experiment, most important first."""
    return (_left_sentence(fleet, line), *_date_sentences(line, today), *_device_sentences(line))


def warning(line: Remaining, write: Numbers = ENGLISH) -> str:
    """Return a warning if few devices can still report, otherwise ""."""
    able_share = line.share_able_to_report
    if able_share is None or able_share >= _NEARLY_SPENT:
        return ""
    if not able_share:
        return "The budget is spent: no device that has reported can report again."
    return f"The budget is nearly spent: {write.percent(able_share, 0)} of devices can still report."


def lifetime_sentences(policy: Policy | None) -> tuple[str, ...]:
    """Describe what a device's firmware allows over its lifetime, and the resulting guarantee."""
    if policy is None:
        return ()
    allowed = f"Σε up to {nats(policy.sum)}"
    if policy.squares:
        allowed += f", or Σε² up to {policy.squares / 1e12:.6g}, whichever allows more"
    return (
        f"The firmware allows {allowed}, over a device's lifetime and all experiments, and"
        f" ε = {nats(policy.epsilon)} for one report. No server can raise this.",
        guarantee_sentence(guarantee_of(policy)),
    )


def notes(policy: Policy | None, experiments: int) -> tuple[str, ...]:
    """Return notes on the ledger's numbers.

    Args:
        policy: The policy, if it is known.
        experiments: The number of experiments that share a device's lifetime budget.
    """
    shared = "Experiments share a device's lifetime budget, so together they get less than each would alone."
    if policy is not None:
        shared += " The dates apply to devices that take part in all of them."
    return (COUNTED, *(() if policy else (NO_POLICY,)), *((shared,) if experiments > 1 else ()))


def guarantee_sentence(promised: Guarantee) -> str:
    """Describe a guarantee in plain words, then formally; if it has a δ, in the opposite order."""
    sentence = belief(promised.epsilon, reports=ALL_SEEN)
    if promised.delta:
        return f"{promised.words} {with_exception(promised.delta, sentence)}"
    return f"{sentence} {promised.words}"


def _left_sentence(fleet: str, line: Remaining) -> str:
    name, state = line.budget.experiment.name, line.budget.state
    if state == "refused":
        return f"The devices' policy refuses {name}: devices in {fleet} send no reports for it."
    if state != "current":
        reports_text = counted(line.budget.accepted)
        return f"{name} is {state}: devices in {fleet} send no more reports for it. They sent {reports_text}."
    if line.total_left is None:
        return f"Nothing limits how many reports devices in {fleet} send for {name}: its budget has no cap."
    if not line.boards:
        return f"No device has reported for {name} yet."
    if line.holds == 1:
        answered = counted(line.silent, "device")
        return f"{name} asks each device once: {answered} {'has' if line.silent == 1 else 'have'} answered."
    if not line.total_left:
        return f"No device in {fleet} that has reported can send any more reports for {name}."
    return f"Devices in {fleet} can still send {counted(line.total_left)} for {name}."


def _date_sentences(line: Remaining, today: datetime.date) -> list[str]:
    """Say when devices will run out at the current rate; empty if each is asked only once."""
    if line.budget.state != "current" or line.total_left == 0 or line.holds == 1:
        return []
    if line.per_day is None:
        return ["No full day has been counted yet, so it is not known when they will run out."]
    if line.forecast is None:
        return ["No reports arrived in the last full days, so at this rate they never run out."]
    if line.total_left is None:
        return [f"They send {_daily_rate(line.per_day)} a day, and never run out."]
    rate = f"At the current rate of {_daily_rate(line.per_day)} a day"
    if line.half is None:
        return [f"{rate}, half of them will run out only after more than a lifetime."]
    half = "half of them have already run out" if line.half <= today else f"half will run out by {line.half}"
    dry = f", and {1 - SPENT_SHARE:.0%} by {line.dry}" if line.dry else ""
    return [f"{rate}, {half}{dry}."]


def _daily_rate(per_day: float) -> str:
    return counted(round(per_day)) if per_day >= 10 else f"{per_day:.1f} reports"


def _device_sentences(line: Remaining) -> list[str]:
    """Say how many devices have no reports left, and how many reports a new device can send."""
    if line.budget.state != "current" or line.total_left is None:
        return []
    e = line.budget.experiment
    have = "has" if line.silent == 1 else "have"
    silent = f"{line.silent:,} of {counted(line.boards, 'device')} {have} no reports left."
    new = f"A new device sends at most {counted(line.holds or 0)} of ε = {nats(e.epsilon)}"
    frequency = f"; {text}" if (text := thinning(e)) else ""
    return [*([silent] if line.boards and line.holds != 1 else []), f"{new}{frequency}."]
