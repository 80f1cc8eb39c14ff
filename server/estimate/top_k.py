"""The most frequent values, each with the probability that it belongs to the true top k.

Empirical Bayes. The spread of the true frequencies over the values is itself estimated from the estimates (by
nonparametric maximum likelihood, early stopped: Kiefer and Wolfowitz, "Consistency of the maximum likelihood
estimator in the presence of infinitely many incidental parameters", Ann. Math. Stat. 1956; Efron, "Two
modeling strategies for empirical Bayes estimation", Statistical Science 2014). It turns every estimate and
its error into a distribution of the true frequency over a grid. A value belongs when fewer than k others lie
above it. Their number is a sum of independent draws of unequal chances, the Poisson binomial distribution,
which is summed exactly (Hong, "On computing the distribution function for the Poisson binomial distribution",
Computational Statistics & Data Analysis 2013).

A value's own estimate counts half in the prior that is applied to it. If it counted fully, the largest
estimate would find itself in the prior and be trusted too much; if it did not count, as in collapsed
variational Bayes (Asuncion et al., "On smoothing and inference for topic models", UAI 2009), it would be
trusted too little.

The model neglects everything in the errors' correlations except their mean, and the fact that frequencies
sum to 1. benchmarks/top_k.py measures how well the probabilities hold anyway.
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

_GRID_CONFIDENCE = 1 - 2e-9  # confidence of the interval in which true frequencies are searched
_GRID_STEP = 0.25  # spacing of the grid, in standard errors
_ROUNDS = 60  # rounds of the maximum likelihood iteration; stopping early smooths
_PRIOR_PSEUDOCOUNT = 1.0  # weight of the prior spread over the whole grid, in values,
_FEW_VALUES = 16  # and proportionally more if a prior has fewer values than this to learn from
_OWN_SHARE = 0.5  # weight of a value's own estimate in the prior that is applied to it
_PRIOR_SAMPLE = 4096  # values that the prior is estimated from, and as many of the rest
_RARE = 0.02  # chances up to this are summed as a power series
_END_CHANCES = np.array([0, _RARE / 2, _RARE, 1 - _RARE, 1 - _RARE / 2, 1])
_NODE_CHANCES = np.linspace(0, 1, 65)  # more chances than these are interpolated
_COUNT_DEVIATIONS = 7.0  # range of a number of values, in standard deviations
_CHERNOFF = 21.0  # minus the logarithm of a negligible probability
_NO_VALUE = 1e-8  # atoms with fewer values than this are skipped
_GAUSS = (0.5 - math.sqrt(1 / 12), 0.5 + math.sqrt(1 / 12))  # nodes of Gauss's quadrature
_MOST_PARTS = 500
_ALSO_LISTED_ABOVE = 0.05


@dataclass(frozen=True)
class RankedValue:
    """A value, its frequency, and the probability that it is among the true top k."""

    index: int
    frequency: Statistic
    probability: float


@dataclass(frozen=True)
class TopK:
    """The k values with the largest estimated frequencies, and others that may belong there.

    Attributes:
        listed: The k candidates, largest estimate first.
        near: Other values that belong with a probability above 0.05, likeliest first.
        probabilities: The probabilities of all values, shape (domain,), read-only; their sum is about k.
    """

    experiment: Experiment
    k: int
    reports: int
    listed: tuple[RankedValue, ...]
    near: tuple[RankedValue, ...]
    probabilities: Floats


def top(estimate: Estimates, k: int) -> TopK:
    """Return the k most frequent values, with the probability that each is among the population's top k.

    If the population has equal frequencies around rank k, each of these values belongs with an equal
    probability.

    Args:
        estimate: The estimates.
        k: The number of values, from 1 to domain - 1.

    Raises:
        EstimateError: If k is out of range.
    """
    domain = estimate.domain
    whole = not isinstance(k, bool) and isinstance(k, int | np.integer)  # pyright: ignore
    if not whole or not 1 <= k < domain:
        raise EstimateError(
            f"a top k needs k from 1 to {domain - 1}, one less than there are values, not {k}"
        )
    chances = membership(_posterior(estimate), int(k))
    chances.flags.writeable = False
    order = np.argsort(-estimate.frequencies, kind="stable")
    rest = order[k:][chances[order[k:]] > _ALSO_LISTED_ABOVE]
    rest = rest[np.argsort(-chances[rest], kind="stable")]
    chosen = np.concatenate([order[:k], rest])
    statistics = estimate.ranges(chosen, chosen + 1)
    candidates = tuple(RankedValue(int(v), statistics[i], float(chances[v])) for i, v in enumerate(chosen))
    return TopK(estimate.experiment, int(k), estimate.reports, candidates[:k], candidates[k:], chances)


@dataclass(frozen=True)
class Posterior:
    """The distribution of every value's true frequency, on a common grid of atoms.

    Attributes:
        first: The number of the first atom of each value's window, shape (domain,).
        mass: The probability of each atom of the window, shape (domain, window); rows sum to 1.
        atoms: The number of atoms.
    """

    first: Ints
    mass: Floats
    atoms: int


def _posterior(estimate: Estimates) -> Posterior:
    x, variance, skew = estimate.frequencies, estimate.spread.variance, estimate.spread.skew
    domain = len(x)
    # Ranks depend on differences only, so take the part common to all errors out of their variance.
    common = estimate.linear(np.ones(domain)).stderr ** 2 - variance.sum()
    variance = variance - common / (domain * (domain - 1))
    variance = np.maximum(variance, max(1e-6 * variance.max(), 1e-24))
    # An estimate is modelled as a multiple of a Poisson number minus a constant, which has the right mean,
    # variance and third cumulant whatever the true frequency; with little skew that is normal.
    unit = np.maximum(skew, 1e-3 * np.sqrt(variance))
    at = (1 - IMPLIED_SHARE) * x + IMPLIED_SHARE * simplex(x)
    at_zero = np.maximum(variance - unit * at, 0.1 * variance)
    number = np.maximum(x + at_zero / unit, 0) / unit

    low, high = intervals(x, np.sqrt(at_zero + unit * np.maximum(x, 0)), unit, _GRID_CONFIDENCE)
    v, u = np.quantile(at_zero, 0.1), np.quantile(unit, 0.1)
    # Frequencies in standard errors from zero, which grow with them. The grid changes smoothly with the data:
    # a new atom is added at its end, where there are no values.
    largest = 2 / u * (np.sqrt(v + u * max(high.max(), 0.0)) - np.sqrt(v)) / _GRID_STEP
    count = int(np.ceil(largest)) + 1
    steps = np.arange(count) * _GRID_STEP
    grid = steps * (np.sqrt(v) + u * steps / 4)  # the first is exactly zero, and in every window
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
    prior, own = _prior(likelihood[sample], index[sample], weight, count, pseudo)
    mass = likelihood * prior[index]
    mass /= mass.sum(axis=1, keepdims=True)
    mass[sample] = own
    return Posterior(first, mass, count)


def _prior_sample(x: Floats) -> tuple[Ints, Floats]:
    """Return the values for the prior (the largest and some of the rest), and how many each represents."""
    order = np.argsort(-x, kind="stable")
    stride = max(1, len(x) // _PRIOR_SAMPLE)
    rest = order[_PRIOR_SAMPLE:]
    some = rest[stride // 2 :: stride]
    weights = np.ones(min(len(x), _PRIOR_SAMPLE) + len(some))
    if len(some):
        weights[_PRIOR_SAMPLE:] = len(rest) / len(some)
    return np.concatenate([order[:_PRIOR_SAMPLE], some]), weights


def _prior(
    likelihood: Floats, index: Ints, weight: Floats, atoms: int, pseudo: float
) -> tuple[Floats, Floats]:
    """Estimate how the true frequencies spread over the atoms, and apply that to each value's likelihood.

    `pseudo` is the weight of the prior at each atom, in values.
    """
    prior = np.ones(atoms)
    own = likelihood.copy()
    own /= own.sum(axis=1, keepdims=True)
    flat = index.ravel()
    for _ in range(_ROUNDS):
        counted = own * weight[:, None]
        prior = np.full(atoms, pseudo)
        prior += np.bincount(flat, counted.ravel(), atoms)
        own = likelihood * (prior[index] - _OWN_SHARE * own)
        own /= own.sum(axis=1, keepdims=True)
    return prior, own


def membership(posterior: Posterior, k: int) -> Floats:
    """Return the probability that fewer than k others are above each value, shape (domain,).

    Within an atom, true frequencies are in random order.
    """
    order = np.argsort(posterior.first, kind="stable")
    first, mass, atoms = posterior.first[order], posterior.mass[order], posterior.atoms
    window = int(mass.shape[1])
    # tail[i, j]: probability that value i is at atom j of its window or above.
    tail = np.zeros((len(first), window + 1))
    tail[:, :-1] = np.cumsum(mass[:, ::-1], axis=1)[:, ::-1]
    index = np.add.outer(first, np.arange(window)).ravel()
    per_atom = np.bincount(index, mass.ravel(), atoms + window)[:atoms]
    above = np.cumsum(per_atom[::-1])[::-1] - per_atom
    # Chernoff: outside, fewer than k are above with a probability of less than 1e-9 or more than 1 - 1e-9.
    most = k + _CHERNOFF + np.sqrt(_CHERNOFF**2 + 2 * _CHERNOFF * k)
    least = k - np.sqrt(2 * _CHERNOFF * k) if k > 2 * _CHERNOFF else 1e-9

    result = np.zeros(len(first))
    certain = atoms  # a value at this atom or above certainly belongs
    for atom in range(atoms - 1, -1, -1):
        if above[atom] > most:
            break
        if above[atom] + per_atom[atom] < least:
            certain = atom
            continue
        if per_atom[atom] < _NO_VALUE:
            continue
        begin, end = (int(np.searchsorted(first, x)) for x in (atom - window + 1, atom + 1))
        rows = np.arange(begin, end)
        column = atom - first[begin:end]
        here, higher = mass[rows, column], tail[rows, column + 1]
        values = np.flatnonzero(here > 0)
        # Two nodes in each part are enough: the probability is smooth over the at most √k values of a part.
        parts = int(np.clip(np.ceil(per_atom[atom] / np.sqrt(k)), 1, _MOST_PARTS))
        for place in (part + inside for part in range(parts) for inside in _GAUSS):
            fewer = fewer_above(higher + here * (place / parts), values, k - (len(first) - end))
            result[begin + values] += here[values] / (2 * parts) * fewer
    result += tail[np.arange(len(first)), np.clip(certain - first, 0, window)]
    back = np.empty_like(result)
    back[order] = np.clip(result, 0, 1)
    return back


def fewer_above(chance: Floats, values: Ints, k: int) -> Floats:
    """Return the probability, for each i of `values`, that fewer than k of all other values succeed.

    Args:
        chance: The independent probability of success of each value, shape (domain,).
        values: The values i.
        k: The number.
    """
    deviation = np.sqrt(float((chance * (1 - chance)).sum()))
    size = min(len(chance) + 1, int(2 * (_COUNT_DEVIATIONS * deviation + 16))) | 1  # odd: z is never -1
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
    many = len(middle) > len(_NODE_CHANCES)
    points = middle
    if many:
        place = middle * (len(_NODE_CHANCES) - 1)
        node = np.minimum(place.astype(np.int64), len(_NODE_CHANCES) - 2)
        part = place - node
        points = _NODE_CHANCES
        weight = np.bincount(node, 1 - part, len(points)) + np.bincount(node + 1, part, len(points))
        log += weight @ np.log(1 + points[:, None] * off)
    else:
        log += np.log(1 + points[:, None] * off).sum(axis=0)

    # The sum up to k - 1 of the probabilities of the number of successes modulo size is linear in exp(log).
    # Leaving one value out means dividing by its factor, which is a smooth function.
    points = np.concatenate([_END_CHANCES, points])
    answers = ((np.exp(log) * _sums(z, start, k, size)) / (1 + points[:, None] * off)).real.sum(axis=1)
    low, high, answers = answers[:3], answers[3:6], answers[6:]
    result = np.empty(len(chance))
    result[~rare & ~common] = np.interp(middle, _NODE_CHANCES, answers) if many else answers
    result[rare] = _parabola(low, chance[rare] / _RARE)
    result[common] = _parabola(high, (chance[common] - 1 + _RARE) / _RARE)
    return np.clip(result[values], 0, 1)


def _parabola(values: Floats, x: Floats) -> Floats:
    """Return the parabola through values at 0, 1/2 and 1."""
    a, b, c = values
    return a + x * (4 * b - 3 * a - c) + x * x * (2 * a - 4 * b + 2 * c)


def _sums(z: npt.NDArray[np.complex128], start: int, k: int, size: int) -> npt.NDArray[np.complex128]:
    """Return weights that turn a generating function at the roots z into its sum from start to k - 1."""
    n = np.arange(start, k)
    weights = np.conj(z[:, None] ** n).sum(axis=1) / size
    weights[1:] *= 2  # the other half of the roots are their conjugates
    return weights
