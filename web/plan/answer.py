"""The Plan view's answer, with a request's plan and the chart's data; pure functions."""

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
    "It holds for a histogram that is seen once. Someone who watches it grow, report by report, learns as"
    " much as each report reveals."
)


@dataclass(frozen=True)
class SolvedPlan:
    """A request's plan; `solved` is the fourth number, in its field's unit (devices, nats, values or %)."""

    fourth: Fourth
    plan_answer: PlanAnswer
    solved: float

    @property
    def solved_text(self) -> str:
        """The fourth number with its unit, such as 12,000 devices or ±2.88 points."""
        if self.fourth == "error":
            return self.error(self.solved / 100)
        texts = {"devices": "{:,} devices", "domain": "{:,} bins", "epsilon": "ε = {:g}"}
        return texts[self.fourth].format(self.solved)

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Names and descriptions of both ε and of how devices answer."""
        whole, design = self.plan_answer.histograms["all of it"], self.plan_answer.plan.design
        histogram = f"ε = {rounded_up(whole.epsilon)} (δ = {whole.delta:g})"
        if self.plan_answer.request.lifetime is not None:
            histogram = f"See the table below (δ = {whole.delta:g})"
        return [
            ("ε of a report", f"ε = {nats(design.epsilon)}, against everyone, including the broker."),
            ("ε of the histogram", f"{histogram}, {LIMITS}. {ONCE}"),
            ("How devices answer", f"{plain_description(design.mechanism)} ({mechanism(design)})".strip()),
        ]

    @property
    def points(self) -> str:
        """The unit of an error: percentage points for a share, and % of the range for a mean."""
        return unit_of(self.plan_answer.plan.question)

    def error(self, half: float) -> str:
        """Return an error in words, or a dash if the interval would be too wide to be useful."""
        return "—" if is_too_wide(half) else points(half, self.points)

    @property
    def curve(self) -> list[tuple[float, float]]:
        """Pairs of a device count and an error in points, from 1/100 to 100 times the plan's devices."""
        n = self.plan_answer.plan.devices
        return [
            (float(x), 100 * self.plan_answer.error_with(x))
            for x in np.geomspace(max(2, n / 100), 100 * n, _POINTS)
        ]


def solve(request: PlanRequest, fourth: Fourth, before_each: Callable[[], object] = object) -> SolvedPlan:
    """Plan a request; a search over many designs may take seconds.

    Args:
        request: The request.
        fourth: The number to compute.
        before_each: Called before each design; an exception ends the search.

    Raises:
        PlanError: If no such plan exists, or a field is invalid; it names the field.
    """
    single = None
    if request.lifetime is not None and fourth in ("epsilon", "domain"):
        # Solve for one report from each device; a lifetime plan uses the result unchanged.
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
    # Compute these cached properties here, in a worker thread, because they are slow.
    _ = plan_answer.histograms, plan_answer.fixed_limit
    before_each()
    return SolvedPlan(fourth, plan_answer, solved[fourth])
