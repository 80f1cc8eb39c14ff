"""olh: the value's cell under a linear hash whose seed is drawn anew for each report, by randomized response.

Privacy: of the randomized response over g cells; the seed is drawn without looking at the reading. Utility:
two values share a cell with one known probability, exactly, so that estimates are unbiased; for g near
e^ε + 1 the variance is that of large domains' optimum. Cost: g (g**t - 1) codes; decoding is a butterfly.
Citation: Wang, Blocki, Li, Jha, "Locally Differentially Private Protocols for Frequency Estimation", USENIX
Security 2017, section 4.4; docs/mathematics.md for the linear hash.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from .supports import SupportMechanism


class LocalHashing(SupportMechanism):
    """The mechanism olh."""

    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"type": "choice", "labels": ["a", "b"], "mechanism": "olh", "g": 2},
        {"type": "number", "low": 0, "high": 1000, "bins": 9, "mechanism": "olh", "g": 3},
        {"type": "number", "low": 0, "high": 1000, "bins": 32, "mechanism": "olh", "g": 5},
    )

    def fields(self) -> dict[str, Any]:
        return super().fields() | {"g": self.experiment.levels[0].g}

    def words(self) -> str:
        return f"olh, {self.experiment.levels[0].g} cells"
