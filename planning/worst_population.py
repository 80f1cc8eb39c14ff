"""Finds the population with the largest error of a linear statistic under any mechanism, and that error.

A variance is a concave function of the shares: a linear function of squared weights, minus a square for each
stratum. Repeatedly moving shares from the value that adds least to the value that adds most therefore climbs
to its maximum, and each step bounds the remaining distance.

Source: Lacoste-Julien, Jaggi, "On the global linear convergence of Frank-Wolfe optimization variants",
NeurIPS 2015 (pairwise steps).
"""

import numpy as np

from ..server.arrays import Floats
from ..server.mechanisms import Mechanism

_STEPS = 20_000
_TOLERANCE = 1e-7  # largest relative error of the variance


def worst_population(mechanism: Mechanism, statistic: Floats) -> tuple[Floats, float]:
    """Return the worst shares, shape (domain,), and their variance times the number of reports, rounded up.

    Args:
        mechanism: The mechanism.
        statistic: A weight for each value, shape (domain,).
    """
    return climb(*moments(mechanism, statistic))


def moments(mechanism: Mechanism, statistic: Floats) -> tuple[Floats, Floats]:
    """Return each value's mean squared weight and, for each stratum, its mean weight; see climb()."""
    stratum_weights, _ = mechanism.weights(statistic[:, None], mechanism.stratum_chances)
    squares, means = np.zeros(mechanism.domain), []
    for stratum, (weights, chance) in enumerate(zip(stratum_weights, mechanism.stratum_chances, strict=True)):
        if weights is not None:
            class_weights = [np.zeros(len(size)) for size in mechanism.class_sizes]
            class_weights[stratum] = weights[:, 0] ** 2
            squares += mechanism.law_transposed(class_weights) / chance
            class_weights[stratum] = weights[:, 0]
            means.append(mechanism.law_transposed(class_weights) / np.sqrt(chance))
    return squares, np.array(means)


def climb(squares: Floats, means: Floats) -> tuple[Floats, float]:
    """Maximize squares · f - Σ (means · f)² over shares f; return the shares and an upper bound."""
    shares = np.zeros(len(squares))
    shares[int(np.argmax(squares))] = 1.0
    height = gap = 0.0
    for _ in range(_STEPS):
        stratum_means = means @ shares
        slope = squares - 2 * (stratum_means @ means)
        height = float(squares @ shares - stratum_means @ stratum_means)
        best = int(np.argmax(slope))
        gap = float(slope[best] - slope @ shares)
        if gap <= _TOLERANCE * height:
            break
        support = np.flatnonzero(shares)
        worst = int(support[np.argmin(slope[support])])
        curve = 2 * float(np.square(means[:, best] - means[:, worst]).sum())
        gain = float(slope[best] - slope[worst])
        amount = min(float(shares[worst]), gain / curve) if curve else float(shares[worst])
        shares[best] += amount
        shares[worst] -= amount
    return shares, height + gap
