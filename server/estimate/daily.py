"""Turn daily histograms into series of linear statistics and ratios for the change detector.

Every statistic is a weighted sum over a histogram, so a few sums over a day's reports describe the day: those
of the weights, their squares and their cubes, for each version and stratum. Even a series over several years
needs only array sums.

A ratio A / B is tracked as R + (A - R B) / mean(B), where R is the ratio over all days so far. This
is linear in a day's histogram, even if the share B of the devices concerned changes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ...device.ldp_client import Experiment
from ..arrays import Floats, Ints
from ..mechanisms import mechanism_of
from .conditional import MIN_ERRORS
from .detector import DailyView

Weights = Callable[[Experiment], Floats]
"""A function that returns an experiment's value weights, shape (domain, 1), or (domain, 2) for a ratio."""

_POWERS = ((1, 0), (0, 1), (2, 0), (1, 1), (0, 2), (3, 0), (2, 1), (1, 2), (0, 3))


@dataclass(frozen=True)
class VersionDays:
    """One version's daily histograms in sparse form.

    Attributes:
        experiment: The version.
        day: Each entry's day, counted from 0, shape (n,).
        code: Each entry's code, shape (n,).
        count: Each entry's number of reports, shape (n,).
    """

    experiment: Experiment
    day: Ints
    code: Ints
    count: Ints


@dataclass(frozen=True)
class DayCounts:
    """The histograms of consecutive days for several versions.

    Attributes:
        weekdays: Each day's weekday, modulo 7 with any origin, shape (days,).
        versions: Each version's histograms.
    """

    weekdays: Ints
    versions: tuple[VersionDays, ...]

    def series(self, weights: Weights) -> "LinearDays | None":
        """Return a statistic's series, or None if a version cannot estimate it."""
        parts = [_sums(version, weights(version.experiment), len(self.weekdays)) for version in self.versions]
        if not parts or any(part is None for part in parts):
            return None
        is_ratio = weights(self.versions[0].experiment).shape[1] == 2
        return LinearDays(self.weekdays, tuple(part for part in parts if part is not None), is_ratio)


@dataclass(frozen=True)
class _VersionSums:
    """Sums over one version's reports, by day and stratum.

    Attributes:
        reports: The number of reports, shape (days, strata).
        sums: The sums of the weight products in _POWERS, shape (9, days, strata).
        constant: The constants to add to the numerator and the denominator.
        needed_strata: A mask of the strata with nonzero weights, shape (strata,).
    """

    reports: Floats
    sums: Floats
    constant: Floats
    needed_strata: npt.NDArray[np.bool_]

    @cached_property
    def has_estimate(self) -> npt.NDArray[np.bool_]:
        """Whether each day has reports in every needed stratum, shape (days,)."""
        return (self.reports[:, self.needed_strata] > 0).all(axis=1) & (self.reports.sum(axis=1) > 0)


def _sums(version: VersionDays, statistic: Floats, days: int) -> _VersionSums | None:
    mechanism = mechanism_of(version.experiment)
    if mechanism.unknown(statistic, mechanism.stratum_chances):
        return None
    parts, constant = mechanism.weights(statistic, mechanism.stratum_chances)
    weights = list(parts)
    if not any(w is not None for w in weights):
        return None
    needed = np.array([w is not None and bool(np.any(w)) for w in weights])
    sizes = [len(size) for size in mechanism.class_sizes]
    columns = [
        mechanism.expand([np.zeros(n) if w is None else w[:, i] for w, n in zip(weights, sizes, strict=True)])
        for i in range(statistic.shape[1])
    ]
    a = columns[0][version.code]
    b = columns[1][version.code] if len(columns) > 1 else np.zeros(len(a))
    strata = len(weights)
    ends = np.cumsum([stratum.codes for stratum in mechanism.strata])
    cell = version.day * strata + np.searchsorted(ends, version.code, side="right")

    def total(values: Floats) -> Floats:
        return np.bincount(cell, values, days * strata).astype(np.float64).reshape(days, strata)

    counts = version.count.astype(float)
    sums = np.stack([total(counts * a**i * b**j) for i, j in _POWERS])
    return _VersionSums(total(counts), sums, np.append(constant, 0.0)[:2], needed)


@dataclass(frozen=True)
class LinearDays:
    """The series of a statistic or a ratio; returned by DayCounts.series()."""

    weekdays: Ints
    versions: tuple[_VersionSums, ...]
    is_ratio: bool

    def level(self, start: int, stop: int) -> float | None:
        """Return the statistic over days start..stop-1 combined, or None if no day has an estimate."""
        days, reports = slice(start, stop), self._reports[start:stop]
        total = reports.sum()
        if not total:
            return None
        a, b = (float(reports @ self._numerator_and_denominator[side, days] / total) for side in (0, 1))
        return a / b if self.is_ratio and b else a

    def view(self, start: int, stop: int) -> DailyView | None:
        """Return days start..stop-1 as seen at the end of the last day; see detector.Days."""
        days, reports = slice(start, stop), self._reports[start:stop]
        total = reports.sum()
        if not total:
            return None
        has_reports = reports > 0
        above, below = self._numerator_and_denominator[:, days]
        ratio, scale = 0.0, 1.0
        if self.is_ratio:
            scale = float(reports @ below / total)
            variance = self._variance_weights[days] @ self._report_moments(start, stop, 0.0, 1.0)[0]
            if scale <= MIN_ERRORS * float(np.sqrt((reports / total) ** 2 @ variance)):
                return None
            ratio = float(reports @ above / total) / scale
        second, third = self._report_moments(start, stop, 1.0, ratio)
        value = ratio + (above - ratio * below) / scale
        variance = np.where(has_reports, self._variance_weights[days] @ second / scale**2, np.inf)
        return DailyView(value, variance, self._third_weights[days] @ third / scale**3)

    @cached_property
    def _version_reports(self) -> list[Floats]:
        """The number of reports on each day that has an estimate, for each version."""
        return [np.where(v.has_estimate, v.reports.sum(axis=1), 0.0) for v in self.versions]

    @cached_property
    def _reports(self) -> Floats:
        """The number of reports on each day that has an estimate, shape (days,)."""
        return np.sum(self._version_reports, axis=0)

    @cached_property
    def _numerator_and_denominator(self) -> Floats:
        """Each day's numerator and denominator, shape (2, days), with versions weighted by their reports."""
        parts = [
            [n * (v.constant[side] + _divide(v.sums[side], v.reports).sum(axis=1)) for side in (0, 1)]
            for v, n in zip(self.versions, self._version_reports, strict=True)
        ]
        return _divide(np.sum(parts, axis=0), self._reports)

    @cached_property
    def _variance_weights(self) -> Floats:
        """The weight of each stratum's per-report variance in a day's variance, shape (days, strata)."""
        return self._power(2)

    @cached_property
    def _third_weights(self) -> Floats:
        """The same for third cumulants."""
        return self._power(3)

    def _power(self, power: int) -> Floats:
        parts = [
            _divide(_divide(n, self._reports)[:, None] ** power, v.reports ** (power - 1))
            for v, n in zip(self.versions, self._version_reports, strict=True)
        ]
        return np.concatenate(parts, axis=1)

    @cached_property
    def _running_sums(self) -> Floats:
        """The running totals of reports and weight sums before each day, shape (10, days + 1, strata)."""
        reports = np.concatenate([v.reports for v in self.versions], axis=1)
        sums = np.concatenate([v.sums for v in self.versions], axis=2)
        daily = np.concatenate([reports[None], sums])
        return np.concatenate([np.zeros_like(daily[:, :1]), np.cumsum(daily, axis=1)], axis=1)

    def _report_moments(self, start: int, stop: int, factor: float, ratio: float) -> tuple[Floats, Floats]:
        """Return the per-report variance and third cumulant in each stratum, over the given days combined.

        The weight is `factor` times the numerator's weight minus `ratio` times the denominator's.
        """
        reports, *sums = self._running_sums[:, stop] - self._running_sums[:, start]
        a, b, aa, ab, bb, aaa, aab, abb, bbb = (_divide(total, reports) for total in sums)
        f, r = factor, ratio
        m1 = f * a - r * b
        m2 = f**2 * aa - 2 * f * r * ab + r**2 * bb
        m3 = f**3 * aaa - 3 * f**2 * r * aab + 3 * f * r**2 * abb - r**3 * bbb
        unbiased = _divide(reports, reports - 1)
        return np.maximum(m2 - m1**2, 0.0) * unbiased, m3 - 3 * m1 * m2 + 2 * m1**3


def _divide(above: Floats, below: Floats) -> Floats:
    """Return the ratio, or 0 where the denominator is not positive."""
    above, below = np.broadcast_arrays(above, below)
    return np.divide(above, below, out=np.zeros(below.shape), where=below > 0)
