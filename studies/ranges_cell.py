"""One cell of the study of ranges: a structure at one ε on one series, its errors beside what theory says."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..server.arrays import Counts
from . import ranges_theory
from .central import CentralFlat, CentralHierarchy
from .daily import Daily
from .flawed import CORRECT, FlawedStructure
from .local import LocalFlat
from .ranges_design import AnyStructure
from .structures import NeighbourRelation, safe_source, seeded_source

FAMILIES: tuple[str, ...] = ("central flat", "central hierarchy", "local flat", "local hierarchy")
BINS = np.linspace(-5.1, 5.1, 52)  # of standardised errors; one is about 0, where whole numbers pile up


@dataclass(frozen=True)
class RangeCell:
    """One structure at one ε on one series, and the seed of its runs; safe: noise from OpenDP."""

    series: Daily
    epsilon: float
    structure: AnyStructure
    lengths: tuple[int, ...]
    fits: int
    ranges: int
    seed: np.random.SeedSequence
    safe: bool

    @property
    def cost(self) -> float:
        """Roughly what it takes, for the order of work."""
        central = isinstance(self.structure, CentralFlat | CentralHierarchy)
        return len(self.series.counts) if central else float(self.series.counts.sum())


@dataclass(frozen=True)
class Point:
    """Measured and predicted errors, in counts, of one structure at one ε for ranges of one length.

    family      "central flat", "central hierarchy", "local flat" or "local hierarchy"
    fanout      0 for flat, and for the fanout chosen by theory; plan says which one that is
    neighbours  "added" or "replaced"
    flaws       what is wrong with it; "correct" for all but the runs with flaws
    true_epsilon  what a report or the publication really spends
    deviations  of the measured from the predicted mean squared error, in standard deviations
    bias        root mean square of the predicted means of the errors, 0 for all unbiased ones
    """

    series: str
    days: int
    records: int
    epsilon: float
    true_epsilon: float
    family: str
    fanout: int
    plan: str
    neighbours: str
    flaws: str
    length: int
    rmse: float
    predicted: float
    deviations: float
    bias: float


@dataclass(frozen=True)
class CellResult:
    """Points of one cell, and how many of its errors, divided by what theory says, fell into each of BINS."""

    points: tuple[Point, ...]
    standardised: Counts


def starts(days: int, length: int, ranges: int) -> Counts:
    """First days of the ranges of a length: all places that fit, evenly; some twice where they are few."""
    return ((np.arange(ranges) + 0.5) * (days - length + 1) / ranges).astype(np.int64)


def law(structure: AnyStructure, counts: Counts, epsilon: float, lo: Counts, hi: Counts) -> ranges_theory.Law:
    """What theory says about a structure's errors."""
    if isinstance(structure, FlawedStructure):
        return structure.law(counts, epsilon, lo, hi)
    return ranges_theory.law(structure, counts, epsilon, lo, hi)


def run_cell(cell: RangeCell) -> CellResult:
    """Fit a cell's structure again and again, and compare its errors with the theory's."""
    counts = cell.series.counts
    source = seeded_source(cell.seed)
    if cell.safe:
        source = safe_source(source.rng)
    per_length = cell.ranges
    lo = np.concatenate([starts(len(counts), r, per_length) for r in cell.lengths])
    hi = lo + np.repeat(cell.lengths, per_length)
    below = np.concatenate(([0], np.cumsum(counts)))
    truth = below[hi] - below[lo]
    errors = np.stack(
        [cell.structure.fit(counts, cell.epsilon, source).answer(lo, hi) - truth for _ in range(cell.fits)]
    )
    points = []
    spread = np.empty(len(lo))
    for i, length in enumerate(cell.lengths):
        part = slice(i * per_length, (i + 1) * per_length)
        theory = law(cell.structure, counts, cell.epsilon, lo[part], hi[part])
        spread[part] = np.sqrt(np.diag(theory.covariance))
        mse = float(np.mean(errors[:, part] ** 2))
        points.append(_point(cell, length, mse, theory))
    standardised, _ = np.histogram(errors / spread, BINS)
    return CellResult(tuple(points), standardised)


def _point(cell: RangeCell, length: int, mse: float, theory: ranges_theory.Law) -> Point:
    structure, days = cell.structure, len(cell.series.counts)
    plan, true_epsilon, neighbours, flaws = "", cell.epsilon, NeighbourRelation.replaced, CORRECT
    if isinstance(structure, CentralFlat | CentralHierarchy):
        neighbours = structure.neighbours
        if isinstance(structure, CentralHierarchy):
            plan = f"fanout {structure.tree(days).fanout}"
    else:
        if isinstance(structure, FlawedStructure):
            flaws = structure.flaws
            true_epsilon = structure.true_epsilon(days, cell.epsilon)
            experiment = structure.believed(days, cell.epsilon)
        else:
            experiment = structure.experiment(days, cell.epsilon)
        cells = " ".join(str(level.g) for level in experiment.levels)
        plan = f"fanout {experiment.fanout}, cells {cells}" if experiment.fanout else f"cells {cells}"
    return Point(
        series=cell.series.name,
        days=days,
        records=int(cell.series.counts.sum()),
        epsilon=cell.epsilon,
        true_epsilon=true_epsilon,
        family=family(structure),
        fanout=getattr(structure, "fanout", 0),
        plan=plan,
        neighbours=neighbours.value,
        flaws=str(flaws),
        length=length,
        rmse=math.sqrt(mse),
        predicted=theory.rmse,
        deviations=theory.deviations(mse, cell.fits),
        bias=math.sqrt(float(np.mean(theory.bias**2))),
    )


def family(structure: AnyStructure) -> str:
    """Which of the four a structure is."""
    side = "central" if isinstance(structure, CentralFlat | CentralHierarchy) else "local"
    if isinstance(structure, FlawedStructure):
        return f"{side} {'hierarchy' if structure.fanout else 'flat'}"
    return f"{side} {'flat' if isinstance(structure, CentralFlat | LocalFlat) else 'hierarchy'}"
