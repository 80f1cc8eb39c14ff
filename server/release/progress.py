"""Estimate how far a version has rolled out, and when it will reach half of the fleet at this rate.

A version's share of devices is estimated from reports, each divided by the chance that a device sends it,
so that a version that reports more often does not look more common. Its growth is fitted to the last days by
weighted least squares.
"""

import math
from dataclasses import dataclass

import numpy as np

from ..arrays import Floats
from .difference import ReleaseError

HALF = 0.5
_RECENT = 7  # days whose growth is expected to continue
_MIN_DAYS = 3
_CLEAR = 2.0  # standard errors by which a share must grow


@dataclass(frozen=True)
class Progress:
    """The rollout at the end of the last day.

    Attributes:
        part: The share of devices with the new version, on the last day with reports.
        growth: The growth of this share per day, or None if it is not clearly growing.
        days_to_half: The days until half of the devices have the new version; 0 if they already do, None
            if the share is not growing.
    """

    part: float
    growth: float | None
    days_to_half: int | None


def rollout_progress(
    new: Floats, other: Floats, new_rate: float | Floats = 1.0, other_rate: float | Floats = 1.0
) -> Progress | None:
    """Return how far a version has rolled out, or None without reports.

    Args:
        new: The new version's reports by day, oldest first, shape (days,).
        other: The reports of all other versions.
        new_rate: The reports that a device with the new version sends in a day, such as 1 / every, for all
            days or of shape (days,).
        other_rate: The same for the others.

    Raises:
        ReleaseError: If the two sides do not have the same days, or a rate is not above 0.
    """
    if new.shape != other.shape:
        raise ReleaseError(f"both sides must have the same days, not {len(new)} and {len(other)}")
    if not (np.all(np.greater(new_rate, 0)) and np.all(np.greater(other_rate, 0))):
        raise ReleaseError("the reports per device and day must be above 0")
    days = np.flatnonzero(new + other > 0)
    if not len(days):
        return None
    days = days[days > days[-1] - _RECENT]
    devices, others = (new / new_rate)[days], (other / other_rate)[days]
    parts = devices / (devices + others)
    part = float(parts[-1])
    growth = _growth(days.astype(float), parts, new[days], other[days])
    if part >= HALF:
        return Progress(part, growth, 0)
    return Progress(part, growth, None if growth is None else math.ceil((HALF - part) / growth))


def _growth(days: Floats, parts: Floats, new: Floats, other: Floats) -> float | None:
    """Return the growth per day, or None if it could be chance."""
    if len(days) < _MIN_DAYS:
        return None
    # Of log(part / (1 - part)), the variance is 1 / new + 1 / other; a half avoids dividing by 0.
    variance = (parts * (1 - parts)) ** 2 * (1 / (new + 0.5) + 1 / (other + 0.5))
    if not variance.any():  # only one side has reports
        return None
    weights = 1 / np.maximum(variance, variance.max() / 100)
    centred = days - np.average(days, weights=weights)
    information = float(weights @ centred**2)
    growth = float(weights @ (centred * parts)) / information
    return growth if growth * math.sqrt(information) > _CLEAR else None
