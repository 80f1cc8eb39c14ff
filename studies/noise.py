"""Discrete Laplace noise: the data that it protects, and its source of randomness.

Published noise comes from OpenDP, and noise in studies from a seeded generator. Floating-point Laplace noise
leaks information (Mironov, "On significance of the least significant bits for differential privacy", CCS
2012), so noise is an integer k with probability proportional to e^(-ε |k| / sensitivity).
"""

import enum
import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..server.arrays import Ints
from ..server.errors import HushmoteError
from ..server.extras import require


class NeighbourRelation(enum.StrEnum):
    """The pairs of data sets that must be hard to distinguish.

    added     one record is added or removed, so the number of records is protected too; the classic relation
    replaced  one record has a different value, and the number of records is public; local privacy protects
              this relation, so central and local structures are comparable only under it
    """

    added = "added"
    replaced = "replaced"

    @property
    def sensitivity(self) -> int:
        """Return the largest L1 change of the counts over a partition of the domain."""
        return 1 if self is NeighbourRelation.added else 2


class NoiseError(HushmoteError):
    """Noise cannot be drawn; the message says what to do."""


class Noise(Protocol):
    """A source of discrete Laplace noise."""

    def draw(self, n: int, sensitivity: int, epsilon: float) -> Ints:
        """Return n independent integers for a vector with this L1 sensitivity, shape (n,)."""
        ...


def noise_variance(sensitivity: int, epsilon: float) -> float:
    """Return the variance of the noise; just below the 2 (sensitivity / ε)² of continuous Laplace noise.

    Ghosh, Roughgarden, Sundararajan, "Universally utility-maximizing privacy mechanisms", STOC 2009.
    """
    return 1 / (2 * math.sinh(epsilon / sensitivity / 2) ** 2)


@dataclass(frozen=True)
class SafeNoise:
    """OpenDP's sampler: exact, based on the operating system's randomness; about 6 µs per number.

    Privacy: ε-DP for vectors of the given L1 sensitivity, by OpenDP's own privacy map, rounded up.
    Utility: noise_variance(). Cost: one draw per node. Citation: Canonne, Kamath, Steinke, "The Discrete
    Gaussian for Differential Privacy", NeurIPS 2020, section 5 (the sampler of discrete Laplace noise).

    Raises:
        NoiseError: If OpenDP is not installed.
    """

    def __post_init__(self) -> None:
        _opendp()

    def draw(self, n: int, sensitivity: int, epsilon: float) -> Ints:
        dp = _opendp()
        scale = sensitivity / epsilon
        while True:
            space = dp.vector_domain(dp.atom_domain(T="i64"))
            measurement = dp.m.make_laplace(space, dp.l1_distance(T="i64"), scale=scale)
            if measurement.map(sensitivity) <= epsilon:
                return np.array(measurement([0] * n), np.int64)
            scale = math.nextafter(scale, math.inf)  # the division rounded it down


@dataclass(frozen=True)
class SeededNoise:
    """The same distribution from a NumPy generator, for repeatable simulations; not private.

    It is the difference of two geometric numbers; Inusah, Kozubowski, "A discrete analogue of the Laplace
    distribution", 2006.
    """

    rng: np.random.Generator

    def draw(self, n: int, sensitivity: int, epsilon: float) -> Ints:
        stop = -math.expm1(-epsilon / sensitivity)
        numbers = self.rng.geometric(stop, (2, n))
        return numbers[0] - numbers[1]


def _opendp() -> Any:
    require("opendp", "safe noise")
    import opendp.prelude as dp  # imported lazily because it takes two seconds to load
    from opendp.mod import enable_features

    enable_features("contrib")
    return dp


@dataclass(frozen=True)
class NoiseSource:
    """Sources of randomness: noise for a curator, and a generator for simulated devices."""

    noise: Noise
    rng: np.random.Generator


def safe_source(rng: np.random.Generator | None = None) -> NoiseSource:
    """Return OpenDP's noise, and a generator for simulated devices.

    Raises:
        NoiseError: If OpenDP is not installed.
    """
    return NoiseSource(SafeNoise(), np.random.default_rng() if rng is None else rng)


def seeded_source(seed: int | np.random.SeedSequence) -> NoiseSource:
    """Return a reproducible source, for simulations only."""
    noise, rng = np.random.default_rng(seed).spawn(2)
    return NoiseSource(SeededNoise(noise), rng)


def source_of(seed: np.random.SeedSequence, safe: bool) -> NoiseSource:
    """Return a seeded source, or OpenDP's noise with a seeded generator for simulated devices."""
    source = seeded_source(seed)
    return safe_source(source.rng) if safe else source
