"""The numbers of a frequency oracle, and the choice of mechanism, cells and fanout by variance formulas.

Wang, Blocki, Li, Jha, "Locally Differentially Private Protocols for Frequency Estimation", USENIX Security
2017, with the collision probability of the linear hash, which is exact.
"""

from dataclasses import dataclass
from functools import cache

from ..device.ldp_client import ONE, ExperimentRefused, Level, truth_threshold
from . import hierarchy
from .workload import Workload

_MAX_CODES = 1 << 24
_FANOUTS = range(2, 33)
_MAX_FLAT = 1 << 12  # above it a single level is never the best, and takes long to rule out


@dataclass(frozen=True)
class Channel:
    """How often a report supports a value: its own with probability p, any other with probability q.

    domain     number of values
    g          cells
    p          probability that the truth is kept, threshold / ONE as the board has it
    collision  probability that two different values share a cell; 0 where the value is the cell
    """

    domain: int
    g: int
    p: float
    collision: float

    @property
    def lie(self) -> float:
        """Probability of each cell but the true one."""
        return (1 - self.p) / (self.g - 1)

    @property
    def q(self) -> float:
        """Probability that a report supports a value that is not its own."""
        return self.p * self.collision + (1 - self.collision) * self.lie

    @property
    def variance(self) -> float:
        """Variance, times the number of reports, of the frequency of a value that nobody holds."""
        return self.q * (1 - self.q) / (self.p - self.q) ** 2

    @property
    def mse(self) -> float:
        """Mean over values of the squared error against the sample's frequencies, times reports."""
        return self.variance + (1 - self.p - self.q) / ((self.p - self.q) * self.domain)


def level_channel(level: Level) -> Channel:
    """Channel of an experiment's level."""
    seeds = level.seeds if level.t else 0
    collision = ((seeds + 1) // level.g - 1) / seeds if seeds else 0.0
    return Channel(level.domain, level.g, level.threshold / ONE, collision)


@dataclass(frozen=True)
class Choice:
    """A mechanism and its parameters, as an Experiment takes them.

    mechanism  "rr", "grr", "olh" or "hh"
    g          cells of olh; 0 for the others
    fanout     of hh; 0 for the others
    cells      of hh, one for each level, top first; empty for the others
    weights    of hh; None for equal ones
    variance   times reports: mean variance over the workload, of a population without common values
    """

    mechanism: str
    g: int
    fanout: int
    cells: tuple[int, ...]
    weights: tuple[int, ...] | None
    variance: float


def _try_level(domain: int, g: int, epsilon: int, max_codes: int) -> Level | None:
    if domain > max_codes:
        return None
    try:
        level = Level(epsilon, domain, g, 1, 0, 1)
    except ExperimentRefused:
        return None
    return level if level.code_count <= max_codes else None


@cache
def _primes(below: int) -> tuple[int, ...]:
    sieve = bytearray([1]) * max(below, 2)
    sieve[:2] = b"\0\0"
    for n in range(2, int(below**0.5) + 1):
        if sieve[n]:
            sieve[n * n :: n] = bytes(len(range(n * n, below, n)))
    return tuple(n for n in range(2, below) if sieve[n])


def best_hash(domain: int, epsilon: int, max_codes: int = _MAX_CODES) -> Channel | None:
    """Channel of local hashing over range(domain) with the prime g of least variance, or None.

    epsilon in micro-nats. Only primes g below the domain count, with at most max_codes codes and
    threshold * g > ONE. The variance is that of a value that nobody holds.
    """
    # Local hashing has t >= 2 digits, so that g**3 - g codes are the fewest.
    limit = min(domain, round(max_codes ** (1 / 3)) + 2)
    levels = (_try_level(domain, g, epsilon, max_codes) for g in _primes(limit))
    channels = [level_channel(level) for level in levels if level is not None]
    return min(channels, key=lambda channel: channel.variance, default=None)


def best_channel(domain: int, epsilon: int, max_codes: int = _MAX_CODES) -> Channel:
    """The channel of least variance over range(domain): g == domain direct, below it local hashing.

    epsilon in micro-nats. Raises ValueError where nothing fits in max_codes codes.
    """
    direct = _try_level(domain, domain, epsilon, max_codes)
    hashed = best_hash(domain, epsilon, max_codes)
    if direct is None and hashed is None:
        raise ValueError(f"no oracle over {domain} values fits in {max_codes} codes at epsilon {epsilon}")
    if direct is None:
        assert hashed is not None
        return hashed
    channel = level_channel(direct)
    return channel if hashed is None or channel.variance <= hashed.variance else hashed


@cache
def level_channels(domain: int, fanout: int, epsilon: int) -> tuple[Channel, ...]:
    """Best channel of each level of a hierarchy, top first; together at most 2**24 codes.

    epsilon in micro-nats. Raises ValueError where no choice fits.
    """
    nodes = hierarchy.heights(domain, fanout)
    channels = tuple(best_channel(n, epsilon) for n in nodes)
    if sum(_codes(channel) for channel in channels) > _MAX_CODES:
        channels = tuple(best_channel(n, epsilon, _MAX_CODES // len(nodes)) for n in nodes)
    return channels


def _codes(channel: Channel) -> int:
    if channel.g == channel.domain:
        return channel.g
    size = channel.g
    while size < channel.domain:
        size *= channel.g
    return (size - 1) * channel.g


def range_variance(domain: int, fanout: int, channels: tuple[Channel, ...]) -> float:
    """Mean over all ranges of a hierarchy's variance times reports, levels drawn equally often.

    With consistency; errors of different nodes are taken as independent and no value as common.
    """
    variances = [channel.variance * len(channels) for channel in channels]
    return hierarchy.mean_range_variance(hierarchy.tree(domain, fanout, variances), variances)


def choose(domain: int, epsilon: int, workload: Workload) -> Choice:
    """Mechanism of least mean variance over the workload for range(domain) at epsilon micro-nats.

    Raises ValueError for a domain below 2, an epsilon outside what an Experiment allows, or where no mechanism
    fits, and WorkloadError for a workload outside the domain.
    """
    if domain < 2:
        raise ValueError(f"domain must be at least 2, not {domain}")
    if not 1_000 <= epsilon <= 16_000_000:
        raise ValueError(f"epsilon must be from 1000 to 16000000 micro-nats, not {epsilon}")
    if domain == 2:
        channel = Channel(2, 2, truth_threshold(epsilon, 2) / ONE, 0.0)
        return Choice("rr", 0, 0, (), None, channel.variance)
    workload.check(domain)
    if workload.kind == "frequencies":
        channel = best_channel(domain, epsilon)
        if channel.g == domain:
            return Choice("grr", 0, 0, (), None, channel.variance)
        return Choice("olh", channel.g, 0, (), None, channel.variance)
    choices: list[Choice] = []
    fanouts = [f for f in _FANOUTS if f < domain]
    if domain <= _MAX_FLAT:
        fanouts.append(domain)  # one level: no hierarchy, but what all frequencies sum to is known
    for fanout in fanouts:
        try:
            channels = level_channels(domain, fanout, epsilon)
        except ValueError:
            continue
        variance = range_variance(domain, fanout, channels)
        choices.append(Choice("hh", 0, fanout, tuple(c.g for c in channels), None, variance))
    if not choices:
        raise ValueError(f"no hierarchy over {domain} values fits in {_MAX_CODES} codes at {epsilon}")
    return min(choices, key=lambda choice: choice.variance)
