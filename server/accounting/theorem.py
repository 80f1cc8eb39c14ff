"""Composition theorems, which turn a history of reports into its total cost in nats.

A custom theorem is a single class: derive from `Theorem`, set `name`, `rule`, `kind` and `words`, and
implement `loss`, as well as `cap` for the rules "sum" and "squares". Everything else (`cost`, the cap of a
count, `allowed`, `spent`, `most_reports`, `most_epsilon`, `guarantee`) is derived. docs/theorems.md has an
example.

Units: a report's ε is a whole number of micro-nats, as on the board; totals and losses are in nats.
A float total or delta is interpreted as its printed decimal, so 0.1 is exactly a tenth; any other number (a
fraction, NumPy's float32) is first converted to the nearest float. `optimal` computes with binary doubles
instead, and its margins cover the difference.
"""

from __future__ import annotations

import decimal
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import ClassVar, Literal

from ..epsilon import MICRO
from .errors import AccountingError, positive_number, probability, whole_number

MAX_REPORTS = 1 << 27
"""The largest cap. Optimal composition is exact up to this number, and a lower cap is always safe."""

_MAX_EPSILON = 10**12  # micro-nats; only an upper bound for searches

EVENTS = (
    "All reports of a device together are ({total}, {delta})-LDP: no event is likelier under one course of "
    "readings than e^{total} times its chance under another, plus {delta}; the odds may move by more than "
    "e^{total} more often than that."
)
"""The sentence for (total, delta)-LDP without a bound on the odds."""

ADAPTIVE_EVENTS = f"{EVENTS} Each report's ε may be chosen on the way."

Rule = Literal["sum", "squares", "count", "unlimited"]


class Kind(StrEnum):
    """The kind of a theorem's guarantee; the value is the text in tables and legends."""

    PURE = "ε-LDP"
    APPROXIMATE = "(ε, δ)-LDP"
    SHUFFLED = "(ε, δ)-DP of the histogram of all reports"
    UNBOUNDED = "no bound on all reports together"


@dataclass(frozen=True, slots=True)
class ReportCost:
    """A single report that is (epsilon, delta)-LDP.

    Attributes:
        epsilon: ε in micro-nats, at least 1.
        delta: δ, in [0, 1).
    """

    epsilon: int
    delta: float = 0.0

    def __post_init__(self) -> None:
        whole_number("a report's epsilon in micro-nats (500000 is 0.5)", self.epsilon)
        probability("a report's delta", self.delta)


@dataclass(frozen=True, slots=True)
class History:
    """The reports so far as counts, because none of the theorems depends on their order.

    Attributes:
        runs: The distinct report costs with their counts.
    """

    runs: tuple[tuple[ReportCost, int], ...] = ()

    @classmethod
    def of(cls, reports: Reports) -> History:
        """Return a history of these reports; a plain integer is a report's epsilon in micro-nats."""
        if isinstance(reports, History):
            return reports
        counted = Counter(x if isinstance(x, ReportCost) else ReportCost(x) for x in reports)
        return cls(tuple(counted.items()))

    @classmethod
    def equal(cls, epsilon: int, count: int) -> History:
        """Return `count` reports of epsilon micro-nats each."""
        return cls(((ReportCost(epsilon), whole_number("the number of reports", count)),))

    def then(self, report: ReportCost | int) -> History:
        """Return this history with one more report; a plain integer is its epsilon in micro-nats."""
        counted = dict(self.runs)
        cost = report if isinstance(report, ReportCost) else ReportCost(report)
        counted[cost] = counted.get(cost, 0) + 1
        return History(tuple(counted.items()))

    @property
    def nats(self) -> tuple[tuple[Decimal, int], ...]:
        """Each ε in nats with its number of reports; for use within `exact_arithmetic`."""
        return tuple((Decimal(report.epsilon) / MICRO, n) for report, n in self.runs)

    @property
    def count(self) -> int:
        """The number of reports."""
        return sum(n for _, n in self.runs)

    @property
    def sum(self) -> int:
        """Σε in micro-nats."""
        return sum(n * report.epsilon for report, n in self.runs)

    @property
    def squares(self) -> int:
        """Σε² in micro-nats squared."""
        return sum(n * report.epsilon * report.epsilon for report, n in self.runs)

    @property
    def delta(self) -> Decimal:
        """The sum of the reports' own δ."""
        with exact_arithmetic():
            return sum((n * exact(report.delta) for report, n in self.runs), Decimal(0))

    @property
    def epsilons(self) -> tuple[int, ...]:
        """The distinct ε in micro-nats, ascending."""
        return tuple(sorted({report.epsilon for report, _ in self.runs}))


Reports = History | Iterable[ReportCost | int]


@dataclass(frozen=True, slots=True)
class Spent:
    """The loss of a history.

    Attributes:
        epsilon: ε in nats, rounded up, or infinity if the theorem has no bound.
        delta: The loss's δ.
        kind: The kind of guarantee.
    """

    epsilon: float
    delta: float
    kind: Kind


@dataclass(frozen=True, slots=True)
class Guarantee:
    """The guarantee for all reports combined.

    Attributes:
        kind: The kind of guarantee.
        epsilon: The guarantee's ε in nats.
        delta: The guarantee's δ.
        words: The guarantee as a sentence.
    """

    kind: Kind
    epsilon: float
    delta: float
    words: str


@dataclass(frozen=True)
class Theorem(ABC):
    """A composition theorem with a limit.

    Attributes:
        total: The limit on the loss, in nats, above 0.
        delta: The probability that the limit may fail, in [0, 1).
        name: The theorem's name for users.
        rule: The quantity that the board compares with the cap.
        kind: The kind of guarantee.
        words: The guarantee as a sentence, with {total} and {delta} as placeholders.
        deltas: Whether a delta is "required", "optional" or not supported ("none").

    Raises:
        AccountingError: If total or delta is out of range or does not fit the theorem.
    """

    total: float
    delta: float = 0.0

    name: ClassVar[str]
    rule: ClassVar[Rule]
    kind: ClassVar[Kind]
    words: ClassVar[str]
    deltas: ClassVar[Literal["required", "optional", "none"]] = "required"

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", positive_number("the total", self.total))
        object.__setattr__(self, "delta", probability("delta", self.delta))
        if self.deltas == "required" and self.delta == 0:
            raise AccountingError(
                f"{self.name} composition needs a delta above 0 (such as 1e-6); basic does not"
            )
        if self.deltas == "none" and self.delta != 0:
            raise AccountingError(f"{self.name} does not use a delta; omit it")

    @abstractmethod
    def loss(self, history: History) -> Decimal:
        """Return the history's loss in nats at this delta, rounded up, or infinity if it is unbounded.

        The result must not decrease when a report is added or a report's epsilon increases. The method runs
        within `exact_arithmetic`.
        """

    def cost(self, epsilon: int) -> int:
        """Return the board's debit for a report of epsilon micro-nats: micro-nats, their square, 1, or 0."""
        epsilon = ReportCost(epsilon).epsilon
        return {"sum": epsilon, "squares": epsilon * epsilon, "count": 1, "unlimited": 0}[self.rule]

    def cap(self, epsilon: int) -> int:
        """Return the cap on the board's debits for reports of epsilon micro-nats, rounded down.

        The cap is in micro-nats (sum), micro-nats squared (squares) or reports (count). Only the last depends
        on epsilon.
        """
        if self.rule != "count":
            raise NotImplementedError(f"{type(self).__name__} has rule {self.rule}, so it must define cap()")
        return largest(lambda n: self.allowed(History.equal(epsilon, n)), MAX_REPORTS)

    def most_reports(self, epsilon: int) -> int | None:
        """Return how many reports of epsilon micro-nats each are allowed, or None without a limit."""
        cost = self.cost(epsilon)
        return self.cap(epsilon) // cost if cost else None

    def most_epsilon(self, reports: int) -> int | None:
        """Return the largest epsilon in micro-nats for `reports` equal reports, rounded down.

        The result is 0 if no epsilon is allowed, and None without a limit.
        """
        most = MAX_REPORTS if self.rule == "count" else None
        n = whole_number("the number of reports", reports, high=most)
        if self.rule == "unlimited":
            return None
        if self.rule == "sum":
            return self.cap(1) // n
        if self.rule == "squares":
            return math.isqrt(self.cap(1) // n)
        return largest(lambda epsilon: self.allowed(History.equal(epsilon, n)), _MAX_EPSILON)

    def allowed(self, reports: Reports) -> bool:
        """Return whether these reports are within the total."""
        history = History.of(reports)
        with exact_arithmetic():
            return not history.runs or self.loss(history) <= exact(self.total)

    def spent(self, reports: Reports) -> Spent:
        """Return the total loss of these reports."""
        history = History.of(reports)
        with exact_arithmetic():
            loss = self.loss(history) if history.runs else Decimal(0)
        return Spent(float_above(loss), float(self.delta), self.kind)

    def guarantee(self) -> Guarantee:
        """Return the guarantee for all reports combined, as long as they are within the cap."""
        return self._guarantee(self.kind, self.words)

    def _guarantee(self, kind: Kind, words: str) -> Guarantee:
        words = words.format(total=f"{self.total:g}", delta=f"{self.delta:g}")
        return Guarantee(kind, float(self.total), float(self.delta), words)

    @property
    def micro_total(self) -> int:
        """The total in whole micro-nats, rounded down."""
        with exact_arithmetic():
            return math.floor(exact(self.total) * MICRO)


def exact(value: float) -> Decimal:
    """Return a float's printed value as a decimal, for which 0.1 is exactly a tenth."""
    return Decimal(repr(float(value)))


_ABOVE = Decimal("1e-40")


def exact_arithmetic() -> AbstractContextManager[decimal.Context]:
    """Return the decimal context for computing losses, with 60 digits and unbounded exponents."""
    wide = decimal.Context(prec=60, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)
    return decimal.localcontext(wide)


def above(value: Decimal) -> Decimal:
    """Return the value increased slightly, by more than a few 60-digit roundings could add."""
    return value * (1 + _ABOVE)


def below(value: Decimal) -> Decimal:
    """Return the value decreased slightly, by more than a few 60-digit roundings could subtract."""
    return value * (1 - _ABOVE)


def float_above(value: Decimal) -> float:
    """Return the smallest float that prints as at least value."""
    nearest = float(value)
    return math.nextafter(nearest, math.inf) if math.isfinite(nearest) and exact(nearest) < value else nearest


def largest(fits: Callable[[int], bool], limit: int) -> int:
    """Return the largest n in [0, limit] that fits; if n fits, every smaller number must fit as well."""
    low, high = 0, 1
    while high <= limit and fits(high):
        low, high = high, 2 * high
    high = min(high, limit + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
