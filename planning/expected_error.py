"""Predict the errors of an experiment's estimates before the first report, from exact variances.

A statistic r·x is a constant plus, for each stratum of the mechanism, the mean of a weight w(code) over its
reports (docs/mathematics.md). A given population determines the distribution of the codes, and with it the
variance of w: this includes correlations between values, common values and the sampling of the population.

One number describes the population: the share f of the values that the question is about. f is spread evenly
over these values, the rest evenly over all others. As a function of f a variance is a concave parabola, so
its worst case is also exact. A mean's population has a given standard deviation or is the worst case.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ..device.ldp_client import Experiment
from ..server.arrays import Floats
from ..server.estimate.reports_needed import bell_population
from ..server.experiments.payload import experiment_over
from ..server.mechanisms import Mechanism, mechanism_of
from ..server.mechanisms.choice import Choice
from ..server.mechanisms.workload import positions
from . import ratio_error
from .ratio_error import ShareCurves, share_curves, worst_mean
from .worst_population import worst_population

Kind = Literal["frequency", "range", "quantile", "mean"]
ANSWERS: dict[Kind, str] = {
    "frequency": "frequencies",
    "range": "ranges",
    "quantile": "quantiles",
    "mean": "mean",
}
"""The answer that a mechanism must support for each kind of question."""

_MAX_PAIRS = 2_000_000  # pairs of a code class and a statistic above which the statistics are sampled
_CHUNK = 1 << 21  # pairs in memory at once
_MIN_SAMPLE = 32  # smallest number of statistics in a sample
_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True)
class Question:
    """A question whose error is to be predicted.

    The error is the root of the mean square over all values, ranges or places that the quantile may have; for
    a list of ranges it is the largest error. It is a share of the devices or, for a mean, a fraction of the
    range.

    Attributes:
        kind: "frequency" of one value, "range" of a run of values, "quantile" (the share below it), or "mean"
            of a number.
        share: The population's share of the value or range, or the quantile; None for the share with the
            largest error.
        width: The number of values in each range, at any position; None, without `ranges`, for all ranges.
        ranges: Specific ranges, as half-open pairs of indices (low, high).
        spread: For a mean, the standard deviation of readings in a bell curve around the middle of the range,
            as a fraction of the range; None for the population with the largest error.
        missing: The share of the devices without a reading, which has a separate index; the question is
            about the others. None if a missing reading has no index.
    """

    kind: Kind = "range"
    share: float | None = None
    width: int | None = None
    ranges: tuple[tuple[int, int], ...] = ()
    spread: float | None = None
    missing: float | None = None

    @property
    def all_ranges(self) -> bool:
        """Whether the question is about every possible range."""
        return self.kind == "range" and self.width is None and not self.ranges


@dataclass(frozen=True)
class Design:
    """A mechanism over a domain of values.

    Attributes:
        domain: The number of values.
        epsilon: ε of a report, in micro-nats.
        choice: The mechanism and its parameters.
        missing: The share of the devices without a reading, which has an additional index; None without such
            an index.
    """

    domain: int
    epsilon: int
    choice: Choice
    missing: float | None = None

    @property
    def indices(self) -> int:
        """The number of values, plus one if a missing reading has an index."""
        return self.domain + (self.missing is not None)

    @cached_property
    def experiment(self) -> Experiment:
        """An experiment about the values with this mechanism."""
        return experiment_over(self.indices, self.epsilon, self.choice.fields())

    @cached_property
    def mechanism(self) -> Mechanism:
        """The mechanism for devices and estimates."""
        return mechanism_of(self.experiment)

    @cached_property
    def classes(self) -> int:
        """The number of code classes with different meanings."""
        return self.mechanism.class_count

    def answers(self, question: Question) -> bool:
        """Return whether estimates with this mechanism answer a question."""
        return ANSWERS[question.kind] in self.mechanism.answers


@dataclass(frozen=True)
class Parabola:
    """Variances of statistics as a + b f + c f², where f is their share; arrays of shape (n,)."""

    a: Floats
    b: Floats
    c: Floats

    def at(self, share: float | None) -> Floats:
        """Return variances at a share, or at each statistic's worst share."""
        f = self.worst_share if share is None else share
        return self.a + f * (self.b + f * self.c)

    @property
    def worst_share(self) -> Floats:
        """The shares with the largest variance, 0 to 1."""
        safe = np.where(self.c < 0, self.c, -1.0)
        return np.where(self.c < 0, np.clip(-self.b / (2 * safe), 0, 1), (self.b > 0).astype(float))

    def mean(self) -> Parabola:
        """Return the parabola of the mean over the statistics."""
        return Parabola(*(np.atleast_1d(x.mean()) for x in (self.a, self.b, self.c)))

    def select(self, indices: list[int]) -> Parabola:
        """Return the parabolas of some of the statistics."""
        return Parabola(self.a[indices], self.b[indices], self.c[indices])


def well_sampled(design: Design, question: Question, max_pairs: int = _MAX_PAIRS) -> bool:
    """Return whether variance() covers all statistics of the question, or as many as there are values.

    Args:
        design: The mechanism.
        question: The question.
        max_pairs: The limit, as in places().
    """
    if question.kind == "mean" or _closed_form(design, question) is not None:
        return True
    return design.classes * (len(question.ranges) or design.domain) <= max_pairs


@dataclass(frozen=True)
class Places:
    """The runs of values over which a question's error is a root mean square, as arrays of shape (n,).

    Attributes:
        low: The first index of each run.
        high: One more than the last index of each run.
        share: The share of each run in the population, spread evenly; the rest is spread evenly outside it.
        variance: The variance of each run's estimate, times the number of reports.
    """

    low: npt.NDArray[np.integer]
    high: npt.NDArray[np.integer]
    share: float
    variance: Floats

    def population(self, domain: int, place: int) -> Floats:
        """Return the shares of the values behind one place's variance, shape (domain,)."""
        inside = self.statistic(domain, place)
        width = int(self.high[place] - self.low[place])
        return self.share * inside / width + (1 - self.share) * (1 - inside) / (domain - width)

    def statistic(self, domain: int, place: int) -> Floats:
        """Return the question at one place as a weight for each value, shape (domain,)."""
        inside = np.zeros(domain)
        inside[self.low[place] : self.high[place]] = 1
        return inside


def missing_variance(design: Design) -> float:
    """Return the missing share's variance, times the number of reports, if values are equally common."""
    assert design.missing is not None
    shares = np.append(np.full(design.domain, (1 - design.missing) / design.domain), design.missing)
    return float(design.mechanism.variances(np.eye(design.indices, 1, -design.domain), shares)[0])


@dataclass(frozen=True)
class MeanPopulation:
    """The population that determines a mean's error, shape (domain,), and its variance, shape (1,)."""

    shares: Floats
    variance: Floats

    def population(self, domain: int, place: int) -> Floats:
        """Return the shares of the values, shape (domain,)."""
        return self.shares

    def statistic(self, domain: int, place: int) -> Floats:
        """Return each value's position in the range, shape (domain,)."""
        return positions(domain)


@lru_cache(maxsize=4096)
def variance(design: Design, question: Question) -> float:
    """Return the variance of the question's statistic, times the number of reports, with population sampling.

    It is exact up to a limit on pairs of a code class and a statistic, above which the mean over statistics
    uses an evenly spread sample of them.
    """
    closed_form = _closed_form(design, question)
    return float(question_places(design, question).variance.mean()) if closed_form is None else closed_form


def _closed_form(design: Design, question: Question) -> float | None:
    if question.kind != "frequency" or design.missing is not None:
        return None
    return design.mechanism.frequency_variance(question.share)


def question_places(design: Design, question: Question) -> Places | MeanPopulation:
    """Return the places over which a question's error is a root mean square."""
    return mean_population(design, question.spread) if question.kind == "mean" else places(design, question)


@lru_cache(maxsize=64)
def mean_population(design: Design, spread: float | None) -> MeanPopulation:
    """Return the population with a spread (a fraction of the range) or the worst one, and its error."""
    value_positions = positions(design.domain)
    if design.missing is not None:
        if spread is None:
            shares, variance = worst_mean(design.mechanism, value_positions, design.missing)
        else:
            shares = bell_population(design.domain, spread)
            variance = ratio_error.mean_variance(design.mechanism, value_positions, shares, design.missing)
        return MeanPopulation(shares, np.array([variance]))
    if spread is None:
        shares, variance = worst_population(design.mechanism, value_positions)
        return MeanPopulation(shares, np.array([variance]))
    shares = bell_population(design.domain, spread)
    return MeanPopulation(shares, design.mechanism.variances(value_positions[:, None], shares))


def places(design: Design, question: Question, max_pairs: int = _MAX_PAIRS) -> Places:
    """Return all places of a question or an even sample of them; for a list of ranges, only the worst place.

    Args:
        design: The mechanism.
        question: The question.
        max_pairs: The largest number of pairs of a code class and a place to use without sampling.
    """
    domain = design.domain
    if question.ranges:
        low, high = np.array(question.ranges).T
    else:
        low, high = _places(domain, question, max(_MIN_SAMPLE, max_pairs // design.classes))
    index = np.arange(domain)[:, None]
    step = max(1, _CHUNK // max(design.classes, domain))
    indicators = (
        (index >= low[i : i + step]) & (index < high[i : i + step]) for i in range(0, len(low), step)
    )
    joined: Parabola | ShareCurves
    if design.missing is None:
        parts = [parabola(design, part) for part in indicators]
        joined = Parabola(*(np.concatenate([getattr(p, name) for p in parts]) for name in "abc"))
    else:
        curves = [share_curves(design.mechanism, part.astype(float), design.missing) for part in indicators]
        joined = ShareCurves(np.concatenate([curve.values for curve in curves], axis=1))
    if question.ranges:
        worst = [int(np.argmax(joined.at(question.share)))]
        low, high, joined = low[worst], high[worst], joined.select(worst)
    share = float(joined.mean().worst_share[0]) if question.share is None else question.share
    return Places(low, high, share, joined.at(share))


def _places(domain: int, question: Question, max_count: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the half-open ends of all of a question's ranges, or of an even sample of `max_count` ranges."""
    prefixes = question.kind == "quantile" or domain == 2
    all_ranges = question.all_ranges and not prefixes
    width = question.width if question.kind == "range" and question.width else 1
    # The number of ranges with at most 1, 2, ... values.
    cumulative_counts = np.cumsum(domain + 1 - np.arange(1, domain))
    count = int(cumulative_counts[-1]) if all_ranges else domain - 1 if prefixes else domain - width + 1
    sample = np.arange(min(count, max_count))
    if count > max_count:
        # Multiples of the golden ratio are spread evenly and never align with the tree's nodes.
        sample = np.unique((sample * _GOLDEN % 1 * count).astype(np.int64))
    if domain == 2:
        return np.array([1]), np.array([2])
    if prefixes:
        return np.zeros_like(sample), sample + 1
    if all_ranges:
        length = np.searchsorted(cumulative_counts, sample, side="right")
        low = sample - np.append(0, cumulative_counts)[length]
        return low, low + length + 1
    return sample, sample + width


def parabola(design: Design, weights: npt.ArrayLike) -> Parabola:
    """Return variances, times the number of reports, of sums over values.

    Args:
        design: The mechanism.
        weights: Indicators of the values, shape (domain, n), each neither empty nor covering all values.
    """
    indicators = np.asarray(weights, float)
    inside = indicators.sum(axis=0)
    outside = design.domain - inside
    a, b, c = np.zeros((3, indicators.shape[1]))
    mechanism = design.mechanism
    law_of_all = mechanism.law(np.ones((design.domain, 1)))
    stratum_weights, _ = mechanism.weights(indicators, mechanism.stratum_chances)
    for w, chance, law_of_selection, total_law in zip(
        stratum_weights, mechanism.stratum_chances, mechanism.law(indicators), law_of_all, strict=True
    ):
        if w is None:
            continue
        first, second = [], []
        for law in (law_of_selection / inside, (total_law - law_of_selection) / outside):
            law *= w
            first.append(law.sum(axis=0))
            law *= w
            second.append(law.sum(axis=0))
        step = first[0] - first[1]
        a += (second[1] - first[1] ** 2) / chance
        b += (second[0] - second[1] - 2 * first[1] * step) / chance
        c -= step**2 / chance
    return Parabola(a, b, c)


def mean_variance(design: Design, population: Floats, weights: Floats) -> float:
    """Return the mean of the variances of statistics, times the number of reports.

    Args:
        design: The mechanism.
        population: The shares of the values, shape (domain,).
        weights: The statistics, shape (domain, n).
    """
    return float(design.mechanism.variances(weights, population).mean())
