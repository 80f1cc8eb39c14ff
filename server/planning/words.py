"""What a plan is about, in a few words: its question, mechanism, times and errors."""

from __future__ import annotations

from .expected_error import Design, Question


def mechanism(design: Design) -> str:
    """A mechanism and its numbers in a few words."""
    weights = dict(design.choice.parameters).get("weights", ())
    return design.mechanism.words() + (f", weights {' '.join(map(str, weights))}" if weights else "")


def asked(question: Question) -> str:
    """What the error is of."""
    if question.kind == "frequency":
        return "share of one value"
    if question.kind == "quantile":
        return "median" if question.share == 0.5 else f"{question.share:g} quantile"
    if question.kind == "mean":
        return "mean"
    if question.ranges:
        text = ", ".join(f"{low}:{high}" for low, high in question.ranges[:3])
        many = ", ..." if len(question.ranges) > 3 else ""
        return f"share of bins {text}{many}"
    return f"share of {question.width} neighbouring bins" if question.width else "share of any range of bins"


def assumed(question: Question, design: Design) -> str:
    """Which population, and which mean, the error is for."""
    if question.kind == "quantile":
        return "mean over where it may lie; share of devices below it"
    if question.kind == "mean":
        if question.spread is None:
            return "whatever the readings are: the worst case"
        return f"of readings with a standard deviation of {question.spread:.3g} of the range"
    held = f"holding {question.share:.3g} of the devices" if question.share is not None else None
    if question.all_ranges and design.domain > 2:
        return f"root mean square over all of them, {held or 'at the worst share'}"
    if question.ranges and len(question.ranges) > 1:
        return f"the largest of them, {held or 'each at its worst share'}"
    return held or "whatever it holds: the worst case"


def points(error: float, question: Question) -> str:
    """A half-width that says something, as of the 95 % interval of a share, or of a mean."""
    of = "% of the range" if question.kind == "mean" else "percentage points"
    return f"±{100 * error:.3g} {of}, 95 times in 100"
