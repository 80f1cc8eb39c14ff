"""olh: randomized response on the value's cell under a linear hash, with a new seed for each report.

Privacy:
    Provided by randomized response over g cells; the seed is drawn independently of the reading.

Utility:
    Any two values share a cell with exactly the same known probability, so estimates are unbiased; for g near
    e^ε + 1, the variance is the optimum for large domains.

Cost:
    g (g**t - 1) codes; decoding is a butterfly.

Auto:
    shares of single values if they are many for their ε.

Citation:
    Wang, Blocki, Li, Jha, "Locally Differentially Private Protocols for Frequency Estimation", USENIX
    Security 2017, section 4.4; docs/mathematics.md for the linear hash.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from typing import Any, ClassVar, Protocol

from ...arrays import Counts, Floats
from ..choice import Choice
from ..decoded_histogram import Spread
from ..support_mechanisms import SupportDecoded, SupportMechanism
from ..tree.least_squares import Tree, tree
from ..workload import Workload
from . import moments as hashed_moments
from .choice import best_hash
from .variance import frequency_variance


class LocalHashing(SupportMechanism):
    """The mechanism olh."""

    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"type": "choice", "labels": ["a", "b"], "mechanism": "olh", "g": 2},
        {"type": "number", "low": 0, "high": 1000, "bins": 9, "mechanism": "olh", "g": 3},
        {"type": "number", "low": 0, "high": 1000, "bins": 32, "mechanism": "olh", "g": 5},
    )

    parameters: ClassVar[tuple[str, ...]] = ("g",)

    @classmethod
    def designs(cls, domain: int, epsilon: int, workload: Workload) -> Iterable[Choice]:
        if workload.kind == "frequencies" and domain > 2:
            cost = partial(frequency_variance, share=workload.share)
            channel = best_hash(domain, epsilon, cost=cost)
            if channel is not None:
                yield Choice("olh", (("g", channel.g),), cost(channel))

    def frequency_variance(self, share: float | None) -> float:
        return frequency_variance(self.codes[0].channel, share)

    def tree(self, reports: Sequence[float]) -> Tree | None:
        # The values are children of a root whose share is known to be 1. In a domain of g**t values, all
        # codes support the same number of values, so estimates sum to 1 without least squares.
        level = self.experiment.levels[0]
        return None if level.g**level.t == level.domain else one_family(self.domain)

    def fields(self) -> dict[str, Any]:
        return super().fields() | {"g": self.experiment.levels[0].g}

    def words(self) -> str:
        return f"olh, {self.experiment.levels[0].g} cells"

    @property
    def plainly(self) -> str:
        return (
            "Each device sorts the values into a few groups at random and reports its own group, or now and"
            " then a wrong one."
        )

    def decode(self, counts: Counts) -> SupportDecoded:
        return HashedDecoded(self, self.collapse(counts))


@lru_cache(maxsize=16)
def one_family(domain: int) -> Tree:
    """Return a tree with a single level of values whose sum is known."""
    return tree(domain, domain, [1.0])


class CodeMoments(Protocol):
    """Cumulants of a single report's weight."""

    def frequencies(self) -> tuple[Floats, Floats]:
        """Return the second and third cumulants of the weight in each value, each of shape (domain,)."""
        ...

    def prefixes(self) -> tuple[Floats, Floats]:
        """Return the same cumulants of the weight in the sum of values 0..v, for each v."""
        ...


class FlatDecoded(SupportDecoded, ABC):
    """A code histogram for single values; all moments are exact."""

    @cached_property
    @abstractmethod
    def _moments(self) -> CodeMoments: ...

    @cached_property
    def frequency_spread(self) -> Spread:
        return self._spread(self._moments.frequencies())

    @cached_property
    def cdf_spread(self) -> Spread:
        return self._spread(self._moments.prefixes())

    def rare_variance(self) -> float:
        return frequency_variance(self.codes[0].channel, 0.0) / self.reports[0]

    def _spread(self, cumulants: tuple[Floats, Floats]) -> Spread:
        data = self._leaf.data
        second, third = cumulants
        return Spread.of(second * data.factor, third * data.code.scale**3 / data.reports**2)


class HashedDecoded(FlatDecoded):
    """A histogram from flat local hashing."""

    @cached_property
    def _moments(self) -> hashed_moments.Moments:
        leaf = self._leaf
        return hashed_moments.Moments(leaf.data.code.level, leaf.shares, leaf.supports)
