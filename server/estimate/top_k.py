"""The most frequent values, each with its probability of belonging to the true top k.

The method is empirical Bayes. The distribution of the true frequencies is estimated from the estimates (by
nonparametric maximum likelihood with early stopping: Kiefer and Wolfowitz, "Consistency of the maximum
likelihood estimator in the presence of infinitely many incidental parameters", Ann. Math. Stat. 1956; Efron,
"Two modeling strategies for empirical Bayes estimation", Statistical Science 2014). It turns each estimate
and its error into a distribution of the true frequency over a grid. A value belongs to the top k if fewer
than k others are above it. Their number follows a Poisson binomial distribution, the sum of independent
trials with unequal probabilities, which is computed exactly (Hong, "On computing the distribution function
for the Poisson binomial distribution", Computational Statistics & Data Analysis 2013).

In the prior that is applied to a value, the value's own estimate has half of its weight. With full weight,
the largest estimate would be confirmed by its own contribution and trusted too much; without any, as in
collapsed variational Bayes (Asuncion et al., "On smoothing and inference for topic models", UAI 2009), it
would be trusted too little.

The model ignores the errors' correlations except for their mean, as well as the fact that frequencies sum to
1. benchmarks/top_k.py measures the accuracy of the probabilities.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...device.ldp_client import Experiment
from ..arrays import Floats, Ints
from ..mechanisms.decoded_histogram import IMPLIED_SHARE, simplex
from .estimate import Estimates
from .statistic import EstimateError, Statistic, intervals

_GRID_CONFIDENCE = 1 - 2e-9  # confidence of the interval that is searched for true frequencies
_GRID_STEP = 0.25  # spacing of the grid, in standard errors
_ROUNDS = 60  # rounds of the maximum likelihood iteration; stopping early smooths
_PRIOR_PSEUDOCOUNT = 1.0  # the weight, in values, that the prior spreads over the entire grid;
_FEW_VALUES = 16  # with fewer values than this to learn from, the weight is proportionally larger
_OWN_WEIGHT = 0.5  # weight of a value's own estimate in the prior that is applied to it
_PRIOR_SAMPLE = 4096  # largest values from which the prior is estimated, and as many of the rest
_RARE = 0.02  # chances up to this are summed as a power series
_END_CHANCES = np.array([0, _RARE / 2, _RARE, 1 - _RARE, 1 - _RARE / 2, 1])
_NODE_CHANCES = np.linspace(0, 1, 65)  # with more chances than nodes, chances are interpolated
_COUNT_DEVIATIONS = 7.0  # considered range of a count of values, in standard deviations
_CHERNOFF = 21.0  # minus the logarithm of a negligible probability
_NEGLIGIBLE_COUNT = 1e-8  # atoms with fewer values than this are skipped
_GAUSS = (0.5 - math.sqrt(1 / 12), 0.5 + math.sqrt(1 / 12))  # nodes of Gauss's quadrature
_MAX_PARTS = 500
_ALSO_LISTED_ABOVE = 0.05


@dataclass(frozen=True)
class RankedValue:
    """A value, its frequency, and its probability of being among the true top k."""

    index: int
    frequency: Statistic
    probability: float


@dataclass(frozen=True)
class TopK:
    """The k values with the largest estimated frequencies, and others that may belong to the top k.

    Attributes:
        experiment: The experiment.
        k: The number of values.
        reports: The number of reports.
        listed: The k candidates, largest estimate first.
        near: Other values whose probability of belonging to the top k is above 0.05, likeliest first.
        probabilities: All values' probabilities, shape (domain,), read-only; they sum to about k.
    """

    experiment: Experiment
    k: int
    reports: int
    listed: tuple[RankedValue, ...]
    near: tuple[RankedValue, ...]
    probabilities: Floats


def top(estimate: Estimates, k: int) -> TopK:
    """Return the k most frequent values, with each one's probability of being in the population's top k.

    If several values around rank k are equally frequent in the population, they have the same probability.

    Args:
        estimate: The estimates.
        k: The number of values, from 1 to domain - 1.

    Raises:
        EstimateError: If k is out of range.
    """
    domain = estimate.domain
    is_integer = not isinstance(k, bool) and isinstance(k, int | np.integer)  # pyright: ignore
    if not is_integer or not 1 <= k < domain:
        raise EstimateError(f"k must be from 1 to {domain - 1}, one less than the number of values, not {k}")
    chances = membership(_posterior(estimate), int(k))
    chances.flags.writeable = False
    order = np.argsort(-estimate.frequencies, kind="stable")
    runners_up = order[k:][chances[order[k:]] > _ALSO_LISTED_ABOVE]
    runners_up = runners_up[np.argsort(-chances[runners_up], kind="stable")]
    selection = np.concatenate([order[:k], runners_up])
    statistics = estimate.ranges(selection, selection + 1)
    candidates = tuple(RankedValue(int(v), statistics[i], float(chances[v])) for i, v in enumerate(selection))
    return TopK(estimate.experiment, int(k), estimate.reports, candidates[:k], candidates[k:], chances)


@dataclass(frozen=True)
class Posterior:
    """The distribution of every value's true frequency, on a common grid of atoms.

    Attributes:
        first: The index of the first atom in each value's window, shape (domain,).
        mass: The probability of each atom in the window, shape (domain, window); rows sum to 1.
        atoms: The number of atoms.
    """

    first: Ints
    mass: Floats
    atoms: int


def _posterior(estimate: Estimates) -> Posterior:
    x, variance, skew = estimate.frequencies, estimate.spread.variance, estimate.spread.skew
    domain = len(x)
    # Ranks depend only on differences, so subtract the part common to all errors from the variance.
    common = estimate.linear(np.ones(domain)).stderr ** 2 - variance.sum()
    variance = variance - common / (domain * (domain - 1))
    variance = np.maximum(variance, max(1e-6 * variance.max(), 1e-24))
    # An estimate is modelled as a multiple of a Poisson variable minus a constant, which has the right mean,
    # variance and third cumulant for every true frequency; with little skew, it is nearly normal.
    unit = np.maximum(skew, 1e-3 * np.sqrt(variance))
    at = (1 - IMPLIED_SHARE) * x + IMPLIED_SHARE * simplex(x)
    at_zero = np.maximum(variance - unit * at, 0.1 * variance)
    number = np.maximum(x + at_zero / unit, 0) / unit

    low, high = intervals(x, np.sqrt(at_zero + unit * np.maximum(x, 0)), unit, _GRID_CONFIDENCE)
    v, u = np.quantile(at_zero, 0.1), np.quantile(unit, 0.1)
    # Measure frequencies in standard errors from zero, which grow with the frequency. The grid changes
    # smoothly with the data, because a new atom is added at the end, where no values are.
    largest = 2 / u * (np.sqrt(v + u * max(high.max(), 0.0)) - np.sqrt(v)) / _GRID_STEP
    count = int(np.ceil(largest)) + 1
    steps = np.arange(count) * _GRID_STEP
    grid = steps * (np.sqrt(v) + u * steps / 4)  # the first atom is exactly zero and in every window
    first = np.minimum(np.searchsorted(grid, np.maximum(low, 0)), count - 1)
    last = np.maximum(np.searchsorted(grid, np.maximum(high, 0), side="right"), first + 1)
    window = int((last - first).max())
    index = first[:, None] + np.arange(window)
    outside = index >= last[:, None]
    index[outside] = 0
    mean = (grid[index] + (at_zero / unit)[:, None]) / unit[:, None]
    n = number[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        log = np.where(n > 0, n * np.log(mean / np.maximum(n, 1e-300)), 0) - (mean - n)
    log[outside] = -np.inf
    likelihood = np.exp(log - log.max(axis=1, keepdims=True))
    sample, weight = _prior_sample(x)
    pseudo = _PRIOR_PSEUDOCOUNT * max(1.0, _FEW_VALUES / domain) / (largest + 1)
    prior, posterior = _prior(likelihood[sample], index[sample], weight, count, pseudo)
    mass = likelihood * prior[index]
    mass /= mass.sum(axis=1, keepdims=True)
    mass[sample] = posterior
    return Posterior(first, mass, count)


def _prior_sample(x: Floats) -> tuple[Ints, Floats]:
    """Return the values for the prior (the largest and some others), and each one's weight in values."""
    order = np.argsort(-x, kind="stable")
    stride = max(1, len(x) // _PRIOR_SAMPLE)
    smaller = order[_PRIOR_SAMPLE:]
    sample = smaller[stride // 2 :: stride]
    weights = np.ones(min(len(x), _PRIOR_SAMPLE) + len(sample))
    if len(sample):
        weights[_PRIOR_SAMPLE:] = len(smaller) / len(sample)
    return np.concatenate([order[:_PRIOR_SAMPLE], sample]), weights


def _prior(
    likelihood: Floats, index: Ints, weight: Floats, atoms: int, pseudo: float
) -> tuple[Floats, Floats]:
    """Estimate the distribution of true frequencies over the atoms, and apply it to each value's likelihood.

    `pseudo` is the prior's weight at each atom, in values.
    """
    prior = np.ones(atoms)
    posterior = likelihood.copy()
    posterior /= posterior.sum(axis=1, keepdims=True)
    flat = index.ravel()
    for _ in range(_ROUNDS):
        counted = posterior * weight[:, None]
        prior = np.full(atoms, pseudo)
        prior += np.bincount(flat, counted.ravel(), atoms)
        posterior = likelihood * (prior[index] - _OWN_WEIGHT * posterior)
        posterior /= posterior.sum(axis=1, keepdims=True)
    return prior, posterior


def membership(posterior: Posterior, k: int) -> Floats:
    """Return each value's probability that fewer than k others are above it, shape (domain,).

    Within an atom, values are in random order.
    """
    order = np.argsort(posterior.first, kind="stable")
    first, mass, atoms = posterior.first[order], posterior.mass[order], posterior.atoms
    window = int(mass.shape[1])
    # tail[i, j] is the probability that value i is at or above atom j of its window.
    tail = np.zeros((len(first), window + 1))
    tail[:, :-1] = np.cumsum(mass[:, ::-1], axis=1)[:, ::-1]
    index = np.add.outer(first, np.arange(window)).ravel()
    per_atom = np.bincount(index, mass.ravel(), atoms + window)[:atoms]
    above = np.cumsum(per_atom[::-1])[::-1] - per_atom
    # By Chernoff's bound, outside this range the probability that fewer than k are above is < 1e-9 or > 1 -
    # 1e-9.
    upper = k + _CHERNOFF + np.sqrt(_CHERNOFF**2 + 2 * _CHERNOFF * k)
    lower = k - np.sqrt(2 * _CHERNOFF * k) if k > 2 * _CHERNOFF else 1e-9

    result = np.zeros(len(first))
    certain = atoms  # a value at this atom or above certainly belongs
    for atom in range(atoms - 1, -1, -1):
        if above[atom] > upper:
            break
        if above[atom] + per_atom[atom] < lower:
            certain = atom
            continue
        if per_atom[atom] < _NEGLIGIBLE_COUNT:
            continue
        begin, end = (int(np.searchsorted(first, x)) for x in (atom - window + 1, atom + 1))
        rows = np.arange(begin, end)
        column = atom - first[begin:end]
        here, higher = mass[rows, column], tail[rows, column + 1]
        values = np.flatnonzero(here > 0)
        # Two nodes per part are enough, because the probability is smooth over a part's at most √k values.
        parts = int(np.clip(np.ceil(per_atom[atom] / np.sqrt(k)), 1, _MAX_PARTS))
        for place in (part + inside for part in range(parts) for inside in _GAUSS):
            fewer = fewer_above(higher + here * (place / parts), values, k - (len(first) - end))
            result[begin + values] += here[values] / (2 * parts) * fewer
    result += tail[np.arange(len(first)), np.clip(certain - first, 0, window)]
    back = np.empty_like(result)
    back[order] = np.clip(result, 0, 1)
    return back


def fewer_above(chance: Floats, values: Ints, k: int) -> Floats:
    """Return, for each i in `values`, the probability that fewer than k of all other values succeed.

    Args:
        chance: Each value's independent probability of success, shape (domain,).
        values: The values i.
        k: The number of successes.
    """
    deviation = np.sqrt(float((chance * (1 - chance)).sum()))
    size = min(len(chance) + 1, int(2 * (_COUNT_DEVIATIONS * deviation + 16))) | 1  # odd, so z is never -1
    start = max(0, min(int(chance.sum()) - size // 2, len(chance) + 1 - size))
    if start + size <= k:
        return np.ones(len(values))
    if k <= start:
        return np.zeros(len(values))
    z = np.exp(-2j * np.pi * np.arange(size // 2 + 1) / size)
    off = z - 1

    rare, common = chance < _RARE, chance > 1 - _RARE
    middle = chance[~rare & ~common]
    p = chance[rare]
    log = p.sum() * off - (p**2).sum() * off**2 / 2 + (p**3).sum() * off**3 / 3
    p, back = 1 - chance[common], np.conj(z) - 1
    log += common.sum() * np.log(z) + p.sum() * back - (p**2).sum() * back**2 / 2 + (p**3).sum() * back**3 / 3
    uses_nodes = len(middle) > len(_NODE_CHANCES)
    points = middle
    if uses_nodes:
        place = middle * (len(_NODE_CHANCES) - 1)
        node = np.minimum(place.astype(np.int64), len(_NODE_CHANCES) - 2)
        part = place - node
        points = _NODE_CHANCES
        weight = np.bincount(node, 1 - part, len(points)) + np.bincount(node + 1, part, len(points))
        log += weight @ np.log(1 + points[:, None] * off)
    else:
        log += np.log(1 + points[:, None] * off).sum(axis=0)

    # The probability of at most k - 1 successes, modulo size, is linear in exp(log). Omitting a value divides
    # by its factor, which is a smooth function.
    points = np.concatenate([_END_CHANCES, points])
    answers = (
        (np.exp(log) * _partial_sum_weights(z, start, k, size)) / (1 + points[:, None] * off)
    ).real.sum(axis=1)
    low, high, answers = answers[:3], answers[3:6], answers[6:]
    result = np.empty(len(chance))
    result[~rare & ~common] = np.interp(middle, _NODE_CHANCES, answers) if uses_nodes else answers
    result[rare] = _parabola(low, chance[rare] / _RARE)
    result[common] = _parabola(high, (chance[common] - 1 + _RARE) / _RARE)
    return np.clip(result[values], 0, 1)


def _parabola(values: Floats, x: Floats) -> Floats:
    """Return the parabola through values at 0, 1/2 and 1."""
    a, b, c = values
    return a + x * (4 * b - 3 * a - c) + x * x * (2 * a - 4 * b + 2 * c)


def _partial_sum_weights(
    z: npt.NDArray[np.complex128], start: int, k: int, size: int
) -> npt.NDArray[np.complex128]:
    """Return weights that turn a generating function at the roots z into its partial sum start..k-1."""
    n = np.arange(start, k)
    weights = np.conj(z[:, None] ** n).sum(axis=1) / size
    weights[1:] *= 2  # the other half of the roots are their conjugates
    return weights
