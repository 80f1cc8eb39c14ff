"""Compare the reports that a new version should have sent with those received.

Boards that crash in a loop never report, so their readings cannot show it; the missing reports can. The
expected number of a day's reports is

    installed devices * reports per device and day * (received / expected reports of the other versions)

so that an outage of the broker, or devices switched off at night, are not mistaken for a bad release. The
missing share 1 - received / expected is known with the variance

    dispersion / expected + h / devices,    h = offline / (1 - offline)

plus the same for the others. The second term is for boards that stay offline: it does not shrink with
time. Both terms keep the increments between looks independent, so that the boundaries for repeated looks
hold.
"""

import math
from dataclasses import dataclass

import numpy as np

from ..arrays import Floats
from .difference import ReleaseError
from .plan import SilencePlan

_LATE_PART = 0.1  # of the level, for single days after the planned ones


@dataclass(frozen=True)
class Presence:
    """The devices of one side and their reports; arrays of shape (days,), oldest day first.

    Attributes:
        devices: The devices that were on this side for the whole day; see whole_day().
        reports: The reports received.
        rate: The reports that a device should send in a day, such as 1 / every for one call a day, for all
            days or of shape (days,).
    """

    devices: Floats
    reports: Floats
    rate: float | Floats

    def __post_init__(self) -> None:
        if self.devices.shape != self.reports.shape:
            raise ReleaseError("devices and reports must have one value for each day")
        if not np.all(np.greater(self.rate, 0)):
            raise ReleaseError(f"the reports per device and day must be above 0, not {np.min(self.rate):g}")
        if np.any(self.devices < 0) or np.any(self.reports < 0):
            raise ReleaseError("devices and reports must be 0 or more")


@dataclass(frozen=True)
class SilenceLook:
    """The missing reports, counted at the end of a day.

    Attributes:
        day: The number of the day, counted from 0.
        expected_reports: The reports expected of the new version so far.
        received_reports: The reports received so far.
        variance: The variance of the missing share.
    """

    day: int
    expected_reports: float
    received_reports: float
    variance: float

    @property
    def missing_share(self) -> float:
        """The missing share of reports; below 0 if there are more than expected."""
        return 1 - self.received_reports / self.expected_reports

    @property
    def information(self) -> float:
        """The inverse of the variance."""
        return 1 / self.variance


def whole_day(installed: Floats, newest: bool) -> Floats:
    """Return the devices to count in each day, from those installed at its end, shape (days,).

    On the new side, only devices that were there both before and after the day count, since one that was
    updated in the evening could not report before. On the other side all that were there at either time
    count. Both choices lead to fewer expected reports, and never to a false alarm.

    Args:
        installed: The devices at the end of the day before the first and of each day, shape (days + 1,).
        newest: Whether this is the new side.
    """
    before, after = installed[:-1], installed[1:]
    return np.minimum(before, after) if newest else np.maximum(before, after)


def single_day_part(day: int, planned_days: int) -> float:
    """Return the part of the level for a look that counts the reports of a single day only.

    Looks at different days are not nested, so their parts add up. The planned days have equal parts of 9/10
    of the level. The k-th day after them has 6 / (π k)² of the rest, so that all days together never use up
    more than the level, for as long as anyone looks.

    Args:
        day: The number of the day since the release's first, counted from 1.
        planned_days: The days that were planned for.
    """
    if day <= planned_days:
        return (1 - _LATE_PART) / planned_days
    return _LATE_PART * 6 / (math.pi * (day - planned_days)) ** 2


def silence_looks(
    new: Presence, other: Presence | None, plan: SilencePlan, usual: float = 1.0
) -> tuple[SilenceLook, ...]:
    """Return one look for each day that adds information, each with the days up to then only.

    Args:
        new: The new version's devices and reports.
        other: The same of the other versions, or None if their devices are not available.
        plan: The tolerance, offline boards and dispersion.
        usual: Without `other`, the share of the reports that usually arrive, above 0.

    Raises:
        ReleaseError: If the two sides do not have the same days, or `usual` is not above 0.
    """
    if other is not None and other.reports.shape != new.reports.shape:
        raise ReleaseError(
            f"both sides must have the same days, not {len(new.reports)} and {len(other.reports)}"
        )
    if not usual > 0:
        raise ReleaseError(f"the share of reports that usually arrive must be above 0, not {usual:g}")
    result: list[SilenceLook] = []
    daily = new.devices * new.rate * (usual if other is None else _arrival(other))
    for day in range(len(daily)):
        counted = np.flatnonzero(daily[: day + 1] > 0)
        if not len(counted) or counted[-1] != day:
            continue
        expected = float(daily[counted].sum())
        variance = _side_variance(plan, expected, new.devices[counted])
        if other is not None:
            # The days' shares of what is expected, each multiplied by a day's error of the others' reports.
            parts = daily[counted] / expected
            reports = float(1 / np.sum(parts**2 / other.reports[counted]))
            variance += _side_variance(plan, reports, other.devices[counted])
        if not result or variance < result[-1].variance:
            result.append(SilenceLook(day, expected, float(new.reports[counted].sum()), variance))
    return tuple(result)


def _arrival(side: Presence) -> Floats:
    """Return the share of a side's reports that arrived on each day, 0 without devices, shape (days,)."""
    sent = side.devices * side.rate
    return np.divide(side.reports, sent, out=np.zeros_like(sent), where=sent > 0)


def _side_variance(plan: SilencePlan, reports: float, devices: Floats) -> float:
    return plan.dispersion / reports + plan.offline_share / (1 - plan.offline_share) / float(devices.mean())
