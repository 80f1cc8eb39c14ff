"""Decide whether an experiment has fallen silent: no report although at least MIN_EXPECTED were expected.

A window of arrival, an hour or a day, is expected to bring the smaller of the reports that came at the same
hour a day and a week before, so that nights and weekends are not taken for silence. Reports must therefore
have come for a week. Days on which counting was interrupted are not expected to bring any.
"""

import datetime
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ...server.answers.windows import end_of, has_ended

MIN_EXPECTED = 20
"""The expected number of reports from which none means silence; by chance alone, 2 in 1e9."""
_MAX_WINDOWS = 24 * 60
_DAY, _WEEK = datetime.timedelta(days=1), datetime.timedelta(weeks=1)


@dataclass(frozen=True)
class Arrivals:
    """When an experiment's reports last arrived.

    Attributes:
        last: The end of the last window with reports, UTC.
        missing: The number of reports expected since then.
        is_current: Whether the last window with reports is one of the two newest.
    """

    last: datetime.datetime
    missing: float
    is_current: bool

    @property
    def is_silent(self) -> bool:
        """Whether reports have stopped."""
        return self.missing >= MIN_EXPECTED


def arrivals(
    reports: Mapping[str, int], at: datetime.datetime, interrupted: Collection[datetime.date] = ()
) -> Arrivals | None:
    """Return when reports last arrived; None without reports, or if the windows have no end.

    Args:
        reports: The number of reports by window of arrival: days, hours, or both for an experiment whose
            versions differ.
        at: The time, UTC.
        interrupted: The days, UTC, on which counting was interrupted.
    """
    counts = {window: n for window, n in reports.items() if n > 0}
    if not counts or any(end_of(window) is None for window in counts):
        return None
    is_hourly = all("T" in window for window in counts)
    form = "%Y-%m-%dT%H" if is_hourly else "%Y-%m-%d"
    length = datetime.timedelta(hours=1) if is_hourly else _DAY
    by_start = dict[datetime.datetime, int]()
    for window, n in counts.items():
        start = datetime.datetime.strptime(window if is_hourly else window[:10], form)
        start = start.replace(tzinfo=datetime.UTC)
        by_start[start] = by_start.get(start, 0) + n
    first, newest = min(by_start), max(by_start)
    missing, start = 0.0, newest + length
    has_history = newest + length - first >= _WEEK
    for _ in range(_MAX_WINDOWS if has_history else 0):
        if not has_ended(start.strftime(form), at):
            break
        if start.date() not in interrupted:
            missing += min(_before(by_start, start, step, newest) for step in (_DAY, _WEEK))
        start += length
    return Arrivals(newest + length, missing, at < newest + 2 * length)


def _before(
    by_start: Mapping[datetime.datetime, int],
    start: datetime.datetime,
    step: datetime.timedelta,
    newest: datetime.datetime,
) -> int:
    """Return the reports some steps before a window, in the last one that is not after the newest reports."""
    while start > newest:
        start -= step
    return by_start.get(start, 0)
