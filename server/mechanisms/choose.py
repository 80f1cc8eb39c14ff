"""The choice of mechanism, cells and fanout by variance formulas.

Wang, Blocki, Li, Jha, "Locally Differentially Private Protocols for Frequency Estimation", USENIX Security
2017, with the collision probability of the linear hash, which is exact.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from operator import attrgetter

import numpy as np

from ...device.ldp_client import ONE, truth_threshold
from ..arrays import Floats
from ..epsilon import check_epsilon
from . import allocation
from . import tree as hierarchy
from .channel import Channel
from .flat_variance import frequency_variance
from .workload import Workload

_MAX_CODES = 1 << 24
_MAX_FANOUT = 64
_MAX_EXACT = 1 << 13  # values; above it variances are those of allocation's complete trees
_MAX_FLAT = 1 << 12  # values; above it a tree of one level is never the best
_FINALISTS = 4


@dataclass(frozen=True)
class Choice:
    """A mechanism and its parameters, as an Experiment takes them.

    mechanism  "rr", "grr", "olh" or "hh"
    g          cells of olh; 0 for the others
    fanout     of hh; 0 for the others
    cells      of hh, one for each level, top first; empty for the others
    weights    of hh, how often each level is drawn, 0 for never; None for equal ones
    variance   times reports: mean variance over the workload, of a population without common values
    """

    mechanism: str
    g: int
    fanout: int
    cells: tuple[int, ...]
    weights: tuple[int, ...] | None
    variance: float


@cache
def _keeps(epsilon: int, g: int) -> float | None:
    """p of g cells, or None where the truth is no likelier than a lie."""
    threshold = truth_threshold(epsilon, g)
    return threshold / ONE if threshold * g > ONE else None


def flat_channel(domain: int, g: int, epsilon: int, max_codes: int = _MAX_CODES) -> Channel | None:
    """The channel of a Level with these numbers, or None where it would be refused or has too many codes."""
    if domain > max_codes:
        return None
    p = _keeps(epsilon, g)
    if p is None:
        return None
    if g == domain:
        return Channel(domain, g, p, 0.0)
    channel = Channel(domain, g, p, 1.0)
    seeds = _codes(channel) // g
    if seeds * g > max_codes:
        return None
    return Channel(domain, g, p, ((seeds + 1) // g - 1) / seeds)


@cache
def primes(below: int) -> tuple[int, ...]:
    """The primes below a number."""
    sieve = bytearray([1]) * max(below, 2)
    sieve[:2] = b"\0\0"
    for n in range(2, int(below**0.5) + 1):
        if sieve[n]:
            sieve[n * n :: n] = bytes(len(range(n * n, below, n)))
    return tuple(n for n in range(2, below) if sieve[n])


Cost = Callable[[Channel], float]
_RARE: Cost = attrgetter("variance")
_EVEN: Cost = attrgetter("even")


def _alone(channel: Channel) -> float:
    """Variance of the frequency of a value that nobody holds, where shares are known to sum to 1."""
    return frequency_variance(channel, 0.0)


def best_hash(domain: int, epsilon: int, max_codes: int = _MAX_CODES, cost: Cost = _RARE) -> Channel | None:
    """Channel of local hashing over range(domain) with the prime g of least cost, or None.

    epsilon in micro-nats. Only primes g below the domain count, with at most max_codes codes and
    threshold * g > ONE. cost is by default the variance of a value that nobody holds.
    """
    # Local hashing has t >= 2 digits, so that g**3 - g codes are the fewest.
    limit = min(domain, round(max_codes ** (1 / 3)) + 2)
    channels = (flat_channel(domain, g, epsilon, max_codes) for g in primes(limit))
    return min((c for c in channels if c is not None), key=cost, default=None)


@cache
def best_channel(domain: int, epsilon: int, max_codes: int = _MAX_CODES, cost: Cost = _RARE) -> Channel:
    """The channel of least cost over range(domain): g == domain direct, below it local hashing.

    epsilon in micro-nats; cost as in best_hash. Raises ValueError where nothing fits in max_codes codes.
    """
    direct = flat_channel(domain, domain, epsilon, max_codes)
    hashed = best_hash(domain, epsilon, max_codes, cost)
    best = min((c for c in (direct, hashed) if c is not None), key=cost, default=None)
    if best is None:
        raise ValueError(f"no oracle over {domain} values fits in {max_codes} codes at epsilon {epsilon}")
    return best


@cache
def level_channels(domain: int, fanout: int, epsilon: int) -> tuple[Channel, ...]:
    """Best channel of each level of a hierarchy for an even population, top first; at most 2**24 codes.

    epsilon in micro-nats. Raises ValueError where no choice fits.
    """
    nodes = hierarchy.heights(domain, fanout)
    most = _MAX_CODES
    while True:
        channels = tuple(best_channel(n, epsilon, most, _EVEN) for n in nodes)
        if sum(_codes(channel) for channel in channels) <= _MAX_CODES:
            return channels
        most = most * 4 // 5  # fewer codes for the levels that take the most


def _codes(channel: Channel) -> int:
    if channel.g == channel.domain:
        return channel.g
    size = channel.g
    while size < channel.domain:
        size *= channel.g
    return (size - 1) * channel.g


def workload_variance(
    domain: int, fanout: int, channels: Sequence[Channel], weights: Sequence[int], workload: Workload
) -> float:
    """Mean variance over a workload of a hierarchy's answers to it, times reports, levels drawn by weights.

    Of an even population, its sampling included. Errors of a level's nodes are taken as equally correlated,
    which they are but for the lines of the linear hash.
    """
    share = np.array(weights) / sum(weights)
    with np.errstate(divide="ignore"):
        tree = hierarchy.tree(domain, fanout, list(np.array([c.assumed for c in channels]) / share))
    errors: list[float | Floats] = []
    for level, channel in enumerate(channels):
        width = fanout ** (len(channels) - 1 - level)
        nodes = np.full(channel.domain, channel.node_variance(width / domain))
        nodes[-1] = channel.node_variance((domain - (channel.domain - 1) * width) / domain)
        errors.append(nodes / share[level] if share[level] else np.inf)
    return workload.mean_variance(tree, errors)


def _levels(domain: int, fanout: int, channels: Sequence[Channel], workload: Workload) -> allocation.Levels:
    height = len(channels)
    widths = np.array([fanout ** (height - 1 - level) for level in range(height)])
    energy = [workload.energy(domain, width) for width in (domain, *widths.tolist())]
    return allocation.Levels(
        np.maximum(np.diff(energy), 0),
        np.array([channel.even for channel in channels]) / widths,
        np.array([channel.assumed for channel in channels]) / widths,
    )


def _plan(domain: int, epsilon: int, fanout: int, workload: Workload) -> Choice:
    """The best weights, and cells, of one fanout; variance as in a complete tree."""
    channels = level_channels(domain, fanout, epsilon)
    levels = _levels(domain, fanout, channels, workload)
    weights = allocation.rounded(levels, allocation.shares(levels))
    variance = levels.variance(np.array(weights) / sum(weights))
    # Cells of a level without reports are those that take the fewest codes.
    unused = (c.domain if _keeps(epsilon, c.domain) is not None else 2 for c in channels)
    cells = tuple(c.g if w else u for c, w, u in zip(channels, weights, unused, strict=True))
    return Choice("hh", 0, fanout, cells, weights if len(set(weights)) > 1 else None, variance)


def _exact(choice: Choice, domain: int, epsilon: int, workload: Workload) -> Choice:
    channels = level_channels(domain, choice.fanout, epsilon)
    weights = choice.weights or (1,) * len(channels)
    return replace(choice, variance=workload_variance(domain, choice.fanout, channels, weights, workload))


@cache
def choose(domain: int, epsilon: int, workload: Workload) -> Choice:
    """Mechanism of least mean variance over the workload for range(domain) at epsilon micro-nats.

    Single frequencies are asked for directly; for anything else fanout, cells and weights of a tree are
    chosen, dropped levels included: with fanout 2 every mixture of 2, 4, 8, ... is a candidate. Raises
    ValueError for a domain below 2, an epsilon outside what an Experiment allows, or where no mechanism fits,
    and WorkloadError for a workload outside the domain.
    """
    if domain < 2:
        raise ValueError(f"domain must be at least 2, not {domain}")
    check_epsilon(epsilon, ValueError, shown=f"{epsilon} micro-nats")
    workload.check(domain)
    if domain == 2:
        channel = Channel(2, 2, truth_threshold(epsilon, 2) / ONE, 0.0)
        return Choice("rr", 0, 0, (), None, channel.variance)
    if workload.kind == "frequencies":
        channel = best_channel(domain, epsilon, cost=_alone)
        if channel.g == domain:
            return Choice("grr", 0, 0, (), None, _alone(channel))
        return Choice("olh", channel.g, 0, (), None, _alone(channel))
    plans: list[Choice] = []
    fanouts = [*range(2, min(domain, _MAX_FANOUT + 1))]
    if domain <= _MAX_FLAT:
        fanouts.append(domain)  # one level: no hierarchy, but what all frequencies sum to is known
    for fanout in fanouts:
        try:
            plans.append(_plan(domain, epsilon, fanout, workload))
        except ValueError:
            continue
    if not plans:
        raise ValueError(f"no hierarchy over {domain} values fits in {_MAX_CODES} codes at {epsilon}")
    plans.sort(key=lambda plan: plan.variance)
    if domain > _MAX_EXACT:
        return plans[0]
    finalists = [_exact(plan, domain, epsilon, workload) for plan in plans[:_FINALISTS]]
    return min(finalists, key=lambda plan: plan.variance)
