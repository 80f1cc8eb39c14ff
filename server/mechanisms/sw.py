"""sw: codes near the value are more likely than others; a mean needs a third of a tree's reports.

Value v of D becomes one of D + 2b codes. The codes v to v + 2b have probability p each, all others q; p / q
is at most e^ε. The mean of a weight over the reports is an unbiased estimate of a linear statistic if, for
every value, the weights' mean over its codes equals the statistic's weight for that value. For neighbours
this means w(v + 2b + 1) - w(v) = (r(v + 1) - r(v)) / (p - q), so weights 2b + 1 codes apart determine each
other, and the start of each of these 2b + 1 chains is free except for one condition. Minimizing the variance
in a uniform population then takes one division per chain and no matrix, so it is well-conditioned for all b
and D.

Privacy:
    A code near the value is at most e^ε times as likely as any other, and b is fixed in advance.

Utility:
    The mean is unbiased; docs/estimates.md lists its errors, and docs/mathematics.md derives them.

Cost:
    D + 2b codes; O(D + b) operations per statistic.

Auto:
    means.

Citation:
    Li, Wang, Lopuhaä-Zwakenberg, Skoric, Li, "Estimating Numerical Distributions under Local Differential
    Privacy", SIGMOD 2020; estimating means by least squares, and the integer version, are ours.
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
_MAX_SEARCHED = 1 << 16  # largest domain for which different values of b are compared


class Wave:
    """The channel for D values: a code within reach b has probability p, any other code q."""

    def __init__(self, domain: int, reach: int, threshold: int):
        self.domain = domain
        self.inside = 2 * reach + 1
        self.code_count = domain + 2 * reach
        self.p = threshold / ONE / self.inside
        self.q = (ONE - threshold) / ONE / (domain - 1)

    def law(self, shares: Floats) -> Floats:
        """Return each code's probability, linear in the shares, shape (domain,) or (domain, n)."""
        below = np.concatenate([np.zeros((1, *shares.shape[1:])), np.cumsum(shares, axis=0)])
        code = np.arange(self.code_count)
        within = below[np.minimum(code + 1, self.domain)] - below[np.maximum(code + 1 - self.inside, 0)]
        return within * (self.p - self.q) + self.q * below[-1]

    def law_transposed(self, numbers: Floats) -> Floats:
        """Return the mean of a per-code number over each value's reports."""
        below = np.append(0.0, np.cumsum(numbers))
        within = below[self.inside :] - below[: self.domain]
        return within * (self.p - self.q) + self.q * below[-1]

    @cached_property
    def _chains(self) -> tuple[Floats, Floats, Floats]:
        """The codes' probabilities in a uniform population, and a mask of cells in use, (links, chains, 1).

        The third array states how much one unit of each chain's start adds to the mean of the weights over
        the first value's codes.
        """
        links = -(-self.code_count // self.inside)
        chances, in_use = np.zeros((2, links * self.inside))
        chances[: self.code_count] = self.law(np.full(self.domain, 1 / self.domain))
        in_use[: self.code_count] = 1
        chances, in_use = (x.reshape(links, self.inside, 1) for x in (chances, in_use))
        return chances, in_use, self.q * in_use[:, :, 0].sum(axis=0) + self.p - self.q

    def weights(self, statistic: Floats) -> Floats:
        """Return code weights, shape (code_count, n), for value weights of shape (domain, n)."""
        chances, in_use, gain = self._chains
        weights = np.zeros((in_use.size, statistic.shape[1]))
        weights[self.inside : self.code_count] = np.diff(statistic, axis=0) / (self.p - self.q)
        weights = weights.reshape(*in_use.shape[:2], -1).cumsum(axis=0)
        total = chances.sum(axis=0)
        start = -(chances * weights).sum(axis=0) / total
        # The first value's mean must also be right, so shift the starts at the least cost in variance.
        shift = gain[:, None] / total
        missing = statistic[0] - self.q * (in_use * weights).sum(axis=(0, 1)) - gain @ start
        start += shift * (missing / (gain @ shift))
        return (weights + start).reshape(in_use.size, -1)[: self.code_count]


def even_variance(domain: int, epsilon: int, reach: int) -> float:
    """Return the mean's variance in a uniform population, times the number of reports, in squared ranges.

    It is infinite if boards reject the experiment.

    Args:
        domain: The number of values.
        epsilon: ε of a report, in micro-nats.
        reach: The reach b.
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

    As the reach grows, the variance falls until the best reach, which is less than half of the domain, and
    then rises.
    """
    if domain > _MAX_SEARCHED:  # above this limit, the best reach is a fixed fraction of the range
        reach, variance = best_reach(_MAX_SEARCHED, epsilon)
        reach = min(reach * domain // _MAX_SEARCHED, (_MAX_CODES - domain) // 2)
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
        far_code = rng.integers(0, self.domain - 1, n, dtype=np.uint32)
        far_code += inside * (far_code >= indices)
        return np.where(near, code, far_code)

    def fields(self) -> dict[str, Any]:
        return super().fields() | {"reach": self.reach}

    def words(self) -> str:
        return f"sw, reach {self.reach}, {self.experiment.code_count:,} codes"

    @property
    def plainly(self) -> str:
        return "Each device reports a value near its own more often than one further away."

    def invariants(self, counts: Counts) -> Iterator[Check]:
        words = (
            "a code has fewer reports than if no device had a value that it represents",
            "a code has more reports than if all devices had values that it represents",
        )
        yield bounded(counts, int(counts.sum()), (self.wave.q, self.wave.p), words)

    def lift(self, prior: Floats) -> Floats:
        law = self.wave.law(prior)
        ends = np.full(1, np.inf)
        before = np.minimum.accumulate(np.append(ends, law))[: self.domain]
        after = np.minimum.accumulate(np.append(law, ends)[::-1])[::-1][self.wave.inside :]
        return np.maximum(
            self.wave.p / _run_minimum(law, self.wave.inside), self.wave.q / np.minimum(before, after)
        )

    @property
    def odds(self) -> float:
        """The ratio p / q, which any two values reach on some code."""
        return self.wave.p / self.wave.q


def _run_minimum(values: Floats, width: int) -> Floats:
    """Return the minimum of every run of `width` neighbours."""
    result, covered = values, 1
    while covered < width:
        step = min(covered, width - covered)
        result = np.minimum(result[: len(result) - step], result[step:])
        covered += step
    return result
