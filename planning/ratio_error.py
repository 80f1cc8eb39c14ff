"""Predicts the errors of estimates among the devices with a reading, if a share of the devices has none.

A statistic of those with a reading is a ratio X / Y of two linear statistics, Y the share with a reading. To
first order its error is that of (X - θ Y) / Y, θ the statistic's true value (estimate/conditional.py), which
is linear again. Along the share f that a range holds among them, θ = f: its variance is a polynomial of the
fourth degree, which five values give.
"""

from __future__ import annotations

import numpy as np

from ..server.arrays import Floats
from ..server.mechanisms import Mechanism
from .worst_population import climb, moments

_SHARES = np.linspace(0, 1, 5)
_FINE = np.linspace(0, 1, 257)


class ShareCurves:
    """Variances, times reports, of shares of ranges among the devices with a reading, along these shares.

    values: of the variances at five shares from 0 to 1, shape (5, n).
    """

    def __init__(self, values: Floats) -> None:
        self.values = values

    def at(self, share: float | None) -> Floats:
        """Return variances at a share, or at each statistic's own worst one, shape (n,)."""
        if share is None:
            return self._fine().max(axis=0)
        return self._interpolate(np.array([share]))[0]

    @property
    def worst_share(self) -> Floats:
        """Share in 0..1 of the largest variance, shape (n,)."""
        return _FINE[np.argmax(self._fine(), axis=0)]

    def mean(self) -> ShareCurves:
        """Return the curve of the mean over the statistics."""
        return ShareCurves(self.values.mean(axis=1, keepdims=True))

    def select(self, numbers: list[int]) -> ShareCurves:
        """Return the curves of some of the statistics."""
        return ShareCurves(self.values[:, numbers])

    def _fine(self) -> Floats:
        return self._interpolate(_FINE)

    def _interpolate(self, shares: Floats) -> Floats:
        """Return Lagrange's polynomials through the five values, shape (shares, n)."""
        weights = np.ones((len(shares), len(_SHARES)))
        for i, own in enumerate(_SHARES):
            for other in np.delete(_SHARES, i):
                weights[:, i] *= (shares - other) / (own - other)
        return weights @ self.values


def share_curves(mechanism: Mechanism, inside: Floats, missing: float) -> ShareCurves:
    """Return the variances of shares of ranges among the devices with a reading.

    inside: indicators of the ranges, shape (values, n), none empty or whole. missing: the share of the
    devices that has no reading; the mechanism's last index is theirs.
    """
    n = inside.shape[1]
    nobody = np.zeros((1, n))
    indicators = np.append(inside, nobody, axis=0)
    having = np.append(np.ones_like(inside), nobody, axis=0)
    within = indicators / indicators.sum(axis=0)
    outside = (having - indicators) / (having - indicators).sum(axis=0)
    values = [
        mechanism_variances(mechanism, indicators - f * having, within * f + outside * (1 - f), missing)
        for f in _SHARES
    ]
    return ShareCurves(np.array(values))


def mechanism_variances(
    mechanism: Mechanism, statistics: Floats, with_reading: Floats, missing: float
) -> Floats:
    """Return the variances of X - θ Y over Y, times reports, each in its own population, shape (n,).

    statistics: X - θ Y, weights of shape (domain, n), 0 for no reading. with_reading: the shares among those
    with a reading, shape (domain, n), 0 for no reading.
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
    """Return the variance, times reports, of a mean among the devices with a reading.

    where: what each value counts as, shape (values,). shares: of the values among those with a reading.
    """
    centred = np.append(where - where @ shares, 0.0)[:, None]
    return float(mechanism_variances(mechanism, centred, np.append(shares, 0.0)[:, None], missing)[0])


def worst_mean(mechanism: Mechanism, where: Floats, missing: float) -> tuple[Floats, float]:
    """Return the shares of the values for which a mean errs most, and its variance there, times reports.

    The population is sought with θ in the middle of the values, where the worst one's mean is: half of the
    devices at each end, or nearly so.
    """
    middle = (float(where.min()) + float(where.max())) / 2
    squares, means = moments(mechanism, np.append(where - middle, 0.0))
    fixed = missing * means[:, -1]
    rest = 1 - missing
    linear = rest * squares[:-1] - 2 * rest * (fixed @ means[:, :-1])
    shares, _ = climb(linear, rest * means[:, :-1])
    return shares, mean_variance(mechanism, where, shares, missing)
