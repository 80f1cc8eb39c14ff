"""Read completed days from a store and scan the answer of a question for changes."""

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ...device.ldp_client import Experiment
from ..arrays import Floats
from ..estimate.daily import DayCounts, LinearDays, VersionDays, Weights
from ..estimate.detector import FEWEST_DAYS, Scan, scan
from ..estimate.estimate import Estimates
from ..estimate.statistic import EstimateError
from ..store.store import Version
from ..wire.experiments import value_count
from .periods import day_of, of_whole_days
from .query import Selected

_MOST_CODES = 1 << 22
"""The largest number of codes of an experiment whose days are scanned; each has a weight in memory."""
_FARTHEST, _FEWEST_BESIDE = 0.3, 0.02
"""How far the share below an edge may be from a quantile's level, and the least share on either side."""


@dataclass(frozen=True)
class Series:
    """The completed days of a selection, from its first day with reports to its last.

    Attributes:
        first: The first day.
        counts: The histograms of the days; a day that must be left out has none.
        windows: The windows of each day that is included.
        elapsed: The number of days before `first` whose windows were erased.
    """

    first: datetime.date
    counts: DayCounts
    windows: tuple[tuple[str, ...], ...]
    elapsed: int

    @property
    def days(self) -> int:
        """The number of days."""
        return len(self.counts.weekdays)

    def day(self, number: int) -> datetime.date:
        """Return the date of a day, counted from 0."""
        return self.first + datetime.timedelta(days=number)

    def windows_of(self, start: int, stop: int) -> tuple[str, ...]:
        """Return the windows of days `start` to `stop - 1`."""
        return tuple(window for day in self.windows[start:stop] for window in day)

    def scan_linear(self, weights: Weights, questions: int) -> tuple[Scan, LinearDays | None]:
        """Scan a linear statistic or a ratio for changes.

        Args:
            weights: The weights of the statistic.
            questions: The number of questions that share the allowance of false alarms.

        Returns:
            The scan, without changes if the days cannot determine the statistic, and the daily values of its
            current part.
        """
        series = self.counts.series(_among_readings(self.counts, weights))
        return scan(lambda _: series, self.days, questions, self.elapsed), series


def series_of(selected: Selected) -> Series | None:
    """Return the completed days of all windows of a selection, or None if there are too few to scan.

    The first day is left out because it is partial, and so are days on which counting was interrupted.
    """
    facts, versions = selected.facts, selected.versions
    if max(version.experiment.code_count for version in versions) > _MOST_CODES:
        return None
    there = of_whole_days(tuple(selected.there), facts.at)
    days = sorted({day for window in there if (day := day_of(window))})
    erased = any(version.erased for version in versions)
    days = days if erased else days[1:]
    if not days or (days[-1] - days[0]).days + 1 < FEWEST_DAYS:
        return None
    first, count = days[0], (days[-1] - days[0]).days + 1
    left_out = facts.store.interrupted_days()
    by_day: list[tuple[str, ...]] = [()] * count
    number: dict[str, int] = {}
    for window in there:
        day = day_of(window)
        if day and day >= first and day not in left_out:
            number[window] = (day - first).days
            by_day[number[window]] += (window,)
    parts = [_version_days(selected, version, number) for version in versions]
    weekdays = np.array([(first + datetime.timedelta(days=n)).weekday() for n in range(count)])
    counts = DayCounts(weekdays, tuple(part for part in parts if len(part.day)))
    return Series(first, counts, tuple(by_day), _days_before(versions, first) if erased else 0)


def _version_days(selected: Selected, version: Version, number: dict[str, int]) -> VersionDays:
    reports = {w: n[version.id] for w, n in selected.there.items() if w in number and version.id in n}
    days, codes, counts = list[np.ndarray](), list[np.ndarray](), list[np.ndarray]()
    for window, code, count in selected.facts.cache.windows(selected.facts.store, version, reports):
        days.append(np.full(len(code), number[window]))
        codes.append(code)
        counts.append(count)
    arrays = (np.concatenate(each) if each else np.zeros(0, np.int64) for each in (days, codes, counts))
    return VersionDays(version.experiment, *arrays)


def _days_before(versions: Sequence[Version], first: datetime.date) -> int:
    """Return how many days before `first` the oldest version was published."""
    serials = [version.first_serial for version in versions if version.first_serial > 0]
    if not serials:
        return 0
    published = datetime.datetime.fromtimestamp(min(serials), datetime.UTC).date()
    return max(0, (first - published).days)


def scan_quantile(
    series: Series, level: float, pooled: Callable[[Sequence[str]], Estimates], questions: int
) -> tuple[Scan, int | None]:
    """Scan a quantile as the share below an edge that is fixed when a scan starts.

    Args:
        series: The days.
        level: The quantile, between 0 and 1.
        pooled: A function that returns the estimate over some windows.
        questions: The number of questions that share the allowance of false alarms.

    Returns:
        The scan of the share below, and the edge of its current part: the number of bins below it, or None
        before that part starts. The edge is the one nearest to the quantile of the part's first eight days.
        If nearly all readings lie on one side of it, for example when all are in one bin, the share below
        would miss a move to the other side, so there is no scan.
    """
    edges: dict[int, int | None] = {}

    def edge(start: int) -> int | None:
        if start not in edges:
            windows = series.windows_of(start, start + FEWEST_DAYS)
            try:
                below = pooled(windows).cdf()[:-1] if windows else np.zeros(0)
            except EstimateError:
                below = np.zeros(0)
            enough = start + FEWEST_DAYS <= series.days and len(below) > 0
            nearest = int(np.argmin(np.abs(below - level))) if enough else 0
            tells = enough and abs(below[nearest] - level) <= _FARTHEST and _within(float(below[nearest]))
            edges[start] = 1 + nearest if tells else None
        return edges[start]

    def days_from(start: int) -> LinearDays | None:
        bins = edge(start)
        if bins is None:
            return None
        return series.counts.series(_among_readings(series.counts, lambda of: below_edge(of, bins)))

    result = scan(days_from, series.days, questions, series.elapsed)
    return result, edge(result.start)


def _within(below: float) -> bool:
    return _FEWEST_BESIDE <= below <= 1 - _FEWEST_BESIDE


def _among_readings(counts: DayCounts, weights: Weights) -> Weights:
    """Restrict weights to devices with a reading, as a ratio, if a version sets `missing`."""
    if all(value_count(of.experiment) == of.experiment.domain for of in counts.versions):
        return weights

    def ratio(experiment: Experiment) -> Floats:
        count = value_count(experiment)
        sides = np.zeros((experiment.domain, 2))
        sides[:count, :1] = weights(experiment)[:count]
        sides[:count, 1] = 1
        return sides

    return ratio


def below_edge(experiment: Experiment, bins: int) -> Floats:
    """Return weights of the share of the first `bins` values, shape (domain, 1)."""
    return (np.arange(experiment.domain) < bins).astype(np.float64)[:, None]
