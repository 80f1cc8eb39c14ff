"""The server's view of a mechanism: a linear map from a population to the chances of its codes, and back.

Everything that the server computes about a fleet follows from `law` and `weights`: estimates, their errors,
the expected error of a design, the beliefs of an attacker, the expectations of an audit, the effect of forged
reports. It is written here once, for every mechanism. A mechanism overrides only what it can do faster.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from ...device.ldp_client import Experiment
from ..arrays import Array, Counts, Floats
from .choice import Choice
from .decoded_histogram import Decoded
from .invariants import Check, even_runs, known_chances
from .workload import Workload

_CHUNK = 1 << 22  # floats in memory at once


@dataclass(frozen=True)
class Stratum:
    """A group of codes whose total chance does not depend on the reading.

    Attributes:
        chance: The probability that a report is in this stratum; over all strata they sum to 1.
        first: The number of the first of its codes.
        codes: The number of its codes.
        runs: The number of equally long runs of neighbouring codes, all equally likely whatever the reading
            (for a hash: its seeds); 1 if all of the code depends on the reading.
    """

    chance: float
    first: int
    codes: int
    runs: int = 1


@dataclass(frozen=True)
class TextSearch:
    """Texts that devices may have sent, with estimates from reports that the search did not use.

    Attributes:
        texts: The candidates.
        whole: For each, whether it is complete; False if it may continue.
        shares: Their estimates, shape (n,).
        chance: The same estimates for texts that nobody sent, placed as the hash functions place any text; at
            least 25 for each candidate, shape (m,).
        needs: The share above which the search finds a text about 9 times in 10; 0 if it tries all texts.
    """

    texts: Sequence[str]
    whole: Sequence[bool]
    shares: Floats
    chance: Floats
    needs: float = 0.0


Weights = tuple[Iterable[Floats | None], Floats]
"""For n statistics: for each stratum the weights of its classes, shape (classes, n), or None if it has no
reports, and the constants, shape (n,)."""


class Mechanism(ABC):
    """An experiment's channel: the distribution of its codes given the readings, and the estimators.

    A *class* is a set of codes that mean the same; classes are ordered by stratum, an array for each. A
    statistic of weights r, shape (domain, n), is estimated by a constant plus, for each stratum, the mean of
    a weight over its reports. A mechanism must define law, weights and draw, and also collapse and expand if
    several codes mean the same.

    Privacy:
        That of the board's code; tests/contracts enumerates it.

    Utility:
        `weights` is unbiased, unless the mechanism is approximate.
    """

    answers: ClassVar[frozenset[str]] = frozenset({"frequencies", "ranges", "quantiles", "mean"})
    """The possible questions: "frequencies", "ranges", "quantiles", "mean"; or "discovery" by search()."""
    approximate: ClassVar[bool] = False
    """Whether estimates have a bias that more reports do not remove, such as that of fixed hash functions.

    Intervals then include it, and answers are marked as approximate.
    """
    parameters: ClassVar[tuple[str, ...]] = ()
    """The names of its own fields in an experiment's JSON."""
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = ()
    """Fields of small experiments, which tests/contracts enumerates: type, mechanism and what they need."""
    generation: ClassVar[int] = 1
    """1 for mechanisms that all boards have; later ones are chosen only if worth a file on boards."""
    board: ClassVar[Path | None] = None
    """The file that boards need for a mechanism of your own; those of shipped mechanisms are in device/."""
    direct: ClassVar[bool] = False
    """Whether a code is a value, drawn anew for each report by one fixed rule."""

    takes_missing: ClassVar[bool] = True
    """Whether it supports one more index for a missing reading."""

    reads: ClassVar[Literal["", "pair", "prefixes"]] = ""
    """The only kind of reading that it supports: a pair, or a text with prefixes; "" for all with values."""

    def __init__(self, experiment: Experiment):
        self.experiment = experiment
        self.domain = experiment.domain

    @classmethod
    def designs(cls, domain: int, epsilon: int, workload: Workload) -> Iterable[Choice]:
        """Return its parameters of least variance for a workload, or nothing if it does not fit or suit it.

        The variance is the mean over the workload, times reports; for single frequencies that of a value of
        the workload's share, otherwise that of an even population.

        Args:
            domain: The number of indices, at least 2.
            epsilon: ε of a report, in micro-nats.
            workload: The statistics to estimate.
        """
        return ()

    @cached_property
    def strata(self) -> tuple[Stratum, ...]:
        """The strata, in the order of their codes; most mechanisms have one."""
        return (Stratum(1.0, 0, self.experiment.code_count),)

    @abstractmethod
    def law(self, shares: Floats) -> list[Floats]:
        """Return the chance of each class in its stratum, linear in the shares.

        The arrays are new, as from weights(): the caller may change them.

        Args:
            shares: The shares of the indices, shape (domain,) or (domain, n).

        Returns:
            For each stratum an array of shape (classes,) or (classes, n).
        """

    @abstractmethod
    def weights(self, statistic: Floats, reports: Sequence[float]) -> Weights:
        """Return weights and constants that estimate statistics without bias.

        Args:
            statistic: Weights of the values, shape (domain, n).
            reports: The number of reports of each stratum, or any numbers in proportion to them.
        """

    @abstractmethod
    def draw(self, indices: npt.NDArray[np.uint32], rng: np.random.Generator) -> npt.NDArray[np.uint32]:
        """Return a code for each index of an array, with the same distribution as on the board."""

    def bias(self, statistic: Floats, reports: Sequence[float]) -> Floats:
        """Return the bias of each statistic in a fleet whose devices all have one value, shape (domain, n).

        Args:
            statistic: Weights of the values, shape (domain, n).
            reports: The number of reports of each stratum.
        """
        weights, constant = self.weights(statistic, reports)
        used, result = list(weights), constant - statistic
        for values, alone in self.columns():
            for w, law in zip(used, self.law(alone), strict=True):
                if w is not None:
                    result[values] += law.T @ w
        return result

    def search(self, counts: Counts) -> TextSearch:
        """Search for texts in a histogram of codes, shape (code_count,), if `answers` has "discovery"."""
        raise NotImplementedError

    def drawable(self, indices: Sequence[int]) -> Array:
        """Return indices in the form that draw() expects, a row for each."""
        return np.array(indices, np.uint32)

    def fields(self) -> dict[str, Any]:
        """Return its fields in an experiment's JSON: its name, and its parameters if it has any."""
        return {"mechanism": self.experiment.mechanism}

    def words(self) -> str:
        """Return the name and parameters for readers."""
        return self.experiment.mechanism

    @property
    def plainly(self) -> str:
        """A sentence for lay readers on how a board answers, or "" to use the docstring."""
        return ""

    def collapse(self, counts: Counts) -> list[Counts]:
        """Sum a histogram of codes, shape (code_count,), over the classes."""
        return [counts[s.first : s.first + s.codes] for s in self.strata]

    def expand(self, values: Sequence[Array]) -> Array:
        """Give every code the value of its class, shape (code_count,)."""
        return np.concatenate(values)

    def answered_statistics(self) -> Floats:
        """Return statistics whose linear combinations it answers: all, (domain, n), or only the mean."""
        if "frequencies" in self.answers:
            return np.eye(self.domain)
        return np.linspace(0, 1, self.domain)[:, None][:, : "mean" in self.answers]

    def lacks(self, reports: Sequence[int]) -> str:
        """Return why nothing can be estimated from these numbers of reports of the strata, or ""."""
        return ""

    def unknown(self, statistic: Floats, reports: Sequence[float]) -> str:
        """Return why some statistics cannot be estimated while others can, or "".

        Weights leave out the parts that cannot be estimated.

        Args:
            statistic: Weights of the values, shape (domain, n).
            reports: The number of reports of each stratum.
        """
        return ""

    def decode(self, counts: Counts) -> Decoded:
        """Return the decoded histogram.

        Args:
            counts: The histogram of codes, shape (code_count,), not all 0.
        """
        return Decoded(self, self.collapse(counts))

    def invariants(self, counts: Counts) -> Iterator[Check]:
        """Check what an honest fleet cannot break: the chances of strata and runs.

        Args:
            counts: The histogram of codes, shape (code_count,).
        """
        parts = [counts[s.first : s.first + s.codes] for s in self.strata]
        yield from known_chances([s.chance for s in self.strata], [int(part.sum()) for part in parts])
        for number, (stratum, part) in enumerate(zip(self.strata, parts, strict=True)):
            yield from even_runs(part, stratum.runs, self.stratum_number(number))

    def stratum_number(self, stratum: int) -> int | None:
        """Return a stratum's number, or None if there is only one."""
        return stratum if len(self.strata) > 1 else None

    def blanket(self) -> tuple[float, float, float] | None:
        """Return (E, K, γ) of accounting.Blanket, or None if only the odds are known.

        E is at least `odds`, K is for codes that support one of two readings but not the other, and γ for any
        code. It is used for shipped mechanisms only: for your own, whose check may not have been run, the ε
        of a report is used.
        """
        return None

    # --- Derived from the above --------------------------------------------------------------------

    @cached_property
    def class_sizes(self) -> list[Floats]:
        """The number of codes of each class."""
        return [size.astype(float) for size in self.collapse(np.ones(self.experiment.code_count, np.int64))]

    @cached_property
    def class_count(self) -> int:
        """The number of classes, over all strata."""
        return sum(len(size) for size in self.class_sizes)

    @property
    def stratum_chances(self) -> list[float]:
        """The chances of the strata."""
        return [stratum.chance for stratum in self.strata]

    def code_law(self, shares: Floats) -> Floats:
        """Return the chance of every code, shape (code_count,)."""
        parts = zip(self.law(shares), self.class_sizes, self.stratum_chances, strict=True)
        return self.expand([law / size * chance for law, size, chance in parts])

    def frequency_variance(self, share: float | None) -> float | None:
        """Return the variance, times reports, of the frequency of a value, or None if there is no formula.

        It is a mean over values; the other values share the rest evenly.

        Args:
            share: The share of the value, or None for the one with the largest variance.
        """
        return None

    def variances(self, statistics: Floats, shares: Floats) -> Floats:
        """Return the variances of estimates, times reports, shape (n,).

        They are exact, except that the number of reports of each stratum is replaced by its expectation, and
        include the sampling of readings (docs/mathematics.md).

        Args:
            statistics: Weights of the values, shape (domain, n).
            shares: The shares of the readings, shape (domain,).
        """
        weights, _ = self.weights(statistics, self.stratum_chances)
        result = np.zeros(statistics.shape[1])
        for w, chance, law in zip(weights, self.stratum_chances, self.law(shares), strict=True):
            if w is not None:
                result += (law @ w**2 - (law @ w) ** 2) / chance
        return result

    def columns(self) -> Iterator[tuple[slice, Floats]]:
        """Yield runs of neighbouring values, and for each value a population in which all have it."""
        step = max(1, _CHUNK // max(self.domain, self.class_count))
        for first in range(0, self.domain, step):
            values = slice(first, min(first + step, self.domain))
            yield values, np.eye(self.domain, values.stop - first, -first)

    def law_transposed(self, numbers: Sequence[Floats]) -> Floats:
        """Return, for each value, the mean of a number of the classes over its reports, shape (domain,).

        The means are summed over the strata.
        """
        result = np.empty(self.domain)
        for values, alone in self.columns():
            result[values] = sum(n @ law for n, law in zip(numbers, self.law(alone), strict=True))
        return result

    def lift(self, prior: Floats) -> Floats:
        """Return the largest factor by which one report can raise the belief in each value, (domain,)."""
        result = np.zeros(self.domain)
        before = self.law(prior)
        for values, alone in self.columns():
            for chance, total, law in zip(self.stratum_chances, before, self.law(alone), strict=True):
                if chance:
                    result[values] = np.maximum(result[values], (law / total[:, None]).max(axis=0))
        return result

    @property
    def odds(self) -> float:
        """The largest ratio of a code's chances under two values: e to the actual ε of a report."""
        worst = 0.0
        least = [np.full(len(size), math.inf) for size in self.class_sizes]
        most = [np.zeros(len(size)) for size in self.class_sizes]
        for _, alone in self.columns():
            for low, high, law in zip(least, most, self.law(alone), strict=True):
                np.minimum(low, law.min(axis=1), out=low)
                np.maximum(high, law.max(axis=1), out=high)
        with np.errstate(divide="ignore"):
            for chance, low, high in zip(self.stratum_chances, least, most, strict=True):
                if chance:  # a class that is never drawn reveals nothing
                    ratios = np.divide(high, np.maximum(low, 0), out=np.ones_like(high), where=high != 0)
                    worst = float(np.maximum(worst, ratios.max()))  # keeps NaN
        return worst
