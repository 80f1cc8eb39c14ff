"""`hushmote study ranges`: errors of range queries over days, for four structures and for a flawed one.

A `RangeDesign` is cut into cells (days, ε, structure); each cell fits its structure many times to the same
counts and compares the mean squared error of its ranges with the theory's. Cells are independent: they have
seeds of their own, and workers run them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..server.arrays import Counts, Floats
from ..simulator.workers import THIS_PROCESS, Workers
from .central import CentralFlat, CentralHierarchy
from .daily import Daily
from .flawed import FlawedStructure
from .local import LocalFlat, LocalHierarchy
from .ranges_cell import BINS, FAMILIES, Point, RangeCell, family, run_cell
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
from .structures import safe_source, seeded_source


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


def run(
    design: RangeDesign,
    seed: int | None = None,
    own: Daily | None = None,
    progress: Callable[[float], None] = lambda _: None,
    workers: Workers = THIS_PROCESS,
) -> RangeStudy:
    """Run a design on workers. progress is told how much more is done, of 1.

    own: daily counts to study instead of the default ones. Without a seed noise comes from OpenDP and no two
    runs are alike. Raises NoiseError where OpenDP is not installed, StudyError for a series too short.
    """
    if seed is None:
        safe_source()  # says at once where OpenDP is missing
    if own is not None:
        design = fitting_design(design, own)
    series_for = own.cut if own is not None else default_series
    todo = cells(design, series_for, seed)
    total = sum(cell.cost for cell in todo)
    order = sorted(range(len(todo)), key=lambda i: -todo[i].cost)  # so that none is late
    done = workers.map(run_cell, [todo[i] for i in order], advance=lambda cell: progress(cell.cost / total))
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
    noise, example = _examples(design, series_for(max(design.lengths)), shown, seed)
    series = tuple(series_for(days) for days in design.lengths)
    parts = (tuple(points), tuple(flawed), tuple(short))
    return RangeStudy(design, series, *parts, standardised, noise, example)


def _examples(
    design: RangeDesign, longest: Daily, shown: Daily, seed: int | None
) -> tuple[Counts, dict[str, Floats]]:
    """Noise of many single counts, and one fit of each structure beside the counts themselves."""
    source = seeded_source(np.random.SeedSequence(seed))
    if seed is None:
        source = safe_source(source.rng)
    days = np.arange(len(longest.counts))
    fits = [CentralFlat().fit(longest.counts, design.middle, source) for _ in range(design.fits)]
    noise = np.concatenate([f.answer(days, days + 1) - longest.counts for f in fits]).astype(np.int64)
    days = np.arange(len(shown.counts))
    example = {"counts": shown.counts.astype(np.float64)}
    for structure in (CentralFlat(), CentralHierarchy(), LocalFlat(), LocalHierarchy()):
        example[family(structure)] = structure.fit(shown.counts, design.middle, source).answer(days, days + 1)
    return noise, example
