"""Describes a plan's question, mechanism, advice, accuracy, privacy and cost in words."""

from ..server.epsilon import MICRO, nats
from ..server.wire.experiments import report_size
from ..server.words.epsilon import ALL_SEEN, ITS_REPORT, belief
from ..server.words.numbers import counted, is_too_wide, length, points
from .devices import Plan
from .expected_error import Design, Question
from .lifetime import LifetimePlan


def mechanism(design: Design) -> str:
    """Describe a mechanism and its parameters in a few words."""
    weights = dict(design.choice.parameters).get("weights", ())
    return design.mechanism.words() + (f", weights {' '.join(map(str, weights))}" if weights else "")


def describe_question(question: Question) -> str:
    """Describe the quantity that the error applies to."""
    if question.kind == "frequency":
        return "share of one value"
    if question.kind == "quantile":
        return "median" if question.share == 0.5 else f"{question.share:g} quantile"
    if question.kind == "mean":
        return "mean"
    if question.ranges:
        text = ", ".join(f"{low}:{high}" for low, high in question.ranges[:3])
        more = ", ..." if len(question.ranges) > 3 else ""
        return f"share of bins {text}{more}"
    return f"share of {question.width} neighbouring bins" if question.width else "share of any range of bins"


def describe_population(question: Question, design: Design) -> str:
    """Describe the population, and the kind of average, that the error applies to."""
    if question.kind == "quantile":
        return "mean over its possible positions; share of devices below it"
    if question.kind == "mean":
        if question.spread is None:
            return "worst case over all readings"
        return f"of readings with a standard deviation of {question.spread:.3g} of the range"
    share = f"holding {question.share:.3g} of the devices" if question.share is not None else None
    if question.all_ranges and design.domain > 2:
        return f"root mean square over all of them, {share or 'at the worst share'}"
    if question.ranges and len(question.ranges) > 1:
        return f"the largest of them, {share or 'each at its worst share'}"
    return share or "worst case over all shares"


def sentences(
    plan: Plan | LifetimePlan, error: float | None, yes_no: bool = False, devices_solved: bool = False
) -> tuple[str, str, str]:
    """Return sentences on what to do, how precise that is and how private.

    Args:
        plan: The plan.
        error: The target half-width, as in Plan.error, or None.
        yes_no: Whether readings are yes or no.
        devices_solved: Whether a lifetime's devices were solved.
    """
    quantity = "share of yes" if yes_no else describe_question(plan.question)
    if isinstance(plan, Plan):
        return _advice(plan), _expected_accuracy(plan, quantity), belief(plan.epsilon)
    best = plan.best
    frequency_sentence = (
        "Every call makes one" if best.every == 1 else f"One call in {best.every:,} makes one"
    )
    devices_sentence = f"Use {plan.devices:,} devices. " if devices_solved else ""
    spends = (
        f"{devices_sentence}Let a device make {counted(best.cap)} of ε = {nats(best.epsilon)} in "
        f"its lifetime. {frequency_sentence}."
    )
    return spends, _exactness(plan, error, quantity), _privacy(plan)


def _advice(plan: Plan) -> str:
    epsilon, devices = f"{plan.epsilon:g}", f"{plan.devices:,}"
    from_all = f"one report of ε = {epsilon} from each of {devices} devices"
    return {
        "devices": f"Use {devices} devices, each with one report of ε = {epsilon}.",
        "epsilon": f"Use ε = {epsilon} for one report from each of {devices} devices.",
        "domain": f"Distinguish {plan.design.domain:,} values, with {from_all}.",
        "error": f"Use {from_all}.",
    }[plan.solved]


def _expected_accuracy(plan: Plan, what: str) -> str:
    if is_too_wide(plan.error):
        return f"The {what} cannot be estimated then; use more devices, a larger ε or fewer values."
    return f"The {what} is then known to {_within(plan.error, plan.question)}."


def _privacy(lifetime: LifetimePlan) -> str:
    """Describe how much all of a device's reports can reveal at most, and against whom that protects."""
    best, budget = lifetime.best, lifetime.budget
    if best.composition == "basic":
        return belief(best.cap * best.epsilon / MICRO, reports=ITS_REPORT if best.cap == 1 else ALL_SEEN)
    total_guarantee = (
        f"All reports of a device together are ({budget.epsilon / MICRO:g}, {budget.delta:g})-LDP."
    )
    return f"{total_guarantee} {belief(best.epsilon / MICRO)}"


def _exactness(lifetime: LifetimePlan, error: float | None, what: str) -> str:
    """Describe the accuracy of the last windows and of all reports, and how many devices would be enough."""
    half_widths = lifetime.errors
    everything = lifetime.all_reports
    useful = [
        f"{format_half_width(half, lifetime.question)} over {name}"
        for name, half in half_widths.items()
        if not is_too_wide(half)
    ]
    if is_too_wide(everything):
        return f"The {what} cannot be estimated at all; use more devices or a larger budget."
    text = f"The {what} is then known to {_within(everything, lifetime.question)}"
    text += f", with all reports of {length(lifetime.rhythm.horizon_s)}"
    if "all of it" not in half_widths:
        message = f"{list(half_widths)[-1]} has too few reports to show it"
        text += f"; at the end, {', '.join(useful) or message}"
    text += "."
    if error is None:
        return text
    meets = next((name for name, half in half_widths.items() if half <= error), None)
    met = f"{format_half_width(error, lifetime.question)} is met with at least {meets} of reports."
    return f"{text} {not_met(lifetime, error) or met}"


def not_met(lifetime: LifetimePlan, error: float | None) -> str:
    """Describe how far the windows at the end miss the target error, or return "" if one meets it."""
    if error is None or min(lifetime.errors.values()) <= error:
        return ""
    longest, days = [*lifetime.windows().items()][-1]
    needed = lifetime.devices_for(days, error)
    target = format_half_width(error, lifetime.question)
    return f"{target} is not met by {longest} alone; that would take {needed:,} devices."


def cost(lifetime: LifetimePlan) -> str:
    """Describe what a device sends over its lifetime, and how its reports are spread."""
    best, size = lifetime.best, report_size(lifetime.design.experiment, authenticated=False)
    text = f"a device sends {counted(best.cap)} of {size} bytes ({size + 8} in a keyed fleet)"
    text += f" in {length(lifetime.rhythm.horizon_s)}"
    if best.every == 1:
        return f"{text}, one at every call, and then stops."
    thinning = f"each call makes a report with probability 1 in {best.every:,}"
    return f"{text}; {thinning}, and {best.used:.0%} of these reports are made by the end."


def unit_of(question: Question) -> str:
    """Return the unit of a half-width in hundredths."""
    return "% of the range" if question.kind == "mean" else "points"


def _within(error: float, question: Question) -> str:
    """Return the half-width of a 95% interval, in words."""
    return f"{points(error, unit_of(question))}, 95 times in 100"


def format_half_width(error: float, question: Question) -> str:
    """Return a half-width for a text that already names the quantity."""
    return points(error, "%" if question.kind == "mean" else "points")
