"""An experiment's budget as the analyst wrote it, the board's rule and cap, and their guarantee.

    [budget]                    [budget]
    theorem = "zcdp"            rule = "sum"
    epsilon = 8.0               cap = 4.0
    delta = 1e-6
    reports = 20

The left example sets a total under a theorem, which determines the rule and cap; the right one sets them
directly.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from ..accounting import (
    MAX_REPORTS,
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
from ..typed_numbers import number_field, whole_number_field

Quantity = Annotated[
    Decimal, BeforeValidator(number_field), Field(allow_inf_nan=False, ge=-(10**15), le=10**15)
]

WholeNumber = Annotated[int, BeforeValidator(whole_number_field)]

USUAL_DELTA = 1e-6
"""The δ to use in the sentence for a rule's guarantee that holds for every δ."""


class ExperimentBudget(BaseModel):
    """A single board's budget for the experiment: a theorem with its total, or a rule with its cap.

    Attributes:
        theorem: A theorem's name for `accounting.choose`.
        epsilon: The limit for all of a board's reports combined, in nats.
        delta: The probability that the limit may fail.
        reports: The largest number of reports at the experiment's ε, or None for the theorem's maximum.
        rule: The board's rule.
        cap: The board's cap, in nats, nats squared, or reports.
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
        """Return the rule and cap for boards with reports of epsilon micro-nats; the cap is rounded down.

        The cap is in micro-nats (sum), micro-nats squared (squares), or reports (count).

        Raises:
            AccountingError: If the theorem does not allow any report with that epsilon, or fewer than
                requested.
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
        """Return the guarantee for all of a board's reports of epsilon micro-nats each."""
        if self.theorem is not None:
            return self._chosen(self.theorem).guarantee()
        return rule_guarantee(self.rule or "unlimited", self.board_fields(epsilon).get("cap", 0), epsilon)

    def spent(self, epsilon: int) -> tuple[int, float] | None:
        """Return how many reports of epsilon micro-nats a board sends, and their total in nats.

        The result is None if the file has a rule instead of a theorem, or if nothing bounds the reports.
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
            raise ValueError("epsilon, delta and reports need a theorem: add one")
        if self.rule is None:
            raise ValueError("write theorem and epsilon (the total of all reports), or rule and cap")
        if (self.cap is None) != (self.rule == "unlimited"):
            raise ValueError("cap is needed for sum, squares and count, and absent for unlimited")

    def _check_theorem(self, name: str) -> None:
        if (self.rule, self.cap) != (None, None):
            raise ValueError("rule and cap follow from the theorem: omit them or the theorem")
        if self.epsilon is None and name != "none":
            raise ValueError(f"epsilon is missing: give the total of all reports under {name}, in nats")
        if self.epsilon is not None and self.epsilon <= 0:
            raise ValueError(
                f"epsilon, the total of all reports, must be a positive number of nats, not {self.epsilon}"
            )
        if self.reports is not None and not 1 <= self.reports <= MAX_REPORTS:
            raise ValueError(f"reports must be a whole number from 1 to {MAX_REPORTS:,}, not {self.reports}")
        theorem = self._chosen(name)
        if theorem.rule == "unlimited" and self.reports is not None:
            raise ValueError(f"{name} does not count reports: omit reports, or choose a theorem")
        if name == "basic" and self.delta:
            raise ValueError("basic composition needs no delta: omit it, or use zcdp or optimal")
        if name == "optimal" and not self.delta:
            raise ValueError(
                "optimal composition needs a delta above 0 (such as 1e-6); without one, use basic"
            )

    def _chosen(self, name: str) -> Theorem:
        total = None if self.epsilon is None else _float_below(self.epsilon)
        return choose(name, total, _float_below(self.delta or Decimal(0)))


def rule_guarantee(rule: str, cap: int, epsilon: int) -> Guarantee:
    """Return the guarantee for all reports of epsilon micro-nats under a board's rule and cap.

    With squares and count, the guarantee holds for every δ; the sentence uses USUAL_DELTA.

    Args:
        rule: The board's rule.
        cap: The board's cap, in micro-nats, micro-nats squared, or reports.
        epsilon: A report's ε, in micro-nats.
    """
    if rule == "sum":
        return Basic(cap / MICRO).guarantee()
    if rule == "squares":
        # This history's squares equal the cap, even if no whole number of reports reaches it.
        root = math.isqrt(cap - 1) + 1
        total = ZcdpFilter(1.0, USUAL_DELTA).spent(History.equal(root, 1)).epsilon
        return ZcdpFilter(total, USUAL_DELTA).guarantee()
    if rule == "count":
        pure = Basic(cap * epsilon / MICRO).guarantee()
        total = optimal_total(epsilon / MICRO, min(cap, MAX_REPORTS), USUAL_DELTA)
        # If the difference is below a thousandth, the same total would be printed twice.
        if cap > MAX_REPORTS or not total < 0.999 * pure.epsilon:
            return pure
        words = f"{pure.words.split(':')[0]}, and ({total:.6g}, {USUAL_DELTA:g})-LDP. All have the same ε."
        return Guarantee(pure.kind, pure.epsilon, pure.delta, words)
    return Unlimited().guarantee()


def cap_in_nats(rule: str, cap: int) -> float | None:
    """Return a cap in file units: nats (sum), nats² (squares), reports (count), or None (unlimited)."""
    return None if rule == "unlimited" else cap if rule == "count" else cap / SCALES[rule]


def _too_many(theorem: Theorem, epsilon: int, requested: int, allowed: int) -> str:
    reports = f"{allowed:,} report{'s' * (allowed > 1)} of ε = {nats(epsilon)} within {_total(theorem)}"
    text = f"{theorem.name} composition allows {reports}, not {requested:,}"
    max_epsilon = theorem.most_epsilon(requested) or 0
    return (
        f"{text}: for {requested:,} reports, ε is at most {nats(max_epsilon)}"
        if max_epsilon >= 1000
        else text
    )


def _total(theorem: Theorem) -> str:
    return f"({theorem.total:g}, {theorem.delta:g})" if theorem.delta else f"{theorem.total:g}"


def _float_below(value: Decimal) -> float:
    """Return the float that prints as value, or the next lower float, because totals are never rounded up."""
    nearest = float(value)
    return nearest if exact(nearest) <= value else math.nextafter(nearest, -math.inf)
