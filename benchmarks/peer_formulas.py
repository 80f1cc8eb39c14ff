"""Published mechanisms that Hushmote does not have, with comparable formulas, and why it lacks them.

peer_formulas.toml lists them; here are their errors and codes, by the formulas of their papers. A variance is
times reports, of a population of shares, shape (D,), and ε in nats, the population's sampling included; of
shares it is that of value 0. tests/benchmarks/test_peer_formulas.py enumerates the channels.
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
    """A mechanism that is not here.

    Attributes:
        name: As papers call it.
        asked: The question that it answers.
        variance: A function of a population's shares, shape (D,), and ε in nats, to the variance times
            reports: of the share of value 0; of the mean, readings from 0 to 1; of ranges and quantiles the
            mean over all of them; of pairs, two such independent readings, the mean over both and over pairs.
        bits: Of a report, by D and ε.
        citation: Paper and section.
        missing: Why it is not here.
    """

    name: str
    asked: Asked
    variance: Callable[[Floats, float], float]
    bits: Callable[[int, float], float]
    citation: str
    missing: str


# --- Shares of values ----------------------------------------------------------------------------


def supported(p: float, q: float, share: float) -> float:
    """Return the variance of a share if a report supports its own value with chance p and others with q."""
    support = q + (p - q) * share
    return support * (1 - support) / (p - q) ** 2


def sue(shares: Floats, epsilon: float) -> float:
    p = 1 / (1 + math.exp(-epsilon / 2))
    return supported(p, 1 - p, shares[0])


def oue(shares: Floats, epsilon: float) -> float:
    return supported(0.5, 1 / (math.exp(epsilon) + 1), shares[0])


def she(shares: Floats, epsilon: float) -> float:
    """Return the variance for Laplace noise of scale 2/ε on each of the D numbers, for value 0."""
    return 8 / epsilon**2 + shares[0] * (1 - shares[0])


@cache
def threshold(epsilon: float) -> tuple[float, float]:
    """Return p and q of THE: Laplace noise of scale 2/ε on 1, and on 0, above the best threshold."""
    at = np.linspace(0.5, 1, 100_001)[1:]  # finer than the last digit of the least variance
    p, q = 1 - np.exp(epsilon / 2 * (at - 1)) / 2, np.exp(-epsilon / 2 * at) / 2
    best = np.argmin(q * (1 - q) / (p - q) ** 2)
    return float(p[best]), float(q[best])


def the(shares: Floats, epsilon: float) -> float:
    return supported(*threshold(epsilon), shares[0])


def subset(domain: int, epsilon: float) -> tuple[int, float, float]:
    """Return the size k of a report's subset, and the resulting p and q of subset selection."""

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
    """Return the blocks B and their size b of Hadamard response: the codes are B matrices of b columns."""
    blocks = 1 << (math.ceil(math.log2(min(math.exp(epsilon), 2 * domain))) - 1)
    return blocks, 1 << math.ceil(math.log2(domain / blocks + 1))


def hadamard_response(shares: Floats, epsilon: float) -> float:
    """Return the variance: a code is +1 or -1 for the values of its block, a run of b - 1 values."""
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
    """Return the mean over all ranges, or all prefixes for a quantile, for a population of equal shares.

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
    """Return mean and mean square of readings spread evenly from -1 to 1."""
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
    """Return the variance of piecewise with chance 1 - e^(-ε/2), else one bit; one bit below ε = 0.61."""
    if epsilon <= _LEAST_HYBRID:
        return one_bit(shares, epsilon)
    part = -math.expm1(-epsilon / 2)
    return part * piecewise(shares, epsilon) + (1 - part) * one_bit(shares, epsilon)


def _least_hybrid() -> float:
    root = 405 * math.sqrt(241)
    return math.log((2 * math.cbrt(6353 - root) + 2 * math.cbrt(6353 + root) - 5) / 27)


_LEAST_HYBRID = _least_hybrid()  # about 0.61


# --- Labels that nobody listed -------------------------------------------------------------------

BLOOM_HASHES = 2
SKETCH_WIDTH = 1024


def bloom(epsilon: float, share: float, hashes: int) -> float:
    """Return the least variance of RAPPOR, reported once, for a candidate that shares no bit."""
    each = epsilon / (2 * hashes)  # two values differ in at most 2 h bits
    return 1 / (4 * math.sinh(each / 2) ** 2) / hashes + share * (1 - share)


def rappor(shares: Floats, epsilon: float) -> float:
    return bloom(epsilon, shares[0], BLOOM_HASHES)


def sketch(epsilon: float, share: float, width: int, one_bit: bool) -> float:
    """Return the variance of a count mean sketch of this width, with a hash function per report."""
    support = share + (1 - share) / width
    # The mean square of a report's weight in a candidate's cell.
    square = 1 / math.tanh(epsilon / 2) ** 2 if one_bit else 1 / (4 * math.sinh(epsilon / 4) ** 2) + support
    return (square - support**2) * (width / (width - 1)) ** 2


def cms(shares: Floats, epsilon: float) -> float:
    return sketch(epsilon, shares[0], SKETCH_WIDTH, one_bit=False)


def hcms(shares: Floats, epsilon: float) -> float:
    return sketch(epsilon, shares[0], SKETCH_WIDTH, one_bit=True)


# --- Two readings: the mean over the shares of each by itself, and of both together ----------------


def split(shares: Floats, epsilon: float) -> float:
    """Return the variance of OUE of each reading at half of ε; a share of both multiplies the supports."""
    p, q = 0.5, 1 / (math.exp(epsilon / 2) + 1)
    domain = len(shares)
    square = (q * (1 - q) + (p * (1 - p) + (p - q) ** 2 - q * (1 - q)) / domain) / (p - q) ** 2
    return (2 * supported(p, q, 1 / domain) + square**2 - domain**-4) / 3


def joint(shares: Floats, epsilon: float) -> float:
    """Return the variance of OUE of both readings together; a share of one is a sum of cells."""
    p, q = 0.5, 1 / (math.exp(epsilon) + 1)
    domain = len(shares)
    own = p * (1 - p) - q * (1 - q)  # what the reading's own bit varies by more than another
    summed = (domain * q * (1 - q) + own / domain) / (p - q) ** 2 + (1 - 1 / domain) / domain
    return (2 * summed + supported(p, q, domain**-2)) / 3


def one_of_two(shares: Floats, epsilon: float) -> float:
    """Return the variance if a report is about one reading, so that none is about both."""
    return math.inf


# --- The list of them ------------------------------------------------------------------------------


def _peer(fields: dict[str, Any]) -> Peer:
    formulas: dict[str, Any] = {"variance": globals()[fields["variance"]], "bits": _bits(fields["bits"])}
    return Peer(**{**fields, **formulas})


def _bits(formula: str | list[int]) -> Callable[[int, float], float]:
    """Return a formula of this module, or of bits per report, per value, and per pair of values."""
    if isinstance(formula, str):
        return cast(Callable[[int, float], float], globals()[formula])
    return lambda domain, epsilon: float(sum(n * domain**power for power, n in enumerate(formula)))


PEERS: tuple[Peer, ...] = tuple(
    map(_peer, tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))["peer"])
)
"""All of them, by question."""
