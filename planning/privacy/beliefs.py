"""Bounds an attacker's beliefs about a board's value after its reports, and derives ε from a risk.

An attacker holds a prior π over the values and sees codes. By the mechanism's law, one report moves the
belief in a value v to π_v Pr[code | v] / Σ π_u Pr[code | u]. If codes support values, and are R times
likelier for those than for others, that is π_v R / (1 + (R - 1) π(S)), which is largest for the supported set
S with the least mass. Under any ε-LDP mechanism it stays below π e^ε / (1 - π + π e^ε); so does the belief in
a set of values. Direct answers (rr, grr) reach that bound, hashed ones do not.

ε of an Experiment is in whole micro-nats; priors and posteriors are probabilities.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import partial

import numpy as np
import numpy.typing as npt

from ...device.ldp_client import EPSILON_MAX, EPSILON_MIN, Experiment, ExperimentRefused
from ...server.accounting.theorem import below, exact_arithmetic, largest
from ...server.arrays import Floats
from ...server.epsilon import MICRO
from ...server.errors import HushmoteError
from ...server.experiments.payload import NoMechanism, at_epsilon
from ...server.mechanisms import mechanism_of
from ...server.typed_numbers import typed_fraction

_ROUNDING = 1e-12  # largest relative error in the sum of a prior


class DisclosureError(HushmoteError):
    """Raised for an impossible risk, prior or release; the message says what was expected."""


@dataclass(frozen=True)
class Risk:
    """A limit on a belief, given as exactly one of `most` and `factor`.

    Attributes:
        most: The largest belief, a probability.
        factor: The largest factor by which the belief may grow.

    Raises:
        DisclosureError: If `most` is outside (0, 1), or `factor` is at most 1.
    """

    most: Fraction | None = None
    factor: Fraction | None = None

    def __post_init__(self) -> None:
        if (self.most is None) == (self.factor is None):
            raise DisclosureError("give a risk either as a probability or as a factor")
        if self.most is not None and not 0 < self.most < 1:
            raise DisclosureError(
                f"a risk must be a probability between 0 and 1, such as 1/4, not {self.most}"
            )
        if self.factor is not None and not self.factor > 1:
            raise DisclosureError(f"a factor must be above 1 (2 at most doubles a belief), not {self.factor}")

    def ceiling(self, prior: float) -> Fraction:
        """Return the highest belief that the risk allows for this prior; 1 or more allows any belief."""
        if self.most is not None:
            return self.most
        assert self.factor is not None
        return self.factor * Fraction(prior)

    def __str__(self) -> str:
        if self.most is not None:
            return f"at most {self.most}" if self.most.denominator < 1000 else f"at most {float(self.most):g}"
        assert self.factor is not None
        return f"at most {float(self.factor):g} times as likely as before"


@dataclass(frozen=True)
class Target:
    """A fact that an attacker wants to learn: the value is one of the distinct indices `members`."""

    name: str
    members: tuple[int, ...]

    def prior(self, prior: Floats) -> float:
        """Return the belief before any report."""
        return min(1.0, math.fsum(prior[list(self.members)]))


def uniform(domain: int) -> Floats:
    """Return the uniform prior, shape (domain,).

    Raises:
        DisclosureError: If there are fewer than 2 values.
    """
    if domain < 2:
        raise DisclosureError(f"there must be at least 2 values, not {domain}")
    return np.full(domain, 1 / domain)


def normalize_prior(prior: npt.ArrayLike, domain: int) -> Floats:
    """Return a prior over the values, shape (domain,), that sums to 1.

    Raises:
        DisclosureError: If it has another shape, a negative or infinite number, or another sum (by more than
            1e-9).
    """
    uniform(domain)
    probabilities = np.asarray(prior, dtype=np.float64)
    if probabilities.shape != (domain,):
        raise DisclosureError(f"the prior has {probabilities.size} numbers, but there are {domain} values")
    if not (np.isfinite(probabilities).all() and (probabilities >= 0).all()):
        raise DisclosureError("each of a prior's probabilities must be 0 or more")
    total = math.fsum(probabilities)
    if abs(total - 1) > 1e-9:
        raise DisclosureError(
            f"the prior sums to {total:.9g}, not 1; use weights:w0:w1:... to have it normalized"
        )
    return probabilities / total


# --- One report -----------------------------------------------------------------------------------


def posterior_bound(prior: float, epsilon: float) -> float:
    """Return the largest belief after reports that together are epsilon-LDP: π e^ε/(1 - π + π e^ε).

    Args:
        prior: The belief before, in [0, 1].
        epsilon: ε of the reports, in nats, at least 0; may be infinite.
    """
    if prior == 0:
        return 0.0
    return 1 / (1 + (1 - prior) / prior * math.exp(-epsilon))


def worst_posteriors(experiment: Experiment, prior: Floats) -> Floats:
    """Return the exact largest belief in each value after one report, shape (domain,).

    It is the maximum over all codes and, for hh, over all levels that can be drawn.
    """
    return np.minimum(prior * mechanism_of(experiment).lift(prior), 1.0)


def worst_posterior(experiment: Experiment, prior: Floats, target: Target) -> float:
    """Return the exact largest belief in a set of values after one report, the maximum over codes."""
    inside = np.zeros(experiment.domain)
    inside[list(target.members)] = prior[list(target.members)]
    worst = target.prior(prior)
    mechanism = mechanism_of(experiment)
    laws = mechanism.law(np.stack([prior, inside], axis=1))
    for chance, law in zip(mechanism.stratum_chances, laws, strict=True):
        if chance:
            worst = max(worst, float((law[:, 1] / law[:, 0]).max()))
    return min(worst, 1.0)


# --- ε from a risk --------------------------------------------------------------------------------


def loss_allowed(prior: float, ceiling: Fraction) -> Decimal | None:
    """Return the nats from a prior to its ceiling, rounded down: ln(c(1 - π)/(π(1 - c))).

    It is None if any loss is allowed because the prior is 0 or the ceiling is 1 or more.

    Raises:
        DisclosureError: If the prior is not below the ceiling, because no ε can lower it.
    """
    if ceiling >= 1 or prior <= 0:
        return None
    with exact_arithmetic():
        exact_prior = Fraction(prior)
        if exact_prior >= ceiling:
            raise DisclosureError(
                f"the belief is already {prior:.6g} before any report, above the maximum of "
                f"{float(ceiling):.6g}, so no ε keeps the risk"
            )
        odds = ceiling * (1 - exact_prior) / (exact_prior * (1 - ceiling))
        return below((Decimal(odds.numerator) / Decimal(odds.denominator)).ln())


@dataclass(frozen=True)
class AllowedLoss:
    """The loss that a risk allows.

    Attributes:
        total: The loss in micro-nats, rounded down, or None for any.
        target: The name of the target that limits it.
        prior: The belief in that target before.
        ceiling: The highest belief in it afterwards.
    """

    total: int | None
    target: str
    prior: float
    ceiling: float


def allowed_loss(prior: Floats, targets: Sequence[Target], risk: Risk) -> AllowedLoss:
    """Return the largest ε, across everything a board ever sends, that keeps all targets within the risk.

    It follows from the bound, so it holds for any mechanism.

    Raises:
        DisclosureError: If a prior is already above the risk; the text names the target.
    """
    tightest = AllowedLoss(None, "", 0.0, 1.0)
    for target in targets:
        target_prior = target.prior(prior)
        ceiling = risk.ceiling(target_prior)
        try:
            loss = loss_allowed(target_prior, ceiling)
        except DisclosureError as e:
            raise DisclosureError(f"{target.name}: {e}") from None
        if loss is None:
            continue
        total = int(loss * MICRO)
        if tightest.total is None or total < tightest.total:
            tightest = AllowedLoss(total, target.name, target_prior, float(ceiling))
    return tightest


def singles(prior: Floats, names: list[str]) -> list[Target]:
    """Return values as targets, one per distinct prior because equal priors have equal limits."""
    _, first = np.unique(prior, return_index=True)
    return [Target(names[i], (i,)) for i in np.sort(first).tolist()]


def keeps_risk(
    experiment: Experiment, prior: Floats, targets: Sequence[Target] | None, risk: Risk, slack: float = 0.0
) -> bool:
    """Return whether the belief in every target stays within the risk after one report, whatever its code.

    Args:
        experiment: The experiment.
        prior: The prior over the values, shape (domain,).
        targets: The targets, or None to check each value separately.
        risk: The accepted risk.
        slack: Required distance of a belief from its ceiling, as a share of the ceiling.
    """
    margin = 1 - slack
    if targets is None:
        posteriors = worst_posteriors(experiment, prior)
        if risk.most is not None:
            return bool(posteriors.max() <= float(risk.most) * margin)
        assert risk.factor is not None
        ceilings = float(risk.factor) * prior
        return bool(((posteriors <= ceilings * margin) | (ceilings >= 1)).all())
    for target in targets:
        ceiling = float(risk.ceiling(target.prior(prior)))
        if ceiling < 1 and worst_posterior(experiment, prior, target) > ceiling * margin:
            return False
    return True


ByEpsilon = Callable[[int], Experiment]
"""A function that returns an experiment at an ε in micro-nats, or raises ExperimentRefused or NoMechanism."""


def largest_epsilon(
    mechanism: ByEpsilon, prior: Floats, targets: Sequence[Target] | None, risk: Risk
) -> int | None:
    """Return the largest ε in micro-nats at which one report keeps the risk, from exact posteriors.

    It is found by bisection over the valid ε, from 1,000 to 16,000,000, and rounded down; None if even the
    smallest does not keep the risk. If a mechanism's cells change with ε, it is an ε that keeps the risk and
    whose successor in the bisection does not.
    """

    def fits(epsilon: int) -> bool:
        try:
            return keeps_risk(mechanism(epsilon), prior, targets, risk, _ROUNDING)
        except (ExperimentRefused, NoMechanism):
            return epsilon < MICRO  # ε is too small for any cells, so search higher

    epsilon = EPSILON_MIN - 1 + largest(lambda n: fits(EPSILON_MIN - 1 + n), EPSILON_MAX - EPSILON_MIN + 1)
    if epsilon < EPSILON_MIN:
        return None
    try:
        mechanism(epsilon)
    except (ExperimentRefused, NoMechanism):
        return None
    return epsilon


def fixed_mechanism(experiment: Experiment) -> ByEpsilon:
    """Return a function that gives the experiment's mechanism, with the same cells, at any ε."""
    return partial(at_epsilon, experiment)


def fraction(text: str, subject: str) -> Fraction:
    """Return the number in "0.25", "25%", "1/4" or "1e-6", exactly.

    Raises:
        DisclosureError: If the text is not a number.
    """
    try:
        return typed_fraction(text)
    except (ValueError, ZeroDivisionError):
        raise DisclosureError(f"{subject} must be a number such as 0.25 or 1/4, not {text}") from None
