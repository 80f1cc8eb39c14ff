"""Finds the population with the largest error of a linear statistic, under any mechanism, and that error.

A variance is a concave function of the shares: a linear one of squared weights, minus a square for each
stratum. So steps that move shares from the value that adds least to the one that adds most climb to its
maximum, and each step bounds how far off that still is.

Source: Lacoste-Julien, Jaggi, "On the global linear convergence of Frank-Wolfe optimization variants",
NeurIPS 2015 (pairwise steps).
"""

import numpy as np

from ..server.arrays import Floats
from ..server.mechanisms import Mechanism

_STEPS = 20_000
_STILL = 1e-7  # largest relative error of the variance


def worst_population(mechanism: Mechanism, statistic: Floats) -> tuple[Floats, float]:
    """Return the worst shares of the values, shape (domain,), and their variance, times reports, rounded up.

    Args:
        mechanism: The mechanism.
        statistic: A weight for each value, shape (domain,).
    """
    return climb(*moments(mechanism, statistic))


def moments(mechanism: Mechanism, statistic: Floats) -> tuple[Floats, Floats]:
    """Return for each value the mean square of the weight and, for each stratum, its mean; see climb()."""
    weights_of, _ = mechanism.weights(statistic[:, None], mechanism.stratum_chances)
    squares, means = np.zeros(mechanism.domain), []
    for number, (weights, chance) in enumerate(zip(weights_of, mechanism.stratum_chances, strict=True)):
        if weights is not None:
            numbers = [np.zeros(len(size)) for size in mechanism.class_sizes]
            numbers[number] = weights[:, 0] ** 2
            squares += mechanism.law_transposed(numbers) / chance
            numbers[number] = weights[:, 0]
            means.append(mechanism.law_transposed(numbers) / np.sqrt(chance))
    return squares, np.array(means)


def climb(squares: Floats, means: Floats) -> tuple[Floats, float]:
    """Maximize squares · f - Σ (means · f)² over shares f; return the shares and an upper bound."""
    shares = np.zeros(len(squares))
    shares[int(np.argmax(squares))] = 1.0
    height = lacking = 0.0
    for _ in range(_STEPS):
        at = means @ shares
        slope = squares - 2 * (at @ means)
        height = float(squares @ shares - at @ at)
        best = int(np.argmax(slope))
        lacking = float(slope[best] - slope @ shares)
        if lacking <= _STILL * height:
            break
        support = np.flatnonzero(shares)
        worst = int(support[np.argmin(slope[support])])
        curve = 2 * float(np.square(means[:, best] - means[:, worst]).sum())
        rise = float(slope[best] - slope[worst])
        moved = min(float(shares[worst]), rise / curve) if curve else float(shares[worst])
        shares[best] += moved
        shares[worst] -= moved
    return shares, height + lacking
