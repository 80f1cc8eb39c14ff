"""Choose ε when a trusted curator answers with Laplace noise: Lee and Clifton's bounds on a posterior.

An attacker knows all records of a universe, and that the release holds n of them: m = C(N, n) possible
worlds, by default all but one record, m = N. The answer is q(world) plus Laplace noise of scale Δf/ε. With Δv
the largest difference of q between worlds, and a uniform prior, no answer makes a world more probable than

    upper    1/(1 + (m - 1) e^(-ε Δv/Δf))                   ε = (Δf/Δv) ln((m - 1) ρ/(1 - ρ)) for a risk ρ
    tight    max over worlds w of 1/Σ_w' e^(-ε |q(w) - q(w')|/Δf)                ε by bisection

An answer of exactly q(w) reaches the tight bound. Here, both bounds hold for any prior.

Lee, Clifton 2011, How much is enough? Choosing ε for differential privacy, ISC.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy import special

from ..planning.privacy.beliefs import DisclosureError, normalize_prior
from ..server.arrays import Floats
from .sensitivity import (
    ReleaseStatistic,
    Universe,
    bounded,
    check_distance,
    format_count,
    spread,
    unbounded,
    world_values,
)

_FEW = 256  # maximum number of distinct values for which all pairs are summed
MAX_WORLDS = 1_000_000
"""Maximum number of possible worlds whose posteriors are computed one by one."""


@dataclass(frozen=True)
class Worlds:
    """The possible worlds, with the statistic's value in each, their probabilities and the sensitivity Δf.

    Attributes:
        values: The statistic's values, shape (worlds,).
        prior: The worlds' probabilities, in the same order; None if all are equally likely.

    Raises:
        DisclosureError: If Δf is not above 0 although values differ, or the prior has another shape.
    """

    values: Floats
    sensitivity: float
    prior: Floats | None = None

    def __post_init__(self) -> None:
        values = np.asarray(self.values, dtype=np.float64)
        if values.ndim != 1 or len(values) < 2:
            raise DisclosureError("there must be at least 2 possible worlds")
        if self.prior is not None:
            object.__setattr__(self, "prior", normalize_prior(self.prior, len(values)))
        object.__setattr__(self, "values", values)
        _check_sensitivity(self.sensitivity, float(np.ptp(values)))

    @property
    def priors(self) -> Floats:
        """The belief in each world before the answer."""
        return np.full(len(self.values), 1 / len(self.values)) if self.prior is None else self.prior

    @property
    def spread(self) -> float:
        """Δv."""
        return float(np.ptp(self.values))

    def posterior(self, answer: float, epsilon: float) -> Floats:
        """Return the belief in each world after an answer with noise of scale Δf/ε, shape (worlds,).

        Raises:
            DisclosureError: If epsilon is not above 0, or the answer is not finite.
        """
        check_epsilon(epsilon)
        if not math.isfinite(answer):
            raise DisclosureError(f"an answer must be a finite number, not {answer}")
        distance = np.abs(self.values - answer)
        with np.errstate(divide="ignore"):
            log = np.log(self.priors) - epsilon * (distance - distance.min()) * self._scale
        return np.exp(log - special.logsumexp(log))

    def densities(self, answer: float, epsilon: float) -> Floats:
        """Return the answer's density e^(-|answer - value|/b)/2b, b = Δf/ε, in each world, shape (worlds,).

        Multiplied by the priors and divided by their sum they are the posteriors.

        Raises:
            DisclosureError: In the same cases as posterior(), and if the sensitivity is 0, because without
                noise an answer has no density.
        """
        check_epsilon(epsilon)
        if not self.sensitivity:
            raise DisclosureError("no two worlds differ, so no noise is added and an answer has no density")
        rate = epsilon / self.sensitivity
        return rate / 2 * np.exp(-rate * np.abs(self.values - answer))

    def confidence(self, answer: float, epsilon: float) -> float:
        """Return the amount by which an answer changes the belief in the best guess after it."""
        after = self.posterior(answer, epsilon)
        guess = int(after.argmax())
        return float(abs(after[guess] - self.priors[guess]))

    def tight(self, epsilon: float) -> float:
        """Return the highest exact belief in a world that any answer can cause.

        Args:
            epsilon: ε in nats, above 0 or inf.
        """
        if not epsilon > 0:
            check_epsilon(epsilon)
        values, mass, most = self._distinct
        if math.isinf(epsilon) and self._scale:
            sums = mass
        else:
            sums = _kernel_sums((values - values[0]) * self._scale, mass, epsilon if self._scale else 0.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            return min(1.0, float(np.nanmax(most / sums)))

    def tight_epsilon(self, risk: float) -> float | None:
        """Return the largest ε at which no belief in a world exceeds the risk, rounded down; None for any ε.

        Raises:
            DisclosureError: If the risk is outside (0, 1) or not above a prior.
        """
        _check_risk(risk, float(self.priors.max()))
        if self.tight(math.inf) <= risk:
            return None
        low, high = 0.0, 1.0
        while self.tight(high) <= risk:
            low, high = high, 2 * high
        while (middle := (low + high) / 2) not in (low, high) and high - low > 1e-13 * high:
            low, high = (middle, high) if self.tight(middle) <= risk else (low, middle)
        return low

    @cached_property
    def _distinct(self) -> tuple[Floats, Floats, Floats]:
        """The distinct values, ascending; for each, the total and the largest prior of its worlds."""
        values, place = np.unique(self.values, return_inverse=True)
        mass = np.bincount(place, self.priors).astype(np.float64)
        most = np.zeros(len(values))
        np.maximum.at(most, place, self.priors)
        return values, mass, most

    @property
    def _scale(self) -> float:
        return 1 / self.sensitivity if self.sensitivity else 0.0


def upper(epsilon: float, worlds: int, ratio: float, prior: float | None = None) -> float:
    """Return the upper bound on the posterior: 1/(1 + (m - 1) e^(-ε Δv/Δf)).

    Args:
        epsilon: ε in nats, >= 0.
        worlds: The number m of worlds, >= 2.
        ratio: Δv/Δf, >= 0.
        prior: The largest prior, if priors differ.
    """
    check_epsilon(epsilon)
    if not ratio:
        return _prior(worlds, prior)
    return float(special.expit(epsilon * ratio - _odds_against(worlds, prior)))


def upper_epsilon(risk: float, worlds: int, ratio: float, prior: float | None = None) -> float | None:
    """Return the largest ε with `upper` at most the risk: (Δf/Δv) ln((m - 1) ρ/(1 - ρ)); None for any ε.

    Raises:
        DisclosureError: If the risk is outside (0, 1) or not above the prior: no ε can meet it.
    """
    _check_risk(risk, _prior(worlds, prior))
    if ratio == 0:
        return None
    return (_odds_against(worlds, prior) + float(special.logit(risk))) / ratio


def _prior(worlds: int, prior: float | None) -> float:
    if worlds < 2:
        raise DisclosureError("there must be at least 2 possible worlds")
    return 1 / worlds if prior is None else prior


def _odds_against(worlds: int, prior: float | None) -> float:
    """Return ln((1 - π)/π), which is ln(m - 1) for a uniform prior, where m may have thousands of digits."""
    if prior is not None:
        return float(-special.logit(prior))
    _prior(worlds, prior)
    return math.log(worlds - 1)


def _kernel_sums(values: Floats, mass: Floats, epsilon: float) -> Floats:
    """Return Σ_j mass_j e^(-ε |v_i - v_j|) for ascending values, shape of values."""
    if len(values) <= _FEW:
        return np.exp(-epsilon * np.abs(values[:, None] - values)) @ mass
    # ln Σ_{j <= i} mass_j e^(ε v_j) - ε v_i, and the same from above, i itself counted once.
    with np.errstate(divide="ignore"):
        log = np.log(mass)
    up = np.logaddexp.accumulate(log + epsilon * values) - epsilon * values
    down = np.logaddexp.accumulate((log - epsilon * values)[::-1])[::-1] + epsilon * values
    return np.exp(up) + np.exp(down) - mass


# --- Choosing ε -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class EpsilonChoice:
    """A statistic's sensitivities over a universe, and each bound's ε for a risk.

    Attributes:
        worlds: The number m of possible worlds.
        sensitivity: The sensitivity Δf.
        spread: The largest difference Δv.
        upper_epsilon: None if any ε will do.
        tight_epsilon: None if any ε will do, or if it is unknown for the reason in `refused`.
        all: The worlds, if they were enumerated.
        likeliest: The largest prior; None if all are equally likely.
    """

    query: str
    worlds: int
    sensitivity: float
    spread: float
    upper_epsilon: float | None
    tight_epsilon: float | None
    refused: str
    all: Worlds | None
    likeliest: float | None = None

    def upper(self, epsilon: float) -> float:
        """Return the upper bound on the belief in any world after an answer at this ε."""
        return upper(epsilon, self.worlds, self.ratio, self.likeliest)

    @property
    def ratio(self) -> float:
        """The ratio Δv/Δf."""
        return self.spread / self.sensitivity if self.sensitivity else 0.0


def choose_epsilon(
    query: ReleaseStatistic,
    universe: Universe,
    risk: float,
    k: int = 1,
    neighbours: str = "unbounded",
    prior: npt.ArrayLike | None = None,
) -> EpsilonChoice:
    """Choose the ε that keeps every belief in a world within a risk, under both bounds.

    Args:
        query: The statistic to release.
        universe: The records.
        risk: The highest belief allowed.
        k: The number of records by which neighbours differ.
        neighbours: "unbounded", as in Lee and Clifton, or "bounded"; Δf is the sensitivity at distance k.
        prior: The worlds' probabilities, in the order of `world_values`.

    Raises:
        DisclosureError: If an argument is out of range, or if not even the upper bound can be computed.
    """
    check_distance(universe, k)
    worlds, refused = None, ""
    sensitivity = (bounded if neighbours == "bounded" else unbounded)(query, universe, k)
    try:
        if universe.worlds > MAX_WORLDS:
            raise DisclosureError(
                f"{format_count(universe.worlds)} possible worlds, above the limit of {MAX_WORLDS:,}"
            )
        values = world_values(query, universe)
        worlds = Worlds(values, sensitivity, None if prior is None else np.asarray(prior, np.float64))
        gap = worlds.spread
    except DisclosureError as e:
        if prior is not None:
            raise
        gap = spread(query, universe)
        refused = str(e) if gap else ""  # worlds that no answer distinguishes need not be enumerated
        _check_sensitivity(sensitivity, gap)
    largest = None if worlds is None or worlds.prior is None else float(worlds.prior.max())
    most = upper_epsilon(risk, universe.worlds, gap / sensitivity if sensitivity else 0.0, largest)
    tight = worlds.tight_epsilon(risk) if worlds else None
    return EpsilonChoice(query.name, universe.worlds, sensitivity, gap, most, tight, refused, worlds, largest)


def _check_sensitivity(sensitivity: float, gap: float) -> None:
    if not 0 <= sensitivity < math.inf:
        raise DisclosureError(f"a sensitivity must be 0 or more and finite, not {sensitivity}")
    if sensitivity == 0 and gap:
        raise DisclosureError("the sensitivity is 0 although worlds differ: no noise would be added at all")


def check_epsilon(epsilon: float) -> None:
    """Raise DisclosureError unless ε (nats) is finite and above 0."""
    if not 0 < epsilon < math.inf:
        raise DisclosureError(f"epsilon must be above 0 and finite (nats), not {epsilon}")


def _check_risk(risk: float, prior: float) -> None:
    if not 0 < risk < 1:
        raise DisclosureError(f"a risk must be a probability between 0 and 1, such as 1/3, not {risk:g}")
    if risk <= prior:
        raise DisclosureError(
            f"before any answer a world has probability {prior:.6g} already, and {risk:.6g} is the most "
            "allowed: no ε can do that"
        )
