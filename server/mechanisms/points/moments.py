"""Exact moments of pgr's frequencies and distribution function, for domains of any size.

As for flat local hashing (hashing/moments.py), a report's weight in a value is 1 if it supports the value,
otherwise 0, minus W / D, where W is how many of the D values it supports. The values whose leading 1 is at
digit j are those of a shifted j-digit linear hash. The K values before them are a projective space, of which
a code supports (K - 1) / q values, or all if its lower j digits are 0.
"""

from functools import cached_property, lru_cache

import numpy as np

from ...arrays import Floats
from ..hashing.moments import ValueRun, before_values, by_excess, cumulants, of_values
from . import projective


class PointMoments:
    """Cumulants of one report's weight in values and in prefixes.

    Args:
        q: The prime.
        t: The number of digits of a point.
        shares: Each code's share, shape (codes,).
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
        """Return the second and third cumulants of the weight in each value, each of shape (domain,)."""
        domain = len(self._supports)
        once = twice = np.zeros(domain)
        if len(self._weighted) > 1:
            once, twice = projective.supported(self._q, self._t, domain, *self._weighted[1:3])
        return of_values(self._supports, once, twice, self._totals)

    def prefixes(self) -> tuple[Floats, Floats]:
        """Return the same cumulants for the sum of values 0..v, for each v; the last is 0."""
        q, domain = self._q, len(self._supports)
        moments = np.zeros((3, domain))  # moments of the sum before each value
        weighted, zeros = self._weighted, np.zeros(len(self._weighted))
        for j in range(self._t - 1, 0, -1):  # `zeros`: weights of codes whose lower j + 1 digits are 0
            first = projective.point_count(q, j)
            before = np.arange(first, min(projective.point_count(q, j + 1), domain))
            hashed = projective.by_class(q, j + 1, weighted)
            values = ValueRun(q, j, first, len(before), domain)
            # All weights are reduced by 1/q of the number of preceding values.
            part = _shifted(before_values(values, hashed), -1 / q, float(hashed[0].sum()))
            alone = weighted[:, first]  # weights of codes whose lower j digits are 0, but not the next digit
            part += _equal_code_moments(first - before / q, before / domain, alone)
            part += _equal_code_moments(before - before / q, before / domain, zeros)
            moments[:, before] = part
            zeros = zeros + alone
            weighted = projective.at_infinity(q, j + 1, weighted)
        result = np.zeros((2, domain))
        result[:, :-1] = cumulants(moments)[:, 1:]
        return result[0], result[1]


def _shifted(moments: Floats, constant: float, total: float) -> Floats:
    """Return the first three moments, (3, n), after adding a constant; `total` is the sum of weights."""
    first, second, third = moments
    return np.stack(
        [
            first + constant * total,
            second + 2 * constant * first + constant**2 * total,
            third + 3 * constant * second + 3 * constant**2 * first + constant**3 * total,
        ]
    )


def _equal_code_moments(numbers: Floats, times: Floats, weights: Floats) -> Floats:
    """Return the first three moments, (3, n), of `numbers` minus `times` the excess."""
    w = np.zeros(4)
    w[: len(weights)] = weights
    first, second = numbers * w[0] - times * w[1], numbers**2 * w[0] - 2 * numbers * times * w[1]
    third = numbers**3 * w[0] - 3 * numbers**2 * times * w[1] + 3 * numbers * times**2 * w[2]
    return np.stack([first, second + times**2 * w[2], third - times**3 * w[3]])


@lru_cache(maxsize=4)
def excess_supported(q: int, t: int, domain: int) -> Floats | None:
    """Return by how many values each code exceeds the mean code, shape (codes,), or None if no code does."""
    codes = projective.point_count(q, t)
    if domain == codes:
        return None
    excess = np.rint(projective.sums(q, t, np.ones(domain)))
    excess -= domain * projective.point_count(q, t - 1) / codes
    excess.flags.writeable = False
    return excess
