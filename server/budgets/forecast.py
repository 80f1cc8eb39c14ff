"""Forecast how long devices' budgets last if they report with probability 1/every until nothing is left.

While a device has budget left, each call makes a report with probability 1/every, so after m calls it has
made Binomial(m, 1/every) reports, limited by its budget. `Forecast` computes the distribution exactly. If
several
experiments share a policy's lifetime budget, `SharedForecast` simulates the devices instead. All functions
depend only on counts, not on a clock or a store.
"""

import datetime
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .. import special
from ..accounting.theorem import largest

SPENT_SHARE = 0.05
"""A fleet's budget counts as used up when at most this share of its devices can still report."""

_MAX_CALLS = 10**9
_MAX_REPORTS = 20_000
_SAMPLE_SIZE = 4_000


@dataclass(frozen=True)
class Forecast:
    """A forecast for devices that have some reports left.

    Attributes:
        devices_by_reports: The number of devices by reports left, with None for devices without a limit.
        every: The mean number of calls to report() per report.
        per_day: The reports per day from a device with budget left, above 0.
    """

    devices_by_reports: Mapping[int | None, int]
    every: int
    per_day: float

    @property
    def boards(self) -> int:
        """The number of boards."""
        return sum(self.devices_by_reports.values())

    def share_able_to_report(self, days: np.ndarray) -> np.ndarray:
        """Return the expected share of devices that can still report after `days`, same shape as `days`."""
        calls = np.floor(np.asarray(days, float) * self.per_day * self.every + 1e-9)
        return self._share_able_to_report(calls.astype(np.int64))

    def reports_a_day(self, days: np.ndarray) -> np.ndarray:
        """Return the expected reports per day from all boards after some days, same shape as `days`."""
        return self.share_able_to_report(days) * self.boards * self.per_day

    def days_until(self, share: float) -> float | None:
        """Return the days until at most this share of devices can still report, or None if never."""
        if not self.boards:
            return None
        if float(self._share_able_to_report(np.array([0]))[0]) <= share:
            return 0.0
        calls = largest(lambda m: float(self._share_able_to_report(np.array([m]))[0]) > share, _MAX_CALLS) + 1
        return None if calls > _MAX_CALLS else calls / (self.every * self.per_day)

    def _share_able_to_report(self, calls: np.ndarray) -> np.ndarray:
        """Return P[Binomial(calls, 1/every) < reports left], averaged over the boards."""
        able_boards = np.zeros(calls.shape)
        for reports_left, boards in self.devices_by_reports.items():
            if reports_left is None:
                able_boards += boards
            elif reports_left:
                able_boards += boards * special.bdtr(
                    np.minimum(reports_left - 1, calls), calls, 1 / self.every
                )
        return able_boards / max(1, self.boards)


@dataclass(frozen=True)
class SharedForecast:
    """A forecast, from simulated devices, for one of several experiments that share a lifetime budget.

    Shares have a standard error of up to 0.8 points.

    Attributes:
        silent_after: The days until each simulated device can no longer report, in ascending order.
        boards: The number of boards in the fleet.
        per_day: The reports per day from a device with budget left.
    """

    silent_after: np.ndarray
    boards: int
    per_day: float

    def share_able_to_report(self, days: np.ndarray) -> np.ndarray:
        """Return the share of devices that can still report after some days, same shape as `days`."""
        silent_count = np.searchsorted(self.silent_after, np.asarray(days, float), side="right")
        return 1 - silent_count / len(self.silent_after)

    def reports_a_day(self, days: np.ndarray) -> np.ndarray:
        """Return the expected reports per day from all boards after some days, same shape as `days`."""
        return self.share_able_to_report(days) * self.boards * self.per_day

    def days_until(self, share: float) -> float | None:
        """Return the days until at most this share of devices can still report, or None if never."""
        silent_count = math.ceil(len(self.silent_after) * (1 - share) - 1e-9)
        days = float(self.silent_after[silent_count - 1]) if silent_count else 0.0
        return days if math.isfinite(days) else None


@dataclass(frozen=True)
class ReportRate:
    """The rate of one of a board's experiments.

    Attributes:
        epsilon: The ε of a report, in micro-nats.
        every: The mean number of calls to report() per report.
        per_day: The reports per day while budget is left.
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
    """Simulate 4,000 boards until none can report any more, or 20,000 reports have been made.

    The random draws are the same in each call.

    Args:
        rates: The experiments.
        lifetime: The caps on Σε and Σε², in micro-nats and micro-nats squared; reports continue while either
            allows it.
        starts: For each kind of board, the reports left in each experiment's own budget (None if unlimited),
            and the board's Σε and Σε².
        weights: The number of boards of each kind.
    """
    rng = np.random.default_rng(0)
    kinds = rng.choice(len(starts), _SAMPLE_SIZE, p=np.array(weights) / sum(weights))
    remaining = np.array(
        [[np.inf if n is None else n for n in reports_left] for reports_left, _, _ in starts], float
    )[kinds]
    spent = np.array([[total, squares] for _, total, squares in starts], float)[kinds]
    epsilon = np.array([x.epsilon for x in rates], float)
    chance = np.array([1 / x.every for x in rates])
    calls_a_day = np.array([x.per_day * x.every for x in rates])
    is_active = calls_a_day > 0
    wait = np.where(is_active, calls_a_day, 1.0)
    next_report_at = np.where(is_active, rng.geometric(chance, remaining.shape) / wait, np.inf)
    silent_from = np.full(remaining.shape, np.inf)
    now = np.zeros(_SAMPLE_SIZE)
    for _ in range(_MAX_REPORTS):
        by_sum = spent[:, :1] + epsilon <= lifetime[0]
        can_report = (remaining > 0) & (by_sum | (spent[:, 1:] + epsilon**2 <= lifetime[1]))
        silent_from = np.where(can_report, silent_from, np.minimum(silent_from, now[:, None]))
        next_report_at = np.where(can_report, next_report_at, np.inf)
        chosen = next_report_at.argmin(axis=1)
        rows = np.flatnonzero(np.isfinite(next_report_at.min(axis=1)))
        if not rows.size:
            break
        chosen = chosen[rows]
        now[rows] = next_report_at[rows, chosen]
        remaining[rows, chosen] -= 1
        spent[rows, 0] += epsilon[chosen]
        spent[rows, 1] += epsilon[chosen] ** 2
        next_report_at[rows, chosen] += rng.geometric(chance[chosen]) / wait[chosen]
    boards = sum(weights)
    return [SharedForecast(np.sort(silent_from[:, i]), boards, x.per_day) for i, x in enumerate(rates)]


def daily_reports(windows: Mapping[str, int], today: datetime.date) -> dict[datetime.date, int]:
    """Return reports per full UTC day, from a version's first window to yesterday, with 0 for empty days.

    Args:
        windows: The number of reports by window: 2026-11-21 or 2026-11-21T14. "all" is ignored.
        today: The current day, UTC.
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


def mean_daily_reports(days: Mapping[datetime.date, int], last: int) -> float | None:
    """Return the mean reports per day over up to `last` recent full days, or None if there are none."""
    counts = [days[day] for day in sorted(days)][-last:]
    return sum(counts) / len(counts) if counts else None
