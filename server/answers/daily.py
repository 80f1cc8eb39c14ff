"""Read completed days from a store and scan a question's answer for changes."""

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ...device.ldp_client import Experiment
from ..arrays import Floats
from ..estimate.daily import DayCounts, LinearDays, VersionDays, Weights
from ..estimate.detector import MIN_DAYS, Scan, scan
from ..estimate.estimate import Estimates
from ..estimate.statistic import EstimateError
from ..local_days import DAY, HOUR, UTC_DAYS, Calendar
from ..store.store import Version
from ..wire.experiments import value_count
from .periods import day_of, windows_of_completed_days
from .query import Facts, Selected

_MAX_CODES = 1 << 22
"""Experiments with more codes are not scanned, because each code has a weight in memory."""
_MAX_DISTANCE, _MIN_SIDE_SHARE = 0.3, 0.02
"""Limits for an edge: its share's distance from the quantile's level, and the share on either side."""


@dataclass(frozen=True)
class Series:
    """The completed days of a selection, from the first day with reports to the last.

    Attributes:
        first: The first day.
        counts: The daily histograms; an excluded day has none.
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

    def day(self, index: int) -> datetime.date:
        """Return the date of the day with this index, starting at 0."""
        return self.first + datetime.timedelta(days=index)

    def windows_of(self, start: int, stop: int) -> tuple[str, ...]:
        """Return the windows of days `start` to `stop - 1`."""
        return tuple(window for day in self.windows[start:stop] for window in day)

    def scan_linear(self, weights: Weights, questions: int) -> tuple[Scan, LinearDays | None]:
        """Scan a linear statistic or a ratio for changes.

        Args:
            weights: The weights of the statistic.
            questions: The number of questions that share the false-alarm allowance.

        Returns:
            The scan, which has no changes if the statistic cannot be estimated from these days, and the daily
            values since its start.
        """
        series = self.counts.series(_restrict_to_readings(self.counts, weights))
        return scan(lambda _: series, self.days, questions, self.elapsed), series


def series_of(selected: Selected) -> Series | None:
    """Return the completed days in a selection, or None if there are too few to scan.

    The first day is excluded because it is partial, as are days on which counting was interrupted.
    """
    facts, versions = selected.facts, selected.versions
    if max(version.experiment.code_count for version in versions) > _MAX_CODES:
        return None
    calendar = selected.calendar
    available = windows_of_completed_days(tuple(selected.all_counts), facts.at, calendar)
    days = sorted({day for window in available if (day := day_of(window, calendar))})
    erased = any(version.erased for version in versions)
    days = days if erased else days[1:]
    if not days or (days[-1] - days[0]).days + 1 < MIN_DAYS:
        return None
    first, count = days[0], (days[-1] - days[0]).days + 1
    interrupted_days = _interrupted_days(facts, calendar)
    by_day: list[tuple[str, ...]] = [()] * count
    index_by_window: dict[str, int] = {}
    for window in available:
        day = day_of(window, calendar)
        if day and day >= first and day not in interrupted_days:
            index_by_window[window] = (day - first).days
            by_day[index_by_window[window]] += (window,)
    parts = [_version_days(selected, version, index_by_window) for version in versions]
    weekdays = np.array([(first + datetime.timedelta(days=n)).weekday() for n in range(count)])
    counts = DayCounts(weekdays, tuple(part for part in parts if len(part.day)))
    return Series(
        first, counts, tuple(by_day), _days_since_publication(versions, first, calendar) if erased else 0
    )


def _version_days(selected: Selected, version: Version, index_by_window: dict[str, int]) -> VersionDays:
    reports = {
        w: n[version.id] for w, n in selected.all_counts.items() if w in index_by_window and version.id in n
    }
    days, codes, counts = list[np.ndarray](), list[np.ndarray](), list[np.ndarray]()
    facts, group = selected.facts, selected.group_index(version)
    for window, code, count in facts.cache.windows(facts.store, version, reports, group):
        days.append(np.full(len(code), index_by_window[window]))
        codes.append(code)
        counts.append(count)
    arrays = (np.concatenate(each) if each else np.zeros(0, np.int64) for each in (days, codes, counts))
    return VersionDays(version.experiment, *arrays)


def _interrupted_days(facts: Facts, calendar: Calendar) -> frozenset[datetime.date]:
    """Return the local days that overlap a day in UTC on which counting was interrupted."""
    starts = [UTC_DAYS.begin(day) for day in facts.store.interrupted_days()]
    return frozenset(calendar.today(hour) for start in starts for hour in (start, start + DAY - HOUR))


def _days_since_publication(versions: Sequence[Version], first: datetime.date, calendar: Calendar) -> int:
    """Return the number of days between the oldest version's publication and `first`."""
    serials = [version.first_serial for version in versions if version.first_serial > 0]
    if not serials:
        return 0
    published = calendar.today(datetime.datetime.fromtimestamp(min(serials), datetime.UTC))
    return max(0, (first - published).days)


def scan_quantile(
    series: Series, level: float, pooled: Callable[[Sequence[str]], Estimates], questions: int
) -> tuple[Scan, int | None]:
    """Scan a quantile by following the share below an edge, which is fixed when the scan starts.

    Args:
        series: The days.
        level: The quantile, between 0 and 1.
        pooled: A function that returns the estimate for the given windows.
        questions: The number of questions that share the false-alarm allowance.

    Returns:
        The scan of the share below, and the edge used since the last change, as the number of bins below it,
        or None if there is no edge yet. The edge is the one closest to the quantile over the first eight
        days. If nearly all readings lie on one side of it, for example because all are in one bin, the share
        below could not show a move to the other side, so nothing is scanned.
    """
    edges: dict[int, int | None] = {}

    def edge(start: int) -> int | None:
        if start not in edges:
            windows = series.windows_of(start, start + MIN_DAYS)
            try:
                below = pooled(windows).cdf()[:-1] if windows else np.zeros(0)
            except EstimateError:
                below = np.zeros(0)
            has_enough_days = start + MIN_DAYS <= series.days and len(below) > 0
            nearest = int(np.argmin(np.abs(below - level))) if has_enough_days else 0
            is_usable = (
                has_enough_days
                and abs(below[nearest] - level) <= _MAX_DISTANCE
                and _is_inside(float(below[nearest]))
            )
            edges[start] = 1 + nearest if is_usable else None
        return edges[start]

    def days_from(start: int) -> LinearDays | None:
        bins = edge(start)
        if bins is None:
            return None
        return series.counts.series(
            _restrict_to_readings(series.counts, lambda experiment: below_edge(experiment, bins))
        )

    result = scan(days_from, series.days, questions, series.elapsed)
    return result, edge(result.start)


def _is_inside(below: float) -> bool:
    return _MIN_SIDE_SHARE <= below <= 1 - _MIN_SIDE_SHARE


def _restrict_to_readings(counts: DayCounts, weights: Weights) -> Weights:
    """Turn weights into a ratio among devices with a reading, if a version sets `missing`."""
    if all(value_count(version.experiment) == version.experiment.domain for version in counts.versions):
        return weights

    def ratio(experiment: Experiment) -> Floats:
        count = value_count(experiment)
        sides = np.zeros((experiment.domain, 2))
        sides[:count, :1] = weights(experiment)[:count]
        sides[:count, 1] = 1
        return sides

    return ratio


def below_edge(experiment: Experiment, bins: int) -> Floats:
    """Return the weights for the share of the first `bins` values, shape (domain, 1)."""
    return (np.arange(experiment.domain) < bins).astype(np.float64)[:, None]
