"""Compose releases of different ε, some with their own δ: one row per theorem.

Each theorem adds its own δ, `slack`, to those of the releases. `basic`, `zcdp` and `advanced` sum them.
`closed form` and `optimal` use 1 - (1 - slack)Π(1 - δ_i): a release that is (ε_i, δ_i)-LDP is never
easier to distinguish than one that reveals everything with probability δ_i and is ε_i-LDP otherwise. `rogers`
needs Σδ_i <= δ/2.

Kairouz, Oh, Viswanath 2015, The composition theorem for differential privacy, ICML (the decomposition; the
closed form, Theorem 3.5); zcdp with δ_i: Whitehouse, Ramdas, Rogers, Wu 2023, ICML, Theorem 1.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any

from ..server.accounting import (
    AccountingError,
    Advanced,
    History,
    Kind,
    ReportCost,
    ZcdpFilter,
    above,
    compare,
    exact,
)
from ..server.accounting.errors import probability
from ..server.accounting.optimal import no_failure_chance
from ..server.accounting.theorem import Reports, exact_arithmetic, float_above
from ..server.epsilon import MICRO
from .mixture import mixed_total
from .rogers import RogersFilter

TITLES = compare.TITLES | {"rogers": "Rogers filter"}

ANY = "chosen on the way"
WITHIN = "chosen on the way, the total beforehand"
BEFOREHAND = "fixed beforehand"


@dataclass(frozen=True)
class ComposedRow:
    """One theorem's statement about all releases together: they are (epsilon, delta)-LDP.

    Attributes:
        epsilon: ε in nats, rounded up; infinite if nothing is guaranteed; None if the theorem does not hold
            for these releases, and `refused` has the reason.
        delta: δ, rounded up, at most 1.
        when: When the releases' ε may be chosen.
    """

    theorem: str
    kind: Kind
    epsilon: float | None
    delta: float | None
    when: str
    refused: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; an infinite epsilon is None, and `refused` has the reason."""
        finite = self.epsilon is not None and math.isfinite(self.epsilon)
        return asdict(self) | {"epsilon": self.epsilon if finite else None}


def compose(releases: Reports, slack: float) -> list[ComposedRow]:
    """Return the guarantees of the releases together under every theorem.

    Args:
        releases: The releases.
        slack: The δ that a theorem may add to the releases' own, in [0, 1).

    Raises:
        AccountingError: If there are no releases, or slack is out of range.
    """
    history = History.of(releases)
    if not history.runs:
        raise AccountingError("there are no releases to compose")
    probability("delta", slack)
    pure = History(tuple((ReportCost(report.epsilon), n) for report, n in history.runs))
    added, product = _added(history, slack), _product(history, slack)
    totals: list[tuple[str, float, str, Callable[[], float]]] = [
        ("zcdp", added, WITHIN, lambda: ZcdpFilter(1.0, slack).spent(pure).epsilon),
        ("rogers", _halved(history, slack), WITHIN, lambda: _rogers(history, slack)),
        ("advanced", added, BEFOREHAND, lambda: Advanced(1.0, slack).spent(pure).epsilon),
        ("closed form", product, BEFOREHAND, lambda: closed_form(pure, slack)),
        ("optimal", product, BEFOREHAND, lambda: _optimal(pure, slack)),
    ]
    rows = [_row(name, slack, delta, when, total) for name, delta, when, total in totals]
    return [_basic(history), *rows]


def closed_form(releases: Reports, delta: float) -> float:
    """Return the cost in nats of releases without a δ of their own: they are (answer, delta)-LDP, rounded up.

    It is the lower of Σε_i and Σε_i(e^{ε_i} - 1)/(e^{ε_i} + 1) + sqrt(2 S x), S = Σε_i², with x = ln(1/δ) or
    ln(e + sqrt(S)/δ). Kairouz, Oh, Viswanath 2015, Theorem 3.5.

    Args:
        releases: The releases.
        delta: δ, in (0, 1).
    """
    history, slack = History.of(releases), exact(probability("delta", delta, zero=False))
    with exact_arithmetic():
        mean = sum((n * x * (x.exp() - 1) / (x.exp() + 1) for x, n in history.nats), Decimal(0))
        squares = Decimal(history.squares) / MICRO**2
        log = min(-slack.ln(), (Decimal(1).exp() + squares.sqrt() / slack).ln())
        return float_above(min(Decimal(history.sum) / MICRO, above(mean + (2 * squares * log).sqrt())))


def _basic(history: History) -> ComposedRow:
    total_own = float_above(history.delta)
    if total_own >= 1:
        why = f"Σε = {history.sum / MICRO:,g} with Σδ = {total_own:g} is (inf, 1): "
        why += "a δ of 1 or more promises nothing"
        return ComposedRow("basic", Kind.UNBOUNDED, math.inf, 1.0, ANY, why)
    kind = Kind.APPROXIMATE if total_own else Kind.PURE
    with exact_arithmetic():
        return ComposedRow("basic", kind, float_above(Decimal(history.sum) / MICRO), total_own, ANY)


def _row(name: str, slack: float, delta: float, when: str, total: Callable[[], float]) -> ComposedRow:
    refused = ""
    if slack == 0 and name != "optimal":
        refused = "not valid here: it needs a δ of its own above 0"
    elif delta >= 1:
        refused = f"not valid here: its δ, {delta:g}, is not below 1"
    elif name == "rogers" and delta > 2 / math.e:
        refused = f"not valid here: its δ holds Σδ twice, {delta:g}, and may be 2/e = 0.73 at most"
    if refused:
        return ComposedRow(name, Kind.APPROXIMATE, None, None, when, refused)
    kind = Kind.APPROXIMATE if delta else Kind.PURE
    return ComposedRow(name, kind, total(), delta, when)


def _optimal(pure: History, slack: float) -> float:
    with exact_arithmetic():
        return float_above(mixed_total(pure, slack))


def _added(history: History, slack: float) -> float:
    with exact_arithmetic():
        return float_above(exact(slack) + history.delta)


def _product(history: History, slack: float) -> float:
    with exact_arithmetic():
        return float_above(1 - (1 - exact(slack)) * no_failure_chance(history))


def _halved(history: History, slack: float) -> float:
    with exact_arithmetic():
        return float_above(max(exact(slack) + history.delta, 2 * history.delta))


def _rogers(history: History, slack: float) -> float:
    """Return the total of a filter that admits all releases, rounded up and close to the smallest."""
    delta = _halved(history, slack)
    low, high = 0.0, 1.0
    while not RogersFilter(high, delta).allowed(history):
        low, high = high, 2 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if RogersFilter(middle, delta).allowed(history) else (middle, high)
    return high
