"""The first privacy filter, whose total holds even if each report's ε depends on the earlier reports.

The mean loss of an ε-LDP report is at most ε(e^ε - 1)/2, regardless of the earlier reports.
"""

import math
from decimal import Decimal
from functools import lru_cache

from ..server.accounting import AccountingError, History, Kind, Theorem, above, exact
from ..server.accounting.filters import ADAPTIVE
from ..server.epsilon import MICRO


class RogersFilter(Theorem):
    """½Σε_i(e^{ε_i} - 1) + sqrt(2 (S + H)(1 + ½ln(1 + S/H)) ln(2/δ)) <= total, and Σδ_i <= δ/2.

    S = Σε_i², H = total²/(28.04 ln(1/δ)). The first filter for adaptive ε; weaker than `ZcdpFilter`. Its
    proof bounds e^{x²/2} by a mixture and needs δ <= 2/e.

    Rogers, Roth, Ullman, Vadhan 2016, Privacy odometers and filters, NIPS, Theorem 5.1.
    """

    name = "rogers"
    rule = "count"
    kind = Kind.APPROXIMATE
    words = ADAPTIVE

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.delta > 2 / math.e:
            raise AccountingError(
                f"rogers composition needs a delta of at most 2/e = 0.73, not {self.delta:g}"
            )

    def loss(self, history: History) -> Decimal:
        """Return the formula's value, infinite if Σδ_i > δ/2."""
        delta, total = exact(self.delta), exact(self.total)
        if 2 * history.delta > delta:
            return Decimal("Infinity")
        offset = -total * total / (Decimal("28.04") * delta.ln())
        squares = Decimal(history.squares) / MICRO**2
        spread = 2 * (squares + offset) * (1 + (1 + squares / offset).ln() / 2) * (2 / delta).ln()
        return above(mean_loss(history) + spread.sqrt())


@lru_cache(maxsize=4)  # searches for a total call this repeatedly
def mean_loss(history: History) -> Decimal:
    """Return ½Σε_i(e^{ε_i} - 1) in nats, the largest mean loss of reports with these ε."""
    return sum((n * x * (x.exp() - 1) / 2 for x, n in history.nats), Decimal(0))
