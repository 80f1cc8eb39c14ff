"""Local structures: what boards do, through the shipped channel, oracle and estimator.

How many report is public; each value is protected whatever the others do (neighbours: one replaced).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ..device.ldp_client import Experiment
from ..server.arrays import Counts
from ..server.estimate.estimate import estimate
from ..server.experiments.payload import chosen_fields, experiment_over, mechanism_fields
from ..server.mechanisms.tree_choice import level_channels
from ..server.mechanisms.workload import ALL_RANGES, FREQUENCIES
from ..simulator import vectorised
from .structures import Fitted, NoiseSource, Structure, StructureError, check_fanout, checked, fitted


class _Local(Structure):
    def experiment(self, domain: int, epsilon: float) -> Experiment:
        """What boards are asked."""
        raise NotImplementedError

    def fit(self, counts: Counts, epsilon: float, source: NoiseSource) -> Fitted:
        """One report of every record, and the shipped estimate of the counts."""
        counts = checked(counts, epsilon)
        experiment = self.experiment(len(counts), epsilon)
        histogram = vectorised.histogram(experiment, counts, source.rng)
        return fitted(estimate(experiment, histogram).frequencies * int(counts.sum()))


@dataclass(frozen=True)
class LocalFlat(_Local):
    """Every record in one report about its index: generalised randomized response, or local hashing.

    Privacy: ε-LDP for each record. Utility: about 4 e^ε / (e^ε - 1)² n for one count among n records, and
    ranges_theory.law() for ranges, exact: errors of different indices are correlated. Cost: O(n) to
    simulate, a few ms to estimate. Citation: Wang, Blocki, Li, Jha, "Locally Differentially Private
    Protocols for Frequency Estimation", USENIX Security 2017.
    """

    def experiment(self, domain: int, epsilon: float) -> Experiment:
        """The experiment of least variance for single counts."""
        return _flat(domain, round(epsilon * 1e6))


@dataclass(frozen=True)
class LocalHierarchy(_Local):
    """Every record in one report about one level of a tree, made consistent with the known total.

    fanout is 2 or more, or 0 for the plan of least mean variance over all ranges.

    Privacy: ε-LDP for each record: it is in one report, at one level. Utility: ranges_theory.law().
    Cost: as LocalFlat. Citation: Cormode, Kulkarni, Srivastava, "Answering Range Queries Under Local
    Differential Privacy", VLDB 2019, section 4.
    """

    fanout: int = 0

    def __post_init__(self) -> None:
        check_fanout(self.fanout)

    def experiment(self, domain: int, epsilon: float) -> Experiment:
        """The experiment with each level's best cells."""
        return _tree(domain, round(epsilon * 1e6), self.fanout)


@lru_cache(maxsize=256)
def _flat(domain: int, epsilon: int) -> Experiment:
    return experiment_over(domain, epsilon, chosen_fields(domain, epsilon, FREQUENCIES))


@lru_cache(maxsize=256)
def _tree(domain: int, epsilon: int, fanout: int) -> Experiment:
    if fanout:
        fanout = min(fanout, domain)
        cells = [channel.g for channel in level_channels(domain, fanout, epsilon)]
        return experiment_over(domain, epsilon, mechanism_fields("hh", fanout=fanout, cells=cells))
    fields = chosen_fields(domain, epsilon, ALL_RANGES)
    if fields["mechanism"] != "hh":
        raise StructureError("a hierarchy needs a domain of more than 2 indices")
    return experiment_over(domain, epsilon, fields)
