"""The zCDP filter, whose total holds even if each report's ε depends on earlier reports.

It bounds the privacy loss L = Σ L_i, the log-ratio of the reports' probabilities under two sequences of
readings. The loss of an ε-LDP report is at most ε²/2 on average and sub-Gaussian about its mean with
variance ε²: E[e^{λ L_i}] <= e^{λ(1+λ) ε_i²/2} for λ > 0, conditionally on all earlier reports.
If Pr[L > E] <= δ, the sequence is (E, δ)-LDP.
"""

import math
from dataclasses import dataclass
from decimal import Decimal

from ..epsilon import MICRO
from .errors import AccountingError, probability
from .theorem import ADAPTIVE_EVENTS, Guarantee, History, Kind, Theorem, above, below, exact, exact_arithmetic

ADAPTIVE = (
    "All reports of a device together are ({total}, {delta})-LDP: {total}-LDP except with probability "
    "{delta}. Each report's ε may be chosen on the way."
)


@dataclass(frozen=True)
class ZcdpFilter(Theorem):
    """The zCDP filter: ½S + sqrt(2 S ln(1/δ')) <= total with S = Σε_i², δ' = delta - own, and Σδ_i <= own.

    Solving for S gives the cap S_max = (sqrt(2 ln(1/δ') + 2 total) - sqrt(2 ln(1/δ')))². own is the part of
    delta, fixed in advance, that is set aside for the reports' own δ_i; boards do not need it.

    Proof: e^{λL - λ(1+λ)S/2} is a supermartingale of mean at most 1, so if S never exceeds S_max, Pr[L > E]
    <= e^{-λE + λ(1+λ)S_max/2}, which equals δ' for the optimal λ.

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
        """Return (total, delta)-LDP; unless the reports have their own δ, the odds are bounded as well."""
        return self._guarantee(self.kind, ADAPTIVE_EVENTS) if self.own else super().guarantee()

    def loss(self, history: History) -> Decimal:
        """Return the formula's value, or infinity if Σδ_i > own."""
        if history.delta > exact(self.own):
            return Decimal("Infinity")
        squares = Decimal(history.squares) / MICRO**2
        return above(squares / 2 + (-2 * squares * self._slack.ln()).sqrt())

    def cap(self, epsilon: int) -> int:
        """Return S_max in micro-nats squared, rounded down; it does not depend on epsilon."""
        with exact_arithmetic():
            double_log = -2 * self._slack.ln()
            root = (double_log + 2 * exact(self.total)).sqrt() - double_log.sqrt()
            return math.floor(below(root * root) * MICRO**2)

    @property
    def _slack(self) -> Decimal:
        return exact(self.delta) - exact(self.own)
