"""Published mechanisms that Hushmote lacks, with comparable formulas and the reasons why it lacks them.

peer_formulas.toml lists them; this module has their errors and code sizes, by their papers' formulas. A
variance is multiplied by the number of reports and includes the sampling of the population; it is a function
of the population's shares, shape (D,), and of ε in nats. For shares, it is the variance of value 0's share.
tests/benchmarks/test_peer_formulas.py enumerates the channels.
"""

import math
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from hushmote.server.arrays import Floats

Asked = Literal["frequency", "range", "quantile", "mean", "labels", "pairs"]


@dataclass(frozen=True)
class Peer:
    """A mechanism that Hushmote lacks.

    Attributes:
        name: The name that papers use.
        asked: The question that it answers.
        variance: A function from a population's shares, shape (D,), and ε in nats to the variance times
            reports: of value 0's share; of the mean, for readings from 0 to 1; for ranges and quantiles, the
            average over all of them; for pairs of two such independent readings, the average over both
            readings' shares and the pair's.
        bits: A report's bits, as a function of D and ε.
        citation: Paper and section.
        missing: Why Hushmote lacks it.
    """

    name: str
    asked: Asked
    variance: Callable[[Floats, float], float]
    bits: Callable[[int, float], float]
    citation: str
    missing: str


# --- Shares of values ----------------------------------------------------------------------------


def supported(p: float, q: float, share: float) -> float:
    """Return a share's variance if a report supports its true value with chance p and others with q."""
    support = q + (p - q) * share
    return support * (1 - support) / (p - q) ** 2


def sue(shares: Floats, epsilon: float) -> float:
    p = 1 / (1 + math.exp(-epsilon / 2))
    return supported(p, 1 - p, shares[0])


def oue(shares: Floats, epsilon: float) -> float:
    return supported(0.5, 1 / (math.exp(epsilon) + 1), shares[0])


def she(shares: Floats, epsilon: float) -> float:
    """Return the variance for value 0 with Laplace noise of scale 2/ε on each of the D numbers."""
    return 8 / epsilon**2 + shares[0] * (1 - shares[0])


@cache
def threshold(epsilon: float) -> tuple[float, float]:
    """Return THE's p and q: the chances that 1 and 0 with Laplace noise of scale 2/ε exceed a threshold."""
    at = np.linspace(0.5, 1, 100_001)[1:]  # a grid finer than the lowest variance's last digit
    p, q = 1 - np.exp(epsilon / 2 * (at - 1)) / 2, np.exp(-epsilon / 2 * at) / 2
    best = np.argmin(q * (1 - q) / (p - q) ** 2)
    return float(p[best]), float(q[best])


def the(shares: Floats, epsilon: float) -> float:
    return supported(*threshold(epsilon), shares[0])


def subset(domain: int, epsilon: float) -> tuple[int, float, float]:
    """Return the size k of a report's subset in subset selection, and the resulting p and q."""

    def chances(k: int) -> tuple[float, float]:
        p = k * math.exp(epsilon) / (k * math.exp(epsilon) + domain - k)
        return p, (p * (k - 1) + (1 - p) * k) / (domain - 1)

    near = int(domain / (math.exp(epsilon) + 1))
    sizes = {min(max(k, 1), domain - 1) for k in (near, near + 1)}
    best = min(sizes, key=lambda k: supported(*chances(k), 0.0))
    return best, *chances(best)


def subset_selection(shares: Floats, epsilon: float) -> float:
    _, p, q = subset(len(shares), epsilon)
    return supported(p, q, shares[0])


def subset_bits(domain: int, epsilon: float) -> float:
    k, _, _ = subset(domain, epsilon)
    return (math.lgamma(domain + 1) - math.lgamma(k + 1) - math.lgamma(domain - k + 1)) / math.log(2)


def hadamard(domain: int, epsilon: float) -> tuple[int, int]:
    """Return Hadamard response's block number B and block size b: codes are B matrices of b columns."""
    blocks = 1 << (math.ceil(math.log2(min(math.exp(epsilon), 2 * domain))) - 1)
    return blocks, 1 << math.ceil(math.log2(domain / blocks + 1))


def hadamard_response(shares: Floats, epsilon: float) -> float:
    """Return the variance if a code is +1 or -1 for the values of its block, a run of b - 1 values."""
    blocks, size = hadamard(len(shares), epsilon)
    odds = math.exp(epsilon) - 1
    scale = odds + 2 * blocks
    block = float(shares[: size - 1].sum())
    return scale * (2 + block * odds) / odds**2 - shares[0] ** 2


def hadamard_bits(domain: int, epsilon: float) -> float:
    blocks, size = hadamard(domain, epsilon)
    return math.log2(blocks * size)


# --- Ranges and quantiles ------------------------------------------------------------------------


def haar(shares: Floats, epsilon: float, prefixes: bool = False) -> float:
    """Return the mean variance over all ranges, or all prefixes for a quantile, for an even population.

    A report is about one coefficient of one level: the difference of a node's halves, whose weight in the
    share below t falls from 1/2 in the node's middle to 0 at its ends.
    """
    domain = len(shares)
    levels = max(1, math.ceil(math.log2(domain)))
    at = np.arange(domain + 1)
    squares = 0.0
    for level in range(1, levels + 1):
        size = 1 << level
        weight = np.minimum(at % size, -at % size) / size
        if prefixes:
            squares += float(weight @ weight) / domain
        else:
            nodes = np.bincount(at // size, weight)
            pairs = (domain + 1) * float(weight @ weight) - float(nodes @ nodes)
            squares += pairs / (domain * (domain + 1) / 2)
    return levels * squares / math.tanh(epsilon / 2) ** 2


def haar_prefixes(shares: Floats, epsilon: float) -> float:
    return haar(shares, epsilon, prefixes=True)


def haar_bits(domain: int, epsilon: float) -> float:
    del epsilon
    levels = max(1, math.ceil(math.log2(domain)))
    return math.log2(levels) + levels


# --- Means ---------------------------------------------------------------------------------------


def _moments(shares: Floats) -> tuple[float, float]:
    """Return the mean and the mean square of readings whose values are spaced evenly from -1 to 1."""
    at = np.linspace(-1, 1, len(shares))
    return float(shares @ at), float(shares @ at**2)


def laplace(shares: Floats, epsilon: float) -> float:
    mean, square = _moments(shares)
    return (8 / epsilon**2 + square - mean**2) / 4


def one_bit(shares: Floats, epsilon: float) -> float:
    mean, _ = _moments(shares)
    return (1 / math.tanh(epsilon / 2) ** 2 - mean**2) / 4


def piecewise(shares: Floats, epsilon: float) -> float:
    mean, square = _moments(shares)
    odds = math.expm1(epsilon / 2)
    noise = square / odds + (odds + 4) / (3 * odds**2)
    return (noise + square - mean**2) / 4


def hybrid(shares: Floats, epsilon: float) -> float:
    """Return the variance of piecewise with chance 1 - e^(-ε/2), otherwise (or if ε < 0.61) one bit."""
    if epsilon <= _MIN_HYBRID:
        return one_bit(shares, epsilon)
    part = -math.expm1(-epsilon / 2)
    return part * piecewise(shares, epsilon) + (1 - part) * one_bit(shares, epsilon)


def _min_hybrid() -> float:
    root = 405 * math.sqrt(241)
    return math.log((2 * math.cbrt(6353 - root) + 2 * math.cbrt(6353 + root) - 5) / 27)


_MIN_HYBRID = _min_hybrid()  # about 0.61


# --- Labels that nobody listed -------------------------------------------------------------------

BLOOM_HASHES = 2
SKETCH_WIDTH = 1024


def bloom(epsilon: float, share: float, hashes: int) -> float:
    """Return the lowest variance of RAPPOR, reported once, for a candidate that does not share any bit."""
    bit_epsilon = epsilon / (2 * hashes)  # two values differ in at most 2 h bits
    return 1 / (4 * math.sinh(bit_epsilon / 2) ** 2) / hashes + share * (1 - share)


def rappor(shares: Floats, epsilon: float) -> float:
    return bloom(epsilon, shares[0], BLOOM_HASHES)


def sketch(epsilon: float, share: float, width: int, one_bit: bool) -> float:
    """Return the variance of a count mean sketch of this width, with a new hash function for each report."""
    support = share + (1 - share) / width
    # The mean squared weight of a report in a candidate's cell.
    square = 1 / math.tanh(epsilon / 2) ** 2 if one_bit else 1 / (4 * math.sinh(epsilon / 4) ** 2) + support
    return (square - support**2) * (width / (width - 1)) ** 2


def cms(shares: Floats, epsilon: float) -> float:
    return sketch(epsilon, shares[0], SKETCH_WIDTH, one_bit=False)


def hcms(shares: Floats, epsilon: float) -> float:
    return sketch(epsilon, shares[0], SKETCH_WIDTH, one_bit=True)


# --- Two readings: the mean over the shares of each by itself, and of both together ----------------


def split(shares: Floats, epsilon: float) -> float:
    """Return the variance of OUE on each reading with half of ε, where pairs multiply the supports."""
    p, q = 0.5, 1 / (math.exp(epsilon / 2) + 1)
    domain = len(shares)
    square = (q * (1 - q) + (p * (1 - p) + (p - q) ** 2 - q * (1 - q)) / domain) / (p - q) ** 2
    return (2 * supported(p, q, 1 / domain) + square**2 - domain**-4) / 3


def joint(shares: Floats, epsilon: float) -> float:
    """Return the variance of OUE on both readings jointly, where a reading's share is a sum of cells."""
    p, q = 0.5, 1 / (math.exp(epsilon) + 1)
    domain = len(shares)
    excess = p * (1 - p) - q * (1 - q)  # variance of the true cell's bit in excess of another bit's
    summed = (domain * q * (1 - q) + excess / domain) / (p - q) ** 2 + (1 - 1 / domain) / domain
    return (2 * summed + supported(p, q, domain**-2)) / 3


def one_of_two(shares: Floats, epsilon: float) -> float:
    """Return the variance if each report is about a single reading, so that no pair can be estimated."""
    return math.inf


# --- List of mechanisms ----------------------------------------------------------------------------


def _peer(fields: dict[str, Any]) -> Peer:
    formulas: dict[str, Any] = {"variance": globals()[fields["variance"]], "bits": _bits(fields["bits"])}
    return Peer(**{**fields, **formulas})


def _bits(formula: str | list[int]) -> Callable[[int, float], float]:
    """Return a formula from this module, or a polynomial of bits per report, value and pair of values."""
    if isinstance(formula, str):
        return cast(Callable[[int, float], float], globals()[formula])
    return lambda domain, epsilon: float(sum(n * domain**power for power, n in enumerate(formula)))


PEERS: tuple[Peer, ...] = tuple(
    map(_peer, tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))["peer"])
)
"""All mechanisms, by question."""
