"""How long devices' budgets last, if they speak by the coin of `every` until nothing is left.

A device that still can makes a report at each call with chance 1/every, so after m calls it has made
Binomial(m, 1/every), limited by its budget: `Forecast`, exact. If several experiments share a
policy's life, devices are drawn at random: `SharedForecast`. Pure functions of counts; no clock, no store.
"""

import datetime
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .. import special
from ..accounting.theorem import largest

DRY = 0.05
"""A fleet is called dry when at most this share of its devices can still report."""

_MOST_CALLS = 10**9
_MOST_REPORTS = 20_000
_DRAWN = 4_000


@dataclass(frozen=True)
class Forecast:
    """What devices that have some reports left will still report.

    left: reports left -> devices, None for devices without a limit. every: calls to report() for one report
    on average. per_day: reports a day of one device that still can, > 0.
    """

    left: Mapping[int | None, int]
    every: int
    per_day: float

    @property
    def boards(self) -> int:
        """Number of boards."""
        return sum(self.left.values())

    def able(self, days: np.ndarray) -> np.ndarray:
        """Expected share of devices that can still report after the days, shape of days; 0 to 1."""
        calls = np.floor(np.asarray(days, float) * self.per_day * self.every + 1e-9)
        return self._able(calls.astype(np.int64))

    def reports_a_day(self, days: np.ndarray) -> np.ndarray:
        """Expected reports a day of all boards after the days, shape of days."""
        return self.able(days) * self.boards * self.per_day

    def days_until(self, share: float) -> float | None:
        """Return the days until at most this share of the devices can still report; None if never."""
        if not self.boards:
            return None
        if float(self._able(np.array([0]))[0]) <= share:
            return 0.0
        calls = largest(lambda m: float(self._able(np.array([m]))[0]) > share, _MOST_CALLS) + 1
        return None if calls > _MOST_CALLS else calls / (self.every * self.per_day)

    def _able(self, calls: np.ndarray) -> np.ndarray:
        """P[Binomial(calls, 1/every) < left], the mean over boards."""
        able = np.zeros(calls.shape)
        for left, boards in self.left.items():
            if left is None:
                able += boards
            elif left:
                able += boards * special.bdtr(np.minimum(left - 1, calls), calls, 1 / self.every)
        return able / max(1, self.boards)


@dataclass(frozen=True)
class SharedForecast:
    """What devices will still report to one of several experiments that share their life; from drawn devices.

    silent_after: days until each drawn device can no longer report to it, ascending. boards: of the fleet.
    per_day: reports a day of one device that still can. A share is good to 0.8 points (one standard error).
    """

    silent_after: np.ndarray
    boards: int
    per_day: float

    def able(self, days: np.ndarray) -> np.ndarray:
        """Share of devices that can still report after the days, shape of days; 0 to 1."""
        gone = np.searchsorted(self.silent_after, np.asarray(days, float), side="right")
        return 1 - gone / len(self.silent_after)

    def reports_a_day(self, days: np.ndarray) -> np.ndarray:
        """Expected reports a day of all boards after the days, shape of days."""
        return self.able(days) * self.boards * self.per_day

    def days_until(self, share: float) -> float | None:
        """Return the days until at most this share of the devices can still report; None if never."""
        gone = math.ceil(len(self.silent_after) * (1 - share) - 1e-9)
        days = float(self.silent_after[gone - 1]) if gone else 0.0
        return days if math.isfinite(days) else None


@dataclass(frozen=True)
class Purse:
    """One of several experiments of a board: ε in micro-nats, every, reports a day of a board that can."""

    epsilon: int
    every: int
    per_day: float


def shared(
    purses: Sequence[Purse],
    life: tuple[int, int],
    starts: Sequence[tuple[Sequence[int | None], int, int]],
    weights: Sequence[int],
) -> list[SharedForecast]:
    """Draw 4,000 boards and let them speak until they are silent, or have made 20,000 reports.

    life: the caps of Σε and Σε², micro-nats and their squares; a report is made while either is kept. starts:
    for each kind of board the reports that each experiment's own budget still holds (None: any), and the
    board's Σε and Σε²; weights: how many boards of that kind there are. Always the same draws.
    """
    rng = np.random.default_rng(0)
    kinds = rng.choice(len(starts), _DRAWN, p=np.array(weights) / sum(weights))
    own = np.array([[np.inf if n is None else n for n in left] for left, _, _ in starts], float)[kinds]
    spent = np.array([[total, squares] for _, total, squares in starts], float)[kinds]
    epsilon = np.array([x.epsilon for x in purses], float)
    chance = np.array([1 / x.every for x in purses])
    calls_a_day = np.array([x.per_day * x.every for x in purses])
    speaks = calls_a_day > 0
    wait = np.where(speaks, calls_a_day, 1.0)
    following = np.where(speaks, rng.geometric(chance, own.shape) / wait, np.inf)
    silent = np.full(own.shape, np.inf)
    now = np.zeros(_DRAWN)
    for _ in range(_MOST_REPORTS):
        by_sum = spent[:, :1] + epsilon <= life[0]
        able = (own > 0) & (by_sum | (spent[:, 1:] + epsilon**2 <= life[1]))
        silent = np.where(able, silent, np.minimum(silent, now[:, None]))
        following = np.where(able, following, np.inf)
        which = following.argmin(axis=1)
        rows = np.flatnonzero(np.isfinite(following.min(axis=1)))
        if not rows.size:
            break
        which = which[rows]
        now[rows] = following[rows, which]
        own[rows, which] -= 1
        spent[rows, 0] += epsilon[which]
        spent[rows, 1] += epsilon[which] ** 2
        following[rows, which] += rng.geometric(chance[which]) / wait[which]
    boards = sum(weights)
    return [SharedForecast(np.sort(silent[:, i]), boards, x.per_day) for i, x in enumerate(purses)]


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
    """Mean reports a day over the last full days, `last` of them or all there are; None without any."""
    counts = [days[day] for day in sorted(days)][-last:]
    return sum(counts) / len(counts) if counts else None
