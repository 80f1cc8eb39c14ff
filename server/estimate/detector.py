"""Detect changes in a daily series, without false alarms from weekday effects or frequent looks.

A day's estimate is modelled as a weekday effect plus a step that starts on some day. At the end of each day,
weighted least squares fits the step for every possible first day k; z(k) is the fitted step divided by its
standard error. A change is reported when max |z(k)| exceeds a boundary that grows with time, so the claim
holds regardless of how often and how long anyone looks:

    boundary(t)² = BOUNDARY + 2 ln t + 2 ln m        after t days, for m questions that share one allowance

With BOUNDARY = 9.04, 3.9% of series without a change are reported to have changed within a year of daily
looks (benchmarks/findings.py). Earlier looks are replayed, each with only the days that were available then,
so a reported change stays reported; the scan for the next change starts there.

A day's variance is derived from the variance of one report over all days so far, not from that day alone,
because with few reports a day's own variance depends on its estimate. If reports are few and their weights
skewed, z is corrected for the skew of the contrast (Wilson and Hilferty, "The distribution of chi-square",
PNAS 1931).

A reported change was selected because it is large. Its interval therefore extends by a full boundary's width
towards zero but only by 2.58 standard errors away from zero, and the reported size is the interval's
midpoint.

Jirak, "Uniform change point tests in high dimension", Annals of Statistics 2015, and Siegmund, "Sequential
Analysis", 1985, treat maxima of standardized steps.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from ..arrays import Floats, Ints

MIN_DAYS = 8
"""The number of days before a scan's first look; with fewer, a weekend could look like a change."""
BOUNDARY = 9.04
# With boundary c, a share of _TAIL_FACTOR sqrt(c) exp(-c/2) of constant series is reported within a year.
_TAIL_FACTOR = 1.21
_OUTER_ERRORS = 2.58  # standard errors from a reported size to the interval end that is further from zero
_POWER, _MORE_LOOKS = 0.84, 0.2  # 4 of 5 steps are found if they are _POWER errors above the boundary;
# more days need less, because more first days and looks can find a step
_PLAUSIBLE = 6.0  # twice the loss in log-likelihood at which a first day no longer fits
_MIN_INFORMATION = 1e-9  # a step's information relative to all days' weight; less is a rounding error
_MIN_SKEW = 1e-6


class Days(Protocol):
    """Estimates of completed days, oldest first."""

    @property
    def weekdays(self) -> Ints:
        """The weekday of each day, numbered modulo 7."""
        ...

    def view(self, start: int, stop: int) -> "DailyView | None":
        """Return days start..stop-1 as seen at the end of the last day, or None without an estimate."""
        ...


@dataclass(frozen=True)
class DailyView:
    """Consecutive days as seen at the end of the last day; arrays of shape (days,).

    Attributes:
        value: Each day's estimate.
        variance: The estimates' variances, infinite for a day without an estimate.
        third: The estimates' third cumulants.
    """

    value: Floats
    variance: Floats
    third: Floats


@dataclass(frozen=True)
class DetectedChange:
    """A detected change; days are numbered from 0.

    Attributes:
        first: The earliest day that may be the first after the change.
        last: The latest day that may be the first after the change.
        report_day: The day at whose end the change was first reported.
        size: The step, with an interval from `low` to `high` that excludes 0 and allows for the selection.
        chance: The probability of at least as clear a false alarm within a year, over all questions that
            share the allowance.
    """

    first: int
    last: int
    report_day: int
    size: float
    low: float
    high: float
    chance: float


@dataclass(frozen=True)
class Scan:
    """All changes in a series, and the smallest step that the current scan could have detected.

    Attributes:
        changes: The changes, oldest first.
        start: The day on which the current scan starts: after the last change, or the first day.
        days: The number of days with an estimate that the current scan has seen.
        detectable: The size of a step in the middle of the scan's days that it would have detected in 4 of 5
            cases, or None before the first look.
    """

    changes: tuple[DetectedChange, ...]
    start: int
    days: int
    detectable: float | None


def boundary(days: int, questions: int = 1) -> float:
    """Return the number of standard errors that a step must exceed.

    Args:
        days: The number of days so far.
        questions: The number of questions that share the allowance.
    """
    return math.sqrt(BOUNDARY + 2 * math.log(max(days, 1)) + 2 * math.log(max(questions, 1)))


def false_alarm_chance(z: float, days: int, questions: int = 1) -> float:
    """Return the probability that a year of looks at unchanging series would show such a clear step.

    Args:
        z: The step divided by its standard error.
        days: The number of days so far.
        questions: The number of questions that share the allowance.
    """
    level = z**2 - 2 * math.log(max(days, 1)) - 2 * math.log(max(questions, 1))
    return min(1.0, _TAIL_FACTOR * math.sqrt(level) * math.exp(-level / 2)) if level > 1 else 1.0


def scan(days_from: Callable[[int], Days | None], count: int, questions: int = 1, elapsed: int = 0) -> Scan:
    """Return the changes in a series of completed days.

    Args:
        days_from: A function that returns the series for a scan starting on a given day (a quantile's
            threshold depends on the start), or None without an estimate.
        count: The number of days.
        questions: The number of questions that share the allowance.
        elapsed: The number of earlier days whose windows have been erased but which were also looked at.
    """
    changes: list[DetectedChange] = []
    start, before = 0, elapsed
    days = days_from(start)
    stop = start + MIN_DAYS
    while days is not None and stop <= count:
        fit = _Fit.of(days, start, stop)
        if fit is not None:
            limit = boundary(fit.days + before, questions)
            if fit.exceeds_limit(limit):
                change, stop = _follow_change(days, start, stop, count, questions, before)
                changes.append(change)
                start, before = change.last, 0
                days = days_from(start)
                stop = max(stop, start + MIN_DAYS)
                continue
        stop += 1
    return _finish_scan(tuple(changes), days, start, count, questions, before)


def _follow_change(
    days: Days, start: int, report_end: int, count: int, questions: int, before: int
) -> tuple[DetectedChange, int]:
    """Return the change reported at the end of day report_end - 1, and the next day to look at.

    Later days refine the change's date (among the days before the report) and its size, until enough days
    have passed for a new scan.
    """
    fit = _Fit.of(days, start, report_end)
    assert fit is not None
    step_count, stop, best = report_end - start - 1, report_end, fit
    first, k, last = fit.plausible_days(step_count)
    while stop < min(count, start + 1 + last + MIN_DAYS):
        stop += 1
        later = _Fit.of(days, start, stop)
        if later is not None:
            best = later
            first, k, last = best.plausible_days(step_count)
    limit = boundary(best.days + before, questions)
    size, error = best.step(k)
    clearest = max(abs(fit.z).max(), abs(best.z[k]))
    ends = sorted(
        (size - math.copysign(limit * error, size), size + math.copysign(_OUTER_ERRORS * error, size))
    )
    low, high = (max(ends[0], 0.0), ends[1]) if size > 0 else (ends[0], min(ends[1], 0.0))
    chance = false_alarm_chance(clearest, fit.days + before, questions)
    first, last = start + 1 + first, start + 1 + last
    return DetectedChange(first, last, report_end - 1, (low + high) / 2, low, high, chance), stop


def _finish_scan(
    changes: tuple[DetectedChange, ...],
    days: Days | None,
    start: int,
    count: int,
    questions: int,
    before: int,
) -> Scan:
    fit = None if days is None else _Fit.of(days, start, count)
    if fit is None or count - start < MIN_DAYS:
        return Scan(changes, start, max(count - start, 0), None)
    error = fit.middle_error()
    above = _POWER - _MORE_LOOKS * math.log(max(fit.days, MIN_DAYS) / MIN_DAYS)
    detectable = None if error is None else (boundary(fit.days + before, questions) + above) * error
    return Scan(changes, start, fit.days, detectable)


@dataclass(frozen=True)
class _Fit:
    """Steps fitted together with weekday effects, for each first day k = 1..n-1 of a view.

    Attributes:
        raw: The step divided by its standard error, or 0 if these days do not determine it.
        numerator: The information times the step.
        information: The inverse of the step's variance, or 0 if these days do not determine it.
        days: The number of days with an estimate.
        part: The fraction of each weekday's weight on or after day k, shape (n - 1, 7).
        thirds: The sums of positive and of negative third cumulants on or after day k, shape (2, n - 1, 7).
        all_thirds: The same over all days, shape (2, 7).
    """

    raw: Floats
    numerator: Floats
    information: Floats
    days: int
    part: Floats
    thirds: Floats
    all_thirds: Floats

    @staticmethod
    def of(days: Days, start: int, stop: int) -> "_Fit | None":
        view = days.view(start, stop)
        if view is None:
            return None
        n = stop - start
        has_estimate = np.isfinite(view.variance) & (view.variance > 0)
        weight = np.divide(1.0, view.variance, out=np.zeros(n), where=has_estimate)
        third = np.where(has_estimate, view.third, 0.0) * weight**3
        by_weekday = np.zeros((n, 4, 7))
        at = np.arange(n), slice(None), days.weekdays[start:stop] % 7
        value = np.where(has_estimate, view.value, 0.0)
        by_weekday[at] = np.stack(
            [weight, weight * value, np.maximum(third, 0), np.maximum(-third, 0)], axis=1
        )
        sums = np.cumsum(by_weekday[::-1], axis=0)[::-1]  # from each day onwards
        (all_w, all_wx, *all_thirds), w, wx = sums[0], sums[1:, 0], sums[1:, 1]
        part = np.divide(w, all_w, out=np.zeros_like(w), where=all_w > 0)
        information = (w - w * part).sum(axis=1)
        numerator = (wx - part * all_wx).sum(axis=1)
        information[information <= _MIN_INFORMATION * all_w.sum()] = 0.0
        z = np.divide(numerator, np.sqrt(information), out=np.zeros(n - 1), where=information > 0)
        thirds = sums[1:, 2:].swapaxes(0, 1)
        return _Fit(z, numerator, information, int(has_estimate.sum()), part, thirds, np.array(all_thirds))

    def exceeds_limit(self, limit: float) -> bool:
        # The correction only ever reduces |z|, so it is unnecessary if no raw step exceeds the limit.
        return bool(np.abs(self.raw).max() > limit and np.abs(self.z).max() > limit)

    @cached_property
    def z(self) -> Floats:
        """The step divided by its standard error, corrected for skew."""
        # A day's coefficient is its weight times 1 - part from day k onwards, and times -part before.
        late: Floats = np.power(1 - self.part, 3)
        early: Floats = np.power(self.part, 3)
        (up, down), (all_up, all_down) = self.thirds, self.all_thirds
        rising: Floats = (up * late + (all_down - down) * early).sum(axis=1)
        falling: Floats = (down * late + (all_up - up) * early).sum(axis=1)
        cubes = np.where(self.raw > 0, rising, falling)
        scale = np.power(self.information, 1.5)
        skew = np.divide(cubes, scale, out=np.zeros_like(cubes), where=scale > 0)
        return np.copysign(_without_skew(np.abs(self.raw), skew), self.raw)

    def plausible_days(self, step_count: int) -> tuple[int, int, int]:
        """Return k - 1 for the earliest, clearest and latest plausible step of the first `step_count`.

        A step is plausible if its z² is within _PLAUSIBLE of the largest, because with few days, many steps
        fit equally well.
        """
        z = np.abs(self.z[:step_count])
        fitting = np.flatnonzero(z**2 >= z.max() ** 2 - _PLAUSIBLE)
        return int(fitting[0]), int(np.argmax(z)), int(fitting[-1])

    def step(self, k: int) -> tuple[float, float]:
        return float(self.numerator[k] / self.information[k]), float(self.information[k] ** -0.5)

    def middle_error(self) -> float | None:
        """Return the standard error of a step in the middle, or None if the days do not determine it."""
        information = self.information[len(self.information) // 2]
        return float(information**-0.5) if information > 0 else None


def _without_skew(z: Floats, skew: Floats) -> Floats:
    """Convert outcomes z >= 0 of skewed gamma distributions to standard normal quantiles, at least 0."""
    skew = np.maximum(skew, _MIN_SKEW)
    shape = 4 / skew**2
    normal = (np.cbrt(1 + z / np.sqrt(shape)) - 1 + 1 / (9 * shape)) * 3 * np.sqrt(shape)
    return np.clip(normal, 0.0, z)
