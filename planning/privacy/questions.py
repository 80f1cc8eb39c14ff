"""Answers disclosure questions about a fleet, from a risk to an ε or from an ε to beliefs."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ...device.ldp_client import EPSILON_MAX, EPSILON_MIN, Experiment
from ...server.arrays import Floats
from ...server.epsilon import MICRO
from ...server.experiments.payload import MECHANISM_NAMES, chosen_fields, experiment_over, mechanism_fields
from ...server.experiments.units import index_names, parse_range
from ...server.mechanisms import mechanism_of
from ...server.mechanisms.workload import FREQUENCIES
from ...server.typed_numbers import plain_whole_number
from . import beliefs as disclosure
from .beliefs import AllowedLoss, ByEpsilon, DisclosureError, Risk, Target
from .many_reports import BudgetRow, LossRow, RepeatedBeliefs, budget_rows, loss_rows, repeated_reports

MAX_VALUES = 12
"""The largest number of values to list; those most at risk come first."""


@dataclass(frozen=True)
class Values:
    """The possible values of a board: an experiment's, or (bare) a number of meaningless values."""

    experiment: Experiment
    bare: bool = False

    @property
    def names(self) -> list[str]:
        """The name of each index.

        Raises:
            UnitsError: If the experiment is about texts, which have no list of values.
        """
        if self.bare:
            return [f"value {i}" for i in range(self.experiment.domain)]
        return index_names(self.experiment)

    def target(self, text: str) -> Target:
        """Return the values in a text: low:high (units or indices), or one or more labels with commas.

        Raises:
            UnitsError: If the experiment does not have such values.
            DisclosureError: If the text is malformed.
        """
        if self.experiment.type == "number" and not self.bare:
            bounds = parse_range(self.experiment, text)
            return Target(bounds.text, tuple(range(bounds.low, bounds.high)))
        members: list[int] = []
        for part in text.split(","):
            if self.bare:
                members += self._bare(part)
            else:
                label = parse_range(self.experiment, part.strip())
                members += range(label.low, label.high)
        return Target(self._name(text) if self.bare else text, tuple(dict.fromkeys(members)))

    def _name(self, text: str) -> str:
        low, colon, high = text.partition(":")
        if not colon or "," in text:
            return f"value {text}"
        return f"values {int(low or 0)} to {int(high or self.experiment.domain) - 1}"

    def _bare(self, text: str) -> range:
        low, colon, high = text.partition(":")
        domain = self.experiment.domain
        try:
            start = int(plain_whole_number(low or "0"))
            end = int(plain_whole_number(high or f"{domain}")) if colon else start + 1
        except ValueError:
            start = end = -1
        if not 0 <= start < end <= domain:
            raise DisclosureError(f"values must be 0 to {domain - 1}, or low:high up to {domain}, not {text}")
        return range(start, end)


def check_domain(domain: int) -> int:
    """Return a valid number of values unchanged.

    Raises:
        DisclosureError: If it is below 2 or above 2**24.
    """
    if not 2 <= domain <= 1 << 24:
        raise DisclosureError(f"there must be 2 to {1 << 24:,} values, not {domain}")
    return domain


def bare_values(domain: int) -> Values:
    """Return values without meaning.

    Raises:
        DisclosureError: In the same cases as check_domain().
    """
    check_domain(domain)
    return Values(experiment_over(domain, MICRO, mechanism_fields("rr" if domain == 2 else "grr")), bare=True)


def choose_mechanism(domain: int, name: str) -> ByEpsilon:
    """Return the mechanism that the variance formulas choose for a domain, separately for every ε.

    Args:
        domain: The number of values.
        name: "auto" for the best one for single frequencies, "hh" for ranges, or another mechanism.

    Raises:
        DisclosureError: If there is no such mechanism, or it does not support the domain.
        NoMechanism: If no mechanism fits; raised only when the result is called.
    """

    def at(epsilon: int) -> Experiment:
        return experiment_over(domain, epsilon, chosen_fields(domain, epsilon, FREQUENCIES, name))

    if name not in MECHANISM_NAMES:
        raise DisclosureError(f"unknown mechanism {name}; choose from {', '.join(MECHANISM_NAMES)}")
    if name == "rr" and domain != 2:
        raise DisclosureError(f"rr supports only 2 values, not {domain}; use auto")
    return at


@dataclass(frozen=True)
class Attacker:
    """An attacker, with the data seen, the prior and the targets.

    Attributes:
        values: The possible values.
        at: The mechanism at any ε.
        prior: The prior over the values, shape (domain,).
        targets: The facts that the attacker wants to learn, or None for each single value.
        reports: The number of reports that a board makes over its lifetime, or None to consider only one.
        fails: The probability, in [0, 1), that theorems with a δ may fail.
    """

    values: Values
    at: ByEpsilon
    prior: Floats
    targets: tuple[Target, ...] | None = None
    reports: int | None = None
    fails: float = 0.0


@dataclass(frozen=True)
class Belief:
    """An attacker's belief in a value.

    Attributes:
        name: The value's name.
        prior: The belief before.
        posterior: The exact belief after the worst single report.
        bound: The bound on the belief for any ε-LDP mechanism.
        alike: The number of other values with the same beliefs.
    """

    name: str
    prior: float
    posterior: float
    bound: float
    alike: int = 0


@dataclass(frozen=True)
class RiskEpsilons:
    """The ε that keep a risk, in nats.

    Attributes:
        risk: The risk.
        allowed: The bound for any mechanism, on everything that a board ever sends.
        exact: ε of one report under `mechanism`, or None if no valid ε keeps the risk.
        changes: Whether another mechanism would be chosen slightly above `exact`.
        mechanism: The mechanism, or None.
        beliefs: The beliefs at `exact`, those most at risk first.
        reports: The number of reports, or None for one.
        rows: Each theorem's ε for the reports, which is None for any.
        passes: For each row, the exact probability that the belief in a constant true value exceeds its
            ceiling, or None if unknown.
        refused: The reason that `passes` is unknown, or "".
    """

    risk: Risk
    allowed: AllowedLoss
    exact: float | None
    changes: bool
    mechanism: Experiment | None
    beliefs: tuple[Belief, ...]
    reports: int | None
    rows: tuple[BudgetRow, ...]
    passes: tuple[float | None, ...]
    refused: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        total = self.allowed.total
        rows = [asdict(row) | {"exact_chance": p} for row, p in zip(self.rows, self.passes, strict=True)]
        return {
            "risk": str(self.risk),
            "tightest": {
                "target": self.allowed.target,
                "prior": self.allowed.prior,
                "posterior": self.allowed.ceiling,
            },
            "epsilon_any_mechanism": None if total is None else total / MICRO,
            "epsilon_one_report": self.exact,
            "mechanism": self.mechanism and _describe(self.mechanism),
            "mechanism_changes_above": self.changes,
            "beliefs": [asdict(b) for b in self.beliefs],
            "reports": self.reports,
            "theorems": rows,
            "exact_chance_refused": self.refused,
        }


@dataclass(frozen=True)
class EpsilonBeliefs:
    """An attacker's beliefs after reports of a given ε.

    Attributes:
        experiment: The experiment.
        beliefs: The beliefs after one report, those most at risk first.
        reports: The number of reports, or None for one.
        rows: The loss of the reports under each theorem.
        posteriors: For each row, the bound on the first belief.
        repeated: Exact beliefs if one value never changes and reports are direct, or None.
        refused: The reason that `repeated` is None, or "".
    """

    experiment: Experiment
    beliefs: tuple[Belief, ...]
    reports: int | None
    rows: tuple[LossRow, ...]
    posteriors: tuple[float, ...]
    repeated: RepeatedBeliefs | None
    refused: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        repeated = None
        if self.repeated:
            repeated = {
                "worst_beliefs": self.repeated.worst.tolist(),
                "mean_belief_in_the_truth": self.repeated.mean,
                "best_guess_right": self.repeated.guess,
            }
        rows = [asdict(row) | {"posterior": p} for row, p in zip(self.rows, self.posteriors, strict=True)]
        return {
            "mechanism": _describe(self.experiment),
            "epsilon": self.experiment.epsilon / MICRO,
            "beliefs": [asdict(b) for b in self.beliefs],
            "reports": self.reports,
            "theorems": rows,
            "repeated": repeated,
            "repeated_refused": self.refused,
        }


def _describe(experiment: Experiment) -> dict[str, Any]:
    return {
        "mechanism": experiment.mechanism,
        "domain": experiment.domain,
        "cells": [level.g for level in experiment.levels],
    }


def from_risk(attacker: Attacker, risk: Risk) -> RiskEpsilons:
    """Return the largest ε that keep a risk.

    Raises:
        DisclosureError: If a prior already exceeds the risk.
    """
    prior, targets, reports = attacker.prior, attacker.targets, attacker.reports
    all_targets = disclosure.singles(prior, attacker.values.names) if targets is None else targets
    allowed = disclosure.allowed_loss(prior, all_targets, risk)
    largest = disclosure.largest_epsilon(attacker.at, prior, targets, risk)
    experiment = attacker.at(largest) if largest else None
    beliefs = _beliefs(experiment, attacker) if experiment else ()
    rows: list[BudgetRow] = []
    passes: list[float | None] = []
    refused = ""
    if reports is not None and allowed.total:
        rows = budget_rows(allowed.total, reports, attacker.fails)
        passes, refused = _passes(experiment, attacker, risk, reports, rows)
    exact = None if largest is None else largest / MICRO
    changes = experiment is not None and _describe(
        attacker.at(min(experiment.epsilon + 1, EPSILON_MAX))
    ) != _describe(experiment)
    return RiskEpsilons(
        risk, allowed, exact, changes, experiment, beliefs, reports, tuple(rows), tuple(passes), refused
    )


def from_epsilon(attacker: Attacker, epsilon: int) -> EpsilonBeliefs:
    """Return beliefs after one report of epsilon micro-nats, and after all of a board's reports."""
    experiment, reports = attacker.at(epsilon), attacker.reports
    beliefs = _beliefs(experiment, attacker)
    rows: list[LossRow] = []
    repeated, refused = None, ""
    if reports is not None:
        rows = loss_rows(experiment.epsilon, reports, attacker.fails)
        try:
            repeated = _repeat(experiment, attacker.prior, reports, np.ones(len(attacker.prior)))
        except DisclosureError as e:
            refused = str(e)
    first = beliefs[0].prior if beliefs else 0.0
    posteriors = tuple(disclosure.posterior_bound(first, row.loss) for row in rows)
    return EpsilonBeliefs(experiment, beliefs, reports, tuple(rows), posteriors, repeated, refused)


def _beliefs(experiment: Experiment, attacker: Attacker) -> tuple[Belief, ...]:
    prior, epsilon = attacker.prior, experiment.epsilon / MICRO
    if attacker.targets is not None:
        selection = [
            (t.name, t.prior(prior), disclosure.worst_posterior(experiment, prior, t))
            for t in attacker.targets
        ]
        others = [0] * len(selection)
    else:
        posteriors, names = disclosure.worst_posteriors(experiment, prior), attacker.values.names
        pairs = np.stack([prior, posteriors], axis=1).round(12)
        _, first_indices, group_sizes = np.unique(pairs, axis=0, return_index=True, return_counts=True)
        worst = np.lexsort((first_indices, -posteriors[first_indices].round(12)))[:MAX_VALUES]
        selection = [(names[i], float(prior[i]), float(posteriors[i])) for i in first_indices[worst].tolist()]
        others = (group_sizes[worst] - 1).tolist()
    return tuple(
        Belief(name, p, posteriors, disclosure.posterior_bound(p, epsilon), n)
        for (name, p, posteriors), n in zip(selection, others, strict=True)
    )


def _repeat(experiment: Experiment, prior: Floats, reports: int, ceilings: Floats) -> RepeatedBeliefs:
    mechanism = mechanism_of(experiment)
    if not mechanism.direct:
        raise DisclosureError(
            f"{experiment.mechanism} draws a new hash or level for every report, so there are too many "
            "outcomes to enumerate "
            "and only the theorems' bounds are given"
        )
    return repeated_reports(prior, mechanism.odds, reports, ceilings)


def _passes(
    experiment: Experiment | None, attacker: Attacker, risk: Risk, reports: int, rows: Sequence[BudgetRow]
) -> tuple[list[float | None], str]:
    """Return each row's exact worst probability that the belief in a true value exceeds its ceiling."""
    chances: list[float | None] = [None] * len(rows)
    if experiment is None or attacker.targets is not None:
        return chances, "it is available only for single values; omit --about" if experiment else ""
    prior, mechanism = attacker.prior, disclosure.fixed_mechanism(experiment)
    ceilings = np.array([min(1.0, float(risk.ceiling(float(p)))) for p in prior])
    for i, row in enumerate(rows):
        if row.epsilon is None or not EPSILON_MIN <= round(row.epsilon * MICRO) <= EPSILON_MAX:
            continue
        try:
            repeated = _repeat(mechanism(round(row.epsilon * MICRO)), prior, reports, ceilings)
        except DisclosureError as e:
            return [None] * len(rows), str(e)
        chances[i] = min(1.0, float(repeated.passes.max()))
    return chances, ""
