"""The zCDP filter: a total that holds even if each report's ε depends on the earlier reports.

It bounds the privacy loss L = Σ L_i, the logarithm of how much more probable the reports are under one course
of readings than under another. An ε-LDP report loses at most ε²/2 on average, and is sub-Gaussian about its
mean with variance ε²: E[e^{λ L_i}] <= e^{λ(1+λ) ε_i²/2} for λ > 0, whatever came before.
Pr[L > E] <= δ makes a course (E, δ)-LDP.
"""

import math
from dataclasses import dataclass
from decimal import Decimal

from ..epsilon import MICRO
from .errors import AccountingError, probability
from .theorem import ON_THE_WAY, Guarantee, History, Kind, Theorem, above, below, exact, exact_arithmetic

ADAPTIVE = (
    "All reports of a device together are ({total}, {delta})-LDP: {total}-LDP except with probability "
    "{delta}. Each report's ε may be chosen on the way."
)


@dataclass(frozen=True)
class ZcdpFilter(Theorem):
    """½S + sqrt(2 S ln(1/δ')) <= total with S = Σε_i², δ' = delta - own, and Σδ_i <= own.

    Solved for S this is the cap S_max = (sqrt(2 ln(1/δ') + 2 total) - sqrt(2 ln(1/δ')))². own is the part of
    delta, fixed beforehand, that is set aside for the reports' own δ_i; boards need none.

    Proof: e^{λL - λ(1+λ)S/2} is a supermartingale of mean at most 1, so if S never exceeds S_max, Pr[L > E]
    <= e^{-λE + λ(1+λ)S_max/2}, which is δ' at the best λ.

    Source: Whitehouse, Ramdas, Rogers, Wu 2023, Fully-adaptive composition in differential privacy, ICML,
    Theorem 1; for ½ε², Bun, Steinke 2016, Concentrated differential privacy, TCC, Proposition 3.3.
    """

    own: float = 0.0

    name = "zcdp"
    rule = "squares"
    kind = Kind.APPROXIMATE
    words = ADAPTIVE

    def __post_init__(self) -> None:
        super().__post_init__()
        if not probability("own", self.own) < self.delta:
            raise AccountingError(f"own must be below delta = {self.delta:g}, not {self.own:g}")

    def guarantee(self) -> Guarantee:
        """Return (total, delta)-LDP; if the reports have no δ of their own, the odds are bounded as well."""
        return self._guarantee(self.kind, ON_THE_WAY) if self.own else super().guarantee()

    def loss(self, history: History) -> Decimal:
        """Return the formula's value, or infinity if Σδ_i > own."""
        if history.delta > exact(self.own):
            return Decimal("Infinity")
        squares = Decimal(history.squares) / MICRO**2
        return above(squares / 2 + (-2 * squares * self._slack.ln()).sqrt())

    def cap(self, epsilon: int) -> int:
        """Return S_max in micro-nats squared, rounded down, whatever the epsilon."""
        with exact_arithmetic():
            twice = -2 * self._slack.ln()
            root = (twice + 2 * exact(self.total)).sqrt() - twice.sqrt()
            return math.floor(below(root * root) * MICRO**2)

    @property
    def _slack(self) -> Decimal:
        return exact(self.delta) - exact(self.own)
