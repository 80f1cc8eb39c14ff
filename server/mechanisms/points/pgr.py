"""pgr: local hashing with the fewest codes. Values and codes are points; a code is *inside* if orthogonal.

Privacy:
    An inside code is at most e^ε times as likely as an outside one.

Utility:
    Any two values share exactly the same number of inside codes, so estimates are unbiased; for q near e^ε +
    1, the variance is the optimum for large domains.

Cost:
    (q**t - 1) / (q - 1) codes, q - 1 times fewer than olh for the same number of values; decoding is the
    butterfly for a hash with one digit less (projective.py).

Auto:
    shares of single values, instead of olh if the variance is 10% lower or a third code byte is avoided.

Citation:
    Feldman, Nelson, Nguyen, Talwar, "Private Frequency Estimation via Projective Geometry", ICML 2022.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt

from ....device.ldp_client import ONE, Experiment
from ....device.ldp_pgr import Points
from ...arrays import Array, Floats
from ...epsilon import MICRO
from ..channel import Channel, SupportCode
from ..choice import Choice
from ..hashing.choice import MAX_CODES, primes
from ..hashing.local_hashing import FlatDecoded, one_family
from ..hashing.variance import frequency_variance
from ..support_mechanisms import SupportDecoded, SupportMechanism
from ..tree.least_squares import Tree
from ..workload import Workload
from . import lines, projective
from .moments import PointMoments

# Above this q, a butterfly is much slower than a transform, whose rounded sums are still exact.
_TRANSFORMED_Q = 23
_MAX_TRANSFORMED = 1 << 40
_DRAWN_AT_ONCE = 1 << 16
_MAX_Q = 1 << 12


class PointsChannel(Channel):
    """A Channel for points mod g, a prime."""

    @property
    def digits(self) -> int:
        """The number of digits of a point."""
        return projective.digits(self.g, self.domain)

    @property
    def code_count(self) -> int:
        """The number of points."""
        return self._points(0)

    @property
    def ratio(self) -> float:
        return self._points(0) / self._points(1)

    @property
    def off_line(self) -> float:
        return self._points(3) / self._points(1)

    @property
    def collinear(self) -> int:
        return lines.projective(self.domain, self.g)

    @property
    def on_line(self) -> float:
        return (self.g - 1) / (self._points(0) - 2)

    def _points(self, fewer: int) -> int:
        return projective.point_count(self.g, self.digits - fewer)


def points_channel(points: Points) -> PointsChannel:
    """Return the channel for an experiment's points."""
    shared = projective.point_count(points.q, points.t - 2)
    return PointsChannel(points.domain, points.q, points.threshold / ONE, shared / points.inside)


@lru_cache(maxsize=1024)
def _channels(domain: int, epsilon: int) -> tuple[PointsChannel, ...]:
    """Return the channels with at least three digits whose primes can be best, or all if none can.

    With two digits, pgr is randomized response over at least as many codes as values.
    """
    small = [q for q in primes(_MAX_Q) if q + 1 < domain]
    fitting = [q for q in small if projective.point_count(q, projective.digits(q, domain)) <= MAX_CODES]
    likely = [q for q in fitting if q <= 8 * math.exp(epsilon / MICRO) + 8]
    return tuple(points_channel(Points(epsilon, domain, q, 0, 1)) for q in likely or fitting)


class PointsCode(SupportCode):
    """The codes of a level of points, each of which is its own class."""

    def __init__(self, points: Points):
        even = points.domain == points.code_count
        super().__init__(points, points_channel(points), 1 / points.inside, 1, even)
        self.level: Points = points

    def class_supports(self, classes: Array) -> Array:
        q, t, domain = self.level.q, self.level.t, self.level.domain
        counted = classes.dtype.kind in "iu"
        if counted and (q <= _TRANSFORMED_Q or classes.sum() >= _MAX_TRANSFORMED):
            return projective.supports(q, t, classes)[:domain]
        (sums,) = projective.supported(q, t, domain, classes.astype(np.float64))
        return np.rint(sums).astype(np.int64) if counted else sums

    def class_weights(self, nodes: Floats) -> Floats:
        return projective.sums(self.level.q, self.level.t, nodes)

    def least_supports(self, masses: Floats) -> Floats:
        return projective.least(self.level.q, self.level.t, masses)[: self.level.domain]


class ProjectiveGeometry(SupportMechanism):
    """The mechanism pgr."""

    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"type": "choice", "labels": ["a", "b"], "mechanism": "pgr", "q": 2},
        {"type": "number", "low": 0, "high": 1000, "bins": 11, "mechanism": "pgr", "q": 3},
        {"type": "number", "low": 0, "high": 1000, "bins": 31, "mechanism": "pgr", "q": 5},
    )

    parameters: ClassVar[tuple[str, ...]] = ("q",)
    generation: ClassVar[int] = 2

    @classmethod
    def designs(cls, domain: int, epsilon: int, workload: Workload) -> Iterable[Choice]:
        if workload.kind == "frequencies" and domain > 2:
            costs = {c: frequency_variance(c, workload.share) for c in _channels(domain, epsilon)}
            for size in range(1, 4):  # the best prime for this number of code bytes
                candidates = (c for c in costs if 1 << 8 * size - 8 < c.code_count <= 1 << 8 * size)
                best = min(candidates, key=costs.__getitem__, default=None)
                if best is not None:
                    yield Choice("pgr", (("q", best.g),), costs[best])

    def frequency_variance(self, share: float | None) -> float:
        return frequency_variance(self.codes[0].channel, share)

    def _codes(self, experiment: Experiment) -> tuple[SupportCode, ...]:
        return (PointsCode(cast(Any, experiment).points),)

    @property
    def points(self) -> Points:
        """The experiment's points, as on boards."""
        return self.codes[0].level

    def tree(self, reports: Sequence[float]) -> Tree | None:
        # As with olh, estimates sum to 1 without least squares if all points are values.
        return None if self.codes[0].even else one_family(self.domain)

    def fields(self) -> dict[str, Any]:
        return super().fields() | {"q": self.points.q}

    def words(self) -> str:
        return f"pgr, points mod {self.points.q}"

    @property
    def plainly(self) -> str:
        return (
            "Each device reports one of many fixed groups of values, more often one that contains its own"
            " value than one that does not."
        )

    def decode(self, counts: npt.NDArray[np.int64]) -> SupportDecoded:
        return PointsDecoded(self, self.collapse(counts))

    def draw(self, indices: npt.NDArray[np.uint32], rng: np.random.Generator) -> npt.NDArray[np.uint32]:
        return draw_points(self.points, indices, rng)


class PointsDecoded(FlatDecoded):
    """A histogram from pgr."""

    @cached_property
    def _moments(self) -> PointMoments:
        leaf = self._leaf
        points: Points = leaf.data.code.level
        return PointMoments(points.q, points.t, leaf.shares, leaf.supports)


def draw_points(
    points: Points, nodes: npt.NDArray[np.uint32], rng: np.random.Generator
) -> npt.NDArray[np.uint32]:
    """Return a code for each node, drawn as on boards, relative to the offset of these points."""
    parts = [
        _draw(points, nodes[first : first + _DRAWN_AT_ONCE].astype(np.int64), rng)
        for first in range(0, len(nodes), _DRAWN_AT_ONCE)
    ]
    return np.concatenate([*parts, np.empty(0, np.int64)]).astype(np.uint32)


def _draw(points: Points, nodes: npt.NDArray[np.int64], rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Follow the steps of Points.respond, an array at a time."""
    q, n = points.q, len(nodes)
    product = (rng.integers(0, ONE, n) >= points.threshold).astype(np.int64)
    quotient = np.where(product, rng.integers(0, points.outside, n), rng.integers(1, points.outside, n))
    digits = np.empty((points.t, n), np.int64)
    at = np.zeros(n, np.int64)
    target = product
    for i in range(points.t):
        quotient, digits[i] = np.divmod(quotient, q)
        at += nodes > 0
        more, digit = np.divmod(nodes - 1, q)
        target = target - digits[i] * np.where(nodes > 0, digit, nodes == 0)
        nodes = more
    solved = digits[at, np.arange(n)]
    digits[-1] = solved
    digits[at, np.arange(n)] = (solved + target) % q
    inverse = np.array([0, *(pow(a, -1, q) for a in range(1, q))])
    top = np.zeros(n, np.int64)  # the inverse of the highest nonzero digit, after it has been reached
    codes = np.zeros(n, np.int64)
    for digit in digits[::-1]:
        below_top = top > 0
        codes = codes * q + (1 + digit * top % q) * below_top
        top = np.where(below_top, top, inverse[digit])
    return codes
