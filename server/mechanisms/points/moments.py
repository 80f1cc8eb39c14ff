"""Moments of the frequencies and of the distribution function of pgr, exact at any size.

As those of flat local hashing (hashing/moments.py): a report weighs in a value whether it supports it, less
the part W / D of the values that it supports. The values with their 1 at digit j are those of a linear hash
of j digits, shifted: all values before them, K of them, are a projective space, of which a code supports (K
- 1) / q, or all of it where its lower j digits are 0.
"""

from functools import cached_property, lru_cache

import numpy as np

from ...arrays import Floats
from ..hashing.moments import ValueRun, before_values, by_excess, cumulants, of_values
from . import projective


class PointMoments:
    """Cumulants of one report's weight in values and in prefixes.

    shares: of the codes, shape (codes,). supports: of reports for each value, shape (domain,).
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
        """Second and third cumulants of the weight in each value, two arrays of shape (domain,)."""
        domain = len(self._supports)
        once = twice = np.zeros(domain)
        if len(self._weighted) > 1:
            once, twice = projective.supported(self._q, self._t, domain, *self._weighted[1:3])
        return of_values(self._supports, once, twice, self._totals)

    def prefixes(self) -> tuple[Floats, Floats]:
        """The same of the sums of values 0..v, for each v; all values together are known: 0."""
        q, domain = self._q, len(self._supports)
        moments = np.zeros((3, domain))  # of the values before each one
        weighted, zeros = self._weighted, np.zeros(len(self._weighted))
        for j in range(self._t - 1, 0, -1):  # zeros: weights of codes whose lower j + 1 digits are 0
            first = projective.point_count(q, j)
            before = np.arange(first, min(projective.point_count(q, j + 1), domain))
            hashed = projective.by_class(q, j + 1, weighted)
            values = ValueRun(q, j, first, len(before), domain)
            # All weights are taken less the q-th part of the values before.
            part = _shifted(before_values(values, hashed), -1 / q, float(hashed[0].sum()))
            alone = weighted[:, first]  # of codes whose lower j digits are 0, and the next is not
            part += _of_equals(first - before / q, before / domain, alone)
            part += _of_equals(before - before / q, before / domain, zeros)
            moments[:, before] = part
            zeros = zeros + alone
            weighted = projective.at_infinity(q, j + 1, weighted)
        result = np.zeros((2, domain))
        result[:, :-1] = cumulants(moments)[:, 1:]
        return result[0], result[1]


def _shifted(moments: Floats, by: float, total: float) -> Floats:
    """First three moments, shape (3, n), of weights of this total, of numbers that a constant is added to."""
    first, second, third = moments
    return np.stack(
        [
            first + by * total,
            second + 2 * by * first + by**2 * total,
            third + 3 * by * second + 3 * by**2 * first + by**3 * total,
        ]
    )


def _of_equals(numbers: Floats, times: Floats, weights: Floats) -> Floats:
    """First three moments, shape (3, n), of numbers less times the excess; weights: by_excess's, summed."""
    w = np.zeros(4)
    w[: len(weights)] = weights
    first, second = numbers * w[0] - times * w[1], numbers**2 * w[0] - 2 * numbers * times * w[1]
    third = numbers**3 * w[0] - 3 * numbers**2 * times * w[1] + 3 * numbers * times**2 * w[2]
    return np.stack([first, second + times**2 * w[2], third - times**3 * w[3]])


@lru_cache(maxsize=4)
def excess_supported(q: int, t: int, domain: int) -> Floats | None:
    """How many more values each code supports than the mean code, shape (codes,); None where none does."""
    codes = projective.point_count(q, t)
    if domain == codes:
        return None
    excess = np.rint(projective.sums(q, t, np.ones(domain)))
    excess -= domain * projective.point_count(q, t - 1) / codes
    excess.flags.writeable = False
    return excess
