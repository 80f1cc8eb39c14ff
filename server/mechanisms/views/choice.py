"""Choose a pair's views, their cells and their weights for the least variance over a workload.

Every set of parts is a candidate view, with the number of cells that has the least variance in a uniform
population. factors.py computes the shares with the least mean variance, most of which are 0, and which are
rounded to small integers.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ..channel import Channel
from ..choice import JOINT, Choice
from ..hashing.choice import channels_together
from ..tree.allocation import small_integers
from ..workload import Workload
from . import factors
from .factors import Energy, Parts

PAIR_KINDS = ("marginals", "tables", "conditional", "differences")
"""The kinds of workloads about parts."""


def energy(workload: Workload) -> Energy:
    """Return the mean squared length of a workload's statistics, component by component."""
    shape = workload.shape
    parts = tuple(range(len(shape)))
    if workload.kind == "conditional":
        return factors.conditional_energy(shape, workload.of_parts, workload.given, differ=False)
    if workload.kind == "differences":
        return factors.conditional_energy(shape, workload.of_parts, workload.given, differ=True)
    tables: list[Parts] = [workload.of_parts] if workload.of_parts else [(part,) for part in parts]
    if workload.kind == "tables":
        tables.append(parts)
    result: dict[Parts, float] = {}
    for table in tables:
        for component, square in factors.cell_energy(shape, table).items():
            result[component] = result.get(component, 0.0) + square / len(tables)
    return result


@dataclass(frozen=True)
class CandidateViews:
    """The possible views, and the energy of the workload to answer."""

    shape: tuple[int, ...]
    channels: Mapping[Parts, Channel]
    energy: Energy

    def variance(self, weights: Mapping[Parts, float]) -> float:
        """Return the workload's mean variance, times the number of reports, if views have these weights.

        It is that of a uniform population; least squares assumes Channel.assumed as the variance of each
        view's numbers.
        """
        total = sum(weights.values())
        view_shares = {view: weight / total for view, weight in weights.items() if weight}
        assumed = [self.channels[view].assumed / share for view, share in view_shares.items()]
        noise = [self.channels[view].even / share for view, share in view_shares.items()]
        precisions = factors.precision(self.shape, list(view_shares), assumed)
        result = 0.0
        for parts, square in self.energy.items():
            if square and not precisions[parts]:
                return math.inf
            if square:
                errors = (p**2 * noise[view] / assumed[view] / p for view, p in precisions[parts].items())
                result += square * sum(errors) / sum(precisions[parts].values()) ** 2
        return result

    def rounded(self, target: Mapping[Parts, float]) -> dict[Parts, int]:
        """Return small positive integers proportional to target shares, with nearly the least variance."""
        shares = np.array(list(target.values()))
        weights = small_integers(shares, lambda w: self.variance(dict(zip(target, w, strict=True))))
        return {view: weight for view, weight in zip(target, weights, strict=True) if weight}


def best_views(domain: int, epsilon: int, workload: Workload) -> Iterator[Choice]:
    """Return the views with the least variance for a workload about parts.

    If the joint table alone is best, a Choice with JOINT comes first.

    Args:
        domain: The number of cells in the joint table.
        epsilon: ε of a report, in micro-nats.
        workload: The statistics to estimate.

    Raises:
        ValueError: If no view fits.
    """
    shape = workload.shape
    if workload.kind not in PAIR_KINDS or math.prod(shape) != domain:
        return
    candidates = CandidateViews(shape, _channels(shape, epsilon), energy(workload))
    costs = {view: channel.even for view, channel in candidates.channels.items()}
    weights = candidates.rounded(factors.least_variance(shape, costs, candidates.energy))
    variance = candidates.variance(weights)
    if list(weights) == [tuple(range(len(shape)))]:
        yield Choice(JOINT, (), variance)
    cells = tuple(candidates.channels[view].g for view in weights)
    view_weights = tuple(weights.values())
    parameters = (("views", tuple(weights)), ("cells", cells))
    unequal = (("weights", view_weights),) if len(set(view_weights)) > 1 else ()
    yield Choice("views", parameters + unequal, variance)


def _channels(shape: tuple[int, ...], epsilon: int) -> dict[Parts, Channel]:
    """Return each view's best channel, 2**24 codes in total at most; raise ValueError if none fits."""
    views = [*factors.within(range(len(shape)))]
    channels = channels_together((factors.size(shape, view) for view in views), epsilon)
    return dict(zip(views, channels, strict=True))
