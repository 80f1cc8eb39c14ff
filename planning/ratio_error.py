"""Predicts the errors of estimates among the devices with a reading, if some devices have none.

A statistic of devices with a reading is a ratio X / Y of two linear statistics, where Y is the share with a
reading. To first order its error is that of (X - θ Y) / Y with the statistic's true value θ
(estimate/conditional.py), which is linear again. For a range with the share f among them, θ = f: its variance
is a polynomial of the fourth degree in f, which five values determine.
"""

from __future__ import annotations

import numpy as np

from ..server.arrays import Floats
from ..server.mechanisms import Mechanism
from .worst_population import climb, moments

_SHARES = np.linspace(0, 1, 5)
_FINE = np.linspace(0, 1, 257)


class ShareCurves:
    """Variances of ranges' shares among the devices with a reading, times the number of reports, by share.

    Args:
        values: The variances at five shares from 0 to 1, shape (5, n).
    """

    def __init__(self, values: Floats) -> None:
        self.values = values

    def at(self, share: float | None) -> Floats:
        """Return variances at a share, or at each statistic's worst share, shape (n,)."""
        if share is None:
            return self._fine().max(axis=0)
        return self._interpolate(np.array([share]))[0]

    @property
    def worst_share(self) -> Floats:
        """The shares with the largest variance, 0 to 1, shape (n,)."""
        return _FINE[np.argmax(self._fine(), axis=0)]

    def mean(self) -> ShareCurves:
        """Return the curve of the mean over the statistics."""
        return ShareCurves(self.values.mean(axis=1, keepdims=True))

    def select(self, indices: list[int]) -> ShareCurves:
        """Return the curves of some of the statistics."""
        return ShareCurves(self.values[:, indices])

    def _fine(self) -> Floats:
        return self._interpolate(_FINE)

    def _interpolate(self, shares: Floats) -> Floats:
        """Return the Lagrange polynomials through the five values, shape (shares, n)."""
        weights = np.ones((len(shares), len(_SHARES)))
        for i, node in enumerate(_SHARES):
            for other_node in np.delete(_SHARES, i):
                weights[:, i] *= (shares - other_node) / (node - other_node)
        return weights @ self.values


def share_curves(mechanism: Mechanism, inside: Floats, missing: float) -> ShareCurves:
    """Return the variances of shares of ranges among the devices with a reading.

    Args:
        mechanism: The mechanism, whose last index is for a missing reading.
        inside: Indicators of the ranges, shape (values, n), each neither empty nor covering all values.
        missing: The share of the devices without a reading.
    """
    n = inside.shape[1]
    no_reading = np.zeros((1, n))
    indicators = np.append(inside, no_reading, axis=0)
    has_reading = np.append(np.ones_like(inside), no_reading, axis=0)
    within = indicators / indicators.sum(axis=0)
    outside = (has_reading - indicators) / (has_reading - indicators).sum(axis=0)
    values = [
        mechanism_variances(mechanism, indicators - f * has_reading, within * f + outside * (1 - f), missing)
        for f in _SHARES
    ]
    return ShareCurves(np.array(values))


def mechanism_variances(
    mechanism: Mechanism, statistics: Floats, with_reading: Floats, missing: float
) -> Floats:
    """Return variances of X - θ Y over Y, times the number of reports, each in its population, shape (n,).

    Args:
        mechanism: The mechanism.
        statistics: X - θ Y, weights of shape (domain, n), 0 for a missing reading.
        with_reading: The shares among the devices with a reading, shape (domain, n), 0 for a missing reading.
        missing: The share of the devices without a reading.
    """
    shares = with_reading * (1 - missing)
    shares[-1] = missing
    result = np.zeros(statistics.shape[1])
    weights, _ = mechanism.weights(statistics, mechanism.stratum_chances)
    for w, chance, law in zip(weights, mechanism.stratum_chances, mechanism.law(shares), strict=True):
        if w is not None:
            result += ((law * w * w).sum(axis=0) - (law * w).sum(axis=0) ** 2) / chance
    return result / (1 - missing) ** 2


def mean_variance(mechanism: Mechanism, where: Floats, shares: Floats, missing: float) -> float:
    """Return the variance, times the number of reports, of a mean among the devices with a reading.

    Args:
        mechanism: The mechanism.
        where: The position of each value, shape (values,).
        shares: The shares of the values among the devices with a reading, shape (values,).
        missing: The share of the devices without a reading.
    """
    centred = np.append(where - where @ shares, 0.0)[:, None]
    return float(mechanism_variances(mechanism, centred, np.append(shares, 0.0)[:, None], missing)[0])


def worst_mean(mechanism: Mechanism, where: Floats, missing: float) -> tuple[Floats, float]:
    """Return the shares with the largest error of a mean, and its variance times the number of reports.

    The population is searched with θ in the middle of the values, which is the mean of the worst population:
    half of the devices at each end, or nearly so.
    """
    middle = (float(where.min()) + float(where.max())) / 2
    squares, means = moments(mechanism, np.append(where - middle, 0.0))
    fixed = missing * means[:, -1]
    with_reading = 1 - missing
    linear = with_reading * squares[:-1] - 2 * with_reading * (fixed @ means[:, :-1])
    shares, _ = climb(linear, with_reading * means[:, :-1])
    return shares, mean_variance(mechanism, where, shares, missing)
