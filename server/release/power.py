"""Compute the rises that a rollout can detect, and the reports and days that this takes.

All functions assume one look a day, boundaries as in boundary.py, and the same number of reports every day.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from .boundary import bounds, planned_looks
from .difference import ReleaseError
from .plan import ALPHA
from .remaining_reports import USUAL_POWER
from .spending import crossing_probability

Variance = Callable[[float], float]
"""A function that returns the variance of one report for a true share; see yes_no_variance()."""
_MOST = 1e12  # reports; more count as "never"


@dataclass(frozen=True)
class Rollout:
    """A rollout at a constant size.

    Attributes:
        new: The reports of the new version per day.
        other: The reports of the others per day.
        days: The number of days, each with a look.
    """

    new: float
    other: float
    days: int

    def __post_init__(self) -> None:
        if not (self.new > 0 and self.other > 0 and self.days >= 1):
            raise ReleaseError("a rollout needs reports of both sides every day, and at least one day")

    @property
    def fractions(self) -> tuple[float, ...]:
        """The fraction of the planned information at each look."""
        return tuple((day + 1) / self.days for day in range(self.days))

    def variance(self, new: float, other: float) -> float:
        """Return the variance of the difference at the end, from the variances of one report."""
        return (new / self.new + other / self.other) / self.days

    def information(self, variance: float) -> float:
        """Return the information to plan, if a report of either side has this variance."""
        return 1 / self.variance(variance, variance)


@dataclass(frozen=True)
class Stage:
    """The power of a rollout to a part of a fleet.

    Attributes:
        part: The part of the fleet that has the new version, between 0 and 1.
        rollout: The reports per day, and the days.
        rise: The rise that is detected with a probability of 80%.
        proceed_chance: The probability that a release without any rise may proceed, or None without a margin.
    """

    part: float
    rollout: Rollout
    rise: float
    proceed_chance: float | None


def yes_no_variance(epsilon: float) -> Variance:
    """Return the variance of a yes-or-no report by share: e^ε / (e^ε - 1)² + share (1 - share).

    Args:
        epsilon: The ε of one report.
    """
    noise = 1 / (4 * math.sinh(epsilon / 2) ** 2)
    return lambda share: noise + share * (1 - share)


def stop_power(
    rollout: Rollout, share: float, rise: float, variance: Variance, level: float = ALPHA
) -> float:
    """Return the probability that a rise stops the release by the last day.

    Args:
        rollout: The rollout.
        share: The share of the other versions, from 0 to 1.
        rise: The rise of the new version, in the direction that is worse; negative if less is worse.
        variance: The variance of one report by share.
        level: The level of the question: alpha, or alpha / m for any one of m questions.
    """
    error = math.sqrt(rollout.variance(variance(share + rise), variance(share)))
    return _power(rollout.fractions, level, round(abs(rise) / error, 12))


def proceed_power(
    rollout: Rollout, share: float, margin: float, variance: Variance, level: float = ALPHA
) -> float:
    """Return the probability that a release without any rise may proceed by the last day.

    The test allows for the variance that a rise by the whole margin would have.

    Args:
        rollout: The rollout.
        share: The share of all versions.
        margin: The accepted rise, in the direction that is worse; negative if less is worse.
        variance: The variance of one report by share.
        level: The level of "proceed".
    """
    error = math.sqrt(rollout.variance(variance(share), variance(share)))
    tested = max(math.sqrt(rollout.variance(variance(share + margin), variance(share))), error)
    return _power(rollout.fractions, level, round(abs(margin) / error, 12), round(tested / error, 12))


def detectable_rise(
    rollout: Rollout,
    share: float,
    variance: Variance,
    level: float = ALPHA,
    *,
    power: float = USUAL_POWER,
    sign: int = 1,
) -> float | None:
    """Return the rise that stops a release with a given probability, or None if no share is large enough.

    Args:
        rollout: The rollout.
        share: The share of the other versions.
        variance: The variance of one report by share.
        level: The level of the question, as in stop_power().
        power: The probability, between the level and 1.
        sign: 1 if a higher share is worse, -1 if a lower one is; the result is at least 0 in both cases.
    """
    most = 1 - share if sign > 0 else share

    def missing(rise: float) -> float:
        return power - stop_power(rollout, share, sign * rise, variance, level)

    return None if missing(most) > 0 else _bisect(missing, 0.0, most)


def reports_to_stop(
    ratio: float, days: int, share: float, rise: float, variance: Variance, level: float = ALPHA
) -> int | None:
    """Return the new version's reports that detect a rise with a probability of 80%, or None for never.

    Args:
        ratio: The reports of the others for each one of the new version, above 0; 19 at 5% of a fleet.
        days: The number of looks among which the reports are spread.
        share: The share of the other versions.
        rise: The rise in the direction that is worse; not 0.
        variance: The variance of one report by share.
        level: The level of the question.
    """
    return _fewest(
        lambda new: stop_power(Rollout(new / days, ratio * new / days, days), share, rise, variance, level)
    )


def reports_to_proceed(
    days: int,
    share: float,
    margin: float,
    variance: Variance,
    level: float = ALPHA,
    *,
    ratio: float | None = None,
    other: float | None = None,
    questions: int = 1,
) -> int | None:
    """Return the reports of the new version after which 80% of releases without a rise may proceed.

    Args:
        days: The number of looks among which the reports are spread.
        share: The share of all versions.
        margin: The accepted rise, as in proceed_power().
        variance: The variance of one report by share.
        level: The level of "proceed".
        ratio: The reports of the others for each one of the new version.
        other: All reports of the others, in place of a ratio.
        questions: The number of such questions; each has its own reports, and all must proceed.

    Returns:
        The number of reports for each question, or None if no number is enough.
    """
    if (ratio is None) == (other is None):
        raise ReleaseError("give either the ratio of the others' reports, or their number")

    def power(new: float) -> float:
        others = ratio * new if ratio is not None else other
        assert others is not None
        rollout = Rollout(new / days, others / days, days)
        return proceed_power(rollout, share, margin, variance, level) ** questions

    return _fewest(power)


def stage(
    part: float,
    reports_per_day: float,
    days: int,
    share: float,
    variance: Variance,
    *,
    questions: int = 1,
    margin: float | None = None,
    alpha: float = ALPHA,
    sign: int = 1,
) -> Stage | None:
    """Return the power of a rollout to a part of a fleet, or None if it would miss even the largest rise.

    Args:
        part: The part of the fleet that has the new version, above 0 and below 1.
        reports_per_day: The reports of the whole fleet per day.
        days: The days of the stage.
        share: The share of the other versions.
        variance: The variance of one report by share.
        questions: The number of such questions: Holm's method divides alpha among them, and all must proceed.
        margin: The accepted rise, as in proceed_power(), or None.
        alpha: The probability of a false verdict.
        sign: 1 if a higher share is worse, otherwise -1.
    """
    if not 0 < part < 1:
        raise ReleaseError(f"a stage must be a part of the fleet between 0 and 1, not {part:g}")
    rollout = Rollout(part * reports_per_day, (1 - part) * reports_per_day, days)
    rise = detectable_rise(rollout, share, variance, alpha / questions, sign=sign)
    proceed = None if margin is None else proceed_power(rollout, share, margin, variance, alpha) ** questions
    return None if rise is None else Stage(part, rollout, rise, proceed)


def silence_information(missing: float, tolerance: float, level: float) -> float:
    """Return the information that detects a missing share of reports with a probability of 80%.

    Args:
        missing: The missing share to detect, above the tolerance and at most 1.
        tolerance: The share that may be missing.
        level: The level of silence: its weight times alpha.
    """
    if not tolerance < missing <= 1:
        raise ReleaseError(
            f"the missing share must be above the tolerance ({tolerance:g}) and at most 1, not {missing:g}"
        )
    return (_drift_for_power(level) / (missing - tolerance)) ** 2


_LOOKS = tuple((k + 1) / 14 for k in range(14))


def _drift_for_power(level: float) -> float:
    return _bisect(lambda drift: USUAL_POWER - _power(_LOOKS, level, drift), 0.0, 40.0)


@lru_cache(maxsize=4096)
def _power(fractions: tuple[float, ...], level: float, drift: float, scale: float = 1.0) -> float:
    """Return the probability of crossing boundaries that are multiplied by a scale."""
    limits = bounds(fractions, level)
    at = planned_looks(fractions)
    crossed = crossing_probability([fractions[k] for k in at], [scale * limits[k] for k in at], drift)
    return float(crossed[-1])


def _fewest(power: Callable[[float], float]) -> int | None:
    low = high = 1.0
    while power(high) < USUAL_POWER:
        low, high = high, 2 * high
        if high > _MOST:
            return None
    return math.ceil(_bisect(lambda n: USUAL_POWER - power(n), low, high)) if high > low else 1


def _bisect(missing: Callable[[float], float], low: float, high: float) -> float:
    """Return the lowest argument at which a decreasing function is at most 0."""
    while high - low > 1e-4 * max(high, 1e-6):
        middle = (low + high) / 2
        low, high = (middle, high) if missing(middle) > 0 else (low, middle)
    return high
