"""Turn histograms of days into series of linear statistics and ratios for the change detector.

Every statistic is a weighted sum of a histogram, so a day is known by a few sums over its reports: of the
weights, their squares and their cubes, for each version and stratum. Series of years are sums of arrays.

A ratio A / B is followed as R + (A - R B) / mean(B), where R is the ratio over all days so far: it is linear
in a day's histogram, also when the share B of the devices that it concerns moves.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ...device.ldp_client import Experiment
from ..arrays import Floats, Ints
from ..mechanisms import mechanism_of
from .conditional import LEAST_ERRORS
from .detector import View

Weights = Callable[[Experiment], Floats]
"""Returns weights of an experiment's values, shape (domain, 1); or of a ratio's two sides, (domain, 2)."""

_POWERS = ((1, 0), (0, 1), (2, 0), (1, 1), (0, 2), (3, 0), (2, 1), (1, 2), (0, 3))


@dataclass(frozen=True)
class VersionDays:
    """The histograms of one version, day by day, without zeros.

    day, code, count: each of shape (n,); days count from 0.
    """

    experiment: Experiment
    day: Ints
    code: Ints
    count: Ints


@dataclass(frozen=True)
class DayCounts:
    """The histograms of consecutive days of several versions.

    weekdays: of each day, shape (days,), any numbering modulo 7.
    """

    weekdays: Ints
    versions: tuple[VersionDays, ...]

    def series(self, weights: Weights) -> "LinearDays | None":
        """Return the series of a statistic; None if a version cannot tell it."""
        parts = [_sums(version, weights(version.experiment), len(self.weekdays)) for version in self.versions]
        if not parts or any(part is None for part in parts):
            return None
        is_ratio = weights(self.versions[0].experiment).shape[1] == 2
        return LinearDays(self.weekdays, tuple(part for part in parts if part is not None), is_ratio)


@dataclass(frozen=True)
class _VersionSums:
    """Sums over the reports of each day and stratum of one version.

    reports: shape (days, strata). sums: of the products of weights in _POWERS, shape (9, days, strata).
    constant: what is added to the numerator and the denominator. needed: strata with a weight.
    """

    reports: Floats
    sums: Floats
    constant: Floats
    needed: npt.NDArray[np.bool_]

    @cached_property
    def tells(self) -> npt.NDArray[np.bool_]:
        """Whether a day has reports in every stratum that is needed, shape (days,)."""
        return (self.reports[:, self.needed] > 0).all(axis=1) & (self.reports.sum(axis=1) > 0)


def _sums(version: VersionDays, statistic: Floats, days: int) -> _VersionSums | None:
    mechanism = mechanism_of(version.experiment)
    if mechanism.unknown(statistic, mechanism.drawn):
        return None
    parts, constant = mechanism.weights(statistic, mechanism.drawn)
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
    """The series of a statistic, or of a ratio of two; made by DayCounts.series()."""

    weekdays: Ints
    versions: tuple[_VersionSums, ...]
    is_ratio: bool

    def level(self, start: int, stop: int) -> float | None:
        """Return the statistic over days start..stop-1 together; None if no day tells it."""
        together = self._means(start, stop)
        if together is None:
            return None
        reports, above, below = together
        total = reports.sum()
        a, b = float(reports @ above / total), float(reports @ below / total)
        return a / b if self.is_ratio and b else a

    def view(self, start: int, stop: int) -> View | None:
        """Return days start..stop-1 as seen at the end of the last one; see detector.Days."""
        together = self._means(start, stop)
        if together is None:
            return None
        reports, above, below = together
        total = reports.sum()
        ratio, scale = 0.0, 1.0
        if self.is_ratio:
            scale = float(reports @ below / total)
            _, variance, _ = self._moments(start, stop, 0.0, -1.0)
            known = np.where(reports > 0, variance, 0.0)
            if scale <= LEAST_ERRORS * float(np.sqrt((reports / total) ** 2 @ known)):
                return None
            ratio = float(reports @ above / total) / scale
        value, variance, third = self._moments(start, stop, 1.0, ratio)
        return View(ratio + value / scale, variance / scale**2, third / scale**3)

    def _means(self, start: int, stop: int) -> tuple[Floats, Floats, Floats] | None:
        """Reports of each day, and its numerator and denominator; None if no day tells them."""
        reports, above, below = np.zeros((3, stop - start))
        for v in self.versions:
            days = slice(start, stop)
            n = np.where(v.tells[days], v.reports[days].sum(axis=1), 0.0)
            reports += n
            above += n * (v.constant[0] + _mean(v.sums[0, days], v.reports[days]))
            below += n * (v.constant[1] + _mean(v.sums[1, days], v.reports[days]))
        if not reports.any():
            return None
        return reports, _over(above, reports), _over(below, reports)

    def _moments(self, start: int, stop: int, factor: float, ratio: float) -> tuple[Floats, Floats, Floats]:
        """Value, second and third cumulant of each day of factor times numerator less ratio times
        denominator.

        A day without an estimate has infinite variance.
        """
        days = slice(start, stop)
        reports, value, variance, third = np.zeros((4, stop - start))
        for v in self.versions:
            n, sums = v.reports[days], v.sums[:, days]
            own = np.where(v.tells[days], n.sum(axis=1), 0.0)
            first = factor * sums[0] - ratio * sums[1]
            constant = factor * v.constant[0] - ratio * v.constant[1]
            reports += own
            value += own * (constant + _mean(first, n))
            of_report = _cumulants(n.sum(axis=0), sums.sum(axis=1), factor, ratio)
            variance += own**2 * _over(of_report[0], n).sum(axis=1)
            third += own**3 * _over(of_report[1], n**2).sum(axis=1)
        known = reports > 0
        scale = np.where(known, reports, 1.0)
        return value / scale, np.where(known, variance / scale**2, np.inf), third / scale**3


def _mean(sums: Floats, reports: Floats) -> Floats:
    """Return the sum over strata of each day's mean weight."""
    return _over(sums, reports).sum(axis=1)


def _over(above: Floats, below: Floats) -> Floats:
    above, below = np.broadcast_arrays(above, below)
    return np.divide(above, below, out=np.zeros(below.shape), where=below > 0)


def _cumulants(reports: Floats, sums: Floats, factor: float, ratio: float) -> Sequence[Floats]:
    """Return variance and third central moment of one report in each stratum, over all days together."""
    f, r = factor, ratio
    raw1 = f * sums[0] - r * sums[1]
    raw2 = f**2 * sums[2] - 2 * f * r * sums[3] + r**2 * sums[4]
    raw3 = f**3 * sums[5] - 3 * f**2 * r * sums[6] + 3 * f * r**2 * sums[7] - r**3 * sums[8]
    m1, m2, m3 = (_over(raw, reports) for raw in (raw1, raw2, raw3))
    unbiased = _over(reports, reports - 1)
    return np.maximum(m2 - m1**2, 0.0) * unbiased, m3 - 3 * m1 * m2 + 2 * m1**3
