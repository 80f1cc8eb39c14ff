"""How long boards' budgets last: boards that speak by the coin of `every` until nothing is left.

A board that still can makes a report at each call with chance 1/every, so after m calls it has made
Binomial(m, 1/every), cut off at what its budget holds. Pure functions of counts; no clock, no store.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import stats

from .accounting.theorem import largest

DRY = 0.05
"""A fleet is called dry when at most this share of its boards can still report."""

_MOST_CALLS = 10**9


@dataclass(frozen=True)
class Forecast:
    """What boards with so many reports left will still give.

    left: reports left -> boards, None for boards that nothing bounds. every: calls to report() for one report
    on average. per_day: reports a day of one board that still can, > 0.
    """

    left: Mapping[int | None, int]
    every: int
    per_day: float

    @property
    def boards(self) -> int:
        """Number of boards."""
        return sum(self.left.values())

    def able(self, days: np.ndarray) -> np.ndarray:
        """Expected share of boards that can still report after so many days, shape of days; 0 to 1."""
        return self._able(self._calls(days))

    def reports_a_day(self, days: np.ndarray) -> np.ndarray:
        """Expected reports a day of all boards after so many days, shape of days."""
        return self.able(days) * self.boards * self.per_day

    def days_until(self, share: float) -> float | None:
        """Days until at most this share of the boards can still report; None where that is never."""
        if not self.boards:
            return None
        if float(self._able(np.array([0]))[0]) <= share:
            return 0.0
        calls = largest(lambda m: float(self._able(np.array([m]))[0]) > share, _MOST_CALLS) + 1
        return None if calls > _MOST_CALLS else calls / (self.every * self.per_day)

    def _calls(self, days: np.ndarray) -> np.ndarray:
        return np.floor(np.asarray(days, float) * self.per_day * self.every + 1e-9).astype(np.int64)

    def _able(self, calls: np.ndarray) -> np.ndarray:
        """P[Binomial(calls, 1/every) < left], the mean over boards."""
        able = np.zeros(calls.shape)
        for left, boards in self.left.items():
            chance = 1.0 if left is None else stats.binom.cdf(left - 1, calls, 1 / self.every)
            able += boards * chance
        return able / max(1, self.boards)


def daily(windows: Mapping[str, int], today: datetime.date) -> dict[datetime.date, int]:
    """Reports per full UTC day, from a version's first window to yesterday; days without any are 0.

    windows: 2026-11-21 or 2026-11-21T14 -> reports. A window that has no day ("all") gives nothing.
    """
    days: dict[datetime.date, int] = {}
    for window, count in windows.items():
        if window != "all":
            day = datetime.date.fromisoformat(window[:10])
            days[day] = days.get(day, 0) + count
    if not days:
        return {}
    first = min(days)
    return {
        day: days.get(day, 0) for day in (first + datetime.timedelta(n) for n in range((today - first).days))
    }


def rate(days: Mapping[datetime.date, int], last: int) -> float | None:
    """Mean reports a day over the last so many full days, fewer where there are fewer; None for none."""
    counts = [days[day] for day in sorted(days)][-last:]
    return sum(counts) / len(counts) if counts else None
