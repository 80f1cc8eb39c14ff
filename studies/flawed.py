"""NOT ε-LDP: a well-known study's local oracle with its flaws, to show the effect of each.

The study (a bachelor's thesis from 2021) keeps the truth with the usual probability, but draws the lie from
all cells, including the true one. It does not hash, and it spends a share of the reports on the root, whose
count is known. Nothing here is a mechanism: experiments cannot name it, and `Structure` does not use it. Each
flaw is a switch in `Flaws`, so that its effect can be separated from the others'.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ..device.ldp_client import ONE, Experiment
from ..server.arrays import Counts, Floats
from ..server.epsilon import MICRO
from ..server.estimate.estimate import estimate
from ..server.experiments.payload import experiment_over, mechanism_fields
from ..server.mechanisms.channel import level_channel
from ..server.mechanisms.hashing import butterfly
from ..server.mechanisms.tree import least_squares as hierarchy
from ..simulator import vectorised
from . import ranges_theory
from .noise import NoiseSource
from .structures import Fitted, LocalFlat, LocalHierarchy, LocalStructure, check_ranges, checked, fitted


@dataclass(frozen=True)
class Flaws:
    """Deviations from the correct structures; with all False, the structure is correct.

    Attributes:
        lie: The lie is drawn from all cells, the truth's included: not ε-LDP.
        no_hash: Every level is reported directly, with g = D.
        root: 1 / (h + 1) of the reports go to the root, whose count is known.
        inconsistent: A range is the sum of the fewest nodes' raw estimates, without least squares or the
            known total.
        wrong_inverse: With `lie`, the estimator inverts the correct channel instead of the actual one.
    """

    lie: bool = False
    no_hash: bool = False
    root: bool = False
    inconsistent: bool = False
    wrong_inverse: bool = False

    def __str__(self) -> str:
        names = ("lie from all cells", "no hashing", "root level", "no consistency", "wrong inverse")
        on = " + ".join(name for name, is_on in zip(names, vars(self).values(), strict=True) if is_on)
        return f"{on or 'correct'} (not ε-LDP)" if self.lie else on or "correct"


CORRECT = Flaws()
THESIS = Flaws(lie=True, no_hash=True, root=True, inconsistent=True)


def true_epsilon(epsilon: float, cells: int) -> float:
    """Return the true ε of the flawed oracle with `cells` cells at a nominal ε, in nats.

    The truth is sent with probability p + (1 - p) / g and each other cell with (1 - p) / g,
    p = e^ε / (e^ε + g - 1), so that the ratio is 1 + g e^ε / (g - 1).
    """
    return math.log1p(cells * math.exp(epsilon) / (cells - 1))


@dataclass(frozen=True)
class FlawedStructure(LocalStructure):
    """A local structure with flaws, flat if fanout is 0; its ε is nominal, see true_epsilon()."""

    fanout: int
    flaws: Flaws

    @property
    def family(self) -> str:
        """The family of the correct structure that this one imitates."""
        return "local hierarchy" if self.fanout else "local flat"

    @property
    def flat_counterpart(self) -> FlawedStructure:
        """The flat structure with the same reports."""
        return FlawedStructure(0, Flaws(lie=self.flaws.lie, no_hash=self.flaws.no_hash))

    def experiment(self, domain: int, epsilon: float) -> Experiment:
        """Return the experiment at the nominal ε."""
        return _assumed_oracle(domain, epsilon, self.fanout, self.flaws.no_hash)

    def actual_oracle(self, domain: int, epsilon: float) -> Experiment:
        """Return the oracle that makes the reports; if `lie` is set, it reports the truth too often."""
        return _actual_oracle(domain, epsilon, self.fanout, self.flaws.no_hash, self.flaws.lie)

    def unused(self, domain: int) -> float:
        """Return the share of the reports that go to the root."""
        root = self.flaws.root and self.fanout
        return 1 / (len(hierarchy.heights(domain, self.fanout)) + 1) if root else 0.0

    def true_epsilon(self, domain: int, epsilon: float) -> float:
        """Return a report's true ε, that of the level that discloses the most."""
        if not self.flaws.lie:
            return epsilon
        return max(true_epsilon(epsilon, level.g) for level in self.experiment(domain, epsilon).levels)

    def _inverse(self, domain: int, epsilon: float) -> Experiment:
        return (self.experiment if self.flaws.wrong_inverse else self.actual_oracle)(domain, epsilon)

    def fit(self, counts: Counts, epsilon: float, source: NoiseSource) -> Fitted | NodeSums:
        """Return simulated answers at a nominal ε."""
        counts = checked(counts, epsilon)
        domain, n = len(counts), int(counts.sum())
        used = source.rng.binomial(counts, 1 - self.unused(domain))
        histogram = vectorised.histogram(self.actual_oracle(domain, epsilon), used, source.rng)
        inverse = self._inverse(domain, epsilon)
        if not (self.flaws.inconsistent and self.fanout):
            return fitted(estimate(inverse, histogram).frequencies * n)
        nodes = []
        for level in inverse.levels:
            level_counts = histogram[level.offset : level.offset + level.code_count]
            channel = level_channel(level)
            rate = butterfly.supports(level, level_counts) / level_counts.sum()
            nodes.append((rate - channel.q) / (channel.p - channel.q) * n)
        return NodeSums(domain, self.fanout, tuple(nodes))

    def law(self, counts: Counts, epsilon: float, lo: Counts, hi: Counts) -> ranges_theory.Law:
        domain = len(counts)
        inverse = self._inverse(domain, epsilon)
        if self.flaws.inconsistent and self.fanout:
            parts = fewest_nodes(domain, self.fanout, lo, hi)
        else:
            parts = ranges_theory.tree_weights(inverse, ranges_theory.indicator(domain, lo, hi))
        unused = self.unused(domain)
        return ranges_theory.channel_law(self.actual_oracle(domain, epsilon), inverse, counts, parts, unused)


@dataclass(frozen=True)
class NodeSums:
    """Answers that sum the estimates of the fewest nodes that make up a range."""

    domain: int
    fanout: int
    nodes: tuple[Floats, ...]

    def answer(self, lo: Counts, hi: Counts) -> Floats:
        """Return estimated counts of the indices lo[i]..hi[i]-1, shape (ranges,)."""
        check_ranges(self.domain, lo, hi)
        parts = fewest_nodes(self.domain, self.fanout, lo, hi)
        return sum((z @ r for z, r in zip(self.nodes, parts, strict=True)), np.zeros(len(lo)))


def fewest_nodes(domain: int, fanout: int, lo: Counts, hi: Counts) -> list[Floats]:
    """Return per level which nodes, but not their parents, are in a range, shape (nodes, ranges), 0 or 1."""
    parts: list[Floats] = []
    nodes = hierarchy.heights(domain, fanout)
    above = np.zeros((1, len(lo)), bool)
    for level, count in enumerate(nodes):
        width = fanout ** (len(nodes) - 1 - level)
        start = np.arange(count)[:, None] * width
        inside = (start >= lo) & (np.minimum(start + width, domain) <= hi)
        parts.append((inside & ~np.repeat(above, fanout, axis=0)[:count]).astype(np.float64))
        above = inside
    return parts


@lru_cache(maxsize=64)
def _assumed_oracle(domain: int, epsilon: float, fanout: int, no_hash: bool) -> Experiment:
    if not no_hash:
        return (LocalHierarchy(fanout) if fanout else LocalFlat()).experiment(domain, epsilon)
    if not fanout:
        return experiment_over(domain, round(epsilon * MICRO), mechanism_fields("grr"))
    cells = list(hierarchy.heights(domain, fanout))
    return experiment_over(domain, round(epsilon * MICRO), mechanism_fields("hh", fanout=fanout, cells=cells))


@lru_cache(maxsize=64)
def _actual_oracle(domain: int, epsilon: float, fanout: int, no_hash: bool, lie: bool) -> Experiment:
    experiment = _assumed_oracle(domain, epsilon, fanout, no_hash)
    if lie:
        experiment = copy.deepcopy(experiment)  # the shared experiment must stay unchanged
        for level in experiment.levels:
            level.threshold += round((ONE - level.threshold) / level.g)
    return experiment
