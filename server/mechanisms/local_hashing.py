"""olh: the value's cell under a linear hash whose seed is drawn anew for each report, by randomized response.

Privacy: of the randomized response over g cells; the seed is drawn without looking at the reading. Utility:
two values share a cell with one known probability, exactly, so that estimates are unbiased; for g near
e^ε + 1 the variance is that of large domains' optimum. Cost: g (g**t - 1) codes; decoding is a butterfly.
Citation: Wang, Blocki, Li, Jha, "Locally Differentially Private Protocols for Frequency Estimation", USENIX
Security 2017, section 4.4; docs/mathematics.md for the linear hash.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar

from .supports import SupportMechanism
from .tree import Tree, tree


class LocalHashing(SupportMechanism):
    """The mechanism olh."""

    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"type": "choice", "labels": ["a", "b"], "mechanism": "olh", "g": 2},
        {"type": "number", "low": 0, "high": 1000, "bins": 9, "mechanism": "olh", "g": 3},
        {"type": "number", "low": 0, "high": 1000, "bins": 32, "mechanism": "olh", "g": 5},
    )

    def tree(self, reports: Sequence[float]) -> Tree | None:
        # The values are the children of a root that is known to be 1. In a domain of g**t values each code
        # supports as many as any other, so that estimates sum to 1 by themselves.
        level = self.experiment.levels[0]
        return None if level.g**level.t == level.domain else _one_family(self.domain)

    def fields(self) -> dict[str, Any]:
        return super().fields() | {"g": self.experiment.levels[0].g}

    def words(self) -> str:
        return f"olh, {self.experiment.levels[0].g} cells"


@lru_cache(maxsize=16)
def _one_family(domain: int) -> Tree:
    return tree(domain, domain, [1.0])
