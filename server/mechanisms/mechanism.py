"""What a mechanism is to the server: a linear map from a population to the chances of its codes, and back.

Everything that the server knows of a fleet follows from `law` and `weights`: estimates and their errors, what
a design will err by, what an attacker can believe, what an audit expects, what forged reports move. Here that
is written once, for every mechanism. A mechanism overrides what it can do faster, and nothing else.
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
from .decoded import Decoded
from .invariants import Check, even_runs, known_chances
from .workload import Workload

_CHUNK = 1 << 22  # floats held at once


@dataclass(frozen=True)
class Stratum:
    """Codes that a report falls among with a chance that no reading changes.

    chance  of a report to fall here; the strata's sum is 1
    first   number of the first of its codes
    codes   how many there are
    runs    equal runs of neighbouring codes, each as likely as any other whatever the reading (of a hash: its
            seeds); 1 where all of the code depends on the reading
    """

    chance: float
    first: int
    codes: int
    runs: int = 1


@dataclass(frozen=True)
class TextSearch:
    """Texts that devices may have sent, with estimates from reports that the search did not use.

    texts     the candidates
    whole     for each, whether it is complete; False if it may go on
    shares    their estimates, shape (n,)
    chance    the same estimates for texts that nobody sent, placed as the hash functions place any text; at
              least 25 for each candidate, shape (m,)
    needs     share above which the search finds a text about 9 times in 10; 0 if it tries every text
    """

    texts: Sequence[str]
    whole: Sequence[bool]
    shares: Floats
    chance: Floats
    needs: float = 0.0


Weights = tuple[Iterable[Floats | None], Floats]
"""Of n statistics: for each stratum weights of its classes, shape (classes, n), or None where it has no
reports, and the constants, shape (n,)."""


class Mechanism(ABC):
    """An experiment's channel: how its codes follow from readings, and what they tell of the readings.

    A *class* is codes that mean the same; classes come stratum by stratum, an array for each. A statistic of
    weights r, shape (domain, n), is estimated by a constant plus, for each stratum, the mean of a weight over
    its reports. What a mechanism must have is law, weights and draw, and collapse and expand where several
    codes mean the same.

    Privacy: of the board's code; tests/contracts enumerates it. Utility: `weights` is unbiased, unless the
    mechanism is approximate.
    """

    answers: ClassVar[frozenset[str]] = frozenset({"frequencies", "ranges", "quantiles", "mean"})
    """What can be asked: "frequencies", "ranges", "quantiles", "mean"; or "discovery" by search()."""
    approximate: ClassVar[bool] = False
    """Whether estimates have a bias that more reports do not remove, such as that of fixed hash functions.

    Intervals then include it, and answers are marked as approximate.
    """
    parameters: ClassVar[tuple[str, ...]] = ()
    """Names of its own fields in an experiment's JSON."""
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = ()
    """Fields of small experiments, which tests/contracts enumerates: type, mechanism and what they need."""
    generation: ClassVar[int] = 1
    """1 for what boards have always known; a later one is chosen only where it is worth a file on them."""
    board: ClassVar[Path | None] = None
    """The file that boards need for it, of a mechanism of one's own; the shipped ones are in device/."""
    direct: ClassVar[bool] = False
    """Whether a code is a value, drawn anew for each report by one fixed rule."""

    takes_missing: ClassVar[bool] = True
    """Whether one more index, for no reading, is an index like any other."""

    reads: ClassVar[Literal["", "pair", "prefixes"]] = ""
    """The one kind of reading that it is for: a pair, or a text with prefixes; "" for all with values."""

    def __init__(self, experiment: Experiment):
        self.experiment = experiment
        self.domain = experiment.domain

    @classmethod
    def designs(cls, domain: int, epsilon: int, workload: Workload) -> Iterable[Choice]:
        """Its parameters of least variance for a workload; none where it does not fit, or is not for that.

        domain: 2 or more. epsilon: micro-nats. The variance is the mean over the workload, times reports, for
        single frequencies that of a value of the workload's share, for anything else of an even population.
        """
        return ()

    @cached_property
    def strata(self) -> tuple[Stratum, ...]:
        """The strata, in the order of their codes; most mechanisms have one."""
        return (Stratum(1.0, 0, self.experiment.code_count),)

    @abstractmethod
    def law(self, shares: Floats) -> list[Floats]:
        """Chance of each class in its stratum; linear. Shape (domain,) or (domain, n) to (classes, ...).

        New arrays, as from weights(), which the caller may change.
        """

    @abstractmethod
    def weights(self, statistic: Floats, reports: Sequence[float]) -> Weights:
        """Weights and constants that estimate statistics, shape (domain, n), without bias.

        reports: of each stratum, or any numbers in proportion to them.
        """

    @abstractmethod
    def draw(self, indices: npt.NDArray[np.uint32], rng: np.random.Generator) -> npt.NDArray[np.uint32]:
        """A code for each index of an array as the board draws it, for simulations."""

    def bias(self, statistic: Floats, reports: Sequence[float]) -> Floats:
        """Return the bias of each statistic in a fleet that holds one value alone, shape (domain, n).

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
        """Indices as draw() takes them: a row for each."""
        return np.array(indices, np.uint32)

    def fields(self) -> dict[str, Any]:
        """What an experiment's JSON has for it: its name, and its parameters if it has any."""
        return {"mechanism": self.experiment.mechanism}

    def words(self) -> str:
        """Name and parameters as people read them."""
        return self.experiment.mechanism

    @property
    def plainly(self) -> str:
        """How a board answers, in a sentence for people outside the field; empty if nobody wrote it."""
        return ""

    def collapse(self, counts: Counts) -> list[Counts]:
        """Sum a histogram of codes, shape (code_count,), over the classes."""
        return [counts[s.first : s.first + s.codes] for s in self.strata]

    def expand(self, values: Sequence[Array]) -> Array:
        """Give every code its class's value, shape (code_count,)."""
        return np.concatenate(values)

    def answered(self) -> Floats:
        """Statistics of which it answers every combination, shape (domain, n): all, or the mean alone."""
        if "frequencies" in self.answers:
            return np.eye(self.domain)
        return np.linspace(0, 1, self.domain)[:, None][:, : "mean" in self.answers]

    def lacks(self, reports: Sequence[int]) -> str:
        """Why nothing can be estimated from these numbers of reports of the strata, or ""."""
        return ""

    def unknown(self, statistic: Floats, reports: Sequence[float]) -> str:
        """Why some of these statistics cannot be estimated though others can, or ""; shape (domain, n).

        What cannot is then left out of their weights. reports: of the strata.
        """
        return ""

    def decode(self, counts: Counts) -> Decoded:
        """What a histogram of codes tells; counts of shape (code_count,), with reports."""
        return Decoded(self, self.collapse(counts))

    def invariants(self, counts: Counts) -> Iterator[Check]:
        """What no honest fleet can break: the chances of strata and of runs. counts: shape (code_count,)."""
        parts = [counts[s.first : s.first + s.codes] for s in self.strata]
        yield from known_chances([s.chance for s in self.strata], [int(part.sum()) for part in parts])
        for number, (stratum, part) in enumerate(zip(self.strata, parts, strict=True)):
            yield from even_runs(part, stratum.runs, self.numbered(number))

    def numbered(self, stratum: int) -> int | None:
        """A stratum's number where there are several."""
        return stratum if len(self.strata) > 1 else None

    def blanket(self) -> tuple[float, float, float] | None:
        """Odds of a report, and chances of being drawn from the law that all readings have in common.

        (E, K, γ) of accounting.Blanket: E no smaller than `odds`, K for codes that support the one of two
        readings and not the other, γ for any code. None where only the odds are known. Asked of shipped
        mechanisms alone: of one's own, whose check nobody may have run, the ε of a report has to do.
        """
        return None

    # --- What follows ------------------------------------------------------------------------------

    @cached_property
    def class_sizes(self) -> list[Floats]:
        """How many codes each class has."""
        return [size.astype(float) for size in self.collapse(np.ones(self.experiment.code_count, np.int64))]

    @cached_property
    def class_count(self) -> int:
        """Number of classes, of all strata."""
        return sum(len(size) for size in self.class_sizes)

    @property
    def drawn(self) -> list[float]:
        """The strata's chances."""
        return [stratum.chance for stratum in self.strata]

    def code_law(self, shares: Floats) -> Floats:
        """Chance of every code, shape (code_count,)."""
        parts = zip(self.law(shares), self.class_sizes, self.drawn, strict=True)
        return self.expand([law / size * chance for law, size, chance in parts])

    def frequency_variance(self, share: float | None) -> float | None:
        """Variance, times reports, of the frequency of a value of this share, where there is a short way.

        A mean over values, others sharing the rest evenly; share None: the one for which it is largest.
        """
        return None

    def variances(self, statistics: Floats, shares: Floats) -> Floats:
        """Variances of estimates, times reports, where readings have these shares, shape (domain,).

        statistics: weights of values, shape (domain, n); the result has shape (n,). Exact but for the number
        of reports of each stratum, which is taken as expected; the drawing of readings is included
        (docs/mathematics.md).
        """
        weights, _ = self.weights(statistics, self.drawn)
        result = np.zeros(statistics.shape[1])
        for w, chance, law in zip(weights, self.drawn, self.law(shares), strict=True):
            if w is not None:
                result += (law @ w**2 - (law @ w) ** 2) / chance
        return result

    def columns(self) -> Iterator[tuple[slice, Floats]]:
        """Yield runs of neighbouring values, and a population for each that holds it alone."""
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
        """How many times as likely one report can make each value at most, shape (domain,)."""
        result = np.zeros(self.domain)
        before = self.law(prior)
        for values, alone in self.columns():
            for chance, total, law in zip(self.drawn, before, self.law(alone), strict=True):
                if chance:
                    result[values] = np.maximum(result[values], (law / total[:, None]).max(axis=0))
        return result

    @property
    def odds(self) -> float:
        """How much likelier a code can be for one value than for another: e to the real ε of a report."""
        worst = 0.0
        least = [np.full(len(size), math.inf) for size in self.class_sizes]
        most = [np.zeros(len(size)) for size in self.class_sizes]
        for _, alone in self.columns():
            for low, high, law in zip(least, most, self.law(alone), strict=True):
                np.minimum(low, law.min(axis=1), out=low)
                np.maximum(high, law.max(axis=1), out=high)
        with np.errstate(divide="ignore"):
            for chance, low, high in zip(self.drawn, least, most, strict=True):
                if chance:  # a class that is never drawn tells nothing
                    ratios = np.divide(high, np.maximum(low, 0), out=np.ones_like(high), where=high != 0)
                    worst = float(np.maximum(worst, ratios.max()))  # NaN stays
        return worst
