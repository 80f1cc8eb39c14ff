"""An experiment's budget as the analyst writes it; the board's rule and cap, and their guarantee.

    [budget]                    [budget]
    theorem = "zcdp"            rule = "sum"
    epsilon = 8.0               cap = 4.0
    delta = 1e-6
    reports = 20

On the left is a total under a theorem, which determines rule and cap; on the right the board's rule itself.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ..accounting import (
    MOST_REPORTS,
    AccountingError,
    Basic,
    Guarantee,
    History,
    Theorem,
    Unlimited,
    ZcdpFilter,
    choose,
    exact,
    optimal_total,
)
from ..epsilon import MICRO, SCALES, nats

Quantity = Annotated[Decimal, Field(allow_inf_nan=False, ge=-(10**15), le=10**15)]

USUAL_DELTA = 1e-6
"""The δ in the words of a rule's guarantee that holds for every δ."""


class ExperimentBudget(BaseModel):
    """The budget of one board for the experiment: a theorem with its total, or a rule with its cap.

    Attributes:
        theorem: A name of `accounting.choose`.
        epsilon: The limit for all reports of a board together, in nats.
        delta: The probability that the limit may fail.
        reports: The largest number of reports at the experiment's ε, or None for as many as the theorem
            allows.
        rule: The board's own rule.
        cap: The board's own cap, in nats, nats squared, or reports.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    theorem: str | None = None
    epsilon: Quantity | None = None
    delta: Quantity | None = None
    reports: Annotated[int, Field(strict=True)] | None = None
    rule: Literal["sum", "squares", "count", "unlimited"] | None = None
    cap: Quantity | None = None

    @model_validator(mode="after")
    def _fits(self) -> ExperimentBudget:
        if self.theorem is None:
            self._check_rule()
        else:
            try:
                self._check_theorem(self.theorem)
            except AccountingError as e:
                raise ValueError(str(e)) from None  # because pydantic expects a ValueError
        return self

    def board_fields(self, epsilon: int) -> dict[str, Any]:
        """Return rule and cap for boards and reports of epsilon micro-nats; the cap is rounded down.

        The cap is in micro-nats (sum), micro-nats squared (squares), or reports (count).

        Raises:
            AccountingError: If the theorem allows no report of that epsilon, or fewer than requested.
        """
        if self.theorem is None:
            if self.rule == "unlimited":
                return {"rule": "unlimited"}
            assert self.rule is not None
            assert self.cap is not None
            return {"rule": self.rule, "cap": int(self.cap * SCALES[self.rule] // 1)}
        theorem = self._chosen(self.theorem)
        if theorem.rule == "unlimited":
            return {"rule": "unlimited"}
        cap, cost = theorem.cap(epsilon), theorem.cost(epsilon)
        if cap < cost:
            raise AccountingError(
                f"{theorem.name} composition allows no report of ε = {nats(epsilon)} within "
                f"{_total(theorem)}: lower the report's epsilon, or raise the budget's"
            )
        if self.reports is not None:
            if self.reports * cost > cap:
                raise AccountingError(_too_many(theorem, epsilon, self.reports, cap // cost))
            cap = self.reports * cost
        return {"rule": theorem.rule, "cap": cap}

    def guarantee(self, epsilon: int) -> Guarantee:
        """Return the guarantee for all reports of a board to the experiment, each of epsilon micro-nats."""
        if self.theorem is not None:
            return self._chosen(self.theorem).guarantee()
        return rule_guarantee(self.rule or "unlimited", self.board_fields(epsilon).get("cap", 0), epsilon)

    def spent(self, epsilon: int) -> tuple[int, float] | None:
        """Return how many reports of epsilon micro-nats a board sends, and the nats of the total they take.

        It is None if the file has a rule instead of a theorem, or nothing bounds the reports.
        """
        if self.theorem is None:
            return None
        theorem = self._chosen(self.theorem)
        if theorem.rule == "unlimited":
            return None
        reports = self.board_fields(epsilon)["cap"] // theorem.cost(epsilon)
        return reports, theorem.spent(History.equal(epsilon, reports)).epsilon

    def _check_rule(self) -> None:
        if (self.epsilon, self.delta, self.reports) != (None, None, None):
            raise ValueError("epsilon, delta and reports go with a theorem, which is missing")
        if self.rule is None:
            raise ValueError("write theorem and epsilon (the total of all reports), or rule and cap")
        if (self.cap is None) != (self.rule == "unlimited"):
            raise ValueError("cap is needed for sum, squares and count, and absent for unlimited")

    def _check_theorem(self, name: str) -> None:
        if (self.rule, self.cap) != (None, None):
            raise ValueError("rule and cap follow from the theorem: leave them out, or the theorem")
        if self.epsilon is None and name != "none":
            raise ValueError(f"epsilon is missing: what all reports may cost together under {name}, in nats")
        if self.epsilon is not None and self.epsilon <= 0:
            raise ValueError(
                f"epsilon, the total of all reports, is a number above 0 (nats), not {self.epsilon}"
            )
        if self.reports is not None and not 1 <= self.reports <= MOST_REPORTS:
            raise ValueError(f"reports is a whole number from 1 to {MOST_REPORTS:,}, not {self.reports}")
        theorem = self._chosen(name)
        if theorem.rule == "unlimited" and self.reports is not None:
            raise ValueError(f"{name} counts no reports: leave reports out, or choose a theorem")
        if name == "basic" and self.delta:
            raise ValueError("basic composition cannot fail: leave delta out, or take zcdp or optimal")
        if name == "optimal" and not self.delta:
            raise ValueError("optimal composition needs a delta above 0 (1e-6, say); without one take basic")

    def _chosen(self, name: str) -> Theorem:
        total = None if self.epsilon is None else _float_below(self.epsilon)
        return choose(name, total, _float_below(self.delta or Decimal(0)))


def rule_guarantee(rule: str, cap: int, epsilon: int) -> Guarantee:
    """Return the guarantee for all reports of epsilon micro-nats under a board's rule and cap.

    With squares and count it holds for every δ; the words use one.

    Args:
        rule: The board's rule.
        cap: The board's cap, in micro-nats, micro-nats squared, or reports.
        epsilon: ε of a report, in micro-nats.
    """
    if rule == "sum":
        return Basic(cap / MICRO).guarantee()
    if rule == "squares":
        # The squares of this history equal the cap, even if no whole number of reports reaches it.
        root = math.isqrt(cap - 1) + 1
        total = ZcdpFilter(1.0, USUAL_DELTA).spent(History.equal(root, 1)).epsilon
        return ZcdpFilter(total, USUAL_DELTA).guarantee()
    if rule == "count":
        pure = Basic(cap * epsilon / MICRO).guarantee()
        total = optimal_total(epsilon / MICRO, min(cap, MOST_REPORTS), USUAL_DELTA)
        # If the difference is below a thousandth, the same total would be printed twice.
        if cap > MOST_REPORTS or not total < 0.999 * pure.epsilon:
            return pure
        words = f"{pure.words.split(':')[0]}, and ({total:.6g}, {USUAL_DELTA:g})-LDP. All have one ε."
        return Guarantee(pure.kind, pure.epsilon, pure.delta, words)
    return Unlimited().guarantee()


def cap_in_nats(rule: str, cap: int) -> float | None:
    """Return a cap in the units of files: nats (sum), nats² (squares), reports (count), None (unlimited)."""
    return None if rule == "unlimited" else cap if rule == "count" else cap / SCALES[rule]


def _too_many(theorem: Theorem, epsilon: int, requested: int, allowed: int) -> str:
    reports = f"{allowed:,} report{'s' * (allowed > 1)} of ε = {nats(epsilon)} within {_total(theorem)}"
    text = f"{theorem.name} composition allows {reports}, not {requested:,}"
    most = theorem.most_epsilon(requested) or 0
    return f"{text}: for {requested:,} reports, ε is at most {nats(most)}" if most >= 1000 else text


def _total(theorem: Theorem) -> str:
    return f"({theorem.total:g}, {theorem.delta:g})" if theorem.delta else f"{theorem.total:g}"


def _float_below(value: Decimal) -> float:
    """Return the float that prints as value, or the next one below, as totals are never rounded up."""
    nearest = float(value)
    return nearest if exact(nearest) <= value else math.nextafter(nearest, -math.inf)
