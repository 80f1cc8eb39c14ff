"""Mechanisms whose codes support values: a single value, the values in a cell, or those under a level's node.

If C[v] is the number of reports that support v, (C[v]/N - q) / (p - q) is an unbiased estimate of v's
frequency, so a weighted sum of frequencies is the mean over reports of the supported values' weights.

Source: Wang, Blocki, Li, Jha, "Locally Differentially Private Protocols for Frequency Estimation", USENIX
Security 2017.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ...device.ldp_client import Experiment
from ..arrays import Array, Counts, Floats
from . import draws
from .channel import LevelCode, SupportCode
from .decoded_histogram import Decoded, Spread, simplex
from .hashing import butterfly
from .invariants import Check, bounded_supports, even_runs, known_chances
from .mechanism import Mechanism, Stratum, Weights
from .tree import covariance
from .tree import least_squares as hierarchy
from .tree.covariance import LevelCounts, Smoothed
from .tree.influence import influences

# A hierarchy's errors for all frequencies, or for the distribution function, are exact up to this many pairs
# of a class and a value, which take about 20 ns each. Above this limit they come from a covariance model.
_MAX_EXACT_PAIRS = 25_000_000
# The corresponding limit for computing many of a hierarchy's statistics at once, in butterfly additions.
_MAX_EXACT_WORK = 500_000_000
_ALWAYS_EXACT = 16


class SupportMechanism(Mechanism):
    """The base class of these mechanisms, whose levels (usually only one) are the strata."""

    def __init__(self, experiment: Experiment):
        super().__init__(experiment)
        self.codes = self._codes(experiment)

    def _codes(self, experiment: Experiment) -> tuple[SupportCode, ...]:
        return tuple(LevelCode(level) for level in experiment.levels)

    @cached_property
    def strata(self) -> tuple[Stratum, ...]:
        total = sum(code.level.weight for code in self.codes)
        parts = ((code.level, code.runs) for code in self.codes)
        return tuple(Stratum(x.weight / total, x.offset, x.code_count, runs) for x, runs in parts)

    @cached_property
    def class_count(self) -> int:
        return sum(code.class_count for code in self.codes)

    def tree(self, reports: Sequence[float]) -> hierarchy.Tree | None:
        """Return the least-squares tree for these reports per level, or None without constraints."""
        return None

    def collapse(self, counts: Counts) -> list[Counts]:
        parts = zip(self.codes, super().collapse(counts), strict=True)
        return [code.collapse(part) for code, part in parts]

    def expand(self, values: Sequence[Array]) -> Array:
        parts = zip(self.codes, values, strict=True)
        return np.concatenate([code.expand(part) for code, part in parts])

    def law(self, shares: Floats) -> list[Floats]:
        return [code.law(code.node_sums(shares)) for code in self.codes]

    def law_transposed(self, numbers: Sequence[Floats]) -> Floats:
        parts = ((c, n) for c, n in zip(self.codes, numbers, strict=True) if n.any())
        return sum((c.spread_out(c.law_transposed(n), self.domain) for c, n in parts), np.zeros(self.domain))

    def weights(self, statistic: Floats, reports: Sequence[float]) -> Weights:
        tree = self.tree(reports)
        nodes, constant = [statistic], np.zeros(statistic.shape[1])
        if tree:
            nodes, constant = hierarchy.transpose(tree, statistic)
        parts = [(c, r if n else None) for c, r, n in zip(self.codes, nodes, reports, strict=True)]
        constant = sum((c.constant(r) for c, r in parts if r is not None), constant)
        return (None if r is None else c.weights(r) for c, r in parts), constant

    def draw(self, indices: npt.NDArray[np.uint32], rng: np.random.Generator) -> npt.NDArray[np.uint32]:
        return draws.codes(self.experiment, indices, rng)

    def decode(self, counts: Counts) -> Decoded:
        return TreeDecoded(self, self.collapse(counts))

    def invariants(self, counts: Counts) -> Iterator[Check]:
        parts = Mechanism.collapse(self, counts)
        yield from known_chances(self.stratum_chances, [int(part.sum()) for part in parts])
        for index, (code, part) in enumerate(zip(self.codes, parts, strict=True)):
            yield from even_runs(part, code.runs, self.stratum_number(index))
            yield from bounded_supports(code, code.collapse(part), self.stratum_number(index))

    def lift(self, prior: Floats) -> Floats:
        result = np.zeros(self.domain)
        for code, chance in zip(self.codes, self.stratum_chances, strict=True):
            if chance:  # the class with the smallest mass raises the belief in a value the most
                masses = code.class_weights(code.node_sums(prior))
                odds, lightest = code.channel.odds, code.least_supports(masses)
                lift = code.spread_out(odds / (1 + (odds - 1) * lightest), self.domain)
                np.maximum(result, lift, out=result)
        return result

    @property
    def odds(self) -> float:
        """The largest odds on any level, reached by two values that a seed separates on it."""
        return max(
            c.channel.odds for c, chance in zip(self.codes, self.stratum_chances, strict=True) if chance
        )

    def blanket(self) -> tuple[float, float, float]:
        """Return the blanket for two readings that differ on every level, which are the least hidden.

        All readings share the untrue cells. Since thresholds are rounded, the levels' odds differ slightly. A
        level with lower odds is equivalent to one with the highest odds whose cells are sometimes redrawn, so
        all levels are treated as if they had the highest odds, which hide less.
        """
        odds = self.odds * (1 + 1e-12)  # with a margin for rounding errors
        pair = whole = 0.0
        for code, chance in zip(self.codes, self.stratum_chances, strict=True):
            lie = chance / (odds + code.channel.ratio - 1)
            pair += (1 - code.channel.collision) * lie
            whole += code.channel.ratio * lie
        return odds, pair, whole


class SupportDecoded(Decoded):
    """A support mechanism's histogram, decoded by butterflies."""

    def __init__(self, mechanism: SupportMechanism, counts: Sequence[Counts]):
        super().__init__(mechanism, counts)
        self.codes = mechanism.codes
        self._least_squares = mechanism.tree
        parts = zip(self.codes, counts, self.reports, strict=True)
        self._levels = [LevelCounts(code, n, part) if n else None for code, part, n in parts]

    @cached_property
    def _tree(self) -> hierarchy.Tree | None:
        return self._least_squares(self.reports)

    @cached_property
    def _values(self) -> list[Floats]:
        """The estimates for all nodes, by level."""
        estimates = [level.estimates if level else None for level in self._levels]
        return (
            hierarchy.solve(self._tree, estimates) if self._tree else [x for x in estimates if x is not None]
        )

    @cached_property
    def frequencies(self) -> Floats:
        return self._values[-1]

    @cached_property
    def _smoothed(self) -> list[Smoothed | None]:
        implied = simplex(self.frequencies)
        parts = zip(self.codes, self._levels, self.shares, strict=True)
        return [
            None if level is None or shares is None else Smoothed.of(level, shares, code.node_sums(implied))
            for code, level, shares in parts
        ]

    @property
    def _leaf(self) -> Smoothed:
        leaf = self._smoothed[-1]
        assert leaf is not None  # ensured by Mechanism.lacks()
        return leaf

    def value(self, statistic: Floats) -> Floats:
        return self.frequencies @ statistic


class TreeDecoded(SupportDecoded):
    """A hierarchy's histogram, with moments from fast exact methods or from a covariance model."""

    def __init__(self, mechanism: SupportMechanism, counts: Sequence[Counts]):
        super().__init__(mechanism, counts)
        reported = [level.code.level for level in self._levels if level]
        self._work = sum(x.t * x.g ** (x.t + 1) if x.t else x.domain for x in reported)
        pairs = sum(map(butterfly.class_count, reported))
        self.exact = pairs * mechanism.domain <= _MAX_EXACT_PAIRS

    @property
    def _joined_tree(self) -> hierarchy.Tree:
        tree = self._tree
        assert tree is not None
        return tree

    def spread(self, statistic: Floats, at_once: int = 1) -> Spread:
        if at_once > _ALWAYS_EXACT and at_once * self._work > _MAX_EXACT_WORK:
            parts, _ = hierarchy.transpose(self._joined_tree, statistic)
            return covariance.model_of(parts, self._smoothed, self._values)
        return super().spread(statistic, at_once)

    @cached_property
    def frequency_spread(self) -> Spread:
        return self._spreads[0]

    @cached_property
    def cdf_spread(self) -> Spread:
        return self._spreads[1]

    @cached_property
    def _spreads(self) -> tuple[Spread, Spread]:
        if self.exact:
            return covariance.exact(self._joined_tree, self._smoothed, self.mechanism.domain)
        return covariance.model(self._joined_tree, self._smoothed, self._values)

    def nonnegative(self, frequencies: Floats) -> Floats:
        return hierarchy.nonnegative(self._joined_tree, frequencies)

    def rare_variance(self) -> float:
        variances = [x.code.channel.variance / x.reports if x else 0.0 for x in self._levels]
        d = [np.full(n, v) for n, v in zip(self._joined_tree.nodes, variances, strict=True)]
        return float(influences(self._joined_tree, d)[0].squares.mean())
