"""One estimate from several: versions of an experiment, put together by reports or by variance."""

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from .estimate import Estimates, Floats
from .statistic import EstimateError, Statistic


class Pool(Estimates):
    """Estimates pooled with fixed weights, which sum to 1; made by pool()."""

    def __init__(self, estimates: Sequence[Estimates], weights: Floats):
        self.estimates = tuple(estimates)
        self.weights = weights
        self.experiment = estimates[-1].experiment
        self.reports = sum(e.reports for e in estimates)
        exact = all(e.stderr_method == "exact" for e in estimates)
        self.stderr_method = "exact" if exact else "approximate"

    def _root_sum(self, errors: Sequence[Floats]) -> Floats:
        return np.sqrt(sum((w * s) ** 2 for w, s in zip(self.weights, errors, strict=True)))

    @cached_property
    def frequencies(self) -> Floats:
        parts = (w * e.frequencies for w, e in zip(self.weights, self.estimates, strict=True))
        return np.sum(list(parts), axis=0)

    @cached_property
    def stderr(self) -> Floats:
        return self._root_sum([e.stderr for e in self.estimates])

    @cached_property
    def cdf_stderr(self) -> Floats:
        return self._root_sum([e.cdf_stderr for e in self.estimates])

    def linear(self, weights: npt.ArrayLike) -> Statistic:
        parts = [e.linear(weights) for e in self.estimates]
        value = sum(w * part.value for w, part in zip(self.weights, parts, strict=True))
        variance = sum((w * part.stderr) ** 2 for w, part in zip(self.weights, parts, strict=True))
        return Statistic(float(value), math.sqrt(variance))

    def rare_variance(self) -> float:
        return float(sum(w**2 * e.rare_variance() for w, e in zip(self.weights, self.estimates, strict=True)))


_SAME = ("type", "domain", "low", "high", "labels")


def pool(estimates: Sequence[Estimates], by: Literal["reports", "variance"] = "reports") -> Pool:
    """Pool estimates of the same quantity that share no reports, for example versions of an experiment.

    by: "reports" weighs each by its number of reports: the population is all that was reported on.
    "variance" weighs by the inverse variance of a rare value, which the design fixes: less error, where the
    populations are the same. Raises EstimateError where type, range, bins or labels differ.
    """
    if not estimates:
        raise EstimateError("at least one estimate is needed to pool")
    if by not in ("reports", "variance"):
        raise EstimateError(f'by must be "reports" or "variance", not {by!r}')
    first = estimates[0].experiment
    for other in estimates[1:]:
        for name in _SAME:
            a, b = getattr(first, name), getattr(other.experiment, name)
            if a != b:
                raise EstimateError(f"estimates pool only where {name} is the same, not {a} and {b}")
    if by == "reports":
        weights = np.array([e.reports for e in estimates], dtype=np.float64)
    else:
        weights = np.array([1 / e.rare_variance() for e in estimates])
    return Pool(estimates, weights / weights.sum())
