"""Track which reports a budget still allows (`Filter`) and the loss so far (`Odometer`).

Both are valid even if each ε is chosen after seeing all earlier outputs. Neither uses readings or outputs.
"""

import math
from decimal import Decimal

from ..epsilon import MICRO
from .basic import Basic
from .errors import AccountingError, positive_number, probability
from .filters import ZcdpFilter
from .theorem import (
    Guarantee,
    History,
    Kind,
    ReportCost,
    Spent,
    above,
    exact,
    exact_arithmetic,
    float_above,
)


class BudgetExceeded(AccountingError):
    """Raised if a report would exceed the filter's budget; the message says by how much."""


class Filter:
    """Allow reports as long as they are (total, delta)-LDP together, using whichever theorem allows more.

    A report is allowed if, including it, Σε <= total or Σε² is within the zCDP filter's cap, and Σδ <= own,
    the part of delta that is set aside for the reports' own δ. A board's policy does the same with its `sum`
    and `squares`. If delta = own, only the sum is used; if both are 0, the reports are total-LDP.

    Privacy: either theorem may be used, even though every report's ε and the stopping time may depend on all
    earlier outputs. Let L be the loss of all allowed reports, S their Σε², λ > 0. If they end with
    Σε <= total, then L <= total with certainty. L > total is therefore possible only if they end with
    S <= S_max, and then M = e^{λL - λ(1+λ)S/2} is at least e^{λ total - λ(1+λ)S_max/2}, which is 1/(delta -
    own) at the optimal λ. M is the stopped value of a nonnegative supermartingale that starts at 1, since
    each ε and the decision to continue are made before the report they govern. The mean of M is therefore at
    most 1, and Pr[L > total] <= delta - own by Markov's inequality. The reports' own failures add at most
    own. The argument needs one of the two theorems to hold with certainty: if both could fail, using
    whichever allows more would cost the sum of their deltas.

    A rejected report changes nothing, and a smaller report may still be allowed.

    Source: `ZcdpFilter` and `Basic`, combined by the argument above.
    """

    def __init__(self, total: float, delta: float = 0.0, own: float = 0.0) -> None:
        """Create a filter.

        Args:
            total: The limit on the loss, in nats, above 0.
            delta: The probability that the limit may fail, in [0, 1).
            own: The part of delta that is set aside for the reports' own δ, in [0, delta].

        Raises:
            AccountingError: If a number is out of range.
        """
        self.delta, self.own = _check_part(delta, own)
        self.total = positive_number("the total", total)
        self.history = History()
        self.sum_cap = Basic(total).cap(1)
        self.squares_cap = ZcdpFilter(total, delta, own).cap(1) if delta > own else 0

    def allows(self, report: ReportCost | int) -> bool:
        """Return whether one more report is allowed; an integer is its epsilon in micro-nats."""
        new = self.history.then(report)
        by_sum, by_squares = new.sum <= self.sum_cap, new.squares <= self.squares_cap
        return new.delta <= exact(self.own) and (by_sum or by_squares)

    def spend(self, report: ReportCost | int) -> None:
        """Count a report that is about to be sent.

        Raises:
            BudgetExceeded: If the report is not allowed; it is then not counted.
        """
        new = _with_report(self.history, report, exact(self.own))
        if not self.allows(report):
            raise BudgetExceeded(self._refusal(new))
        self.history = new

    def remaining_reports(self, epsilon: int) -> int:
        """Return how many more reports of epsilon micro-nats, with δ = 0, are allowed."""
        epsilon = ReportCost(epsilon).epsilon
        by_sum = (self.sum_cap - self.history.sum) // epsilon
        by_squares = (self.squares_cap - self.history.squares) // (epsilon * epsilon)
        return max(0, by_sum, by_squares)

    def guarantee(self) -> Guarantee:
        """Return the guarantee for all reports that are allowed."""
        if self.squares_cap == 0:
            return Basic(self.total, self.delta).guarantee()
        return ZcdpFilter(self.total, self.delta, self.own).guarantee()

    def _refusal(self, new: History) -> str:
        increase = new.sum - self.history.sum
        text = f"ε = {increase / MICRO:g} more would take Σε to {new.sum / MICRO:g} of {self.total:g}"
        if self.squares_cap == 0:
            return text
        return f"{text} and Σε² to {new.squares / MICRO**2:g} of {self.squares_cap / MICRO**2:g}"


class Odometer:
    """A bound on the loss so far that is valid at every time, regardless of how that time is chosen.

    spent() holds for all times simultaneously: with probability 1 - delta, the loss never exceeds the current
    bound. Stopping because of the bound or the reports is safe, unlike with a theorem for a fixed number of
    reports. Compared with a filter, the bound is tightest at `sharpest`.

    The bound is the minimum of Σε, which holds with certainty, and

        ½S + sqrt((S + ρ)(2 ln(1/δ') + ln(1 + S/ρ))),  S = Σε_i², δ' = delta - own,

    a normal mixture with ρ chosen to make it tightest where a zCDP filter of total `sharpest` would stop.

    Source: Whitehouse, Ramdas, Rogers, Wu 2023, Fully-adaptive composition in differential privacy, ICML
    (mixture odometer).
    """

    def __init__(self, delta: float = 0.0, own: float = 0.0, sharpest: float = 1.0) -> None:
        """Create an odometer.

        Args:
            delta: The probability that the bound may fail, in [0, 1).
            own: The part of delta that is set aside for the reports' own δ, in [0, delta]; if it is delta,
                the bound is Σε.
            sharpest: The loss at which the bound is tightest, in nats, above 0.
        """
        self.delta, self.own = _check_part(delta, own)
        self.history = History()
        self._aside = exact(own)
        self._slack = exact(delta) - self._aside
        positive_number("sharpest", sharpest)
        self._offset = _sharpest_offset(sharpest, delta, own) if self._slack else Decimal(0)

    def add(self, report: ReportCost | int) -> None:
        """Count a report.

        Raises:
            BudgetExceeded: If Σδ would exceed its limit; the report is then not counted.
        """
        self.history = _with_report(self.history, report, self._aside)

    def spent(self) -> Spent:
        """Return the guarantee for all reports so far combined; epsilon in nats, rounded up."""
        with exact_arithmetic():
            loss = self._loss() if self.history.runs else Decimal(0)
        return Spent(float_above(loss), self.delta, Kind.APPROXIMATE if self.delta else Kind.PURE)

    def _loss(self) -> Decimal:
        total = Decimal(self.history.sum) / MICRO
        return min(total, self._mixture()) if self._slack else total

    def _mixture(self) -> Decimal:
        squares = Decimal(self.history.squares) / MICRO**2
        boundary = (squares + self._offset) * ((1 + squares / self._offset).ln() - 2 * self._slack.ln())
        return above(squares / 2 + boundary.sqrt())


def _check_part(delta: float, own: float) -> tuple[float, float]:
    if probability("own", own) > probability("delta", delta):
        raise AccountingError(f"own must be at most delta = {delta:g}, not {own:g}")
    return float(delta), float(own)


def _with_report(history: History, report: ReportCost | int, own: Decimal) -> History:
    """Return the history with one more report, or raise BudgetExceeded if its δ would exceed `own`."""
    new = history.then(report)
    if new.delta > own:
        raise BudgetExceeded(f"the reports' own δ would come to {float(new.delta):g}, above {float(own):g}")
    return new


def _sharpest_offset(total: float, delta: float, own: float) -> Decimal:
    """Return the ρ that minimizes (S + ρ)(2 ln(1/δ') + ln(1 + S/ρ)) at the S where a filter of `total` stops.

    Any ρ > 0 that is fixed in advance is valid. With x = S/ρ, the minimum is at x = 2 ln(1/δ') + ln(1 + x).
    """
    double_log = -2 * math.log(delta - own)
    x = double_log + 1
    for _ in range(50):
        x = double_log + math.log1p(x)
    return Decimal(max(1, ZcdpFilter(total, delta, own).cap(1))) / MICRO**2 / exact(x)
