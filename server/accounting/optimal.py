"""Optimal composition of equal reports, in nats: the smallest δ, the largest ε, or the most reports.

k ε-LDP reports are never easier to distinguish than k answers from binary randomized response, which is also
an ε-LDP mechanism, so the bound is exact. An observer sees i lies among k answers; under one value i is
Binomial(k, q), under the other Binomial(k, 1 - q), with q = 1/(1 + e^ε). The density ratio at i is
e^{(k - 2i)ε}, so

    δ(E) = Σ_i P_i max(0, 1 - e^{E - (k - 2i) ε}),  P = Binomial(k, q).

The sum has no negative terms, so nothing cancels, and it is computed relative to its largest P_i, so nothing
overflows. The bound also holds if each report's mechanism is chosen after seeing the earlier reports, as long
as each is ε-LDP with the same ε and their number is at most k.

Source: Kairouz, Oh, Viswanath 2015, The composition theorem for differential privacy, ICML, Theorem 3.3.
"""

# pyright: reportMissingTypeStubs=false

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any, cast

import numpy as np

from .. import special
from ..epsilon import MICRO
from .binomial import falls_below, log_chances
from .errors import AccountingError, positive_number, probability, whole_number
from .theorem import (
    EVENTS,
    MAX_REPORTS,
    History,
    Kind,
    ReportCost,
    Reports,
    Theorem,
    exact,
    exact_arithmetic,
    largest,
)

_NEGLIGIBLE = 60.0  # terms below e^-60 of the largest are bounded rather than added
_HALVES = 134_217_729.0  # 2**27 + 1: Veltkamp's constant, which splits a double into two of 26 bits


def optimal_delta(epsilon: float, reports: int, total: float) -> float:
    """Return the smallest δ for which equal reports are (total, δ)-LDP, rounded up.

    Args:
        epsilon: Each report's ε, in nats, above 0.
        reports: The number of reports, 1 to MAX_REPORTS.
        total: The limit on the reports' loss, in nats, above 0.

    Returns:
        0 if total >= reports * epsilon, otherwise a number in (0, 1] with a relative error less than 1e-11 +
        2e-15 * reports * (1 + epsilon).

    Raises:
        AccountingError: If an argument is out of range.
    """
    k = whole_number("the number of reports", reports, high=MAX_REPORTS)
    return _delta(k, *_units(positive_number("epsilon", epsilon), positive_number("the total", total)))


def optimal_epsilon(reports: int, total: float, delta: float) -> float:
    """Return the largest ε for which equal reports are (total, delta)-LDP, rounded down.

    `optimal_delta(result, reports, total) <= delta` always holds.

    Args:
        reports: The number of reports, 1 to MAX_REPORTS.
        total: The limit on the reports' loss, in nats, above 0.
        delta: The probability that the limit may fail, in [0, 1); if it is 0, the result is total / reports.

    Raises:
        AccountingError: If an argument is out of range.
    """
    k = whole_number("the number of reports", reports, high=MAX_REPORTS)
    total, delta = positive_number("the total", total), probability("delta", delta)

    def delta_of(epsilon: float) -> float:
        return _delta(k, *_units(epsilon, total))

    low = total / k
    while delta_of(low) > delta:
        low = math.nextafter(low, 0.0)
    if delta == 0:
        return low
    high = 2 * low
    while delta_of(high) <= delta:
        low, high = high, 2 * high
    return _crossing(delta_of, delta, low, high)


def optimal_total(epsilon: float, reports: int, delta: float) -> float:
    """Return the smallest total for which equal reports are (total, delta)-LDP, rounded up.

    Args:
        epsilon: Each report's ε, in nats, above 0.
        reports: The number of reports, 1 to MAX_REPORTS.
        delta: The probability that the limit may fail, in [0, 1); if it is 0, the result is reports *
            epsilon; if it is large, the result may be 0.

    Raises:
        AccountingError: If an argument is out of range.
    """
    k = whole_number("the number of reports", reports, high=MAX_REPORTS)
    epsilon, delta = positive_number("epsilon", epsilon), probability("delta", delta)

    def delta_of(total: float) -> float:
        return _delta(k, *_units(epsilon, total))

    high = k * epsilon
    while delta_of(high) > delta:  # the product may have been rounded down
        high = math.nextafter(high, math.inf)
    if delta == 0 or _delta(k, epsilon, 0.0, 1.0) <= delta:
        return 0.0 if delta else high
    return _crossing(delta_of, delta, high, 0.0)


def optimal_reports(epsilon: float, total: float, delta: float) -> int:
    """Return the largest number of equal reports that are (total, delta)-LDP, 0 to MAX_REPORTS.

    Args:
        epsilon: Each report's ε, in nats, above 0.
        total: The limit on the reports' loss, in nats, above 0.
        delta: The probability that the limit may fail, in [0, 1).

    Raises:
        AccountingError: If an argument is out of range.
    """
    units = _units(positive_number("epsilon", epsilon), positive_number("the total", total))
    return _reports(*units, probability("delta", delta))


def no_failure_chance(history: History) -> Decimal:
    """Return Π(1 - δ_i), the probability that no report's own guarantee fails."""
    with exact_arithmetic():
        chance = Decimal(1)
        for report, n in history.runs:
            chance *= (1 - exact(report.delta)) ** n
        return chance


class Optimal(Theorem):
    """Optimal composition: the reports' smallest δ is at most delta. No theorem allows more reports.

    All reports have the same ε, and `optimal_delta` gives their δ. Reports with their own δ_i are
    (total, 1 - (1 - δ)Π(1 - δ_i))-LDP. The module docstring has the source and proof.
    """

    name = "optimal"
    rule = "count"
    kind = Kind.APPROXIMATE
    deltas = "optional"
    words = f"{EVENTS} Every report has the same ε, fixed beforehand; no rule can allow more of them."

    def loss(self, history: History) -> Decimal:
        """Return `optimal_total`, or infinity if the reports' own δ use up delta."""
        if len(history.epsilons) != 1:
            epsilons = ", ".join(f"{x / MICRO:g}" for x in history.epsilons[:4])
            raise AccountingError(f"optimal composition needs equal reports, not epsilons of {epsilons}")
        slack = 1 - (1 - exact(self.delta)) / no_failure_chance(history)
        if slack < 0:
            return Decimal("Infinity")
        delta = math.nextafter(float(slack), 0.0) if history.delta else float(self.delta)
        return exact(optimal_total(history.epsilons[0] / MICRO, history.count, delta))

    def allowed(self, reports: Reports) -> bool:
        """Return whether these reports are within the total."""
        history = History.of(reports)
        if history.delta or len(history.epsilons) != 1:
            return super().allowed(history)
        return self._fits(*history.epsilons, history.count)

    def cap(self, epsilon: int) -> int:
        """Return the number of reports of epsilon micro-nats each that are allowed."""
        total = self.micro_total
        return _reports(ReportCost(epsilon).epsilon, total, MICRO, self.delta) if total else 0

    def most_epsilon(self, reports: int) -> int:
        """Return the largest epsilon in micro-nats for `reports` reports, rounded down."""
        if not self.micro_total:
            raise AccountingError(f"it needs a total of at least 1e-06, not {self.total:g}")
        epsilon = math.floor(optimal_epsilon(reports, self.micro_total / MICRO, self.delta) * MICRO) + 1
        while epsilon and not self._fits(epsilon, reports):
            epsilon -= 1
        return epsilon

    def _fits(self, epsilon: int, reports: int) -> bool:
        return _delta(reports, epsilon, self.micro_total, MICRO) <= self.delta


def _units(epsilon: float, total: float) -> tuple[float, float, float]:
    """Return (epsilon, total, unit) in 1 / unit nats, which are micro-nats if both are whole in them.

    The double 0.1 is slightly more than a tenth, so ten of them exceed 1, whereas 100,000 micro-nats are
    exact.
    """
    whole_micro = [round(x * MICRO) for x in (epsilon, total)]
    if all(m / MICRO == x and 0 < m < 1 << 53 for m, x in zip(whole_micro, (epsilon, total), strict=True)):
        return float(whole_micro[0]), float(whole_micro[1]), float(MICRO)
    return epsilon, total, 1.0


def _delta(reports: int, epsilon: float, total: float, unit: float) -> float:
    """Return `optimal_delta` without its checks, with epsilon and total in 1 / unit nats."""
    last = _last_positive(epsilon, reports, total)
    if last < 0:
        return 0.0
    nats = epsilon / unit
    lie = float(special.expit(-nats))
    # The largest P_i in [0, last] is at the mode, or at the end of the range if the mode lies beyond it.
    trials = np.array([float(reports)])
    peak = min(last, math.floor((reports + 1) * lie))
    top = log_chances(np.array([float(peak)]), trials, nats)[0]
    low = falls_below(top - _NEGLIGIBLE, peak, 0, reports, nats)
    high = falls_below(top - _NEGLIGIBLE, peak, last, reports, nats)
    lies = np.arange(low, high + 1, dtype=float)
    gap = _minus_product(total, reports - 2 * lies, epsilon) / unit
    inside = math.fsum(np.exp(log_chances(lies, trials, nats) - top) * -np.expm1(np.minimum(gap, 0.0)))
    # Outside this range, each of at most `reports` terms is below e^-60 of the largest P.
    outside = (last + 1 - len(lies)) * math.exp(-_NEGLIGIBLE)
    margin = 1 + 5e-12 + 1e-15 * reports * (1 + nats)
    delta = math.exp(top) * (inside + outside) * margin
    return min(1.0, math.nextafter(delta, 1.0))


def _reports(epsilon: float, total: float, unit: float, delta: float) -> int:
    """Return `optimal_reports` without its checks, with epsilon and total in 1 / unit nats."""
    basic = max(0, math.floor(min(total / epsilon, MAX_REPORTS)) - 1)  # these fit by basic composition
    return basic + largest(lambda n: _delta(basic + n, epsilon, total, unit) <= delta, MAX_REPORTS - basic)


def _crossing(delta_of: Callable[[float], float], delta: float, valid: float, invalid: float) -> float:
    """Return the argument nearest to `invalid` that meets delta, as `valid` does and `invalid` does not."""

    def excess(x: float) -> float:
        return math.log(max(delta_of(x) if x else 1.0, 1e-320) / delta)

    from scipy import optimize  # imported lazily because it is slow to load and rarely needed

    search = cast("Any", optimize).root_scalar  # SciPy has no types
    root = float(search(excess, bracket=(valid, invalid), method="brentq", xtol=1e-300, rtol=1e-14).root)
    step = math.copysign(root * 1e-15, valid - invalid)
    while delta_of(root) > delta:
        root, step = root + step, 2 * step
    return root


def _last_positive(epsilon: float, reports: int, total: float) -> int:
    """Return the largest number of lies i with (reports - 2i) epsilon > total, exactly, or -1."""
    guess = math.floor((reports - min(total / epsilon, 2.0 * reports)) / 2)
    near = np.arange(max(0, guess - 2), max(0, guess + 3), dtype=float)
    fits = near[_minus_product(total, reports - 2 * near, epsilon) < 0]
    return int(fits[-1]) if fits.size else -1


def _minus_product(total: float, factor: np.ndarray, epsilon: float) -> np.ndarray:
    """Return total - factor * epsilon, rounded once if they are close; factor is whole and below 2**27."""
    carry = _HALVES * epsilon
    high = carry - (carry - epsilon)
    return (total - factor * high) - factor * (epsilon - high)
