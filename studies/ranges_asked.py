"""Ranges of dates that somebody asks for: each structure's answer, the truth, the error to expect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..server.epsilon import MICRO, check_epsilon
from . import ranges_theory
from .central import CentralFlat, CentralHierarchy
from .daily import Daily
from .local import LocalFlat, LocalHierarchy
from .ranges_cell import family
from .ranges_design import StudyError
from .structures import NeighbourRelation, safe_source, seeded_source


@dataclass(frozen=True)
class AskedRange:
    """One structure's answer about the days of a range, both ends included; in records.

    expected: root mean square error by theory.
    """

    range: str
    days: int
    structure: str
    truth: int
    answer: float
    error: float
    expected: float


def ask(series: Daily, ranges: Sequence[str], epsilon: float, seed: int | None = None) -> list[AskedRange]:
    """Fit each structure once to all days of the series, and ask it for ranges such as 2013-01-01:2013-01-31.

    epsilon: nats; all have the same neighbours, one record replaced. Without a seed noise comes from OpenDP.
    Raises DailyError for a range that does not fit, StudyError for an ε out of range, StructureError for a
    series too short, NoiseError where OpenDP is not installed.
    """
    check_epsilon(epsilon * MICRO, StudyError, shown=epsilon)
    ends = [series.ends(text) for text in ranges]
    source = seeded_source(np.random.SeedSequence(seed))
    if seed is None:
        source = safe_source(source.rng)
    low, high = np.array(ends).T
    below = np.concatenate(([0], np.cumsum(series.counts)))
    truths = (below[high] - below[low]).tolist()
    replaced = NeighbourRelation.replaced
    asked = []
    for structure in (CentralFlat(replaced), CentralHierarchy(0, replaced), LocalFlat(), LocalHierarchy()):
        answers = structure.fit(series.counts, epsilon, source).answer(low, high).tolist()
        theory = ranges_theory.law(structure, series.counts, epsilon, low, high)
        spread = np.sqrt(np.diag(theory.covariance)).tolist()
        asked.append(
            [
                AskedRange(text, end - start, family(structure), truth, answer, answer - truth, expected)
                for text, (start, end), truth, answer, expected in zip(
                    ranges, ends, truths, answers, spread, strict=True
                )
            ]
        )
    return [one for together in zip(*asked, strict=True) for one in together]
