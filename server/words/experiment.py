"""An experiment in words: its mechanism, its budget, what it guarantees."""

from decimal import Decimal

from ...device.ldp_client import Experiment
from ...device.ldp_pairs import Part
from ..accounting import Guarantee
from ..mechanisms import mechanism_of
from ..mechanisms.views.factors import parts_of
from ..wire.experiments import reports_in_budget, value_count
from .numbers import counted


def mechanism(experiment: Experiment) -> str:
    """Return a mechanism and its parameters in a few words."""
    return mechanism_of(experiment).words()


def readings(experiment: Experiment | Part, unit: str) -> str:
    """Return the possible readings in words: labels, bins and their bounds in the unit, or any text."""
    values = _values(experiment, unit)
    return f"{values}, or no reading" if value_count(experiment) < experiment.domain else values


def missing(experiment: Experiment) -> str:
    """Say what happens to missing readings."""
    parts = parts_of(experiment) or (experiment,)
    if all(value_count(part) < part.domain for part in parts):
        return "counted apart, as no reading; all shares are of those with one"
    if any(value_count(part) < part.domain for part in parts):
        return "counted apart where the part sets missing, otherwise spread evenly over all values"
    return "spread evenly over all values, as the experiment does not set missing"


def _values(experiment: Experiment | Part, unit: str) -> str:
    if experiment.type == "bool":
        return "yes or no"
    if experiment.type == "choice":
        return ", ".join((*experiment.labels, "other"))
    if experiment.type == "text":
        of_text = vars(experiment)  # set by device/ldp_text.py
        levels = f" for each of {len(of_text['prefixes'])} prefixes" if of_text["prefixes"] else ""
        return f"any text, hashed into {of_text['slots']:,} slots{levels}"
    if experiment.type == "pair":
        return " with ".join(f"{part.name} ({readings(part, unit)})" for part in parts_of(experiment))
    if experiment.type != "number":
        return f"{experiment.type}, {experiment.domain:,} values"
    low, high = experiment.low / 1000, experiment.high / 1000
    bins = value_count(experiment)
    width = f"{bins:,} bins of {(high - low) / bins:g}"
    return f"{low:g} to {high:g} {unit}".rstrip() + f", {width} {unit}".rstrip()


def budget(experiment: Experiment) -> str:
    """Return the budget of one board for the experiment, in words."""
    thinned = "" if experiment.every == 1 else f"; a call makes a report 1 time in {experiment.every:,}"
    count = reports_in_budget(experiment)
    if count is None:
        return "no cap of its own" + thinned
    most = counted(count)
    if experiment.rule == "count":
        return f"at most {most} for life{thinned}"
    if experiment.rule == "sum":
        return f"Σε at most {experiment.cap / 1e6:g}: {most} for life{thinned}"
    return f"Σε² at most {experiment.cap / 1e12:g}: {most} for life{thinned}"


def together(promised: Guarantee, spent: tuple[int, float] | None, epsilon: Decimal) -> str:
    """Return the guarantee for all reports of a board to an experiment, in (ε, δ) and in words.

    Args:
        promised: The guarantee.
        spent: How many reports it makes, and the nats of the total that they take, or None without a theorem.
        epsilon: ε of one report, in nats.
    """
    if spent is None:
        return promised.words
    count, nats = spent
    of_all = f"{count:,} of ε = {epsilon:f}"
    return f"{promised.words} A device makes {of_all}, which takes {nats:.6g} of the {promised.epsilon:g}."
