"""One step of Fisher scoring: codes weighed by how often a pilot population says that each of them comes.

Least squares over a tree is given sums over all codes that support a node, and has lost which were which; but
codes that support a common value come more often than others and err more. Let M be the law of the classes of
codes, P the diagonal of their chances under the pilot and N the reports of each stratum. Then

    r·x = Σ over the strata of the counts · P^-1 M F^-1 r,    F = Σ N M^T P^-1 M

is unbiased whatever the pilot, as long as it is independent of the counts, and has the least variance of all
unbiased estimates, Cramér's and Rao's bound, where the pilot is right. F times the pilot is N times ones, so
that the estimates sum to 1 by themselves.
Lehmann, Casella, "Theory of Point Estimation", 2nd edition, section 6.4, for one-step estimates.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from ..arrays import Floats
from .decoded import Decoded
from .mechanism import Weights


class Scored(Decoded):
    """A histogram weighed by a pilot population that it did not contribute to; all moments are exact.

    ordinary: the same histogram by its mechanism's own weights, with reports where Mechanism.lacks() wants
    them. pilot: shape (domain,), positive, with sum 1. law: the mechanism's, a column for each value. Takes
    O(classes domain²) for all values at once.
    """

    def __init__(self, ordinary: Decoded, pilot: Floats, law: Sequence[Floats]):
        super().__init__(ordinary.mechanism, ordinary.counts)
        self._ordinary = ordinary
        self._pilot = pilot
        self._law = law

    def halves(self, rng: np.random.Generator) -> tuple[Decoded, Decoded]:
        one, other = self._ordinary.halves(rng)
        return Scored(one, self._pilot, self._law), Scored(other, self._pilot, self._law)

    @cached_property
    def _maps(self) -> list[Floats | None]:
        """N P^-1 M F^-1 of each stratum, shape (classes, domain); None where it has no reports."""
        scales = [n / (law @ self._pilot) for law, n in zip(self._law, self.reports, strict=True)]
        information = np.zeros((self.mechanism.domain, self.mechanism.domain))
        for law, scale in zip(self._law, scales, strict=True):
            root = np.sqrt(scale)[:, None] * law
            information += root.T @ root
        covariance = np.linalg.inv(information)
        return [
            scale[:, None] * (law @ covariance) if n else None
            for law, scale, n in zip(self._law, scales, self.reports, strict=True)
        ]

    def weights(self, statistic: Floats) -> Weights:
        constant = np.zeros(statistic.shape[1], np.float64)
        return (None if each is None else each @ statistic for each in self._maps), constant

    def rare_variance(self) -> float:
        return self._ordinary.rare_variance()

    def nonnegative(self, frequencies: Floats) -> Floats:
        return self._ordinary.nonnegative(frequencies)
