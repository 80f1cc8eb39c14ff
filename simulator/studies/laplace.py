"""Discrete Laplace noise: from OpenDP for what is published, from a seeded generator for studies.

Floating-point Laplace noise leaks (Mironov, "On significance of the least significant bits for differential
privacy", CCS 2012), so noise is an integer k with probability proportional to e^(-ε |k| / sensitivity).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ...server.arrays import Ints
from ...server.errors import HushmoteError


class NoiseError(HushmoteError):
    """Noise that cannot be drawn; the text says what would help."""


class Noise(Protocol):
    """A source of discrete Laplace noise."""

    def draw(self, n: int, sensitivity: int, epsilon: float) -> Ints:
        """Return n independent integers for a vector of that L1 sensitivity, shape (n,)."""
        ...


def noise_variance(sensitivity: int, epsilon: float) -> float:
    """Variance of the noise; just below the 2 (sensitivity / ε)² of continuous Laplace noise.

    Ghosh, Roughgarden, Sundararajan, "Universally utility-maximizing privacy mechanisms", STOC 2009.
    """
    return 1 / (2 * math.sinh(epsilon / sensitivity / 2) ** 2)


@dataclass(frozen=True)
class SafeNoise:
    """OpenDP's sampler: exact, from the operating system's randomness; about 6 µs a number.

    Privacy: ε-DP for vectors of the given L1 sensitivity, by OpenDP's own privacy map, rounded up.
    Utility: noise_variance(). Cost: one draw per node. Citation: Canonne, Kamath, Steinke, "The Discrete
    Gaussian for Differential Privacy", NeurIPS 2020, section 5 (the sampler of discrete Laplace noise).
    Raises NoiseError where OpenDP is not installed.
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
    """The same distribution from a NumPy generator: for simulations, where a run must repeat. Not private.

    The difference of two geometric numbers; Inusah, Kozubowski, "A discrete analogue of the Laplace
    distribution", 2006.
    """

    rng: np.random.Generator

    def draw(self, n: int, sensitivity: int, epsilon: float) -> Ints:
        stop = -math.expm1(-epsilon / sensitivity)
        drawn = self.rng.geometric(stop, (2, n))
        return drawn[0] - drawn[1]


def _opendp() -> Any:
    try:
        import opendp.prelude as dp  # two seconds to load: only those who publish wait for it
        from opendp.mod import enable_features
    except ImportError:
        raise NoiseError("safe noise comes from OpenDP: pip install 'hushmote[study]'") from None
    enable_features("contrib")
    return dp
