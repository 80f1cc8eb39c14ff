"""Compare a new version with the others day by day, and pool the differences.

During a rollout, the shares of old and new versions change, and readings change from day to day. So versions
are compared only within a day, and the differences of the days are pooled with their precisions as weights:

    d = Σ w_i (new_i - other_i) / Σ w_i
    w_i = 1 / v_i,    v_i = u_new / reports_new + u_other / reports_other

Here u is the variance of one report, pooled over a side's days so far. A day's own variance depends on its
estimate, and weights that depend on the estimates would bias d. The information of d is 1 / v(d) = Σ w_i.
The increments between looks are independent.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..arrays import Floats
from ..errors import HushmoteError
from ..estimate.statistic import Statistic

MIN_REPORTS = 50
"""The number of reports that each side needs before the first look."""
_MIN_FOR_VARIANCE = 2  # reports of a day from which a variance can be estimated


class ReleaseError(HushmoteError):
    """Raised if a release cannot be compared, or its plan does not fit."""


@dataclass(frozen=True)
class SideDays:
    """The daily estimates of one side, oldest first; arrays of shape (days,).

    Attributes:
        reports: Each day's number of reports.
        estimate: Each day's share or mean; NaN without an estimate.
        variance: The variances of the estimates: of each report around the day's mean, divided by the
            number of reports. NaN or infinite without an estimate.
        skew: The growth of each variance per unit growth of the estimate; see estimate.statistic.Statistic.
    """

    reports: Floats
    estimate: Floats
    variance: Floats
    skew: Floats

    def __post_init__(self) -> None:
        if len({self.reports.shape, self.estimate.shape, self.variance.shape, self.skew.shape}) > 1:
            raise ReleaseError("reports, estimates, variances and skews must have one value for each day")

    @staticmethod
    def of(reports: Sequence[int], estimates: Sequence[Statistic | None]) -> "SideDays":
        """Return the days with these numbers of reports and estimates, None for a day without one.

        Raises:
            ReleaseError: If there is not one estimate for each number of reports.
        """
        values = [
            (math.nan, math.nan, math.nan) if x is None else (x.value, x.stderr**2, x.skew) for x in estimates
        ]
        columns = np.array(values, np.float64).reshape(-1, 3).T
        return SideDays(np.array(reports, np.float64), *columns)

    def has_estimate(self) -> npt.NDArray[np.bool_]:
        """Return whether each day has an estimate, shape (days,)."""
        return (self.reports > 0) & np.isfinite(self.estimate)


@dataclass(frozen=True)
class Look:
    """The difference, estimated at the end of a day.

    Attributes:
        day: The number of the day, counted from 0.
        value: The new version's share or mean minus that of the others.
        variance: The variance of `value`.
        skew: The growth of the variance per unit growth of the value.
        reports: The number of reports of the new version, on days that could be compared.
        effective_reports: The sum of n m / (n + m) over days, for n new and m other reports. If a report
            of either side has variance u, `variance` is u / effective_reports; unlike `variance`, it does
            not depend on what the reports contain.
    """

    day: int
    value: float
    variance: float
    skew: float
    reports: float
    effective_reports: float

    @property
    def information(self) -> float:
        """The inverse of the variance."""
        return 1 / self.variance

    @property
    def stderr(self) -> float:
        """The standard error of the difference."""
        return self.variance**0.5


def effective_reports(new: float | Floats, other: float | Floats) -> float:
    """Return the sum of n m / (n + m) over days; 0 for a day without reports of one side.

    Args:
        new: The new version's reports of a day or of several, shape (days,).
        other: The other versions' reports.
    """
    n, m = np.asarray(new, float), np.asarray(other, float)
    return float(np.sum(np.divide(n * m, n + m, out=np.zeros_like(n * m), where=n * m > 0)))


def looks(new: SideDays, other: SideDays) -> tuple[Look, ...]:
    """Return one look for each day that adds to the difference, each with the days up to then only.

    Days on which one side has no estimate add nothing. The first look is at the end of the day on which
    both sides have MIN_REPORTS.

    Args:
        new: The new version's days.
        other: The same days of the versions that it is compared with, pooled.

    Raises:
        ReleaseError: If the two sides do not have the same days.
    """
    if new.reports.shape != other.reports.shape:
        raise ReleaseError(
            f"both sides must have the same days, not {len(new.reports)} and {len(other.reports)}"
        )
    comparable = np.flatnonzero(new.has_estimate() & other.has_estimate())
    days = (_look(new, other, comparable[: stop + 1]) for stop in range(len(comparable)))
    return tuple(look for look in days if look is not None)


def _look(new: SideDays, other: SideDays, days: npt.NDArray[np.intp]) -> Look | None:
    n, m = new.reports[days], other.reports[days]
    (u_new, skew_new), (u_other, skew_other) = report_variance(new, days), report_variance(other, days)
    if min(n.sum(), m.sum()) < MIN_REPORTS or not (u_new > 0 and u_other > 0):
        return None
    weights = 1 / (u_new / n + u_other / m)
    value = float(weights @ (new.estimate[days] - other.estimate[days]) / weights.sum())
    third = u_new * skew_new / n**2 - u_other * skew_other / m**2
    skew = float(weights**3 @ third / weights.sum() ** 2)
    variance = float(1 / weights.sum())
    return Look(int(days[-1]), value, variance, skew, float(n.sum()), effective_reports(n, m))


def report_variance(side: SideDays, days: npt.NDArray[np.intp]) -> tuple[float, float]:
    """Return the variance and the skew of one report over these days, or zeros if no day has enough reports.

    Args:
        side: The daily estimates.
        days: The indices of the days.
    """
    n, variance, skew = side.reports[days], side.variance[days], side.skew[days]
    usable = (n >= _MIN_FOR_VARIANCE) & np.isfinite(variance) & np.isfinite(skew)
    if not usable.any():
        return 0.0, 0.0
    squares, total = n[usable] ** 2, n[usable].sum()
    # A day's variance is taken around its own mean, which costs one report a day.
    return float(squares @ variance[usable] / (total - usable.sum())), float(squares @ skew[usable] / total)
