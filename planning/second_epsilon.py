"""Computes the ε of a plan's histograms, and the per-report ε that keeps a target ε for them.

The ε of a report protects against everyone. The ε of a histogram protects only against people who see
nothing but histograms, not against the broker, the aggregator's operator or the database's journal.
"""

from dataclasses import dataclass

from ..device.ldp_client import EPSILON_MAX
from ..server.accounting import AccountingError
from ..server.accounting.shuffle import USUAL_HISTOGRAM_DELTA
from ..server.accounting.theorem import largest
from ..server.estimate.shuffled import LIMITS, histogram_epsilon
from .devices import EPSILON_STEP, PlanError, best_design
from .expected_error import Design, Question
from .lifetime import LifetimePlan


@dataclass(frozen=True)
class HistogramEpsilon:
    """The ε of a histogram, in nats: it is (epsilon, delta)-DP.

    Attributes:
        reports: The number of reports in the histogram.
        own_reports: The largest number of reports from one board.
        epsilon: ε of the histogram, in nats.
        delta: δ of the histogram.
        holds: The observers that it protects against.
    """

    reports: int
    own_reports: int
    epsilon: float
    delta: float
    holds: str = LIMITS


def histogram(
    design: Design, reports: float, own: int = 1, delta: float = USUAL_HISTOGRAM_DELTA
) -> HistogramEpsilon:
    """Return the ε of a histogram with an expected number of reports.

    Args:
        design: The mechanism.
        reports: The expected number of reports.
        own: The largest number of reports from one board.
        delta: δ, from 0 to below 1.

    Raises:
        PlanError: If delta is out of range.
    """
    whole = max(1, int(reports))
    try:
        epsilon = histogram_epsilon(design.experiment, whole, delta, own)
    except AccountingError as e:
        raise PlanError(str(e)) from None
    return HistogramEpsilon(whole, own, epsilon, delta)


def lifetime_histograms(lifetime: LifetimePlan) -> dict[str, HistogramEpsilon]:
    """Return the ε of each window at the end of the horizon, and of all reports, by name."""
    best, rhythm = lifetime.best, lifetime.rhythm
    result: dict[str, HistogramEpsilon] = {}
    for name, days in lifetime.windows().items():
        window_reports = min(best.cap, max(1, round(rhythm.calls_in(days))))
        result[name] = histogram(best.design, lifetime.devices * best.per_device(days), window_reports)
    result["all of it"] = histogram(best.design, lifetime.devices * best.used * best.cap, best.cap)
    return result


def epsilon_for_histogram(
    question: Question, devices: int, domain: int, target: float, delta: float = USUAL_HISTOGRAM_DELTA
) -> int:
    """Return the largest per-report ε, in steps of 0.001, that keeps a histogram at a target ε.

    Every device sends one report, with the best mechanism for the question. The result is in micro-nats, and
    at most the largest ε of an experiment.

    Args:
        question: The question.
        devices: The number of devices.
        domain: The number of values.
        target: ε of the histogram, in nats, above 0.
        delta: δ of the histogram.

    Raises:
        PlanError: If even 0.001 does not keep the target.
    """
    if not target > 0:
        raise PlanError(f"the ε of a histogram must be above 0, not {target:g}")

    def keeps(steps: int) -> bool:
        design = best_design(domain, steps * EPSILON_STEP, question)
        return histogram(design, devices, 1, delta).epsilon <= target

    if not keeps(1):
        raise PlanError(
            f"no per-report ε keeps the histogram of {devices:,} at ε = {target:g} with δ = {delta:g}; use"
            " more devices"
        )
    return largest(keeps, EPSILON_MAX // EPSILON_STEP) * EPSILON_STEP
