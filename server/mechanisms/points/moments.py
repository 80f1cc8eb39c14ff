"""Moments of the frequencies and of the distribution function of pgr, exact at any size.

As for flat local hashing (hashing/moments.py), the weight of a report in a value is 1 or 0, whether it
supports the value, minus W / D, where W is how many of all D values it supports. The values with their 1 at
digit j are those of a linear hash of j digits, shifted: the K values before them are a projective space, of
which a code supports (K - 1) / q, or all of it if its lower j digits are 0.
"""

from functools import cached_property, lru_cache

import numpy as np

from ...arrays import Floats
from ..hashing.moments import ValueRun, before_values, by_excess, cumulants, of_values
from . import projective


class PointMoments:
    """Cumulants of one report's weight in values and in prefixes.

    Args:
        shares: The shares of the codes, shape (codes,).
        supports: The share of reports that support each value, shape (domain,).
    """

    def __init__(self, q: int, t: int, shares: Floats, supports: Floats):
        self._q = q
        self._t = t
        self._supports = supports
        self._weighted = by_excess(shares, excess_supported(q, t, len(supports)))

    @cached_property
    def _totals(self) -> Floats:
        totals = np.zeros(4)
        totals[: len(self._weighted)] = self._weighted.sum(axis=1)
        return totals

    def frequencies(self) -> tuple[Floats, Floats]:
        """Return the second and third cumulants of the weight in each value, two of shape (domain,)."""
        domain = len(self._supports)
        once = twice = np.zeros(domain)
        if len(self._weighted) > 1:
            once, twice = projective.supported(self._q, self._t, domain, *self._weighted[1:3])
        return of_values(self._supports, once, twice, self._totals)

    def prefixes(self) -> tuple[Floats, Floats]:
        """Return the cumulants of the sums of values 0..v, for each v; 0 for all values."""
        q, domain = self._q, len(self._supports)
        moments = np.zeros((3, domain))  # moments of the values before each one
        weighted, zeros = self._weighted, np.zeros(len(self._weighted))
        for j in range(self._t - 1, 0, -1):  # zeros are weights of codes whose lower j + 1 digits are 0
            first = projective.point_count(q, j)
            before = np.arange(first, min(projective.point_count(q, j + 1), domain))
            hashed = projective.by_class(q, j + 1, weighted)
            values = ValueRun(q, j, first, len(before), domain)
            # All weights are reduced by one q-th of the number of values before.
            part = _shifted(before_values(values, hashed), -1 / q, float(hashed[0].sum()))
            alone = weighted[:, first]  # weights of codes whose lower j digits are 0, but not the next
            part += _of_equals(first - before / q, before / domain, alone)
            part += _of_equals(before - before / q, before / domain, zeros)
            moments[:, before] = part
            zeros = zeros + alone
            weighted = projective.at_infinity(q, j + 1, weighted)
        result = np.zeros((2, domain))
        result[:, :-1] = cumulants(moments)[:, 1:]
        return result[0], result[1]


def _shifted(moments: Floats, by: float, total: float) -> Floats:
    """Return the first three moments, (3, n), after adding a constant; `total` is the sum of weights."""
    first, second, third = moments
    return np.stack(
        [
            first + by * total,
            second + 2 * by * first + by**2 * total,
            third + 3 * by * second + 3 * by**2 * first + by**3 * total,
        ]
    )


def _of_equals(numbers: Floats, times: Floats, weights: Floats) -> Floats:
    """Return the first three moments, (3, n), of numbers minus times the excess, from by_excess sums."""
    w = np.zeros(4)
    w[: len(weights)] = weights
    first, second = numbers * w[0] - times * w[1], numbers**2 * w[0] - 2 * numbers * times * w[1]
    third = numbers**3 * w[0] - 3 * numbers**2 * times * w[1] + 3 * numbers * times**2 * w[2]
    return np.stack([first, second + times**2 * w[2], third - times**3 * w[3]])


@lru_cache(maxsize=4)
def excess_supported(q: int, t: int, domain: int) -> Floats | None:
    """Return by how many values each code exceeds the mean code, shape (codes,), or None if none does."""
    codes = projective.point_count(q, t)
    if domain == codes:
        return None
    excess = np.rint(projective.sums(q, t, np.ones(domain)))
    excess -= domain * projective.point_count(q, t - 1) / codes
    excess.flags.writeable = False
    return excess
