"""Four ways to answer range queries privately, and the laws of their errors.

`CentralFlat` and `CentralHierarchy` trust a curator who adds noise to counts. The noise is drawn once for
each node and kept, because new noise for each question would average out and not protect anyone. `LocalFlat`
and `LocalHierarchy` work like boards, with the shipped channel, oracle and estimator. The number of reports
is public, and each value is protected independently of the others (neighbours: one replaced). README.md
explains which to compare.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import ClassVar, overload

import numpy as np
import numpy.typing as npt

from ..device.ldp_client import Experiment
from ..server.arrays import Counts, Floats
from ..server.epsilon import MICRO, check_epsilon
from ..server.errors import HushmoteError
from ..server.estimate.estimate import estimate
from ..server.experiments.payload import chosen_fields, experiment_over, mechanism_fields
from ..server.mechanisms.tree import least_squares as hierarchy
from ..server.mechanisms.tree.choice import level_channels
from ..server.mechanisms.tree.influence import mean_range_variance
from ..server.mechanisms.workload import ALL_RANGES, FREQUENCIES
from ..simulator import vectorised
from . import ranges_theory
from .noise import NeighbourRelation, NoiseSource, noise_variance

_FANOUTS = range(2, 33)


class StructureError(HushmoteError):
    """Counts, an ε or a range are invalid; the message says what was expected."""


@dataclass(frozen=True)
class Fitted:
    """Private estimates of all ranges; drawn once, so that repeated questions reveal nothing new.

    Attributes:
        prefix: Estimated counts below each index 0, 1, ..., domain; shape (domain + 1,).
    """

    prefix: Floats

    @property
    def domain(self) -> int:
        """Number of indices."""
        return len(self.prefix) - 1

    @overload
    def answer(self, lo: int, hi: int) -> float: ...
    @overload
    def answer(self, lo: npt.NDArray[np.integer], hi: npt.NDArray[np.integer]) -> Floats: ...
    def answer(self, lo: int | npt.NDArray[np.integer], hi: int | npt.NDArray[np.integer]) -> float | Floats:
        """Return estimated counts of the indices lo..hi-1: one number, or an array of them.

        Raises:
            StructureError: Unless 0 <= lo <= hi <= domain.
        """
        check_ranges(self.domain, lo, hi)
        result = self.prefix[hi] - self.prefix[lo]
        return float(result) if np.ndim(result) == 0 else result


class Structure:
    """A way to answer range queries privately.

    Attributes:
        family: "central" or "local", and "flat" or "hierarchy".
    """

    family: ClassVar[str]
    neighbours: NeighbourRelation = NeighbourRelation.replaced

    @property
    def central(self) -> bool:
        """Whether the structure trusts a curator."""
        return self.family.startswith("central")

    def fit(self, counts: Counts, epsilon: float, source: NoiseSource) -> Fitted:
        """Spend ε (nats) on counts, integers of shape (domain,); raise StructureError."""
        raise NotImplementedError

    def law(self, counts: Counts, epsilon: float, lo: Counts, hi: Counts) -> ranges_theory.Law:
        """Return the law of the errors on the ranges lo[i]..hi[i]-1 of those counts, ε in nats."""
        raise NotImplementedError

    def plan(self, domain: int, epsilon: float) -> str:
        """Describe the chosen fanout and cells."""
        raise NotImplementedError

    def true_epsilon(self, domain: int, epsilon: float) -> float:
        """Return the true ε of a report or of the publication, in nats."""
        del domain
        return epsilon


def check_fanout(fanout: int) -> None:
    """Raise StructureError unless a tree's fanout is 2 or more, or 0 to let theory choose it."""
    if fanout < 0 or fanout == 1:
        raise StructureError(f"fanout must be 2 or more, or 0 to choose, not {fanout}")


def check_ranges(domain: int, lo: int | npt.NDArray[np.integer], hi: int | npt.NDArray[np.integer]) -> None:
    """Raise StructureError unless 0 <= lo <= hi <= domain for all."""
    low, high = np.broadcast_arrays(lo, hi)
    bad = np.flatnonzero((low < 0) | (low > high) | (high > domain))
    if len(bad):
        bounds = f"{low.flat[bad[0]]} and {high.flat[bad[0]]}"
        raise StructureError(f"a range needs 0 <= lo <= hi <= {domain}, not {bounds}")


def checked(counts: npt.ArrayLike, epsilon: float) -> Counts:
    """Return counts as int64; raise StructureError for invalid counts or ε."""
    values = np.asarray(counts)
    if values.ndim != 1 or len(values) < 2 or values.dtype.kind not in "iu":
        raise StructureError("counts must be a row of at least 2 integers, one for each index")
    if values.min() < 0:
        i = int(np.argmax(values < 0))
        raise StructureError(f"counts must not be negative; index {i} has {values[i]}")
    check_epsilon(epsilon * MICRO, StructureError, original=epsilon)
    return values.astype(np.int64)


def fitted(leaves: Floats | Counts) -> Fitted:
    """Return answers as sums of the indices' estimates, shape (domain,)."""
    return Fitted(np.concatenate(([0.0], np.cumsum(leaves, dtype=np.float64))))


# --- A curator --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CentralFlat(Structure):
    """One noisy count for each index.

    Privacy: ε-DP for the given neighbours: every count gets discrete Laplace noise of scale
    sensitivity / ε, and the counts of disjoint indices change by at most the sensitivity in all.
    Utility: a range of r indices has r times noise_variance(sensitivity, ε), 2 r / ε² for small ε.
    Cost: one draw for each index. Citation: Dwork, McSherry, Nissim, Smith, "Calibrating Noise to
    Sensitivity in Private Data Analysis", TCC 2006; discrete noise of Ghosh, Roughgarden, Sundararajan,
    STOC 2009.
    """

    neighbours: NeighbourRelation = NeighbourRelation.added

    family: ClassVar = "central flat"

    def plan(self, domain: int, epsilon: float) -> str:
        return ""

    def law(self, counts: Counts, epsilon: float, lo: Counts, hi: Counts) -> ranges_theory.Law:
        weights = ranges_theory.indicator(len(counts), lo, hi)
        return ranges_theory.laplace_law(noise_variance(self.neighbours.sensitivity, epsilon), [weights])

    def fit(self, counts: Counts, epsilon: float, source: NoiseSource) -> Fitted:
        counts = checked(counts, epsilon)
        return fitted(counts + source.noise.draw(len(counts), self.neighbours.sensitivity, epsilon))


@dataclass(frozen=True)
class CentralHierarchy(Structure):
    """Noisy counts of every node of a tree, made consistent: continual observation's binary mechanism.

    fanout is 2 or more, or 0 for the one with the smallest mean variance over all ranges. The root is counted
    with noise if records may be added, and is public if they are replaced.

    Privacy: ε-DP for the given neighbours: a record is in one node of each level, so all counts change
    by at most levels times the sensitivity of one level; levels are h below a public root, h + 1 with a
    private one. Utility: law(), exact; grows like log(r)^1.5 before consistency.
    Cost: one draw for each node, below fanout / (fanout - 1) for each index; O(nodes) for consistency.
    Citation: Dwork, Naor, Pitassi, Rothblum, "Differential Privacy under Continual Observation", STOC
    2010; Chan, Shi, Song, "Private and Continual Release of Statistics", 2011; Hay, Rastogi, Miklau,
    Suciu, "Boosting the accuracy of differentially private histograms through consistency", VLDB 2010.
    """

    fanout: int = 0
    neighbours: NeighbourRelation = NeighbourRelation.added

    def __post_init__(self) -> None:
        check_fanout(self.fanout)

    family: ClassVar = "central hierarchy"

    @property
    def public_root(self) -> bool:
        """Whether the number of records is public."""
        return self.neighbours is NeighbourRelation.replaced

    def tree(self, domain: int) -> hierarchy.Tree:
        """Return the tree over range(domain), with the root as a separate level if it is private."""
        return _tree(domain, self.fanout or best_fanout(domain, self.public_root), self.public_root)

    def sensitivity(self, tree: hierarchy.Tree) -> int:
        """Return the L1 sensitivity of all nodes' counts together."""
        return len(tree.nodes) * self.neighbours.sensitivity

    def node_variance(self, tree: hierarchy.Tree, epsilon: float) -> float:
        """Return the noise variance of one node's count."""
        return noise_variance(self.sensitivity(tree), epsilon)

    def plan(self, domain: int, epsilon: float) -> str:
        return f"fanout {self.tree(domain).fanout}"

    def law(self, counts: Counts, epsilon: float, lo: Counts, hi: Counts) -> ranges_theory.Law:
        tree = self.tree(len(counts))
        parts, _ = hierarchy.transpose(tree, ranges_theory.indicator(len(counts), lo, hi))
        return ranges_theory.laplace_law(self.node_variance(tree, epsilon), parts)

    def fit(self, counts: Counts, epsilon: float, source: NoiseSource) -> Fitted:
        counts = checked(counts, epsilon)
        tree = self.tree(len(counts))
        noise = source.noise.draw(sum(tree.nodes), self.sensitivity(tree), epsilon)
        parts = np.split(noise, np.cumsum(tree.nodes)[:-1])
        noisy = [(c + z).astype(float) for c, z in zip(node_counts(tree, counts), parts, strict=True)]
        # A private root's level has a share of 0, so solve() ignores this 0.
        root = float(counts.sum()) if self.public_root else 0.0
        return fitted(hierarchy.solve(tree, noisy, root)[-1])


def node_counts(tree: hierarchy.Tree, counts: Counts) -> list[Counts]:
    """Return the number of records in each node, by level."""
    levels: list[Counts] = [counts]
    while len(levels) < len(tree.nodes):
        levels.insert(0, tree.children_sum(levels[0]))  # type: ignore[arg-type]
    return levels


@cache
def _tree(domain: int, fanout: int, public_root: bool) -> hierarchy.Tree:
    below = hierarchy.tree(domain, fanout, [1.0] * len(hierarchy.heights(domain, fanout)))
    return below if public_root else with_private_root(below, 1.0)


def with_private_root(tree: hierarchy.Tree, variance: float) -> hierarchy.Tree:
    """Return the tree for least squares when the root is only an estimate with this variance.

    The root becomes a level of one node, which weighs its own estimate against its children's sum and takes
    no share (0) of the error of hierarchy.solve()'s known root.
    """
    children = float(tree.variance[0].sum())
    own_weights = np.array([children / (children + variance)])
    return replace(
        tree,
        nodes=(1, *tree.nodes),
        own=(own_weights, *tree.own),
        share=(np.zeros(1), *tree.share),
        variance=(children * (1 - own_weights), *tree.variance),
    )


@cache
def best_fanout(domain: int, public_root: bool, fanouts: Sequence[int] = _FANOUTS) -> int:
    """Return the fanout with the smallest mean variance over all ranges, noise proportional to levels."""

    def mean(fanout: int) -> float:
        tree = _tree(domain, fanout, public_root)
        return len(tree.nodes) ** 2 * mean_range_variance(tree, [1.0] * len(tree.nodes))

    return min((f for f in fanouts if f <= max(2, domain)), key=mean)


# --- Boards -----------------------------------------------------------------------------------------


class LocalStructure(Structure):
    """Boards that each make one report."""

    def experiment(self, domain: int, epsilon: float) -> Experiment:
        """Return the boards' experiment."""
        raise NotImplementedError

    def plan(self, domain: int, epsilon: float) -> str:
        experiment = self.experiment(domain, epsilon)
        cells = "cells " + " ".join(str(level.g) for level in experiment.levels)
        return f"fanout {experiment.fanout}, {cells}" if experiment.fanout else cells

    def law(self, counts: Counts, epsilon: float, lo: Counts, hi: Counts) -> ranges_theory.Law:
        experiment = self.experiment(len(counts), epsilon)
        weights = ranges_theory.indicator(len(counts), lo, hi)
        parts = ranges_theory.tree_weights(experiment, weights)
        return ranges_theory.channel_law(experiment, experiment, counts, parts)

    def fit(self, counts: Counts, epsilon: float, source: NoiseSource) -> Fitted:
        """Make one report for every record, and return the shipped estimate of the counts."""
        counts = checked(counts, epsilon)
        experiment = self.experiment(len(counts), epsilon)
        histogram = vectorised.histogram(experiment, counts, source.rng)
        return fitted(estimate(experiment, histogram).frequencies * int(counts.sum()))


@dataclass(frozen=True)
class LocalFlat(LocalStructure):
    """One report per record about its index, by generalised randomized response or local hashing.

    Privacy: ε-LDP for each record. Utility: about 4 e^ε / (e^ε - 1)² n for one count among n records, and
    law() for ranges, exact: errors of different indices are correlated. Cost: O(n) to
    simulate, a few ms to estimate. Citation: Wang, Blocki, Li, Jha, "Locally Differentially Private
    Protocols for Frequency Estimation", USENIX Security 2017.
    """

    family: ClassVar = "local flat"

    def experiment(self, domain: int, epsilon: float) -> Experiment:
        """Return the experiment with the smallest variance for single counts."""
        return _flat(domain, round(epsilon * 1e6))


@dataclass(frozen=True)
class LocalHierarchy(LocalStructure):
    """One report per record about one level of a tree, made consistent with the known total.

    fanout is 2 or more, or 0 for the plan with the smallest mean variance over all ranges.

    Privacy: ε-LDP for each record: it is in one report, at one level. Utility: law().
    Cost: as LocalFlat. Citation: Cormode, Kulkarni, Srivastava, "Answering Range Queries Under Local
    Differential Privacy", VLDB 2019, section 4.
    """

    fanout: int = 0

    def __post_init__(self) -> None:
        check_fanout(self.fanout)

    family: ClassVar = "local hierarchy"

    def experiment(self, domain: int, epsilon: float) -> Experiment:
        """Return the experiment with each level's best cells."""
        return _local_tree(domain, round(epsilon * 1e6), self.fanout)


@lru_cache(maxsize=256)
def _flat(domain: int, epsilon: int) -> Experiment:
    return experiment_over(domain, epsilon, chosen_fields(domain, epsilon, FREQUENCIES))


@lru_cache(maxsize=256)
def _local_tree(domain: int, epsilon: int, fanout: int) -> Experiment:
    if fanout:
        fanout = min(fanout, domain)
        cells = [channel.g for channel in level_channels(domain, fanout, epsilon)]
        return experiment_over(domain, epsilon, mechanism_fields("hh", fanout=fanout, cells=cells))
    fields = chosen_fields(domain, epsilon, ALL_RANGES)
    if fields["mechanism"] != "hh":
        raise StructureError("a hierarchy needs a domain of more than 2 indices")
    return experiment_over(domain, epsilon, fields)
