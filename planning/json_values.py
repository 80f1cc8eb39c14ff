"""A plan's numbers as plain values, for JSON."""

from typing import Any

from ..server.epsilon import MICRO
from .devices import Plan, missing_half_width
from .expected_error import Design
from .lifetime import LifetimePlan, Spending


def plan_values(plan: Plan) -> dict[str, Any]:
    """Return the values of a plan with one report from each device."""
    question = plan.question
    return {
        "solved": plan.solved,
        "devices": plan.devices,
        "epsilon": plan.epsilon,
        "domain": plan.design.domain,
        "for": question.kind,
        "share": question.share,
        "spread": question.spread,
        **missing_values(plan.design, plan.devices),
        "half_width_95": plan.error,
        "standard_error": plan.stderr,
        "wanted": plan.target_error,
        **plan.design.choice.fields(),
    }


def missing_values(design: Design, reports: float) -> dict[str, Any]:
    """Return the values for devices without a reading, or {} if a missing reading has no index."""
    if design.missing is None:
        return {}
    error = missing_half_width(design, reports)
    return {"missing": design.missing, "missing_half_width_95": error}


def lifetime_values(lifetime: LifetimePlan) -> dict[str, Any]:
    """Return a lifetime plan's values: the ways to spend the budget, and the best one's accuracy."""
    windows, question = lifetime.windows().values(), lifetime.question

    def spending_values(s: Spending) -> dict[str, Any]:
        return {
            "composition": s.composition,
            "reports_per_device": s.cap,
            "epsilon": s.epsilon / MICRO,
            "every": s.every,
            "budget_used": s.used,
            **s.design.choice.fields(),
            "windows": [
                {
                    "days": days,
                    "reports_last": lifetime.devices * s.per_device(days),
                    "reports_first": lifetime.devices * s.per_device(days, first=True),
                    "half_width_95_last": lifetime.error(s, days),
                    "half_width_95_first": lifetime.error(s, days, first=True),
                }
                for days in windows
            ],
        }

    questions = lifetime.questions().items()
    return {
        "for": question.kind,
        "share": question.share,
        "spread": question.spread,
        **missing_values(lifetime.design, lifetime.devices * lifetime.best.used * lifetime.best.cap),
        "devices": lifetime.devices,
        "domain": lifetime.design.domain,
        "lifetime_epsilon": lifetime.budget.epsilon / MICRO,
        "lifetime_delta": lifetime.budget.delta,
        "calls_per_device": lifetime.rhythm.calls,
        "days": lifetime.rhythm.days,
        "best": spending_values(lifetime.best),
        "shows": [
            {"days": days} | {kind: lifetime.error(lifetime.best, days, q) for kind, q in questions}
            for days in windows
        ],
        "compared": [spending_values(s) for s in lifetime.spendings],
        "refused": [
            {"composition": r.composition, "reports_per_device": r.cap, "epsilon": r.epsilon / MICRO}
            for r in lifetime.refused
        ],
    }
