"""Bounds an attacker's beliefs after many reports: totals from a risk, and posteriors from a total.

To see what a composition theorem means for a posterior, let A be a set of sequences of readings, π its prior,
and L the loss: the logarithm of how much likelier all reports are if A is true than if it is not. The belief
in A after the reports is π e^L / (1 - π + π e^L). Under "A" and under "not A", each next report is drawn from
some mixture of the mechanism's rows, and the two mixtures are within e^ε of each other; so every theorem on
reports of a chosen ε holds for this pair, and for any prior.

* E-LDP: L <= E always. * zcdp and advanced bound the loss itself: if A is true, L > E with probability at
  most δ. * (E, δ)-LDP alone does *not* imply that. Let B be the event L > t. From Pr_A[B] <= e^E Pr_notA[B] +
  δ and Pr_notA[B] < e^-t Pr_A[B] it follows that Pr_A[B] <= δ/(1 - e^(E - t)) for t > E, and no better bound.
  So `optimal` keeps L <= t except with probability η if it holds for some E < t with δ = η (1 - e^(E - t)).

Probabilities are those of a board in A, over its random draws (and over the prior within A). For a board that
is not in A they are e^-t times smaller, on average.
"""

import decimal
import math
from dataclasses import dataclass

import numpy as np

from ...server import special
from ...server.accounting import (
    THEOREMS,
    Advanced,
    History,
    Kind,
    Optimal,
    Theorem,
    ZcdpFilter,
    choose,
    optimal_total,
)
from ...server.accounting.errors import probability, whole_number
from ...server.arrays import Floats
from ...server.epsilon import MICRO
from .beliefs import DisclosureError

_BOUND_LOSS = (ZcdpFilter, Advanced)
MAX_ROWS = 300_000
"""The largest number of outcomes of repeated reports to enumerate."""


@dataclass(frozen=True)
class BudgetRow:
    """A theorem, and what it requires to keep a belief below its ceiling.

    Attributes:
        theorem: The theorem's name.
        kind: The kind of its guarantee.
        total: The experiment's total budget, in nats, or None for no total.
        delta: The delta of the experiment's budget.
        epsilon: ε of each report, in nats, or None for any.
        fails: The probability that the belief in a true fact exceeds its ceiling, or None if the theorem does
            not bound beliefs.
        words: The guarantee as a sentence.
    """

    theorem: str
    kind: Kind
    total: float | None
    delta: float
    epsilon: float | None
    fails: float | None
    words: str


def budget_rows(total: int, reports: int, fails: float) -> list[BudgetRow]:
    """Return the ε that each theorem allows while the loss stays within a total, rounded down.

    Args:
        total: The largest loss, in micro-nats, at least 1.
        reports: The number of reports.
        fails: The probability that the loss exceeds it, in [0, 1); at 0 only theorems that never fail are
            returned.
    """
    n, eta = whole_number("the number of reports", reports), probability("delta", fails)
    nats = total / MICRO
    words = "the belief never exceeds its ceiling, whatever is seen and however readings change"
    rows = [BudgetRow("basic", Kind.PURE, nats, 0.0, total // n / MICRO, 0.0, words)]
    for cls in THEOREMS.values():
        if cls in _BOUND_LOSS and eta:
            rows.append(_bounded(choose(cls.name, nats, eta), n, eta))
        elif cls is Optimal and eta:
            rows.append(_optimal(nats, n, eta))
    words = "does not bound any belief, because every further report adds its ε to the loss"
    return [*rows, BudgetRow("none", Kind.UNBOUNDED, None, 0.0, None, None, words)]


def _bounded(theorem: Theorem, n: int, eta: float) -> BudgetRow:
    words = f"if it is true, the belief exceeds its ceiling with probability at most {eta:g}"
    epsilon = (theorem.most_epsilon(n) or 0) / MICRO
    return BudgetRow(theorem.name, theorem.kind, theorem.total, eta, epsilon, eta, words)


def _optimal(nats: float, n: int, eta: float) -> BudgetRow:
    """Return the row for the best E < t with δ = η (1 - e^(E - t)), or for E = t and δ = 0 if better."""
    best = Optimal(nats, 0.0)
    max_epsilon = best.most_epsilon(n) or 0
    for margin in _margins(nats):
        total = math.floor((nats - margin) * MICRO)
        if not total:
            continue
        theorem = Optimal(total / MICRO, _as_written(-eta * math.expm1(-margin)))
        epsilon = theorem.most_epsilon(n) or 0
        if epsilon > max_epsilon:
            best, max_epsilon = theorem, epsilon
    words = f"if it is true, the belief exceeds its ceiling with probability at most {eta:g}"
    if best.delta == 0:
        words = "the belief never exceeds its ceiling"
    kind, fails = (best.kind, eta) if best.delta else (Kind.PURE, 0.0)
    return BudgetRow("optimal", kind, best.total, best.delta, max_epsilon / MICRO, fails, words)


def _as_written(delta: float) -> float:
    """Return delta rounded down to three digits, so that the printed value can be used in a budget."""
    return float(decimal.Context(prec=3, rounding=decimal.ROUND_FLOOR).create_decimal(repr(delta)))


@dataclass(frozen=True)
class LossRow:
    """The largest loss of n reports, in nats, except with probability `fails`; at most that of basic."""

    theorem: str
    kind: Kind
    loss: float
    fails: float


def loss_rows(epsilon: int, reports: int, fails: float) -> list[LossRow]:
    """Return the loss of equal reports under each theorem that bounds a loss, rounded up.

    Args:
        epsilon: ε of each report, in micro-nats.
        reports: The number of reports.
        fails: The probability of a larger loss if A is true, in [0, 1); at 0 only theorems that never fail
            are returned.
    """
    history, eta = History.equal(epsilon, reports), probability("delta", fails)
    certain = history.sum / MICRO
    rows = [LossRow("basic", Kind.PURE, certain, 0.0)]
    if not eta:
        return rows
    for cls in THEOREMS.values():
        if cls in _BOUND_LOSS:
            loss = cls(1.0, eta).spent(history).epsilon
        elif cls is Optimal:
            loss = _optimal_loss(epsilon, reports, eta)
        else:
            continue
        rows.append(LossRow(cls.name, cls.kind, min(loss, certain), eta if loss < certain else 0.0))
    return rows


def _optimal_loss(epsilon: int, n: int, eta: float) -> float:
    """Return the smallest E + x with δ(E) <= η (1 - e^-x), below which L stays except with probability η."""
    basic_loss = epsilon * n / MICRO
    losses = (optimal_total(epsilon / MICRO, n, -eta * math.expm1(-x)) + x for x in _margins(basic_loss))
    return min(losses) * (1 + 1e-12)


def _margins(total: float) -> list[float]:
    """Return the margins between E and t, in nats, to try for `optimal`; the optimum is flat."""
    return np.geomspace(1e-3 * min(1.0, total), min(0.95 * total, 3.0), 24).tolist()


# --- The same value repeatedly ---------------------------------------------------------------------


@dataclass(frozen=True)
class RepeatedBeliefs:
    """Exact beliefs after n direct reports (rr, grr) of one value that never changes.

    Attributes:
        worst: The highest belief in each value over all outcomes, shape (domain,).
        passes: For each value, the probability that the belief in it exceeds its ceiling if it is true, shape
            (domain,).
        mean: The belief in the true value, averaged over the prior and the random draws.
        guess: The probability that the attacker's best guess is right.
    """

    worst: Floats
    passes: Floats
    mean: float
    guess: float


def repeated_reports(prior: Floats, odds: float, reports: int, ceilings: Floats) -> RepeatedBeliefs:
    """Enumerate all outcomes of n direct reports of one fixed value.

    Args:
        prior: The prior over the values, shape (domain,).
        odds: The odds p / lie of one report, above 1.
        reports: The number of reports.
        ceilings: The ceiling of the belief in each value, shape (domain,).

    Raises:
        DisclosureError: If there are more than MAX_ROWS outcomes, or too many numbers in them.
    """
    domain, n = len(prior), whole_number("the number of reports", reports)
    outcomes = math.comb(n + domain - 1, domain - 1)  # regardless of order
    if outcomes > MAX_ROWS or outcomes * domain > 10 * MAX_ROWS:
        raise DisclosureError(
            f"{n:,} reports over {domain} values have {outcomes:.3g} outcomes, more than the "
            f"{MAX_ROWS:,} that can be enumerated, so only the theorems' bounds are given"
        )
    counts = _compositions(n, domain)
    lie_chance = 1 / (odds + domain - 1)
    log_odds = math.log(odds)
    log_ways = special.gammaln(n + 1) - special.gammaln(counts + 1).sum(axis=1) + n * math.log(lie_chance)
    with np.errstate(divide="ignore"):
        joint = counts * log_odds + np.log(prior)
    beliefs = np.exp(joint - special.logsumexp(joint, axis=1, keepdims=True))
    # Likelihood of each outcome, given each value.
    likelihoods = np.exp(log_ways[:, None] + counts * log_odds)
    likelihoods /= likelihoods.sum(axis=0)
    exceeds_ceiling = beliefs > ceilings * (1 + 1e-12)
    weighted = likelihoods * prior
    return RepeatedBeliefs(
        beliefs.max(axis=0),
        (likelihoods * exceeds_ceiling).sum(axis=0),
        float((weighted * beliefs).sum()),
        float(weighted.max(axis=1).sum()),
    )


def _compositions(n: int, parts: int) -> np.ndarray:
    """Return all ways to write n as an ordered sum of `parts` whole numbers >= 0, one per row."""
    rows, remaining = np.zeros((1, 0), np.int64), np.array([n])
    for _ in range(parts - 1):
        repeats = remaining + 1
        ends = np.cumsum(repeats)
        part = np.arange(ends[-1]) - np.repeat(ends - repeats, repeats)
        rows = np.column_stack([np.repeat(rows, repeats, axis=0), part])
        remaining = np.repeat(remaining, repeats) - part
    return np.column_stack([rows, remaining])
