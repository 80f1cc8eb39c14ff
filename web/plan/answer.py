"""The answer of the Plan view: a request's plan, and the data of its chart; pure functions."""

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
class SolvedPlan:
    """A request's plan; `solved` is the fourth number, in its field's unit: devices, nats, values or %."""

    fourth: Fourth
    plan_answer: PlanAnswer
    solved: float

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Names and descriptions: both ε, and how devices answer."""
        whole, design = self.plan_answer.histograms["all of it"], self.plan_answer.plan.design
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
        """Unit of an error: points of a share, or for a mean, relative to the range."""
        return unit_of(self.plan_answer.plan.question)

    def error(self, half: float) -> str:
        """Return an error in words; a dash if the interval would be too wide to be useful."""
        return "—" if is_too_wide(half) else points(half, self.points)

    @property
    def curve(self) -> list[tuple[float, float]]:
        """Devices and error in points, from a hundredth to a hundred times the plan's devices."""
        n = self.plan_answer.plan.devices
        return [
            (float(x), 100 * self.plan_answer.error_with(x))
            for x in np.geomspace(max(2, n / 100), 100 * n, _POINTS)
        ]


def solve(request: PlanRequest, fourth: Fourth, before_each: Callable[[], object] = object) -> SolvedPlan:
    """Plan a request; this takes up to seconds for a search over many designs.

    Args:
        request: The request.
        fourth: The number to compute.
        before_each: Called before each design; an exception ends the search.

    Raises:
        PlanError: With the invalid field if there is one, also if there is no such plan.
    """
    single = None
    if request.lifetime is not None and fourth in ("epsilon", "domain"):
        # Both are those of one report from each device; a lifetime plan uses them unchanged.
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
        plan_answer.histograms,
        plan_answer.fixed_limit,
    )  # computed here, in its own thread, because it is slow
    before_each()
    return SolvedPlan(fourth, plan_answer, solved[fourth])
