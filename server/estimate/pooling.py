"""Pool several estimates, such as an experiment's versions, weighted by reports or by variance."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np

from ...device.ldp_client import Experiment
from ..arrays import Floats
from ..mechanisms.decoded_histogram import Spread
from ..mechanisms.views.factors import parts_of
from ..wire.experiments import scale_of, value_count
from .estimate import Estimate, Estimates
from .readings import among_readings
from .statistic import DoesNotFit, EstimateError, Statistics


class Pool(Estimates):
    """Estimates pooled with fixed weights that sum to 1; returned by pool()."""

    def __init__(self, estimates: Sequence[Estimates], weights: Floats):
        self.estimates = tuple(estimates)
        self.weights = weights
        self.experiment = estimates[-1].experiment
        self.reports = sum(e.reports for e in estimates)
        exact = all(e.stderr_method == "exact" for e in estimates)
        self.stderr_method = "exact" if exact else "approximate"

    @property
    def domain(self) -> int:
        return self.estimates[-1].domain

    def _pool_spreads(self, spreads: Sequence[Spread]) -> Spread:
        pairs = list(zip(self.weights, spreads, strict=True))
        if self.approximate:  # the same hash functions may bias all estimates in the same direction
            variance = np.sum([w * np.sqrt(s.variance) for w, s in pairs], axis=0) ** 2
        else:
            variance = np.sum([w**2 * s.variance for w, s in pairs], axis=0)
        return Spread.of(variance, np.sum([w**3 * s.variance * s.skew for w, s in pairs], axis=0))

    @property
    def parts(self) -> Sequence[tuple[float, Estimate]]:
        pairs = zip(self.weights.tolist(), self.estimates, strict=True)
        return [(weight * share, part) for weight, e in pairs for share, part in e.parts]

    @cached_property
    def frequencies(self) -> Floats:
        parts = (w * e.frequencies for w, e in zip(self.weights, self.estimates, strict=True))
        return np.sum(list(parts), axis=0)

    @cached_property
    def spread(self) -> Spread:
        return self._pool_spreads([e.spread for e in self.estimates])

    @cached_property
    def cdf_spread(self) -> Spread:
        return self._pool_spreads([e.cdf_spread for e in self.estimates])

    def _linear(self, weights: Floats, at_once: int) -> Statistics:
        parts = [e._linear(weights, at_once) for e in self.estimates]
        spread = self._pool_spreads([Spread(part.stderr**2, part.skew) for part in parts])
        value = self.weights @ np.array([part.value for part in parts])
        return Statistics(value, np.sqrt(spread.variance), spread.skew)

    @property
    def answers(self) -> frozenset[str]:
        first, *others = (e.answers for e in self.estimates)
        return first.intersection(*others)

    def halves(self) -> tuple[Estimates, Estimates] | None:
        parts = [pair for e in self.estimates if (pair := e.halves())]
        if len(parts) < len(self.estimates):
            return None
        first, second = zip(*parts, strict=True)
        return Pool(first, self.weights), Pool(second, self.weights)

    def rare_variance(self) -> float:
        return self._design_variance([e.rare_variance() for e in self.estimates])

    def mean_variance(self) -> float:
        return self._design_variance([e.mean_variance() for e in self.estimates])

    def _design_variance(self, variances: Sequence[float]) -> float:
        return float(self.weights**2 @ np.array(variances))


def _fields(reading: Any) -> dict[str, Any]:
    """Return the fields that must match between readings of the same quantity, by name in messages."""
    fields = {name: getattr(reading, name) for name in ("type", "low", "high", "labels")}
    return fields | {"number of values": value_count(reading), "scale": scale_of(reading) or "linear"}


def _parts(experiment: Experiment) -> list[tuple[object, ...]]:
    parts = parts_of(experiment)
    return [(part.name, part.domain, *_fields(part).values()) for part in parts]


def check_same_quantity(estimates: Sequence[Estimates]) -> None:
    """Raise DoesNotFit unless all estimates have the same type, range, bins and labels.

    Texts count as the same quantity regardless of their slots; see candidates.py.
    """
    first = estimates[0].experiment
    for other in estimates[1:]:
        fields, others = _fields(first), _fields(other.experiment)
        for name in ("type",) if first.type == other.experiment.type == "text" else fields:
            a, b = fields[name], others[name]
            if a != b:
                raise DoesNotFit(
                    f"estimates can be combined only if their {name} is the same, not {a} and {b}"
                )
        if _parts(first) != _parts(other.experiment):
            raise DoesNotFit(
                "estimates can be combined only if their parts and the parts' values are the same"
            )


def pool(estimates: Sequence[Estimates], by: Literal["reports", "variance"] = "reports") -> Pool:
    """Pool estimates of the same quantity that share no reports, such as those of an experiment's versions.

    If only some versions set `missing`, their shares are relative to devices with a reading, and the other
    versions' shares are unchanged.

    Args:
        estimates: The estimates.
        by: "reports" weights each estimate by its number of reports, so the population is that of all
            reports. "variance" weights by the inverse variance of a rare value, or of the mean if not all
            estimates have shares; both depend only on the design. If the populations are the same, its error
            is smaller.

    Raises:
        DoesNotFit: If the types, ranges, bins or labels differ.
    """
    if not estimates:
        raise EstimateError("pooling needs at least one estimate")
    if by not in ("reports", "variance"):
        raise EstimateError(f'by must be "reports" or "variance", not {by!r}')
    check_same_quantity(estimates)
    if len({e.domain for e in estimates}) > 1:
        estimates = [among_readings(e) for e in estimates]
    if by == "reports":
        weights = np.array([e.reports for e in estimates], dtype=np.float64)
    elif all("frequencies" in e.answers for e in estimates):
        weights = np.array([1 / e.rare_variance() for e in estimates])
    else:
        weights = np.array([1 / e.mean_variance() for e in estimates])
    return Pool(estimates, weights / weights.sum())
