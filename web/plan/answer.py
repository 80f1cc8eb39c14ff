"""The answer of the Plan view: a request's plan, and what of it is drawn; pure."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ...planning.answer import PlanAnswer, answer
from ...planning.request import PlanRequest
from ...planning.sentences import mechanism, unit_of
from ...server.epsilon import MICRO, nats
from ...server.estimate.shuffled import LIMITS
from ...server.mechanisms.about import plain_description
from ...server.words.epsilon import rounded_up
from ...server.words.numbers import is_too_wide, points
from .entries import Fourth

_POINTS = 41
ONCE = (
    "It holds for a histogram that is seen once. Someone who watches it grow, report by report, learns what"
    " each report tells."
)


@dataclass(frozen=True)
class Worked:
    """A request's plan; solved: the fourth, in the unit of its field: devices, nats, values or %."""

    fourth: Fourth
    plan_answer: PlanAnswer
    solved: float

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Names and what is said of them: both ε, and how devices answer."""
        whole, design = self.plan_answer.seen["all of it"], self.plan_answer.plan.design
        histogram = f"ε = {rounded_up(whole.epsilon)} (δ = {whole.delta:g})"
        if self.plan_answer.request.lifetime is not None:
            histogram = f"It stands in the table below (δ = {whole.delta:g})"
        return [
            ("ε of a report", f"ε = {nats(design.epsilon)}, against everybody, the broker included."),
            ("ε of the histogram", f"{histogram}, {LIMITS}. {ONCE}"),
            ("How devices answer", f"{plain_description(design.mechanism)} ({mechanism(design)})".strip()),
        ]

    @property
    def points(self) -> str:
        """What an error is in: points of a share; of a mean it is relative to the range."""
        return unit_of(self.plan_answer.plan.question)

    def error(self, half: float) -> str:
        """An error in words; a dash where an interval would say nothing."""
        return "—" if is_too_wide(half) else points(half, self.points)

    @property
    def curve(self) -> list[tuple[float, float]]:
        """Devices and error in points, from a hundredth to a hundred times the plan's devices."""
        n = self.plan_answer.plan.devices
        return [
            (float(x), 100 * self.plan_answer.error_with(x))
            for x in np.geomspace(max(2, n / 100), 100 * n, _POINTS)
        ]


def answered(request: PlanRequest, fourth: Fourth, before_each: Callable[[], object] = object) -> Worked:
    """Work a request out; up to seconds where many designs are looked at.

    before_each: called before each of them; what it raises ends the work. Raises PlanError, with the field
    that cannot hold what it does where there is one, and where there is no such plan.
    """
    single = None
    if request.lifetime is not None and fourth in ("epsilon", "domain"):
        # Both are those of one report from each device; a life takes them as they are.
        once = replace(request, lifetime=None, horizon=None, call=None, epsilon=request.limit, limit=None)
        single = answer(once, before_each).plan.design
        if fourth == "epsilon":
            request = replace(request, limit=single.epsilon / MICRO)
        else:
            request = replace(request, values=single.domain)
    plan_answer = answer(request, before_each)
    design = single or plan_answer.plan.design
    solved = {
        "devices": plan_answer.plan.devices,
        "epsilon": design.epsilon / MICRO,
        "domain": design.domain,
        "error": float(f"{100 * plan_answer.error:.3g}"),
    }
    _ = (
        plan_answer.seen,
        plan_answer.fixed_limit,
    )  # what takes long is worked out here, in a thread of its own
    before_each()
    return Worked(fourth, plan_answer, solved[fourth])
