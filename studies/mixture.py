"""Optimal composition of reports with different ε: upper bounds on the smallest δ and the smallest total.

Reports that are ε_i-LDP, each ε_i fixed beforehand, are never easier to distinguish than the same number
of binary randomized response answers with these ε_i. Among n_i answers at ε_i an observer sees j_i lies,
Binomial(n_i, 1/(1 + e^{ε_i})), and the total loss is Σ_i (n_i - 2 j_i) ε_i. The exact δ is #P-hard (Murtagh,
Vadhan). Here the law of the loss is convolved on a grid that starts at its top, Σε, and goes down:

* If the losses lie on a grid with sufficiently few cells, as for a thousand reports of 0.5, 1 and 0.25,
  nothing is rounded.
* Otherwise, an answer between two cells is split over both so that its probability is preserved under both
  values ("connect the dots"). Merging the two restores the answer, so neither the split pair nor products of
  split pairs are ever harder to distinguish than the true ones, and δ comes out too large, never too small.
  The error is of second order in the cell size.
* Probabilities below e^-104 at an end of the grid are moved to the safe side: to an infinite loss, or to the
  lowest remaining loss.

All summands are nonnegative, so nothing cancels; a margin covers floating-point rounding.

Kairouz, Oh, Viswanath 2015, The composition theorem for differential privacy, ICML; Murtagh, Vadhan 2016, The
complexity of computing the optimal composition of differential privacy, TCC, Theorem 1.5; Doroshenko, Ghazi,
Kamath, Kumar, Manurangsi 2022, Connect the dots: tighter discrete approximations of privacy loss
distributions, PoPETs.
"""

# pyright: reportMissingTypeStubs=false

import math
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache

import numpy as np

from ..server import special
from ..server.accounting import AccountingError, History, exact
from ..server.accounting.binomial import falls_below, log_chances
from ..server.accounting.errors import positive_number, probability
from ..server.accounting.optimal import no_failure_chance
from ..server.accounting.theorem import Reports, exact_arithmetic, float_above, largest
from ..server.epsilon import MICRO

MAX_CELLS = 1 << 16
"""Approximate number of cells in the loss grid; fewer reports than that at one ε need no rounding."""

MAX_MIXED = 10_000_000
"""Maximum number of reports in a mixed list, and maximum sum of their ε in nats."""

_NANO = 10**9  # nano-nats in a nat: the unit of totals here
_NEGLIGIBLE = 104.0  # e^-104 is about 7e-46
_LIES = 650.0  # nats; above this ε, a lie is treated as impossible, which only increases the loss


@dataclass(frozen=True)
class LossLaw:
    """The loss distribution of reports with these ε, under the likelier value; an upper bound if rounded.

    Attributes:
        top: Σε, in micro-nats.
        step: The grid's step, in micro-nats.
        first: Number of cells between top and chances[0].
        chances: chances[k] is the probability of a loss of top - step (first + k).
        beyond: Probability of a loss that is counted as infinite, at most 1e-38.
        margin: The factor that covers rounding errors.
        rounded: Whether losses had to be split over cells.
    """

    top: int
    step: int
    first: int
    chances: np.ndarray
    beyond: float
    margin: float
    rounded: bool

    @classmethod
    def of(cls, reports: Reports, cells: int = MAX_CELLS) -> "LossLaw":
        """Return the loss distribution of these reports, without their own δ.

        Args:
            reports: The reports' ε.
            cells: Approximate number of the grid's cells.

        Raises:
            AccountingError: If there are no reports, more than MAX_MIXED, or more nats than that.
        """
        history = History.of(reports)
        counts: Counter[int] = Counter()
        for report, n in history.runs:
            counts[report.epsilon] += n
        if not counts or history.count > MAX_MIXED or history.sum > MAX_MIXED * MICRO:
            raise AccountingError(
                f"reports of different epsilon: 1 to {MAX_MIXED:,}, of at most that many nats together"
            )
        exact_step = 2 * math.gcd(*counts)
        span = min(2 * history.sum, math.ceil(2 * math.sqrt(2 * _NEGLIGIBLE * history.squares)))
        step = max(exact_step, math.ceil(span / cells))
        step = exact_step if step < 2 * exact_step else step
        law = cls(history.sum, step, 0, np.ones(1), 0.0, 1 + 1e-11, step > exact_step)
        for epsilon, n in sorted(counts.items(), key=lambda run: -run[1]):
            law = law._with(epsilon, n)
        return law

    def delta(self, total: Decimal) -> float:
        """Return the smallest δ for which the reports are (total, δ)-LDP, rounded up.

        Args:
            total: The total in nats, 0 or more.
        """
        with exact_arithmetic():
            return self._delta(math.floor(total * _NANO))

    def total(self, delta: float) -> Decimal:
        """Return the smallest total in nats, >= 0, with at most this `delta`, rounded up.

        It is rounded up to 1e-9; if the law is rounded, by at most a step per report.
        """
        top = self.top * (_NANO // MICRO)
        with exact_arithmetic():
            return Decimal(top - largest(lambda n: self._delta(top - n) <= delta, top)) / _NANO

    def _delta(self, total: int) -> float:
        """Return delta() of a total in nano-nats."""
        scale = _NANO // MICRO
        if total >= self.top * scale:
            return 0.0
        count = min(len(self.chances), -((total - self.top * scale) // (self.step * scale)) - self.first + 1)
        cells = np.arange(max(0, count), dtype=np.int64)
        gap = (self.top - self.step * (self.first + cells)) * scale - total
        over = np.maximum(gap, 0) / _NANO
        delta = self.beyond + float(np.dot(self.chances[: len(cells)], -np.expm1(-over)))
        return min(1.0, math.nextafter(delta * self.margin, math.inf))

    def _with(self, epsilon: int, n: int) -> "LossLaw":
        """Return the loss distribution with n more answers of epsilon micro-nats each."""
        kernel, infinite = _answers(epsilon, n, self.step)
        filled = np.flatnonzero(kernel)
        if len(filled) * 4 < len(kernel):
            chances = np.zeros(len(self.chances) + len(kernel) - 1)
            for cell in filled.tolist():
                chances[cell : cell + len(self.chances)] += kernel[cell] * self.chances
        else:
            chances = np.convolve(self.chances, kernel)
        high, low = _ends(chances)
        remaining = chances[high:low].copy()
        remaining[-1] += chances[low:].sum()
        return LossLaw(
            self.top,
            self.step,
            self.first + high,
            remaining,
            self.beyond + infinite + float(chances[:high].sum()),
            # binomials, and a sum of at most this many products, each rounded
            self.margin * (1 + 5e-12 + 1e-15 * n * (1 + epsilon / MICRO) + 3e-16 * len(filled)),
            self.rounded,
        )


def mixed_delta(reports: Reports, total: float) -> float:
    """Return the smallest δ for which the reports are (total, δ)-LDP together, rounded up; 0 above Σε.

    For reports with a δ of their own, this is 1 - (1 - δ)Π(1 - δ_i).

    Args:
        reports: The reports' ε and δ.
        total: The total in nats, above 0.

    Raises:
        AccountingError: If an argument is out of range.
    """
    history = History.of(reports)
    delta = _loss(history).delta(exact(positive_number("the total", total)))
    if not history.delta:
        return delta
    with exact_arithmetic():
        return min(1.0, float_above(1 - (1 - Decimal(delta)) * no_failure_chance(history)))


def mixed_total(reports: Reports, delta: float) -> Decimal:
    """Return the smallest total in nats for which the reports, their own δ aside, are (total, delta)-LDP.

    It is rounded up: to a billionth, or if the reports' ε have no common grid, by a few millionths.

    Args:
        reports: The reports' ε.
        delta: The target δ, at least 0 and below 1.

    Raises:
        AccountingError: If an argument is out of range.
    """
    return _loss(History.of(reports)).total(probability("delta", delta))


@lru_cache(maxsize=4)
def _loss(history: History) -> LossLaw:
    return LossLaw.of(history)


def _answers(epsilon: int, n: int, step: int) -> tuple[np.ndarray, float]:
    """Return the probabilities of the cells below the top for n answers, and of an infinite loss."""
    nats = epsilon / MICRO
    if nats > _LIES:
        return np.ones(1), 0.0
    mode = int((n + 1) * float(special.expit(-nats)))
    few = 0 if mode == 0 else falls_below(-_NEGLIGIBLE, mode, 0, n, nats)
    upper_end = falls_below(-_NEGLIGIBLE, mode, n, n, nats)
    lies = np.arange(few, upper_end + 1, dtype=np.int64)
    chances = (
        np.exp(log_chances(lies.astype(float), np.array([float(n)]), nats))
        if n > 1
        else special.expit([nats, -nats])
    )
    chances[-1] += (n - upper_end) * math.exp(-_NEGLIGIBLE)
    cells, remainder = np.divmod(2 * epsilon * lies, step)
    kernel = np.zeros(int(cells[-1]) + 2)
    width = step / MICRO
    np.add.at(kernel, cells, chances * (np.expm1(-(step - remainder) / MICRO) / math.expm1(-width)))
    np.add.at(kernel, cells + 1, chances * np.expm1(remainder / MICRO) / math.expm1(width))
    return np.trim_zeros(kernel, "b"), few * math.exp(-_NEGLIGIBLE)


def _ends(chances: np.ndarray) -> tuple[int, int]:
    """Return the range of cells that are likelier than e^-104."""
    likely = chances > math.exp(-_NEGLIGIBLE)
    return int(likely.argmax()), len(chances) - int(likely[::-1].argmax())
