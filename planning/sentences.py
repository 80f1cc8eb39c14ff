"""Describes a plan in words: question, mechanism, advice, accuracy, privacy and cost."""

from ..server.epsilon import MICRO, nats
from ..server.words.epsilon import ALL_SEEN, ITS_REPORT, belief
from ..server.words.numbers import counted, is_too_wide, length, points
from .devices import Plan
from .expected_error import Design, Question
from .lifetime import LifetimePlan


def mechanism(design: Design) -> str:
    """Return a mechanism and its numbers in a few words."""
    weights = dict(design.choice.parameters).get("weights", ())
    return design.mechanism.words() + (f", weights {' '.join(map(str, weights))}" if weights else "")


def describe_question(question: Question) -> str:
    """Return what the error is about."""
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


def describe_population(question: Question, design: Design) -> str:
    """Return which population, and which mean, the error is for."""
    if question.kind == "quantile":
        return "mean over where it may lie; share of devices below it"
    if question.kind == "mean":
        if question.spread is None:
            return "whatever the readings are: the worst case"
        return f"of readings with a standard deviation of {question.spread:.3g} of the range"
    share = f"holding {question.share:.3g} of the devices" if question.share is not None else None
    if question.all_ranges and design.domain > 2:
        return f"root mean square over all of them, {share or 'at the worst share'}"
    if question.ranges and len(question.ranges) > 1:
        return f"the largest of them, {share or 'each at its worst share'}"
    return share or "whatever it holds: the worst case"


def sentences(
    plan: Plan | LifetimePlan, error: float | None, yes_no: bool = False, devices_solved: bool = False
) -> tuple[str, str, str]:
    """Return sentences on what to do, how exact that is, and how private.

    Args:
        plan: The plan.
        error: The target half-width, as in Plan.error, or None.
        yes_no: Whether readings are yes or no.
        devices_solved: Whether a lifetime's devices were solved.
    """
    what = "share of yes" if yes_no else describe_question(plan.question)
    if isinstance(plan, Plan):
        return _take(plan), _expected_accuracy(plan, what), belief(plan.epsilon)
    best = plan.best
    rarely = "Every call makes one" if best.every == 1 else f"One call in {best.every:,} makes one"
    take = f"Take {plan.devices:,} devices. " if devices_solved else ""
    spends = (
        f"{take}Let a device make {counted(best.cap)} of ε = {nats(best.epsilon)} in its lifetime. {rarely}."
    )
    return spends, _exactness(plan, error, what), _privacy(plan)


def _take(plan: Plan) -> str:
    epsilon, devices = f"{plan.epsilon:g}", f"{plan.devices:,}"
    from_all = f"one report of ε = {epsilon} from each of {devices} devices"
    return {
        "devices": f"Take {devices} devices, each with one report of ε = {epsilon}.",
        "epsilon": f"Take ε = {epsilon} for one report of each of {devices} devices.",
        "domain": f"Tell {plan.design.domain:,} values apart, with {from_all}.",
        "error": f"Take {from_all}.",
    }[plan.solved]


def _expected_accuracy(plan: Plan, what: str) -> str:
    if is_too_wide(plan.error):
        return f"The {what} is not known then: take more devices, a larger ε or fewer values."
    return f"The {what} is then known to {_within(plan.error, plan.question)}."


def _privacy(lifetime: LifetimePlan) -> str:
    """Say what all reports of a device reveal at most, and whom that protects against."""
    best, budget = lifetime.best, lifetime.budget
    if best.composition == "basic":
        return belief(best.cap * best.epsilon / MICRO, reports=ITS_REPORT if best.cap == 1 else ALL_SEEN)
    together = f"All reports of a device together are ({budget.epsilon / MICRO:g}, {budget.delta:g})-LDP."
    return f"{together} {belief(best.epsilon / MICRO)}"


def _exactness(lifetime: LifetimePlan, error: float | None, what: str) -> str:
    """Say what the last windows and all reports show, and how many devices it takes if that is not enough."""
    half_widths = lifetime.errors
    everything = lifetime.all_reports
    useful = [
        f"{format_half_width(half, lifetime.question)} over {name}"
        for name, half in half_widths.items()
        if not is_too_wide(half)
    ]
    if is_too_wide(everything):
        return f"The {what} is not known at all: take more devices, or allow more."
    text = f"The {what} is then known to {_within(everything, lifetime.question)}"
    text += f", with all reports of {length(lifetime.rhythm.horizon_s)}"
    if "all of it" not in half_widths:
        few = f"{list(half_widths)[-1]} has too few reports to show it"
        text += f"; at the end, {', '.join(useful) or few}"
    text += "."
    if error is None:
        return text
    meets = next((name for name, half in half_widths.items() if half <= error), None)
    met = f"{format_half_width(error, lifetime.question)} are met from {meets} of reports on."
    return f"{text} {not_met(lifetime, error) or met}"


def not_met(lifetime: LifetimePlan, error: float | None) -> str:
    """Say that no window at the end is as exact as wanted, or return "" if one is."""
    if error is None or min(lifetime.errors.values()) <= error:
        return ""
    longest, days = [*lifetime.windows().items()][-1]
    needed = lifetime.devices_for(days, error)
    target = format_half_width(error, lifetime.question)
    return f"{target} are not met by {longest} alone: that takes {needed:,} devices."


def cost(lifetime: LifetimePlan) -> str:
    """Say what a device sends in its lifetime, and how its reports are spread."""
    best, size = lifetime.best, 9 + lifetime.design.experiment.code_bytes
    text = f"a device sends {counted(best.cap)} of {size} bytes ({size + 8} in a keyed fleet)"
    text += f" in {length(lifetime.rhythm.horizon_s)}"
    if best.every == 1:
        return f"{text}, one at every look, and is silent then."
    chance = f"each look makes a report with 1 chance in {best.every:,}"
    return f"{text}: {chance}, and {best.used:.0%} of all these reports are made by the end."


def unit_of(question: Question) -> str:
    """Return the unit of a half-width in hundredths."""
    return "% of the range" if question.kind == "mean" else "points"


def _within(error: float, question: Question) -> str:
    """Return the half-width of a 95% interval, in words."""
    return f"{points(error, unit_of(question))}, 95 times in 100"


def format_half_width(error: float, question: Question) -> str:
    """Return a half-width for a text that already names the quantity."""
    return points(error, "%" if question.kind == "mean" else "points")
