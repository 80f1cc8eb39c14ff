"""How many reports arrive, and how many an answer needs."""

import datetime
import math
from collections.abc import Sequence

from ..estimate.reports_needed import (
    MOST,
    Answer,
    MeanIndex,
    QuantileLevel,
    RangeShare,
    likely_population,
    reports_needed,
)
from ..experiments.asks import Ask
from ..experiments.units import parse_range
from ..local_days import Calendar
from ..wire.experiments import scale_of, value_count
from .fleet_estimate import FleetEstimate
from .periods import (
    Period,
    period_of,
    start_of,
)
from .windows import end_of

_MIN_KNOWN = 1_000  # reports above which the population is estimated from them
_SILENT_WINDOWS = 2  # windows without a report after which the finding gives the date of the last one


def reports_a_day(windows: Sequence[str], reports: int, at: datetime.datetime) -> float:
    """Return the mean number of reports per day, or 0 if the windows are not days or hours.

    Only the elapsed part of the current day counts.
    """
    starts = [start for window in windows if (start := start_of(window))]
    if not starts:
        return 0.0
    ends = [min(end, at) for window in windows if (end := end_of(window))]
    return reports / max((max(ends) - min(starts)).total_seconds() / 86_400, 1 / 24)


def last_window_if_silent(
    available: Sequence[str], at: datetime.datetime, calendar: Calendar
) -> Period | None:
    """Return the last report's window if _SILENT_WINDOWS windows have passed since, otherwise None."""
    ends = [(end, window) for window in available if (end := end_of(window))]
    if not ends or len(ends) < len(available):  # one of them has no end
        return None
    end, newest = max(ends)
    last = period_of([newest], calendar=calendar)
    return last if last and at - end >= _SILENT_WINDOWS * (end - last.begin) else None


def reports_needed_for(estimate: FleetEstimate, ask: Ask, target: float, now: float) -> int | None:
    """Return how many reports an answer needs, or None if that is not known.

    The current interval is used only if the mechanism's variance is unknown, because with few reports the
    interval is mostly noise.

    Args:
        estimate: The current estimate.
        ask: The question.
        target: The half-width to reach, as a fraction of the whole range of shares or readings.
        now: The current half-width, likewise.
    """
    experiment, answer = estimate.experiment, _answer_type(estimate, ask)
    if estimate.approximate:
        return None
    # The variance of a ratio cannot be predicted here.
    if answer is None or value_count(experiment) < experiment.domain:
        return math.ceil(estimate.reports * (now / target) ** 2) if math.isfinite(now) else None
    target *= 1 if isinstance(answer, RangeShare) else experiment.domain
    population = likely_population(estimate.estimates) if estimate.reports >= _MIN_KNOWN else None
    count = reports_needed(experiment, answer, target, population)
    return count if count < MOST else None


def _answer_type(estimate: FleetEstimate, ask: Ask) -> Answer | None:
    if ask.kind == "mean":
        return None if scale_of(estimate.experiment) else MeanIndex()
    if ask.kind == "quantile":
        return QuantileLevel(ask.level)
    if ask.kind != "share" or estimate.experiment.type == "text":
        return None
    indices = parse_range(estimate.experiment, ask.text)
    return RangeShare(indices.low, indices.high)
