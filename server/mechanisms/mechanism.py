"""The server's view of a mechanism: a linear map from a population to code probabilities, and back.

Everything that the server computes about a fleet follows from `law` and `weights`: estimates and their
errors, a design's expected error, an attacker's beliefs, an audit's expectations, and the effect of forged
reports. These computations are implemented here once; a mechanism overrides only those that it can speed up.
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
    """A group of codes whose total probability does not depend on the reading.

    Attributes:
        chance: The probability that a report is in this stratum; the strata's probabilities sum to 1.
        first: The lowest code in the stratum.
        codes: The number of codes in the stratum.
        runs: The number of equally long runs of consecutive codes that are equally likely for every reading
            (for a hash, its seeds); 1 if the entire code depends on the reading.
    """

    chance: float
    first: int
    codes: int
    runs: int = 1


@dataclass(frozen=True)
class TextSearch:
    """Texts that devices may have reported, with estimates from reports that were not used in the search.

    Attributes:
        texts: The candidates.
        whole: Whether each candidate is a complete text; False if it may continue.
        shares: The candidates' estimated shares, shape (n,).
        chance: The same estimates for texts that no device sent, hashed like any other text; at least 25 per
            candidate, shape (m,).
        needs: The share at which the search finds a text about 9 times in 10; 0 if it tries all texts.
    """

    texts: Sequence[str]
    whole: Sequence[bool]
    shares: Floats
    chance: Floats
    needs: float = 0.0


Weights = tuple[Iterable[Floats | None], Floats]
"""For n statistics: each stratum's class weights, shape (classes, n), or None if the stratum has no reports;
and the constants, shape (n,)."""


class Mechanism(ABC):
    """An experiment's channel: its code distribution for given readings, and its estimators.

    A *class* is a set of equivalent codes; classes are ordered by stratum, with one array per stratum.
    Statistics with weights r, shape (domain, n), are estimated by a constant plus, for each stratum, the mean
    of a weight over its reports. A mechanism must define law, weights and draw, as well as collapse and
    expand if some codes are equivalent.

    Privacy:
        Guaranteed by the board's code, which tests/contracts checks exhaustively.

    Utility:
        `weights` is unbiased, unless the mechanism is approximate.
    """

    answers: ClassVar[frozenset[str]] = frozenset({"frequencies", "ranges", "quantiles", "mean"})
    """The supported questions: "frequencies", "ranges", "quantiles", "mean", or "discovery" by search()."""
    approximate: ClassVar[bool] = False
    """Whether estimates have a bias that more reports do not remove, for example from fixed hash functions.

    If so, intervals include the bias, and answers are marked as approximate.
    """
    parameters: ClassVar[tuple[str, ...]] = ()
    """The names of the mechanism's fields in an experiment's JSON."""
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = ()
    """Fields of small experiments (type, mechanism, parameters) that tests/contracts enumerates."""
    generation: ClassVar[int] = 1
    """1 for mechanisms that all boards support; later ones must be worth an additional file."""
    board: ClassVar[Path | None] = None
    """The file that boards need for a custom mechanism; shipped mechanisms' files are in device/."""
    direct: ClassVar[bool] = False
    """Whether each code is a value, drawn independently for each report by one fixed rule."""

    takes_missing: ClassVar[bool] = True
    """Whether the mechanism supports an additional index for a missing reading."""

    reads: ClassVar[Literal["", "pair", "prefixes"]] = ""
    """The only kind of reading supported (a pair, or a text with prefixes); "" for all with values."""

    def __init__(self, experiment: Experiment):
        self.experiment = experiment
        self.domain = experiment.domain

    @classmethod
    def designs(cls, domain: int, epsilon: int, workload: Workload) -> Iterable[Choice]:
        """Return the parameters with the least variance for a workload, or nothing if it is unsuitable.

        The variance is the mean over the workload, times the number of reports. For single frequencies it is
        that of a value with the workload's share; otherwise it assumes a uniform population.

        Args:
            domain: The number of indices, at least 2.
            epsilon: ε of a report, in micro-nats.
            workload: The statistics to estimate.
        """
        return ()

    @cached_property
    def strata(self) -> tuple[Stratum, ...]:
        """The strata, in code order; most mechanisms have only one."""
        return (Stratum(1.0, 0, self.experiment.code_count),)

    @abstractmethod
    def law(self, shares: Floats) -> list[Floats]:
        """Return the probability of each class within its stratum, which is linear in the shares.

        As with weights(), the arrays are new, so the caller may modify them.

        Args:
            shares: Each index's share, shape (domain,) or (domain, n).

        Returns:
            For each stratum, an array of shape (classes,) or (classes, n).
        """

    @abstractmethod
    def weights(self, statistic: Floats, reports: Sequence[float]) -> Weights:
        """Return weights and constants for unbiased estimates of statistics.

        Args:
            statistic: Weights of the values, shape (domain, n).
            reports: Each stratum's number of reports, or numbers proportional to them.
        """

    @abstractmethod
    def draw(self, indices: npt.NDArray[np.uint32], rng: np.random.Generator) -> npt.NDArray[np.uint32]:
        """Return a code for each index, with the same distribution as on a board."""

    def bias(self, statistic: Floats, reports: Sequence[float]) -> Floats:
        """Return each statistic's bias if all devices have one value, for every value, shape (domain, n).

        Args:
            statistic: Weights of the values, shape (domain, n).
            reports: Each stratum's number of reports.
        """
        weights, constant = self.weights(statistic, reports)
        strata_weights, result = list(weights), constant - statistic
        for values, alone in self.columns():
            for w, law in zip(strata_weights, self.law(alone), strict=True):
                if w is not None:
                    result[values] += law.T @ w
        return result

    def search(self, counts: Counts) -> TextSearch:
        """Search a code histogram, shape (code_count,), for texts, if `answers` has "discovery"."""
        raise NotImplementedError

    def drawable(self, indices: Sequence[int]) -> Array:
        """Return indices in the form that draw() expects, with one row per index."""
        return np.array(indices, np.uint32)

    def fields(self) -> dict[str, Any]:
        """Return the mechanism's fields in an experiment's JSON: its name and any parameters."""
        return {"mechanism": self.experiment.mechanism}

    def words(self) -> str:
        """Return the name and parameters for display."""
        return self.experiment.mechanism

    @property
    def plainly(self) -> str:
        """A sentence that explains to lay readers how a board answers, or "" to use the docstring."""
        return ""

    def collapse(self, counts: Counts) -> list[Counts]:
        """Sum a code histogram, shape (code_count,), over each class."""
        return [counts[s.first : s.first + s.codes] for s in self.strata]

    def expand(self, values: Sequence[Array]) -> Array:
        """Assign every code its class's value, shape (code_count,)."""
        return np.concatenate(values)

    def answered_statistics(self) -> Floats:
        """Return a basis of the supported statistics, shape (domain, n): all statistics, or only the mean."""
        if "frequencies" in self.answers:
            return np.eye(self.domain)
        return np.linspace(0, 1, self.domain)[:, None][:, : "mean" in self.answers]

    def lacks(self, reports: Sequence[int]) -> str:
        """Return an error message if these reports per stratum allow no estimates, or ""."""
        return ""

    def unknown(self, statistic: Floats, reports: Sequence[float]) -> str:
        """Return an error message if some statistics cannot be estimated although others can, or "".

        weights() omits the parts that cannot be estimated.

        Args:
            statistic: Weights of the values, shape (domain, n).
            reports: Each stratum's number of reports.
        """
        return ""

    def decode(self, counts: Counts) -> Decoded:
        """Return the decoded histogram.

        Args:
            counts: The code histogram, shape (code_count,), with at least one report.
        """
        return Decoded(self, self.collapse(counts))

    def invariants(self, counts: Counts) -> Iterator[Check]:
        """Check the frequencies of strata and runs, whose probabilities are the same for every honest fleet.

        Args:
            counts: The code histogram, shape (code_count,).
        """
        parts = [counts[s.first : s.first + s.codes] for s in self.strata]
        yield from known_chances([s.chance for s in self.strata], [int(part.sum()) for part in parts])
        for index, (stratum, part) in enumerate(zip(self.strata, parts, strict=True)):
            yield from even_runs(part, stratum.runs, self.stratum_number(index))

    def stratum_number(self, stratum: int) -> int | None:
        """Return the stratum's index, or None if it is the only one."""
        return stratum if len(self.strata) > 1 else None

    def blanket(self) -> tuple[float, float, float] | None:
        """Return accounting.Blanket's (E, K, γ), or None if only the odds are known.

        E is at least `odds`, K applies to codes that support one of two readings but not the other, and γ to
        all codes. The blanket is used only for shipped mechanisms. For custom ones, which may not have been
        checked, a report's ε is used instead.
        """
        return None

    # --- Derived from the above --------------------------------------------------------------------

    @cached_property
    def class_sizes(self) -> list[Floats]:
        """For each stratum, the number of codes in each class."""
        return [size.astype(float) for size in self.collapse(np.ones(self.experiment.code_count, np.int64))]

    @cached_property
    def class_count(self) -> int:
        """The total number of classes in all strata."""
        return sum(len(size) for size in self.class_sizes)

    @property
    def stratum_chances(self) -> list[float]:
        """The probabilities of the strata."""
        return [stratum.chance for stratum in self.strata]

    def code_law(self, shares: Floats) -> Floats:
        """Return the probability of every code, shape (code_count,)."""
        parts = zip(self.law(shares), self.class_sizes, self.stratum_chances, strict=True)
        return self.expand([law / size * chance for law, size, chance in parts])

    def frequency_variance(self, share: float | None) -> float | None:
        """Return the variance of a value's frequency, times the number of reports, or None without a formula.

        It is averaged over values, and assumes that the other values are equally common.

        Args:
            share: The value's share, or None for the share with the largest variance.
        """
        return None

    def variances(self, statistics: Floats, shares: Floats) -> Floats:
        """Return the variances of estimates, times the number of reports, shape (n,).

        They include the sampling of readings (docs/mathematics.md) and are exact, except that each stratum's
        number of reports is replaced by its expectation.

        Args:
            statistics: Weights of the values, shape (domain, n).
            shares: Each reading's share, shape (domain,).
        """
        weights, _ = self.weights(statistics, self.stratum_chances)
        result = np.zeros(statistics.shape[1])
        for w, chance, law in zip(weights, self.stratum_chances, self.law(shares), strict=True):
            if w is not None:
                result += (law @ w**2 - (law @ w) ** 2) / chance
        return result

    def columns(self) -> Iterator[tuple[slice, Floats]]:
        """Yield runs of consecutive values, and for each value a population in which every device has it."""
        step = max(1, _CHUNK // max(self.domain, self.class_count))
        for first in range(0, self.domain, step):
            values = slice(first, min(first + step, self.domain))
            yield values, np.eye(self.domain, values.stop - first, -first)

    def law_transposed(self, numbers: Sequence[Floats]) -> Floats:
        """Return, for each value, the mean of a per-class number over the value's reports, shape (domain,).

        The means are summed over the strata.
        """
        result = np.empty(self.domain)
        for values, alone in self.columns():
            result[values] = sum(n @ law for n, law in zip(numbers, self.law(alone), strict=True))
        return result

    def lift(self, prior: Floats) -> Floats:
        """Return the largest factor by which a report can raise belief in each value, shape (domain,)."""
        result = np.zeros(self.domain)
        before = self.law(prior)
        for values, alone in self.columns():
            for chance, total, law in zip(self.stratum_chances, before, self.law(alone), strict=True):
                if chance:
                    result[values] = np.maximum(result[values], (law / total[:, None]).max(axis=0))
        return result

    @property
    def odds(self) -> float:
        """The largest ratio between a code's probabilities under two values: e^ε for the actual ε."""
        worst = 0.0
        lowest = [np.full(len(size), math.inf) for size in self.class_sizes]
        highest = [np.zeros(len(size)) for size in self.class_sizes]
        for _, alone in self.columns():
            for low, high, law in zip(lowest, highest, self.law(alone), strict=True):
                np.minimum(low, law.min(axis=1), out=low)
                np.maximum(high, law.max(axis=1), out=high)
        with np.errstate(divide="ignore"):
            for chance, low, high in zip(self.stratum_chances, lowest, highest, strict=True):
                if chance:  # a class that is never drawn reveals nothing
                    ratios = np.divide(high, np.maximum(low, 0), out=np.ones_like(high), where=high != 0)
                    worst = float(np.maximum(worst, ratios.max()))  # propagates NaN
        return worst
