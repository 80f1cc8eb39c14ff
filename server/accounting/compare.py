"""Compare composition theorems for one total, given a number of reports or an ε per report."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from ..epsilon import MICRO
from . import THEOREMS, Guarantee, Kind, Theorem, choose
from .errors import AccountingError

TITLES = {"zcdp": "zCDP filter"}
"""Display titles of theorems whose usual name differs from the name in experiment files."""


@dataclass(frozen=True)
class TheoremRow:
    """A theorem with the reports it allows, the board's rule and cap, and its guarantee.

    Attributes:
        theorem: The theorem's name.
        kind: The kind of guarantee.
        guarantee: A short form of the guarantee, or "" if the theorem could not be compared.
        rule: The board's rule.
        cap: The board's cap.
        epsilon: Each report's ε, in nats.
        reports: The number of reports, or None for any number.
        sum: The reports' Σε in nats, a bound that holds with certainty.
        words: The guarantee as a sentence, or why the theorem could not be compared.
    """

    theorem: str
    kind: Kind
    guarantee: str
    rule: str
    cap: int
    epsilon: float | None
    reports: int | None
    sum: float | None
    words: str


def theorems(total: float, delta: float) -> list[Theorem]:
    """Return all theorems for a total in nats and a delta in [0, 1), or those without a delta if it is 0."""
    result: list[Theorem] = []
    for name, theorem in THEOREMS.items():
        if name == "none":
            result.append(choose(name))
        elif theorem.deltas == "required" or name == "optimal":
            if delta:
                result.append(choose(name, total, delta))
        else:
            result.append(choose(name, total))
    return result


def for_reports(total: float, delta: float, reports: int) -> list[TheoremRow]:
    """Return the largest ε of equal reports under every theorem.

    Args:
        total: The limit on the loss of all reports, in nats, above 0.
        delta: The probability that the limit may fail, in [0, 1).
        reports: The number of reports.

    Raises:
        AccountingError: If no theorem covers these numbers. Otherwise a theorem that does not cover them has
            a row of incomparable().
    """
    return _rows(theorems(total, delta), lambda x: _row(x, x.most_epsilon(reports), reports))


def for_epsilon(total: float, delta: float, epsilon: int) -> list[TheoremRow]:
    """Return how many reports of epsilon micro-nats each are allowed; otherwise as for_reports()."""
    return _rows(theorems(total, delta), lambda x: _row(x, epsilon, x.most_reports(epsilon)))


def incomparable(name: str, kind: Kind, reason: str) -> TheoremRow:
    """Return the row of a theorem without numbers, whose `words` say why it could not be compared."""
    words = f"not compared: {TITLES.get(name, name)}; {reason}"
    return TheoremRow(name, kind, "", "count", 0, None, None, None, words)


def _rows(compared: list[Theorem], row: Callable[[Theorem], TheoremRow]) -> list[TheoremRow]:
    rows, refusals = list[TheoremRow](), list[AccountingError]()
    for theorem in compared:
        try:
            rows.append(row(theorem))
        except AccountingError as e:
            refusals.append(e)
            rows.append(incomparable(theorem.name, theorem.kind, str(e)))
    if not any(row.guarantee and row.kind != Kind.UNBOUNDED for row in rows):
        raise refusals[0]
    return rows


def plain_guarantee(guarantee: Guarantee) -> dict[str, Any]:
    """Return a guarantee as JSON values; JSON has no infinity, so an unbounded epsilon is None."""
    epsilon = guarantee.epsilon if math.isfinite(guarantee.epsilon) else None
    return asdict(guarantee) | {"epsilon": epsilon}


def short_guarantee(theorem: Theorem) -> str:
    """Return a short form of a theorem's guarantee, for tables and legends."""
    if theorem.kind == Kind.PURE:
        return f"{theorem.total:g}-LDP"
    if theorem.kind == Kind.APPROXIMATE:
        return f"({theorem.total:g}, {theorem.delta:g})-LDP"
    return "nothing together"


def _row(theorem: Theorem, epsilon: int | None, reports: int | None) -> TheoremRow:
    nats = None if epsilon is None else epsilon / MICRO
    cap = theorem.cap(epsilon) if epsilon else 0
    return TheoremRow(
        theorem=theorem.name,
        kind=theorem.kind,
        guarantee=short_guarantee(theorem),
        rule=theorem.rule,
        cap=min(cap, reports) if theorem.rule == "count" and reports is not None else cap,
        epsilon=nats,
        reports=reports,
        sum=epsilon * reports / MICRO if epsilon and reports else None,
        words=theorem.guarantee().words,
    )
