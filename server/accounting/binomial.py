"""Binomial probabilities to nearly full precision for any number of trials."""

# pyright: reportMissingTypeStubs=false

import math

import numpy as np

from .. import special
from ..arrays import Floats


def log_chances(successes: Floats, trials: Floats, nats: float) -> Floats:
    """Return the logarithm of Binomial(trials, 1/(1 + e^nats)) at `successes`.

    Loader's saddle-point form is used, in which the large parts of the factorials and powers cancel
    analytically.

    Args:
        successes: Whole numbers from 0 to `trials`; the two shapes must broadcast.
        trials: Whole numbers, at least 1.
        nats: The log odds of failure.

    Source: Loader 2000, Fast and accurate computation of binomial probabilities.
    """
    x = successes
    y = trials - x
    inner = (x > 0) & (y > 0)
    safe_x, safe_y = np.where(inner, x, 1.0), np.where(inner, y, 1.0)
    result = _stirling_error(trials) - _stirling_error(safe_x) - _stirling_error(safe_y)
    result -= _deviance(safe_x, trials * special.expit(-nats)) + _deviance(
        safe_y, trials * special.expit(nats)
    )
    result += 0.5 * (np.log(trials / (2 * math.pi)) - np.log(safe_x) - np.log(safe_y))
    result = np.where(x == 0, trials * special.log_expit(nats), result)
    return np.where(y == 0, trials * special.log_expit(-nats), result)


def falls_below(bound: float, inside: int, limit: int, trials: int, nats: float) -> int:
    """Return the first index from `inside` to `limit` whose log probability is below bound, or `limit`."""
    if log_chances(np.array([float(limit)]), np.array([float(trials)]), nats)[0] >= bound:
        return limit
    above, below = inside, limit
    while abs(below - above) > 1:
        middle = (above + below) // 2
        if log_chances(np.array([float(middle)]), np.array([float(trials)]), nats)[0] < bound:
            below = middle
        else:
            above = middle
    return below


def _deviance(x: Floats, mean: Floats) -> Floats:
    """Return x ln(x / mean) + mean - x, without cancellation near the mean; a mean may underflow to 0."""
    positive = np.where(mean > 0, mean, 1.0)
    u = (x - positive) / positive
    with np.errstate(over="ignore"):
        deviance = positive * ((1 + u) * np.log1p(u) - u)
    return np.where(mean > 0, deviance, np.where(x > 0, np.inf, 0.0))


def _stirling_error(n: Floats) -> Floats:
    """Return ln n! - ln(sqrt(2 π n) (n/e)^n) for n >= 1."""
    inverse = 1 / n
    square = inverse * inverse
    series = inverse * (
        1 / 12 - square * (1 / 360 - square * (1 / 1260 - square * (1 / 1680 - square / 1188)))
    )
    small = np.minimum(n, 16.0)
    exact = special.gammaln(small + 1) - (small + 0.5) * np.log(small) + small - 0.5 * math.log(2 * math.pi)
    return np.where(n < 16, exact, series)
