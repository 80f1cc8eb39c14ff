"""Forecasts of how long devices' budgets last, if they report with probability 1/every until nothing is left.

While a device has budget, it makes a report at each call with probability 1/every, so after m calls it has
made Binomial(m, 1/every) reports, limited by its budget: `Forecast`, exact. If several experiments share a
policy's lifetime budget, devices are simulated: `SharedForecast`. All are pure functions of counts and use
neither a clock nor a store.
"""

import datetime
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .. import special
from ..accounting.theorem import largest

DRY = 0.05
"""A fleet's budget counts as used up when at most this share of its devices can still report."""

_MOST_CALLS = 10**9
_MOST_REPORTS = 20_000
_SAMPLE_SIZE = 4_000


@dataclass(frozen=True)
class Forecast:
    """A forecast for devices that have some reports left.

    Attributes:
        devices_by_reports: The number of devices by reports left, which is None for devices without a limit.
        every: The mean number of calls to report() for one report.
        per_day: The reports a day of one device with budget left, above 0.
    """

    devices_by_reports: Mapping[int | None, int]
    every: int
    per_day: float

    @property
    def boards(self) -> int:
        """The number of boards."""
        return sum(self.devices_by_reports.values())

    def able(self, days: np.ndarray) -> np.ndarray:
        """Return the expected share of devices that can still report after some days, shaped as `days`."""
        calls = np.floor(np.asarray(days, float) * self.per_day * self.every + 1e-9)
        return self._able(calls.astype(np.int64))

    def reports_a_day(self, days: np.ndarray) -> np.ndarray:
        """Return the expected reports a day of all boards after some days, shaped as `days`."""
        return self.able(days) * self.boards * self.per_day

    def days_until(self, share: float) -> float | None:
        """Return the days until at most this share of the devices can still report, or None if never."""
        if not self.boards:
            return None
        if float(self._able(np.array([0]))[0]) <= share:
            return 0.0
        calls = largest(lambda m: float(self._able(np.array([m]))[0]) > share, _MOST_CALLS) + 1
        return None if calls > _MOST_CALLS else calls / (self.every * self.per_day)

    def _able(self, calls: np.ndarray) -> np.ndarray:
        """Return P[Binomial(calls, 1/every) < reports left], averaged over the boards."""
        able = np.zeros(calls.shape)
        for reports_left, boards in self.devices_by_reports.items():
            if reports_left is None:
                able += boards
            elif reports_left:
                able += boards * special.bdtr(np.minimum(reports_left - 1, calls), calls, 1 / self.every)
        return able / max(1, self.boards)


@dataclass(frozen=True)
class SharedForecast:
    """A forecast for one of several experiments that share a lifetime budget, from simulated devices.

    A share has a standard error of 0.8 points.

    Attributes:
        silent_after: The days until each simulated device can no longer report to it, ascending.
        boards: The number of boards of the fleet.
        per_day: The reports a day of one device with budget left.
    """

    silent_after: np.ndarray
    boards: int
    per_day: float

    def able(self, days: np.ndarray) -> np.ndarray:
        """Return the share of devices that can still report after some days, 0 to 1, shaped as `days`."""
        silent_count = np.searchsorted(self.silent_after, np.asarray(days, float), side="right")
        return 1 - silent_count / len(self.silent_after)

    def reports_a_day(self, days: np.ndarray) -> np.ndarray:
        """Return the expected reports a day of all boards after some days, shaped as `days`."""
        return self.able(days) * self.boards * self.per_day

    def days_until(self, share: float) -> float | None:
        """Return the days until at most this share of the devices can still report, or None if never."""
        silent_count = math.ceil(len(self.silent_after) * (1 - share) - 1e-9)
        days = float(self.silent_after[silent_count - 1]) if silent_count else 0.0
        return days if math.isfinite(days) else None


@dataclass(frozen=True)
class ReportRate:
    """One of several experiments of a board.

    Attributes:
        epsilon: ε of a report, in micro-nats.
        every: The mean number of calls to report() for one report.
        per_day: The reports a day while budget is left.
    """

    epsilon: int
    every: int
    per_day: float


def draw_forecasts(
    rates: Sequence[ReportRate],
    lifetime: tuple[int, int],
    starts: Sequence[tuple[Sequence[int | None], int, int]],
    weights: Sequence[int],
) -> list[SharedForecast]:
    """Simulate 4,000 boards until they are silent or have made 20,000 reports.

    The random draws are always the same.

    Args:
        rates: The experiments.
        lifetime: The caps of Σε and Σε², in micro-nats and micro-nats squared; a report is made while either
            holds.
        starts: For each kind of board, the reports left in each experiment's own budget (None for any
            number), and the board's Σε and Σε².
        weights: The number of boards of each kind.
    """
    rng = np.random.default_rng(0)
    kinds = rng.choice(len(starts), _SAMPLE_SIZE, p=np.array(weights) / sum(weights))
    own = np.array(
        [[np.inf if n is None else n for n in reports_left] for reports_left, _, _ in starts], float
    )[kinds]
    spent = np.array([[total, squares] for _, total, squares in starts], float)[kinds]
    epsilon = np.array([x.epsilon for x in rates], float)
    chance = np.array([1 / x.every for x in rates])
    calls_a_day = np.array([x.per_day * x.every for x in rates])
    speaks = calls_a_day > 0
    wait = np.where(speaks, calls_a_day, 1.0)
    following = np.where(speaks, rng.geometric(chance, own.shape) / wait, np.inf)
    silent = np.full(own.shape, np.inf)
    now = np.zeros(_SAMPLE_SIZE)
    for _ in range(_MOST_REPORTS):
        by_sum = spent[:, :1] + epsilon <= lifetime[0]
        able = (own > 0) & (by_sum | (spent[:, 1:] + epsilon**2 <= lifetime[1]))
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
    return [SharedForecast(np.sort(silent[:, i]), boards, x.per_day) for i, x in enumerate(rates)]


def daily(windows: Mapping[str, int], today: datetime.date) -> dict[datetime.date, int]:
    """Return reports per full UTC day, from a version's first window to yesterday; days without any are 0.

    Args:
        windows: The number of reports by window: 2026-11-21 or 2026-11-21T14. "all" is ignored.
        today: The present day, UTC.
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
    """Return the mean reports a day over the `last` last full days, or all of them; None without any."""
    counts = [days[day] for day in sorted(days)][-last:]
    return sum(counts) / len(counts) if counts else None
