"""Which views of a pair to ask for, with which cells and how often, for the least variance of a workload.

Every set of parts is a candidate. Each gets the cells of least variance for an even population; factors.py
has the shares of least mean variance, under which most views are left out. They become small integers.
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
"""Kinds of workloads that are about parts."""


def energy(workload: Workload) -> Energy:
    """The mean squared length of a workload's statistics, component by component."""
    shape = workload.shape
    parts = tuple(range(len(shape)))
    if workload.kind == "conditional":
        return factors.conditional_energy(shape, workload.of_parts, workload.given, differ=False)
    if workload.kind == "differences":
        return factors.conditional_energy(shape, workload.of_parts, workload.given, differ=True)
    asked: list[Parts] = [workload.of_parts] if workload.of_parts else [(part,) for part in parts]
    if workload.kind == "tables":
        asked.append(parts)
    result: dict[Parts, float] = {}
    for of in asked:
        for component, square in factors.cell_energy(shape, of).items():
            result[component] = result.get(component, 0.0) + square / len(asked)
    return result


@dataclass(frozen=True)
class CandidateViews:
    """Views that can be asked for, and what is asked of them."""

    shape: tuple[int, ...]
    channels: Mapping[Parts, Channel]
    energy: Energy

    def variance(self, weights: Mapping[Parts, float]) -> float:
        """Mean variance over the workload times reports, where views are drawn by weights.

        Of an even population; least squares takes each view's numbers to err as Channel.assumed says.
        """
        total = sum(weights.values())
        asked = {view: weight / total for view, weight in weights.items() if weight}
        assumed = [self.channels[view].assumed / share for view, share in asked.items()]
        noise = [self.channels[view].even / share for view, share in asked.items()]
        told = factors.precision(self.shape, list(asked), assumed)
        result = 0.0
        for parts, square in self.energy.items():
            if square and not told[parts]:
                return math.inf
            if square:
                errs = (p**2 * noise[view] / assumed[view] / p for view, p in told[parts].items())
                result += square * sum(errs) / sum(told[parts].values()) ** 2
        return result

    def rounded(self, wanted: Mapping[Parts, float]) -> dict[Parts, int]:
        """Small integers in proportion to wanted shares, of nearly least variance, none of them 0."""
        shares = np.array(list(wanted.values()))
        weights = small_integers(shares, lambda w: self.variance(dict(zip(wanted, w, strict=True))))
        return {view: weight for view, weight in zip(wanted, weights, strict=True) if weight}


def best_views(domain: int, epsilon: int, workload: Workload) -> Iterator[Choice]:
    """The views of least variance for a workload about parts; epsilon in micro-nats.

    Where the joint table alone is best, a Choice of JOINT comes first. Raises ValueError where none fits.
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
    drawn = tuple(weights.values())
    parameters = (("views", tuple(weights)), ("cells", cells))
    unequal = (("weights", drawn),) if len(set(drawn)) > 1 else ()
    yield Choice("views", parameters + unequal, variance)


def _channels(shape: tuple[int, ...], epsilon: int) -> dict[Parts, Channel]:
    """The best channel of each view, with at most 2**24 codes together. Raises ValueError where none fits."""
    views = [*factors.within(range(len(shape)))]
    channels = channels_together((factors.size(shape, view) for view in views), epsilon)
    return dict(zip(views, channels, strict=True))
