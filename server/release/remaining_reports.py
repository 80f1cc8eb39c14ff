"""How many more reports a release needs for "proceed"."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .boundary import bounds, later_bound
from .difference import Look
from .plan import QuestionPlan
from .spending import MIN_STEP

USUAL_POWER = 0.8
POWER_DEVIATE = 0.8416212335729143
"""The standard normal quantile of USUAL_POWER."""
_RECENT = 7  # days whose rate is expected to continue
_MOST = 1e4  # times the planned information that are considered
_STEPS = 1.05


@dataclass(frozen=True)
class RemainingReports:
    """The reports until "proceed", if the new version is not worse from now on.

    Attributes:
        reports: The further reports of the new version.
        days: The days that they take at the rate of the last 7 days.
    """

    reports: int
    days: int


def reports_until_proceed(
    question: QuestionPlan, margin: float, looks: Sequence[Look], alpha: float
) -> RemainingReports | None:
    """Return the reports until "proceed", with a probability of 80%, or None if no number is enough.

    The looks so far count; later reports are assumed to show no difference.

    Args:
        question: The question's plan.
        margin: Its margin.
        looks: Its looks so far, at least one.
        alpha: The level of "proceed".
    """
    last = looks[-1]
    fractions = tuple(question.fraction(look.effective_reports) for look in looks)
    now, effect = fractions[-1], question.sign * last.value
    # Until the end of the plan, the boundary is nearly constant for the score Z sqrt(t).
    end = bounds((*fractions, max(1.0, now + MIN_STEP)), alpha)[-1]
    # The test allows for the variance that a rise by the whole margin would have.
    skew = max(question.sign * last.skew * (margin - effect), 0.0)
    scale = math.sqrt(1 + skew / last.variance)
    fraction = now + MIN_STEP
    while fraction < _MOST:
        limit = end / math.sqrt(fraction) if fraction <= 1 else later_bound(fraction, alpha)
        old = now / fraction
        error = last.stderr * math.sqrt(old)
        if margin - effect * old >= (scale * limit + POWER_DEVIATE * math.sqrt(1 - old)) * error:
            break
        higher = max(fraction * _STEPS, fraction + MIN_STEP)
        fraction = 1.0 if fraction < 1 < higher else higher
    else:
        return None
    return _from_rate(fraction / now - 1, looks)


def _from_rate(growth: float, looks: Sequence[Look]) -> RemainingReports:
    """Return the reports that multiply the information by 1 + growth."""
    last = looks[-1]
    earlier = [look for look in looks if look.day <= last.day - _RECENT]
    begin = earlier[-1] if earlier else None
    gain = last.effective_reports - (begin.effective_reports if begin else 0.0)
    days = last.day - (begin.day if begin else -1)
    return RemainingReports(
        math.ceil(growth * last.reports), math.ceil(growth * last.effective_reports * days / gain)
    )
