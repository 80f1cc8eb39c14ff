"""The runs of the study of ranges: a design cut into cells, each a structure at one ε on one series.

A cell fits its structure many times to the same counts and compares the mean squared error of its ranges with
the theory's. Cells are independent: they have seeds of their own, and workers run them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..server.arrays import Counts, Floats
from . import ranges_theory
from .daily import Daily
from .flawed import CORRECT, FlawedStructure
from .frame import Running
from .noise import NeighbourRelation, safe_source, source_of
from .ranges_design import (
    EVEN_LENGTHS,
    AnyStructure,
    RangeDesign,
    default_series,
    fits_for,
    fitting_design,
    flaw_lengths,
    flawed_structures,
    structures,
)
from .structures import CentralFlat, CentralHierarchy, LocalFlat, LocalHierarchy

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
    source = source_of(cell.seed, cell.safe)
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


# --- All cells of a design -------------------------------------------------------------------------


@dataclass(frozen=True)
class RangeStudy:
    """All points of a design.

    short: local structures on short ranges at design.middle. noise: errors of single counts of central flat
    at design.middle.
    """

    design: RangeDesign
    series: tuple[Daily, ...]
    points: tuple[Point, ...]
    flawed: tuple[Point, ...]
    short: tuple[Point, ...]
    standardised: dict[str, Counts]
    noise: Counts
    example: dict[str, Floats]

    def select(self, **wanted: Any) -> list[Point]:
        """Points of the correct structures with these values."""
        return [point for point in self.points if all(getattr(point, k) == v for k, v in wanted.items())]

    def select_flawed(self, **wanted: Any) -> list[Point]:
        """Points of the runs with flaws, the correct ones beside them included."""
        return [point for point in self.flawed if all(getattr(point, k) == v for k, v in wanted.items())]


def cells(design: RangeDesign, series_for: Callable[[int], Daily], seed: int | None) -> list[RangeCell]:
    """All cells of a design, with seeds of their own; without a seed they are unpredictable and safe."""
    root = np.random.SeedSequence(seed)
    common = {"ranges": design.ranges, "safe": seed is None}
    chosen: list[tuple[Daily, float, AnyStructure, tuple[int, ...]]] = []
    for days, lengths in design.lengths.items():
        series = series_for(days)
        for epsilon in design.epsilons:
            chosen += [(series, epsilon, structure, lengths) for structure in structures(design.fanouts)]
    series = series_for(design.flaw_days)
    for epsilon in design.epsilons:
        lengths = flaw_lengths(design.flaw_days)
        chosen += [(series, epsilon, flawed, lengths) for flawed in flawed_structures(design.flaw_fanouts)]
    for days in design.lengths:
        if days >= design.even_days:
            series = series_for(days)
            for structure in (LocalFlat(), *map(LocalHierarchy, design.even_fanouts)):
                chosen.append((series, design.middle, structure, EVEN_LENGTHS))
    return [
        RangeCell(*what, fits=fits_for(design, what[2], what[0]), seed=s, **common)
        for what, s in zip(chosen, root.spawn(len(chosen)), strict=True)
    ]


def run_design(design: RangeDesign, own: Daily | None, running: Running) -> RangeStudy:
    """Run a design on the running's workers.

    own: daily counts to study instead of the default ones. Without a seed noise comes from OpenDP and no two
    runs are alike. Raises NoiseError where OpenDP is not installed, StudyError for a series too short.
    """
    if running.seed is None:
        safe_source()  # says at once where OpenDP is missing
    if own is not None:
        design = fitting_design(design, own)
    series_for = own.cut if own is not None else default_series
    todo = cells(design, series_for, running.seed)
    total = sum(cell.cost for cell in todo)
    order = sorted(range(len(todo)), key=lambda i: -todo[i].cost)  # so that none is late
    work = [todo[i] for i in order]
    done = running.workers.map(run_cell, work, advance=lambda cell: running.advance(cell.cost / total))
    results = dict(zip(order, done, strict=True))
    points: list[Point] = []
    flawed: list[Point] = []
    short: list[Point] = []
    standardised = {name: np.zeros(len(BINS) - 1, np.int64) for name in FAMILIES}
    for i, cell in enumerate(todo):
        if isinstance(cell.structure, FlawedStructure):
            flawed.extend(results[i].points)
        elif cell.lengths == EVEN_LENGTHS:
            short.extend(results[i].points)
        else:
            points.extend(results[i].points)
            standardised[family(cell.structure)] += results[i].standardised
    shown = series_for(min(design.lengths, key=lambda n: abs(n - 128)))
    noise, example = _examples(design, series_for(max(design.lengths)), shown, running.seed)
    series = tuple(series_for(days) for days in design.lengths)
    parts = (tuple(points), tuple(flawed), tuple(short))
    return RangeStudy(design, series, *parts, standardised, noise, example)


def _examples(
    design: RangeDesign, longest: Daily, shown: Daily, seed: int | None
) -> tuple[Counts, dict[str, Floats]]:
    """Noise of many single counts, and one fit of each structure beside the counts themselves."""
    source = source_of(np.random.SeedSequence(seed), seed is None)
    days = np.arange(len(longest.counts))
    fits = [CentralFlat().fit(longest.counts, design.middle, source) for _ in range(design.fits)]
    noise = np.concatenate([f.answer(days, days + 1) - longest.counts for f in fits]).astype(np.int64)
    days = np.arange(len(shown.counts))
    example = {"counts": shown.counts.astype(np.float64)}
    for structure in (CentralFlat(), CentralHierarchy(), LocalFlat(), LocalHierarchy()):
        example[family(structure)] = structure.fit(shown.counts, design.middle, source).answer(days, days + 1)
    return noise, example
