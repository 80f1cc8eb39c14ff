"""Local structures: what boards do, through the shipped channel, oracle and estimator.

How many report is public; each value is protected whatever the others do (neighbours: one replaced).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ...device.ldp_client import Experiment
from ...server.arrays import Counts
from ...server.estimate.estimate import estimate
from ...server.mechanisms import choose as oracle
from ...server.mechanisms import tree as hierarchy
from ...server.mechanisms.workload import ALL_RANGES, FREQUENCIES
from .. import vectorised
from .structures import Fitted, Source, Structure, StructureError, check_fanout, checked, fitted


def experiment_over(domain: int, epsilon: float, mechanism: dict[str, Any]) -> Experiment:
    """An experiment over range(domain) with a mechanism's own fields; ε in nats."""
    fields = {"v": 1, "name": "days", "type": "number", "low": 0, "high": domain * 1000, "bins": domain}
    fields |= mechanism | {"epsilon": round(epsilon * 1e6), "budget": {"rule": "count", "cap": 1}}
    return Experiment.parse(json.dumps(fields | {"window": "all"}).encode())


def fit_experiment(experiment: Experiment, counts: Counts, source: Source) -> Fitted:
    """One report of every record, and the shipped estimate of the counts."""
    histogram = vectorised.histogram(experiment, counts, source.rng)
    return fitted(estimate(experiment, histogram).frequencies * int(counts.sum()))


@dataclass(frozen=True)
class LocalFlat(Structure):
    """Every record in one report about its index: generalised randomized response, or local hashing.

    Privacy: ε-LDP for each record. Utility: about 4 e^ε / (e^ε - 1)² n for one count among n records, and
    ranges_theory.law() for ranges, exact: errors of different indices are correlated. Cost: O(n) to
    simulate, a few ms to estimate. Citation: Wang, Blocki, Li, Jha, "Locally Differentially Private
    Protocols for Frequency Estimation", USENIX Security 2017.
    """

    def experiment(self, domain: int, epsilon: float) -> Experiment:
        """The experiment of least variance for single counts."""
        return _flat(domain, round(epsilon * 1e6))

    def fit(self, counts: Counts, epsilon: float, source: Source) -> Fitted:
        counts = checked(counts, epsilon)
        return fit_experiment(self.experiment(len(counts), epsilon), counts, source)


@dataclass(frozen=True)
class LocalHierarchy(Structure):
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

    def fit(self, counts: Counts, epsilon: float, source: Source) -> Fitted:
        counts = checked(counts, epsilon)
        return fit_experiment(self.experiment(len(counts), epsilon), counts, source)


@lru_cache(maxsize=256)
def _flat(domain: int, epsilon: int) -> Experiment:
    choice = oracle.choose(domain, epsilon, FREQUENCIES)
    fields: dict[str, Any] = {"mechanism": choice.mechanism}
    return experiment_over(domain, epsilon / 1e6, fields | ({"g": choice.g} if choice.g else {}))


@lru_cache(maxsize=256)
def _tree(domain: int, epsilon: int, fanout: int) -> Experiment:
    if fanout:
        fanout = min(fanout, domain)
        cells = tuple(channel.g for channel in oracle.level_channels(domain, fanout, epsilon))
        weights = None
    else:
        choice = oracle.choose(domain, epsilon, ALL_RANGES)
        fanout, cells, weights = choice.fanout, choice.cells, choice.weights
        if choice.mechanism != "hh":
            raise StructureError("a hierarchy needs a domain of more than 2 indices")
    assert len(cells) == len(hierarchy.heights(domain, fanout))
    fields: dict[str, Any] = {"mechanism": "hh", "fanout": fanout, "cells": list(cells)}
    return experiment_over(domain, epsilon / 1e6, fields | ({"weights": list(weights)} if weights else {}))
