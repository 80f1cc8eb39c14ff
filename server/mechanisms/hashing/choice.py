"""Choose direct answers or a hash, and the number of cells, with the least variance for single values.

Source: Wang, Blocki, Li, Jha, "Locally Differentially Private Protocols for Frequency Estimation", USENIX
Security 2017, with the linear hash's exact collision probability.
"""

from collections.abc import Callable, Iterable
from functools import cache
from operator import attrgetter

from ....device.ldp_client import ONE, truth_threshold
from ..channel import Channel

MAX_CODES = 1 << 24


@cache
def truth(epsilon: int, g: int) -> float | None:
    """Return p for g cells, or None if the true cell is not more likely than any other."""
    threshold = truth_threshold(epsilon, g)
    return threshold / ONE if threshold * g > ONE else None


def flat_channel(domain: int, g: int, epsilon: int, max_codes: int = MAX_CODES) -> Channel | None:
    """Return the channel for a Level, or None if it is rejected or has too many codes."""
    if domain > max_codes:
        return None
    p = truth(epsilon, g)
    if p is None:
        return None
    if g == domain:
        return Channel(domain, g, p, 0.0)
    channel = Channel(domain, g, p, 1.0)
    seeds = code_count(channel) // g
    if seeds * g > max_codes:
        return None
    return Channel(domain, g, p, ((seeds + 1) // g - 1) / seeds)


@cache
def primes(below: int) -> tuple[int, ...]:
    """Return the primes below a number."""
    sieve = bytearray([1]) * max(below, 2)
    sieve[:2] = b"\0\0"
    for n in range(2, int(below**0.5) + 1):
        if sieve[n]:
            sieve[n * n :: n] = bytes(len(range(n * n, below, n)))
    return tuple(n for n in range(2, below) if sieve[n])


Cost = Callable[[Channel], float]
_RARE: Cost = attrgetter("variance")
_EVEN: Cost = attrgetter("even")


def best_hash(domain: int, epsilon: int, max_codes: int = MAX_CODES, cost: Cost = _RARE) -> Channel | None:
    """Return the local-hashing channel over range(domain) whose prime g has the least cost, or None.

    Only primes g below the domain with threshold * g > ONE are considered.

    Args:
        domain: The number of values.
        epsilon: ε of a report, in micro-nats.
        max_codes: The largest number of codes.
        cost: The function to minimize; by default the variance of a value that no device has.
    """
    # Local hashing has t >= 2 digits, and so at least g**3 - g codes.
    limit = min(domain, round(max_codes ** (1 / 3)) + 2)
    channels = (flat_channel(domain, g, epsilon, max_codes) for g in primes(limit))
    return min((c for c in channels if c is not None), key=cost, default=None)


@cache
def best_channel(domain: int, epsilon: int, max_codes: int = MAX_CODES, cost: Cost = _RARE) -> Channel:
    """Return the channel with the least cost over range(domain): direct if g == domain, else local hashing.

    Args:
        domain: The number of values.
        epsilon: ε of a report, in micro-nats.
        max_codes: The largest number of codes.
        cost: The function to minimize, as in best_hash().

    Raises:
        ValueError: If no channel fits in max_codes codes.
    """
    direct = flat_channel(domain, domain, epsilon, max_codes)
    hashed = best_hash(domain, epsilon, max_codes, cost)
    best = min((c for c in (direct, hashed) if c is not None), key=cost, default=None)
    if best is None:
        raise ValueError(f"no oracle fits {domain} values in {max_codes} codes at epsilon {epsilon}")
    return best


def channels_together(domains: Iterable[int], epsilon: int) -> tuple[Channel, ...]:
    """Return each domain's best channel for a uniform population, with at most 2**24 codes in total.

    Args:
        domains: Each domain's number of values.
        epsilon: ε of a report, in micro-nats.

    Raises:
        ValueError: If no combination fits.
    """
    sizes, max_codes = tuple(domains), MAX_CODES
    while True:
        channels = tuple(best_channel(domain, epsilon, max_codes, _EVEN) for domain in sizes)
        if sum(map(code_count, channels)) <= MAX_CODES:
            return channels
        max_codes = max_codes * 4 // 5  # allow fewer codes for the largest channels


def code_count(channel: Channel) -> int:
    """Return the number of codes in a level with this channel."""
    if channel.g == channel.domain:
        return channel.g
    size = channel.g
    while size < channel.domain:
        size *= channel.g
    return (size - 1) * channel.g
