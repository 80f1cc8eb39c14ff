"""The classic composition theorems, basic and advanced, and the option of no limit."""

import math
from dataclasses import dataclass, replace
from decimal import Decimal

from ..epsilon import MICRO
from .errors import AccountingError
from .theorem import (
    ADAPTIVE_EVENTS,
    Guarantee,
    History,
    Kind,
    Reports,
    Spent,
    Theorem,
    above,
    exact,
    float_above,
)


class Basic(Theorem):
    """Basic composition: the reports' ε and δ add up, so Σε_i <= total and Σδ_i <= delta.

    It holds for any adaptive choices. delta is needed only if reports have their own δ.

    Source: Dwork, McSherry, Nissim, Smith 2006, Calibrating noise to sensitivity in private data analysis,
    TCC; with δ: Dwork, Kenthapadi, McSherry, Mironov, Naor 2006, Our data, ourselves, EUROCRYPT.
    """

    name = "basic"
    rule = "sum"
    kind = Kind.PURE
    deltas = "optional"
    words = (
        "All reports of a device together are {total}-LDP: whatever an observer sees, the odds between any "
        "two courses of readings move by at most a factor e^{total}. "
        "Each report's ε may be chosen on the way."
    )

    def loss(self, history: History) -> Decimal:
        """Return Σε_i, or infinity if Σδ_i > delta."""
        return Decimal(history.sum) / MICRO if history.delta <= exact(self.delta) else Decimal("Infinity")

    def cap(self, epsilon: int) -> int:
        """Return the total in micro-nats, rounded down."""
        return self.micro_total

    def spent(self, reports: Reports) -> Spent:
        """Return Σε_i and Σδ_i."""
        history = History.of(reports)
        spent = super().spent(history)
        delta = float_above(history.delta)
        return replace(spent, delta=delta, kind=Kind.APPROXIMATE) if delta else spent

    def guarantee(self) -> Guarantee:
        """Return (total, delta)-LDP, which is total-LDP if delta is 0."""
        return self._guarantee(Kind.APPROXIMATE, ADAPTIVE_EVENTS) if self.delta else super().guarantee()


class Advanced(Theorem):
    """Advanced: Σε_i (e^{ε_i} - 1) + sqrt(2 Σε_i² ln(1/δ')) <= total, with δ' = delta - Σδ_i.

    For k reports with the same ε, this is ε sqrt(2k ln(1/δ')) + kε(e^ε - 1): (total, kδ + δ')-LDP. The ε_i
    and δ_i are fixed before the first report; the questions may be chosen adaptively. (The code in a widely
    read tutorial omits the ε before the square root. For ε = 0.5, k = 350 and δ' = 0.1 it prints 153.67,
    while the theorem gives 133.60.)

    Source: Dwork, Rothblum, Vadhan 2010, Boosting and differential privacy, FOCS, Theorem III.3.
    """

    name = "advanced"
    rule = "count"
    kind = Kind.APPROXIMATE
    words = (
        "All reports of a device together are ({total}, {delta})-LDP: {total}-LDP except with probability "
        "{delta}. Every report has the same ε, fixed beforehand."
    )

    def loss(self, history: History) -> Decimal:
        """Return the formula's value, or infinity if the reports' own δ use up delta."""
        slack = exact(self.delta) - history.delta
        if slack <= 0:
            return Decimal("Infinity")
        drift = sum((n * x * (x.exp() - 1) for x, n in history.nats), Decimal(0))
        return above(drift + (-2 * Decimal(history.squares) / MICRO**2 * slack.ln()).sqrt())


@dataclass(frozen=True)
class Unlimited(Theorem):
    """Apply neither a theorem nor a cap: each report has its own ε, but nothing bounds their total."""

    total: float = math.inf

    name = "none"
    rule = "unlimited"
    kind = Kind.UNBOUNDED
    deltas = "none"
    words = (
        "Nothing bounds the total loss of a device's reports: each report is ε-LDP, but over a long lifetime "
        "an observer learns the readings."
    )

    def __post_init__(self) -> None:
        if self.total != math.inf or self.delta != 0:
            raise AccountingError("none does not accept a total or a delta; omit them, or choose a theorem")

    def loss(self, history: History) -> Decimal:
        """Return Σε_i."""
        return Decimal(history.sum) / MICRO

    def cap(self, epsilon: int) -> int:
        """Return 0, which the device ignores."""
        return 0
