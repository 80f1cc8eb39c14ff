"""sw: codes around the value are likelier than all others; means need about a third of a tree's reports.

Value v of D becomes one of D + 2b codes. Those from v to v + 2b have chance p each, all others q; p / q is at
most e^ε. The mean of a weight over the reports estimates a linear statistic without bias if, for every value,
the weights' mean over its codes equals the statistic's weight of that value. For neighbours this means w(v +
2b + 1) - w(v) = (r(v + 1) - r(v)) / (p - q): weights 2b + 1 codes apart determine each other, and the start
of each of these 2b + 1 chains is free except for one condition. Least variance in an even population then
takes one division per chain, without any matrix, so it cannot be ill-conditioned, whatever b and D.

Privacy:
    A code around the value is at most e^ε times likelier than another, and b is fixed beforehand.

Utility:
    The mean without bias; docs/estimates.md has errors, docs/mathematics.md the derivation.

Cost:
    D + 2b codes; O(D + b) for a statistic.

Auto:
    means.

Citation:
    Li, Wang, Lopuhaä-Zwakenberg, Skoric, Li, "Estimating Numerical Distributions under Local Differential
    Privacy", SIGMOD 2020; means from it by least squares, and integers for it, are ours.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ...device.ldp_client import ONE, Experiment, truth_threshold
from ..arrays import Counts, Floats
from .choice import Choice
from .invariants import Check, bounded
from .mechanism import Mechanism, Weights
from .workload import Workload, positions

_MAX_CODES = 1 << 24
_MOST_SEARCHED = 1 << 16  # largest domain for which reaches are compared


class Wave:
    """The channel of D values with reach b and chances p of a code inside it and q of one outside."""

    def __init__(self, domain: int, reach: int, threshold: int):
        self.domain = domain
        self.inside = 2 * reach + 1
        self.code_count = domain + 2 * reach
        self.p = threshold / ONE / self.inside
        self.q = (ONE - threshold) / ONE / (domain - 1)

    def law(self, shares: Floats) -> Floats:
        """Return the chance of each code from shares of shape (domain,) or (domain, n); linear."""
        below = np.concatenate([np.zeros((1, *shares.shape[1:])), np.cumsum(shares, axis=0)])
        code = np.arange(self.code_count)
        within = below[np.minimum(code + 1, self.domain)] - below[np.maximum(code + 1 - self.inside, 0)]
        return within * (self.p - self.q) + self.q * below[-1]

    def law_transposed(self, numbers: Floats) -> Floats:
        """Return the mean of a number of the codes over each value's reports."""
        below = np.append(0.0, np.cumsum(numbers))
        within = below[self.inside :] - below[: self.domain]
        return within * (self.p - self.q) + self.q * below[-1]

    @cached_property
    def _chains(self) -> tuple[Floats, Floats, Floats]:
        """The chances of the codes in an even population, and which places have a code: (links, chains, 1).

        The third array is how much a unit of each chain's start adds to the mean of the weights over the
        first codes.
        """
        links = -(-self.code_count // self.inside)
        chances, there = np.zeros((2, links * self.inside))
        chances[: self.code_count] = self.law(np.full(self.domain, 1 / self.domain))
        there[: self.code_count] = 1
        chances, there = (x.reshape(links, self.inside, 1) for x in (chances, there))
        return chances, there, self.q * there[:, :, 0].sum(axis=0) + self.p - self.q

    def weights(self, statistic: Floats) -> Floats:
        """Return weights of the codes, shape (code_count, n), from those of the values, shape (domain, n)."""
        chances, there, gain = self._chains
        weights = np.zeros((there.size, statistic.shape[1]))
        weights[self.inside : self.code_count] = np.diff(statistic, axis=0) / (self.p - self.q)
        weights = weights.reshape(*there.shape[:2], -1).cumsum(axis=0)
        total = chances.sum(axis=0)
        start = -(chances * weights).sum(axis=0) / total
        # The first value's mean must be right too, so move the starts at the least cost in variance.
        moved = gain[:, None] / total
        missing = statistic[0] - self.q * (there * weights).sum(axis=(0, 1)) - gain @ start
        start += moved * (missing / (gain @ moved))
        return (weights + start).reshape(there.size, -1)[: self.code_count]


def even_variance(domain: int, epsilon: int, reach: int) -> float:
    """Return the variance of the mean if values are equally common, times reports, in squared ranges.

    It is infinite if boards refuse the experiment.

    Args:
        domain: The number of values.
        epsilon: ε of a report, in micro-nats.
        reach: b.
    """
    wave = Wave(domain, reach, truth_threshold(epsilon, domain, 2 * reach + 1))
    if wave.p <= wave.q:
        return math.inf
    weights = wave.weights(positions(domain)[:, None])[:, 0]
    law = wave.law(np.full(domain, 1 / domain))
    return float(law @ weights**2 - (law @ weights) ** 2)


@lru_cache(maxsize=4096)
def best_reach(domain: int, epsilon: int) -> tuple[int, float]:
    """Return the reach with the least even_variance(), and that variance; epsilon in micro-nats.

    The variance falls up to the best reach, which is below half of the domain, and then rises.
    """
    if domain > _MOST_SEARCHED:  # beyond this the best reach is a fixed fraction of the range
        reach, variance = best_reach(_MOST_SEARCHED, epsilon)
        reach = min(reach * domain // _MOST_SEARCHED, (_MAX_CODES - domain) // 2)
        wave = Wave(domain, reach, truth_threshold(epsilon, domain, 2 * reach + 1))
        return reach, variance if wave.p > wave.q else math.inf
    low, high = 0, domain // 2
    while low < high:
        middle = (low + high) // 2
        here, further = (even_variance(domain, epsilon, reach) for reach in (middle, middle + 1))
        if further < here or math.isinf(here):
            low = middle + 1
        else:
            high = middle
    return low, even_variance(domain, epsilon, low)


class SquareWave(Mechanism):
    """The mechanism sw."""

    answers: ClassVar[frozenset[str]] = frozenset({"mean"})
    takes_missing: ClassVar[bool] = False
    parameters: ClassVar[tuple[str, ...]] = ("reach",)
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"type": "number", "low": 0, "high": 1000, "bins": 2, "mechanism": "sw", "reach": 0},
        {"type": "number", "low": 0, "high": 1000, "bins": 5, "mechanism": "sw", "reach": 1},
        {"type": "number", "low": 0, "high": 1000, "bins": 4, "mechanism": "sw", "reach": 6},
        {"type": "number", "low": 0, "high": 1000, "bins": 16, "mechanism": "sw", "reach": 4},
    )

    @classmethod
    def designs(cls, domain: int, epsilon: int, workload: Workload) -> Iterable[Choice]:
        if workload.kind == "mean" and domain > 2:
            reach, variance = best_reach(domain, epsilon)
            if math.isfinite(variance):
                yield Choice("sw", (("reach", reach),), variance)

    def __init__(self, experiment: Experiment):
        super().__init__(experiment)
        self.reach = (experiment.code_count - self.domain) // 2
        self.threshold = truth_threshold(experiment.epsilon, self.domain, 2 * self.reach + 1)
        self.wave = Wave(self.domain, self.reach, self.threshold)

    def law(self, shares: Floats) -> list[Floats]:
        return [self.wave.law(shares)]

    def law_transposed(self, numbers: Sequence[Floats]) -> Floats:
        return self.wave.law_transposed(numbers[0])

    def weights(self, statistic: Floats, reports: Sequence[float]) -> Weights:
        return [self.wave.weights(statistic)], np.zeros(statistic.shape[1:])

    def draw(self, indices: npt.NDArray[np.uint32], rng: np.random.Generator) -> npt.NDArray[np.uint32]:
        inside, n = np.uint32(self.wave.inside), len(indices)
        near = rng.integers(0, ONE, n, dtype=np.uint32) < self.threshold
        code = rng.integers(0, self.wave.inside, n, dtype=np.uint32)
        code += indices
        far = rng.integers(0, self.domain - 1, n, dtype=np.uint32)
        far += inside * (far >= indices)
        return np.where(near, code, far)

    def fields(self) -> dict[str, Any]:
        return super().fields() | {"reach": self.reach}

    def words(self) -> str:
        return f"sw, reach {self.reach}, {self.experiment.code_count:,} codes"

    @property
    def plainly(self) -> str:
        return "Each device names a value near its own more often than one further away."

    def invariants(self, counts: Counts) -> Iterator[Check]:
        words = (
            "a code has fewer reports than if no device held a value that it stands for",
            "a code has more reports than if all devices held values that it stands for",
        )
        yield bounded(counts, int(counts.sum()), (self.wave.q, self.wave.p), words)

    def lift(self, prior: Floats) -> Floats:
        law = self.wave.law(prior)
        ends = np.full(1, np.inf)
        before = np.minimum.accumulate(np.append(ends, law))[: self.domain]
        after = np.minimum.accumulate(np.append(law, ends)[::-1])[::-1][self.wave.inside :]
        return np.maximum(
            self.wave.p / _least(law, self.wave.inside), self.wave.q / np.minimum(before, after)
        )

    @property
    def odds(self) -> float:
        """The odds of a code inside against one outside, as any two values differ in such a code."""
        return self.wave.p / self.wave.q


def _least(values: Floats, width: int) -> Floats:
    """Return the smallest of every run of `width` neighbours."""
    result, have = values, 1
    while have < width:
        step = min(have, width - have)
        result = np.minimum(result[: len(result) - step], result[step:])
        have += step
    return result
