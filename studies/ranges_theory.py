"""The theory of each structure's errors: exact covariances of many ranges at once.

Errors are relative to the records' true counts. For local structures, that is the error given the sample: the
variance in docs/mathematics.md, which includes sampling, minus the sampling variance.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..device.ldp_client import Experiment
from ..server.arrays import Floats, Ints
from ..server.mechanisms import mechanism_of
from ..server.mechanisms.channel import level_channel
from ..server.mechanisms.hashing import butterfly
from ..server.mechanisms.support_mechanisms import SupportMechanism
from ..server.mechanisms.tree import least_squares as hierarchy


@dataclass(frozen=True)
class Law:
    """The law of the errors of several ranges: means (not 0 for a biased estimator) and covariance.

    Attributes:
        bias: The means, in counts, shape (ranges,).
        covariance: The covariance, in counts², shape (ranges, ranges).
        tails: The contribution of the noise's fourth cumulant to the variance of the mean squared error; 0
            for normal errors.
    """

    bias: Floats
    covariance: Floats
    tails: float = 0.0

    @property
    def mse(self) -> float:
        """Expected squared error, averaged over the ranges."""
        return float(np.mean(self.bias**2 + np.diag(self.covariance)))

    @property
    def rmse(self) -> float:
        """Square root of mse."""
        return math.sqrt(self.mse)

    def deviations(self, measured_mse: float, fits: int) -> float:
        """Return the deviation of the mean of `fits` mean squared errors, in standard deviations.

        Few of the ranges are independent, so that their mean squared error is far from normal. It is modelled
        as a gamma distribution with the right mean, variance and skewness, made normal by its cube root:
        Wilson and Hilferty, "The distribution of chi-square", 1931.
        """
        c, b, count = self.covariance, self.bias, len(self.bias)
        variance = (float((2 * np.sum(c * c) + 4 * b @ c @ b) / count**2) + self.tails) / fits
        square = c @ c
        third = (8 * np.sum(square * c) + 24 * b @ square @ b) / count**3 / fits**2
        skewness = float(third) / variance**1.5
        x = (measured_mse - self.mse) / math.sqrt(variance)
        root = np.cbrt(max(skewness / 2 * x + 1, 0.0))
        return float(6 / skewness * (root - 1) + skewness / 6)


def indicator(domain: int, lo: Ints, hi: Ints) -> Floats:
    """Return the ranges' weights on the indices, shape (domain, ranges)."""
    at = np.arange(domain)[:, None]
    return ((at >= lo) & (at < hi)).astype(np.float64)


def laplace_law(variance: float, parts: Sequence[Floats]) -> Law:
    """Return the law of weighted sums of independent discrete Laplace numbers.

    Their excess kurtosis is 3 + 1 / variance.
    """
    covariance = variance * sum((r.T @ r for r in parts), np.zeros((parts[0].shape[1],) * 2))
    squares = sum(float(np.sum(np.mean(r * r, axis=1) ** 2)) for r in parts)
    return Law(np.zeros(len(covariance)), covariance, (3 + 1 / variance) * variance**2 * squares)


def tree_weights(experiment: Experiment, weights: Floats) -> list[Floats]:
    """Return the least squares weights of the estimator's answers on each level's estimates."""
    mechanism = mechanism_of(experiment)
    assert isinstance(mechanism, SupportMechanism)
    tree = mechanism.tree([level.weight for level in experiment.levels])
    return [weights] if tree is None else hierarchy.transpose(tree, weights)[0]


def channel_law(
    ran: Experiment, believed: Experiment, counts: Ints, parts: Sequence[Floats], unused: float = 0.0
) -> Law:
    """Return the law of n Σ_l parts[l] · (estimates of level l - the records' own shares of its nodes).

    It is exact except for the least squares' weights, which use the expected instead of the actual number of
    reports on each level.

    Args:
        ran: The channel that made the reports.
        believed: The channel that the estimator inverts.
        counts: Records of each day, shape (days,).
        parts: The ranges' weights on each level's nodes, shape (nodes, ranges).
        unused: Share of reports that carry no information.
    """
    n, domain, count = int(counts.sum()), len(counts), parts[0].shape[1]
    shares = counts / n
    second = np.zeros((count, count))
    by_value, truth = np.zeros((2, domain, count))
    for level, other, r in zip(ran.levels, believed.levels, parts, strict=True):
        if not level.weight:
            continue
        true, used = level_channel(level), level_channel(other)
        scale = 1 / (used.p - used.q)
        chance = (1 - unused) * level.weight / ran.weight_sum
        nodes = np.add.reduceat(shares, np.arange(0, domain, level.width))
        codes = (level.g - 1) / level.seeds if level.t else 1.0
        law_of_codes = codes * (true.lie + (true.p - true.lie) * butterfly.class_weights(level, nodes))
        w = butterfly.class_weights(level, r) * scale
        w -= law_of_codes @ w
        second += (w.T * law_of_codes) @ w / chance
        # A value's mean contribution to the answer, whatever the level's code: its own support and others'.
        own_support = (true.p - true.q) * scale * r
        base = (true.q - used.q) * scale * r.sum(axis=0)
        by_value += np.repeat(own_support, level.width, axis=0)[:domain] + base
        truth += np.repeat(r, level.width, axis=0)[:domain]
    centred = by_value - shares @ by_value
    return Law(n * (shares @ (by_value - truth)), n * (second - (centred.T * shares) @ centred))
