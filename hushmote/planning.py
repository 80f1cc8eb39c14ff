"""hushmote.plan(): how many devices, which ε, how many values, what error; three of them give the fourth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import Any, Literal

from rich.table import Table

from hushmote.server.answers.tables import Shown, table
from hushmote.server.epsilon import belief, rounded_up
from hushmote.server.estimate.shuffled import LIMITS
from hushmote.server.planning.devices import MICRO, Plan, PlanError, solve
from hushmote.server.planning.expected_error import Question
from hushmote.server.planning.second_epsilon import HistogramEpsilon, histogram
from hushmote.server.planning.words import assumed, mechanism

_ASKED = {
    "frequency": "the share of one value",
    "range": "the share of any range of bins",
    "quantile": "the share of devices below a quantile",
    "mean": "the mean of a number",
}


@dataclass(frozen=True, repr=False)
class FleetPlan(Shown):
    """What a fleet will show when every device has sent one report; printed, it is a table.

    plan: the same with the question, the mechanism's design and the standard error.
    """

    plan: Plan

    @property
    def devices(self) -> int:
        """Number of devices."""
        return self.plan.devices

    @property
    def epsilon(self) -> float:
        """Privacy of one report, against everybody, nats."""
        return self.plan.epsilon

    @property
    def values(self) -> int:
        """Number of values: a number's bins, labels with "other", or 2 for yes and no."""
        return self.plan.design.domain

    @property
    def error(self) -> float:
        """Half-width of the 95 % interval, as a share of the devices, or of a mean as a part of the range."""
        return self.plan.error

    @property
    def mechanism(self) -> str:
        """The mechanism with the least error, and its parameters."""
        return mechanism(self.plan.design)

    @cached_property
    def histogram(self) -> HistogramEpsilon:
        """What the histogram of all reports gives away, and against whom that holds."""
        return histogram(self.plan.design, self.devices)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, those of `hushmote plan --json` but for its sentences."""
        return self.plan.to_dict() | {"histogram": self.histogram.to_dict() | {"wanted": None}}

    def _rows(self) -> list[tuple[str, str]]:
        question, seen = self.plan.question, self.histogram
        held = "" if question.share is None else f" that holds {question.share:g} of the devices"
        held = f": {question.share:g}" if question.kind == "quantile" else held
        if question.kind == "mean":
            held = f", {assumed(question, self.plan.design)}"
        solved = {"domain": "values"}.get(self.plan.solved, self.plan.solved)
        rows = {
            "devices": f"{self.devices:,}",
            "epsilon": f"{self.epsilon:g}",
            "it means": belief(self.epsilon),
            "its histogram": f"ε = {rounded_up(seen.epsilon)}, δ = {seen.delta:g}, {LIMITS}",
            "values": f"{self.values:,}",
            "error": f"±{self.error:.3%} of the {'range' if question.kind == 'mean' else 'devices'}",
            "asked": _ASKED[question.kind] + held,
            "mechanism": self.mechanism,
        }
        rows[solved] += "   <- the answer"
        return list(rows.items())

    def __rich__(self) -> Table:
        result = table(header=False)
        for row in self._rows():
            result.add_row(*row)
        return result

    def _repr_html_(self) -> str:
        rows = (f"<tr><th>{escape(a)}</th><td>{escape(b)}</td></tr>" for a, b in self._rows())
        return f"<table>{''.join(rows)}</table>"


def plan(
    *,
    devices: int | None = None,
    epsilon: float | None = None,
    bins: int | None = None,
    labels: Sequence[str] = (),
    yes_no: bool = False,
    error: float | None = None,
    of: Literal["frequency", "range", "quantile", "mean"] | None = None,
    share: float | None = None,
    spread: float | None = None,
) -> FleetPlan:
    """Give three of devices, epsilon, values and error; get the fourth.

    epsilon: privacy of one report, nats, 0.001 to 16. Values: the bins of a number, the labels of a choice,
    to which "other" is added, or yes and no. error: half-width of the 95 % interval, a share of the devices:
    0.01 is ±1 %. of: what the error is of; a number's ranges and other readings' frequencies, if left out.
    share: what the value or range holds, or the quantile; the worst one if left out, 0.5 for a quantile.
    spread: standard deviation of the readings that a mean is of, a part of the range, 0 to 0.5; the worst
    readings there can be if left out. A mean's error is a part of the range.

    Raises PlanError with one line where that cannot be planned.
    """
    values = 2 if yes_no else len(labels) + 1 if labels else bins
    kind = of or ("frequency" if yes_no or labels else "range")
    if kind not in _ASKED:
        known = ", ".join(_ASKED)
        raise PlanError(
            f"of is one of {known}, not {kind}; labels and pairs are planned with `hushmote plan`"
        )
    if kind == "quantile" and share is None:
        share = 0.5
    if kind == "mean" and (share is not None or labels or yes_no):
        raise PlanError("a mean is of a number: leave share, labels and yes_no out")
    if kind != "mean" and spread is not None:
        raise PlanError(f"spread is for a mean, not for a {kind}")
    micro = None if epsilon is None else round(epsilon * MICRO)
    question = Question(kind, share, spread=spread)
    return FleetPlan(solve(question, devices=devices, epsilon=micro, domain=values, error=error))
