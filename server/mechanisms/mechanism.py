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

_CHUNK = 1 << 22  # floats held at once


@dataclass(frozen=True)
class Stratum:
    """A group of codes whose total chance does not depend on the reading.

    chance  of a report to be in this stratum; the strata's sum is 1
    first   number of the first of its codes
    codes   how many there are
    runs    number of equally long runs of neighbouring codes, all equally likely whatever the reading (for a
            hash: its seeds); 1 if all of the code depends on the reading
    """

    chance: float
    first: int
    codes: int
    runs: int = 1


@dataclass(frozen=True)
class TextSearch:
    """Texts that devices may have sent, with estimates from reports that the search did not use.

    texts     the candidates
    whole     for each, whether it is complete; False if it may continue
    shares    their estimates, shape (n,)
    chance    the same estimates for texts that nobody sent, placed as the hash functions place any text; at
              least 25 for each candidate, shape (m,)
    needs     share above which the search finds a text about 9 times in 10; 0 if it tries all texts
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

    Privacy: of the board's code; tests/contracts enumerates it. Utility: `weights` is unbiased, unless the
    mechanism is approximate.
    """

    answers: ClassVar[frozenset[str]] = frozenset({"frequencies", "ranges", "quantiles", "mean"})
    """The possible questions: "frequencies", "ranges", "quantiles", "mean"; or "discovery" by search()."""
    approximate: ClassVar[bool] = False
    """Whether estimates have a bias that more reports do not remove, such as that of fixed hash functions.

    Intervals then include it, and answers are marked as approximate.
    """
    parameters: ClassVar[tuple[str, ...]] = ()
    """Names of its own fields in an experiment's JSON."""
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = ()
    """Fields of small experiments, which tests/contracts enumerates: type, mechanism and what they need."""
    generation: ClassVar[int] = 1
    """1 for mechanisms that all boards have; a later one is chosen only if it is worth a file on boards."""
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
        """Return its parameters of least variance for a workload; none if it does not fit or suit it.

        domain: 2 or more. epsilon: micro-nats. The variance is the mean over the workload, times reports; for
        single frequencies that of a value of the workload's share, otherwise that of an even population.
        """
        return ()

    @cached_property
    def strata(self) -> tuple[Stratum, ...]:
        """The strata, in the order of their codes; most mechanisms have one."""
        return (Stratum(1.0, 0, self.experiment.code_count),)

    @abstractmethod
    def law(self, shares: Floats) -> list[Floats]:
        """Return the chance of each class in its stratum; linear. (domain,) or (domain, n) to (classes, ...).

        The arrays are new, as from weights(): the caller may change them.
        """

    @abstractmethod
    def weights(self, statistic: Floats, reports: Sequence[float]) -> Weights:
        """Return weights and constants that estimate statistics, shape (domain, n), without bias.

        reports: of each stratum, or any numbers in proportion to them.
        """

    @abstractmethod
    def draw(self, indices: npt.NDArray[np.uint32], rng: np.random.Generator) -> npt.NDArray[np.uint32]:
        """Return a code for each index of an array, with the same distribution as on the board."""

    def bias(self, statistic: Floats, reports: Sequence[float]) -> Floats:
        """Return the bias of each statistic in a fleet whose devices all have one value, shape (domain, n).

        Args:
            statistic: Weights of values, shape (domain, n).
            reports: Of each stratum.
        """
        weights, constant = self.weights(statistic, reports)
        used, result = list(weights), constant - statistic
        for values, alone in self.columns():
            for w, law in zip(used, self.law(alone), strict=True):
                if w is not None:
                    result[values] += law.T @ w
        return result

    def search(self, counts: Counts) -> TextSearch:
        """Look for texts in a histogram of codes, shape (code_count,), if `answers` has "discovery"."""
        raise NotImplementedError

    def drawable(self, indices: Sequence[int]) -> Array:
        """Return indices in the form that draw() expects: a row for each."""
        return np.array(indices, np.uint32)

    def fields(self) -> dict[str, Any]:
        """Return its fields in an experiment's JSON: its name, and its parameters if it has any."""
        return {"mechanism": self.experiment.mechanism}

    def words(self) -> str:
        """Return the name and parameters for readers."""
        return self.experiment.mechanism

    @property
    def plainly(self) -> str:
        """A sentence for people outside the field on how a board answers; empty if it is not written."""
        return ""

    def collapse(self, counts: Counts) -> list[Counts]:
        """Sum a histogram of codes, shape (code_count,), over the classes."""
        return [counts[s.first : s.first + s.codes] for s in self.strata]

    def expand(self, values: Sequence[Array]) -> Array:
        """Give every code its class's value, shape (code_count,)."""
        return np.concatenate(values)

    def answered_statistics(self) -> Floats:
        """Return statistics of which it answers every combination: all, (domain, n), or only the mean."""
        if "frequencies" in self.answers:
            return np.eye(self.domain)
        return np.linspace(0, 1, self.domain)[:, None][:, : "mean" in self.answers]

    def lacks(self, reports: Sequence[int]) -> str:
        """Return why nothing can be estimated from these numbers of reports of the strata, or ""."""
        return ""

    def unknown(self, statistic: Floats, reports: Sequence[float]) -> str:
        """Return why some of these statistics, (domain, n), cannot be estimated while others can, or "".

        Weights leave out the parts that cannot be estimated. reports: of the strata.
        """
        return ""

    def decode(self, counts: Counts) -> Decoded:
        """Return the decoded histogram of codes; counts of shape (code_count,), not all 0."""
        return Decoded(self, self.collapse(counts))

    def invariants(self, counts: Counts) -> Iterator[Check]:
        """Check what no honest fleet can break: the chances of strata and runs; counts: (code_count,)."""
        parts = [counts[s.first : s.first + s.codes] for s in self.strata]
        yield from known_chances([s.chance for s in self.strata], [int(part.sum()) for part in parts])
        for number, (stratum, part) in enumerate(zip(self.strata, parts, strict=True)):
            yield from even_runs(part, stratum.runs, self.stratum_number(number))

    def stratum_number(self, stratum: int) -> int | None:
        """Return a stratum's number, or None if there is only one."""
        return stratum if len(self.strata) > 1 else None

    def blanket(self) -> tuple[float, float, float] | None:
        """Return the odds of a report, and the chances of the distribution that all readings share.

        (E, K, γ) of accounting.Blanket: E at least `odds`, K for codes that support one of two readings and
        not the other, γ for any code. None if only the odds are known. Used for shipped mechanisms only: for
        your own, whose check may not have been run, the ε of a report is used.
        """
        return None

    # --- Derived from the above --------------------------------------------------------------------

    @cached_property
    def class_sizes(self) -> list[Floats]:
        """Number of codes of each class."""
        return [size.astype(float) for size in self.collapse(np.ones(self.experiment.code_count, np.int64))]

    @cached_property
    def class_count(self) -> int:
        """Number of classes, of all strata."""
        return sum(len(size) for size in self.class_sizes)

    @property
    def stratum_chances(self) -> list[float]:
        """The strata's chances."""
        return [stratum.chance for stratum in self.strata]

    def code_law(self, shares: Floats) -> Floats:
        """Return the chance of every code, shape (code_count,)."""
        parts = zip(self.law(shares), self.class_sizes, self.stratum_chances, strict=True)
        return self.expand([law / size * chance for law, size, chance in parts])

    def frequency_variance(self, share: float | None) -> float | None:
        """Return the variance, times reports, of the frequency of a value of this share if a formula exists.

        A mean over values; the others share the rest evenly. share None: the one with the largest variance.
        """
        return None

    def variances(self, statistics: Floats, shares: Floats) -> Floats:
        """Return the variances of estimates, times reports, if readings have these shares, shape (domain,).

        statistics: weights of values, shape (domain, n); the result has shape (n,). Exact, except that the
        number of reports of each stratum is its expectation; includes the sampling of readings
        (docs/mathematics.md).
        """
        weights, _ = self.weights(statistics, self.stratum_chances)
        result = np.zeros(statistics.shape[1])
        for w, chance, law in zip(weights, self.stratum_chances, self.law(shares), strict=True):
            if w is not None:
                result += (law @ w**2 - (law @ w) ** 2) / chance
        return result

    def columns(self) -> Iterator[tuple[slice, Floats]]:
        """Yield runs of neighbouring values, and for each value a population in which all devices have it."""
        step = max(1, _CHUNK // max(self.domain, self.class_count))
        for first in range(0, self.domain, step):
            values = slice(first, min(first + step, self.domain))
            yield values, np.eye(self.domain, values.stop - first, -first)

    def law_transposed(self, numbers: Sequence[Floats]) -> Floats:
        """Sum over the strata of the mean of a number for each class over a value's reports: (domain,)."""
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
        """Largest ratio of a code's chances under two values: e to the actual ε of a report."""
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
                    worst = float(np.maximum(worst, ratios.max()))  # NaN stays
        return worst
