"""Choose the fanout, cells and weights of a tree of histograms with the least variance for a workload."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from ...arrays import Floats
from ..channel import Channel
from ..choice import Choice
from ..hashing.choice import MAX_CODES, channels_together, truth
from ..workload import Workload
from . import allocation
from . import least_squares as hierarchy

_MAX_FANOUT = 64
_MAX_EXACT = 1 << 13  # values; above this, variances are those of complete trees (allocation.py)
_MAX_FLAT = 1 << 12  # values; above this, a single-level tree is never best
_FINALISTS = 4


@cache
def level_channels(domain: int, fanout: int, epsilon: int) -> tuple[Channel, ...]:
    """Return each level's best channel in a hierarchy for a uniform population, top first.

    Together, they have at most 2**24 codes.

    Args:
        domain: The number of values.
        fanout: The number of children per node.
        epsilon: ε of a report, in micro-nats.

    Raises:
        ValueError: If no combination fits.
    """
    return channels_together(hierarchy.heights(domain, fanout), epsilon)


def workload_variance(
    domain: int, fanout: int, channels: Sequence[Channel], weights: Sequence[int], workload: Workload
) -> float:
    """Return the mean variance of a hierarchy's answers to a workload, times the number of reports.

    It is that of a uniform population, including population sampling. The errors of a level's nodes are
    assumed to be equally correlated, which is true except for collinear values of the linear hash.
    """
    share = np.array(weights) / sum(weights)
    with np.errstate(divide="ignore"):
        tree = hierarchy.tree(domain, fanout, list(np.array([c.assumed for c in channels]) / share))
    errors: list[float | Floats] = []
    for level, channel in enumerate(channels):
        width = fanout ** (len(channels) - 1 - level)
        nodes = np.full(channel.domain, channel.node_variance(width / domain))
        nodes[-1] = channel.node_variance((domain - (channel.domain - 1) * width) / domain)
        errors.append(nodes / share[level] if share[level] else np.inf)
    return workload.mean_variance(tree, errors)


def _levels(domain: int, fanout: int, channels: Sequence[Channel], workload: Workload) -> allocation.Levels:
    height = len(channels)
    widths = np.array([fanout ** (height - 1 - level) for level in range(height)])
    energy = [workload.energy(domain, width) for width in (domain, *widths.tolist())]
    return allocation.Levels(
        np.maximum(np.diff(energy), 0),
        np.array([channel.even for channel in channels]) / widths,
        np.array([channel.assumed for channel in channels]) / widths,
    )


def _plan(domain: int, epsilon: int, fanout: int, workload: Workload) -> Choice:
    """Return the best weights and cells for one fanout, with the variance of a complete tree."""
    channels = level_channels(domain, fanout, epsilon)
    levels = _levels(domain, fanout, channels, workload)
    weights = allocation.rounded(levels, allocation.shares(levels))
    variance = levels.variance(np.array(weights) / sum(weights))
    # A level without reports gets the number of cells that needs the fewest codes.
    unused = (c.domain if truth(epsilon, c.domain) is not None else 2 for c in channels)
    cells = tuple(c.g if w else u for c, w, u in zip(channels, weights, unused, strict=True))
    parameters = (("fanout", fanout), ("cells", cells))
    if len(set(weights)) > 1:
        parameters += (("weights", weights),)
    return Choice("hh", parameters, variance)


def _exact(choice: Choice, domain: int, epsilon: int, workload: Workload) -> Choice:
    parameters = dict(choice.parameters)
    channels = level_channels(domain, parameters["fanout"], epsilon)
    weights = parameters.get("weights", (1,) * len(channels))
    variance = workload_variance(domain, parameters["fanout"], channels, weights, workload)
    return replace(choice, variance=variance)


@cache
def best_tree(domain: int, epsilon: int, workload: Workload) -> Choice:
    """Return the tree with the least mean variance over a workload.

    Levels may be omitted, so with a fanout of 2, every mixture of 2, 4, 8, ... is a candidate.

    Args:
        domain: The number of values.
        epsilon: ε of a report, in micro-nats.
        workload: The statistics to estimate.

    Raises:
        ValueError: If no tree fits.
    """
    plans: list[Choice] = []
    fanouts = [*range(2, min(domain, _MAX_FANOUT + 1))]
    if domain <= _MAX_FLAT:
        fanouts.append(domain)  # one level is not a hierarchy, but the sum of all frequencies is known
    for fanout in fanouts:
        try:
            plans.append(_plan(domain, epsilon, fanout, workload))
        except ValueError:
            continue
    if not plans:
        raise ValueError(f"no hierarchy fits {domain} values in {MAX_CODES} codes at epsilon {epsilon}")
    plans.sort(key=lambda plan: plan.variance)
    if domain > _MAX_EXACT:
        return plans[0]
    finalists = [_exact(plan, domain, epsilon, workload) for plan in plans[:_FINALISTS]]
    return min(finalists, key=lambda plan: plan.variance)
