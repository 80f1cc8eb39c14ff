"""A plan's answer in sentences, which stands before its tables: what to take, how exact, how private."""

from __future__ import annotations

from ..epsilon import MICRO, nats
from ..words.epsilon import ALL_SEEN, ITS_REPORT, belief
from ..words.numbers import NOTHING, counted, length, percent
from .devices import Plan, half_width
from .lifetime import LifetimePlan
from .words import asked, points


def sentences(plan: Plan | LifetimePlan, error: float | None, yes_no: bool = False) -> tuple[str, str, str]:
    """What to take, how exact that is, and how private. error: wanted half-width, as Plan.error."""
    what = "share of yes" if yes_no else asked(plan.question)
    if isinstance(plan, Plan):
        return _take(plan), _known(plan, what), belief(plan.epsilon)
    best = plan.best
    rarely = "Every call makes one" if best.every == 1 else f"One call in {best.every:,} makes one"
    spends = f"Let a board make {counted(best.cap)} of ε = {nats(best.epsilon)} in its life. {rarely}."
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


def _known(plan: Plan, what: str) -> str:
    if plan.error >= NOTHING:
        return f"The {what} is not known then: take more devices, a larger ε or fewer values."
    return f"The {what} is then known to {points(plan.error, plan.question)}."


def _privacy(life: LifetimePlan) -> str:
    """What all reports of a board tell at most, and whom that holds against."""
    best, budget = life.best, life.budget
    if best.composition == "basic":
        return belief(best.cap * best.epsilon / MICRO, seen=ITS_REPORT if best.cap == 1 else ALL_SEEN)
    together = f"All reports of a board together are ({budget.epsilon / MICRO:g}, {budget.delta:g})-LDP."
    return f"{together} Of one report: {belief(best.epsilon / MICRO)}"


def _exactness(life: LifetimePlan, error: float | None, what: str) -> str:
    """What the last windows and all reports show, and how many devices it takes where that is not enough."""
    best = life.best
    shown = {name: life.error(best, days) for name, days in life.windows().items()}
    everything = half_width(life.devices * best.used * best.cap, best.design, life.question)
    useful = [f"{percent(half)} over {name}" for name, half in shown.items() if half < NOTHING]
    if everything >= NOTHING:
        return f"The {what} is not known at all: take more devices, or allow more."
    text = f"The {what} is then known to {points(everything, life.question)}"
    text += f", with all reports of {length(life.rhythm.horizon_s)}"
    if "all of it" not in shown:
        few = f"{list(shown)[-1]} has too few reports to show it"
        text += f"; at the end, {', '.join(useful) or few}"
    text += "."
    if error is None:
        return text
    meets = [name for name, half in shown.items() if half <= error]
    if meets:
        return f"{text} {percent(error)} is met from {meets[0]} of reports on."
    longest, days = list(life.windows().items())[-1]
    needed = life.devices_for(days, error)
    return f"{text} {percent(error)} for each {longest} alone is not met: that takes {needed:,} devices."


def cost(life: LifetimePlan) -> str:
    """What a board sends in its life, and how its reports are spread."""
    best, size = life.best, 9 + life.design.experiment.code_bytes
    text = f"a board sends {counted(best.cap)} of {size} bytes ({size + 8} in a keyed fleet)"
    text += f" in {length(life.rhythm.horizon_s)}"
    if best.every == 1:
        return f"{text}, one at every look, and is silent then."
    coin = f"each look makes a report with 1 chance in {best.every:,}"
    return f"{text}: {coin}, and {best.used:.0%} of all these reports are made by the end."
