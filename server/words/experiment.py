"""Describe an experiment: its mechanism, its budget and its guarantee."""

from decimal import Decimal
from itertools import pairwise

from ...device.ldp_client import Experiment
from ...device.ldp_pairs import Part
from ..accounting import Guarantee
from ..mechanisms import mechanism_of
from ..mechanisms.views.factors import parts_of
from ..wire.experiments import every_by_value, group_values, log_edges, reports_in_budget, value_count
from .numbers import counted


def mechanism(experiment: Experiment) -> str:
    """Describe a mechanism and its parameters briefly."""
    return mechanism_of(experiment).words()


def readings(experiment: Experiment | Part, unit: str) -> str:
    """Describe the possible readings: labels, bins and their bounds in the unit, or any text."""
    values = _values(experiment, unit)
    return f"{values}, or no reading" if value_count(experiment) < experiment.domain else values


def missing(experiment: Experiment) -> str:
    """Say what happens to missing readings."""
    parts = parts_of(experiment) or (experiment,)
    if all(value_count(part) < part.domain for part in parts):
        return "counted separately as no reading; all shares are relative to devices with a reading"
    if any(value_count(part) < part.domain for part in parts):
        return "counted separately if the part sets missing, otherwise spread evenly over all values"
    return "spread evenly over all values, because missing is not set"


def _values(experiment: Experiment | Part, unit: str) -> str:
    if experiment.type == "bool":
        return "yes or no"
    if experiment.type == "choice":
        return ", ".join((*experiment.labels, "other"))
    if experiment.type == "text":
        text_fields = vars(experiment)  # set by device/ldp_text.py
        levels = f" for each of {len(text_fields['prefixes'])} prefixes" if text_fields["prefixes"] else ""
        return f"any text, hashed into {text_fields['slots']:,} slots{levels}"
    if experiment.type == "pair":
        return " with ".join(f"{part.name} ({readings(part, unit)})" for part in parts_of(experiment))
    if experiment.type != "number":
        return f"{experiment.type}, {experiment.domain:,} values"
    low, high = experiment.low / 1000, experiment.high / 1000
    bins = value_count(experiment)
    width = f"{bins:,} bins of {(high - low) / bins:g}"
    edges = log_edges(experiment)
    if edges:
        width = f"{bins:,} bins on a logarithmic scale, of {(edges[1] - edges[0]) / 1000:g} to "
        width += f"{max(b - a for a, b in pairwise(edges)) / 1000:.4g}"
    return f"{low:g} to {high:g} {unit}".rstrip() + f", {width} {unit}".rstrip()


def describe_group(experiment: Experiment) -> str:
    """Name the open group with its values, or return "" without one."""
    return f"{experiment.group} ({', '.join(group_values(experiment))})" if experiment.group else ""


def unprotected(experiment: Experiment) -> str:
    """Say which value each report contains in the clear, or return "" without an open group."""
    if not experiment.group:
        return ""
    return (
        f"Each report contains the board's {describe_group(experiment)} in the clear: everyone who sees the "
        "report sees it, and ε does not cover it."
    )


def thinning(experiment: Experiment) -> str:
    """Say which share of the calls makes a report, or return "" if every call does."""
    every = experiment.every
    usual = "every call makes a report" if every == 1 else f"1 call in {every:,} makes a report"
    different = [
        f"with {experiment.group} {value} {'every call' if n == 1 else f'1 in {n:,}'}"
        for value, n in every_by_value(experiment).items()
        if n != every
    ]
    return ", ".join((usual, *different)) if different or every > 1 else ""


def budget(experiment: Experiment) -> str:
    """Describe a board's budget for the experiment."""
    thinned = f"; {text}" if (text := thinning(experiment)) else ""
    count = reports_in_budget(experiment)
    if count is None:
        return "no cap of its own" + thinned
    reports_text = counted(count)
    if experiment.rule == "count":
        return f"at most {reports_text} per lifetime{thinned}"
    if experiment.rule == "sum":
        return f"Σε at most {experiment.cap / 1e6:g}: {reports_text} per lifetime{thinned}"
    return f"Σε² at most {experiment.cap / 1e12:g}: {reports_text} per lifetime{thinned}"


def together(promised: Guarantee, spent: tuple[int, float] | None, epsilon: Decimal) -> str:
    """Describe the guarantee for all of a board's reports to an experiment, in (ε, δ) and in words.

    Args:
        promised: The guarantee.
        spent: The number of reports that it makes and the nats of the total that they use, or None without a
            theorem.
        epsilon: The ε of one report, in nats.
    """
    if spent is None:
        return promised.words
    count, nats = spent
    reports = f"{count:,} of ε = {epsilon:f}"
    return f"{promised.words} A device makes {reports}, which uses {nats:.6g} of the {promised.epsilon:g}."
