"""The runs of the ranges study: a design divided into cells, each a structure at one ε on one series.

A cell fits its structure many times to the same counts and compares the mean squared error of its ranges with
the theoretical one. Cells are independent, with their own seeds, so that workers can run them.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..server.arrays import Counts, Floats
from .daily import Daily, flights, synthetic
from .flawed import CORRECT, THESIS, FlawedStructure, Flaws
from .frame import RunContext, StudyError
from .noise import NeighbourRelation, safe_source, source_of
from .structures import CentralFlat, CentralHierarchy, LocalFlat, LocalHierarchy, Structure

EPSILONS = (2.0, 1.4, 1.2, 1.0, 0.8, 0.6, 0.4, 0.2)
LENGTHS = {
    32: (2, 4, 8, 12, 16, 20, 24),
    128: (20, 40, 50, 60, 70, 80, 90),
    256: (30, 50, 70, 90, 120, 150, 170),
    512: (40, 60, 80, 100, 140, 200, 220),
    1024: (200, 300, 400, 500, 600, 800, 900),
    2048: (600, 800, 1000, 1250, 1500, 1700, 1800),
}
# Flaws show at lengths that the table above leaves out: single days, and nearly all days.
FLAW_SHARES = (1 / 512, 1 / 128, 1 / 32, 0.08, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95)
EVEN_LENGTHS = (1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64, 91, 128)
FAMILIES: tuple[str, ...] = ("central flat", "central hierarchy", "local flat", "local hierarchy")
BINS = np.linspace(-5.1, 5.1, 52)  # one bin is around 0, where whole numbers accumulate
_MAX_REPORTS = 20_000_000  # maximum reports of a local structure at an ε; more records mean fewer fits
_MIN_FITS = 3


@dataclass(frozen=True)
class RangeDesign:
    """The parameters to vary (ε in nats, days, range lengths, fanouts), and the number of fits and ranges.

    Attributes:
        local_fits: Number of fits of a local structure, in which every record makes a report.
        flaw_days: The domain of the runs with flaws, in days.
        even_days, even_fanouts: Domains of at least this many days also answer the short ranges of
            EVEN_LENGTHS, with these fanouts, to find where a hierarchy begins to win.
    """

    epsilons: tuple[float, ...]
    lengths: dict[int, tuple[int, ...]]
    fanouts: tuple[int, ...]
    flaw_fanouts: tuple[int, ...]
    flaw_days: int
    fits: int = 25
    local_fits: int = 10
    ranges: int = 100
    even_days: int = 256
    even_fanouts: tuple[int, ...] = (2, 3, 4)

    @property
    def middle(self) -> float:
        """The ε of figures that show only one."""
        return min(self.epsilons, key=lambda e: abs(e - 1))


FULL = RangeDesign(EPSILONS, LENGTHS, (2, 3, 4, 8, 16), (2, 4, 16), 512)
QUICK = RangeDesign(
    (2.0, 1.0, 0.4), {n: LENGTHS[n] for n in (32, 128, 512)}, (2, 4, 16), (2, 16), 128, fits=12, local_fits=6
)


def default_series(days: int) -> Daily:
    """Return daily flights if one year is enough, otherwise synthetic counts."""
    real = flights()
    return real.cut(days) if days <= len(real.counts) else synthetic(days)


def fitting_design(design: RangeDesign, series: Daily) -> RangeDesign:
    """Return the design without domains that are too long for a series; empty days pad the last one.

    Raises:
        StudyError: If not even the shortest domain is filled by half.
    """
    days = len(series.counts)
    sizes = sorted(design.lengths)
    if 2 * days < sizes[0]:
        raise StudyError(f"{series.name} has {days} days; at least {sizes[0] // 2} are needed")
    fitting_sizes = [n for shorter, n in zip([0, *sizes], sizes, strict=False) if n <= days or shorter < days]
    records = series.counts[: fitting_sizes[0]].sum()
    if records < 1000:
        raise StudyError(
            f"{series.name} has {records} records in its first {fitting_sizes[0]} days; 1000 are needed"
        )
    flaw_days = max((n for n in fitting_sizes if n <= design.flaw_days), default=fitting_sizes[0])
    return replace(design, lengths={n: design.lengths[n] for n in fitting_sizes}, flaw_days=flaw_days)


def fits_for(design: RangeDesign, structure: Structure, series: Daily) -> int:
    """Return the number of fits of a structure to a series: fewer if there would be too many reports."""
    if structure.central:
        return design.fits
    return min(design.local_fits, max(_MIN_FITS, _MAX_REPORTS // int(series.counts.sum())))


def structures(fanouts: Sequence[int]) -> Iterator[Structure]:
    """Yield the structures to compare; fanout 0 means that theory chooses."""
    for neighbours in NeighbourRelation:
        yield CentralFlat(neighbours)
        yield CentralHierarchy(0, neighbours)
    yield from map(CentralHierarchy, fanouts)
    yield LocalFlat()
    yield from map(LocalHierarchy, (0, *fanouts))


def flawed_structures(fanouts: Sequence[int]) -> Iterator[FlawedStructure]:
    """Yield structures without flaws, with each flaw, all but one flaw, all flaws, and a wrong inverse."""
    names = ("lie", "no_hash", "root", "inconsistent")
    alone = [Flaws(**{name: True}) for name in names]
    undone = [replace(THESIS, **{name: False}) for name in names]
    wrong = [replace(f, lie=True, wrong_inverse=True) for f in (CORRECT, THESIS)]
    every = (CORRECT, *alone, *undone, Flaws(no_hash=True, inconsistent=True), THESIS, *wrong)
    yield from (FlawedStructure(fanout, flaws) for fanout in fanouts for flaws in every)
    for lie, no_hash in ((False, False), (False, True), (True, False), (True, True)):
        yield FlawedStructure(0, Flaws(lie=lie, no_hash=no_hash))


def flaw_lengths(days: int) -> tuple[int, ...]:
    """Return range lengths for the runs with flaws, from a single day to nearly all days."""
    return tuple(sorted({max(1, round(share * days)) for share in FLAW_SHARES}))


def starts(days: int, length: int, ranges: int) -> Counts:
    """Return start days for ranges of a length, evenly spaced, with repetitions if there are too few."""
    return ((np.arange(ranges) + 0.5) * (days - length + 1) / ranges).astype(np.int64)


def predicted(structure: Structure, series: Daily, epsilon: float, length: int, ranges: int) -> float:
    """Return the theoretical RMSE over this many ranges of a length."""
    lo = starts(len(series.counts), length, ranges)
    return structure.law(series.counts, epsilon, lo, lo + length).rmse


# --- A cell ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RangeCell:
    """One structure at one ε on one series, and the seed of its runs.

    Attributes:
        safe: Whether noise is from OpenDP.
    """

    series: Daily
    epsilon: float
    structure: Structure
    lengths: tuple[int, ...]
    fits: int
    ranges: int
    seed: np.random.SeedSequence
    safe: bool

    @property
    def cost(self) -> float:
        """Approximate cost, used to order the work."""
        return len(self.series.counts) if self.structure.central else float(self.series.counts.sum())


@dataclass(frozen=True)
class Point:
    """Measured and predicted errors, in counts, of one structure at one ε for ranges of one length.

    Attributes:
        family: "central flat", "central hierarchy", "local flat" or "local hierarchy".
        fanout: 0 for flat, and for the fanout chosen by theory; plan says which one that is.
        neighbours: "added" or "replaced".
        flaws: The structure's flaws; "correct" for all but the runs with flaws.
        true_epsilon: The ε that a report or the publication really spends.
        deviations: Deviation of the measured from the predicted mean squared error, in standard deviations.
        bias: Root mean square of the predicted means of the errors, 0 for all unbiased ones.
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


def select(points: Sequence[Point], **criteria: Any) -> list[Point]:
    """Return the points with these attribute values."""
    return [point for point in points if criteria.items() <= vars(point).items()]


@dataclass(frozen=True)
class CellResult:
    """A cell's points, and the number of its standardised errors in each of BINS."""

    points: tuple[Point, ...]
    standardised: Counts


def run_cell(cell: RangeCell) -> CellResult:
    """Fit a cell's structure repeatedly, and compare its errors with the theoretical ones."""
    counts, structure, epsilon, n = cell.series.counts, cell.structure, cell.epsilon, cell.ranges
    source = source_of(cell.seed, cell.safe)
    days = len(counts)
    lo = np.concatenate([starts(days, r, n) for r in cell.lengths])
    hi = lo + np.repeat(cell.lengths, n)
    below = np.concatenate(([0], np.cumsum(counts)))
    truth = below[hi] - below[lo]
    errors = np.stack(
        [structure.fit(counts, epsilon, source).answer(lo, hi) - truth for _ in range(cell.fits)]
    )
    points, spread = [], np.empty(len(lo))
    for i, length in enumerate(cell.lengths):
        part = slice(i * n, (i + 1) * n)
        theory = structure.law(counts, epsilon, lo[part], hi[part])
        spread[part] = np.sqrt(np.diag(theory.covariance))
        mse = float(np.mean(errors[:, part] ** 2))
        points.append(
            Point(
                series=cell.series.name,
                days=days,
                records=int(counts.sum()),
                epsilon=epsilon,
                true_epsilon=structure.true_epsilon(days, epsilon),
                family=structure.family,
                fanout=getattr(structure, "fanout", 0),
                plan=structure.plan(days, epsilon),
                neighbours=structure.neighbours.value,
                flaws=str(getattr(structure, "flaws", CORRECT)),
                length=length,
                rmse=math.sqrt(mse),
                predicted=theory.rmse,
                deviations=theory.deviations(mse, cell.fits),
                bias=math.sqrt(float(np.mean(theory.bias**2))),
            )
        )
    return CellResult(tuple(points), np.histogram(errors / spread, BINS)[0])


# --- All cells of a design ------------------------------------------------------------------------


@dataclass(frozen=True)
class RangeStudy:
    """All points of a design.

    Attributes:
        flawed: Points of the runs with flaws, including the correct ones for comparison.
        short: Local structures on short ranges at design.middle.
        noise: Errors of single counts of central flat at design.middle.
    """

    design: RangeDesign
    series: tuple[Daily, ...]
    points: tuple[Point, ...]
    flawed: tuple[Point, ...]
    short: tuple[Point, ...]
    standardised: dict[str, Counts]
    noise: Counts
    example: dict[str, Floats]

    @property
    def flaw_series(self) -> Daily:
        """The counts of the runs with flaws."""
        return next(series for series in self.series if len(series.counts) == self.design.flaw_days)


def cells(design: RangeDesign, series_for: Callable[[int], Daily], seed: int | None) -> list[RangeCell]:
    """Return all cells of a design, each with its own seed.

    Without a seed, their noise is unpredictable and safe.
    """
    chosen: list[tuple[Daily, float, Structure, tuple[int, ...]]] = []
    for days, lengths in design.lengths.items():
        series, compared = series_for(days), list(structures(design.fanouts))
        chosen += [(series, e, structure, lengths) for e in design.epsilons for structure in compared]
    series, lengths = series_for(design.flaw_days), flaw_lengths(design.flaw_days)
    flawed = list(flawed_structures(design.flaw_fanouts))
    chosen += [(series, e, structure, lengths) for e in design.epsilons for structure in flawed]
    for days in design.lengths:
        if days >= design.even_days:
            series, even = series_for(days), (LocalFlat(), *map(LocalHierarchy, design.even_fanouts))
            chosen += [(series, design.middle, structure, EVEN_LENGTHS) for structure in even]
    seeds = np.random.SeedSequence(seed).spawn(len(chosen))
    return [
        RangeCell(*choice, fits_for(design, choice[2], choice[0]), design.ranges, cell_seed, seed is None)
        for choice, cell_seed in zip(chosen, seeds, strict=True)
    ]


def run_design(design: RangeDesign, own_series: Daily | None, context: RunContext) -> RangeStudy:
    """Run a design on the context's workers.

    Args:
        design: The design.
        own_series: Daily counts to study instead of the default ones.
        context: The workers and the seed; without a seed, noise comes from OpenDP, and no two runs are alike.

    Raises:
        NoiseError: If OpenDP is not installed.
        StudyError: If the series is too short.
    """
    if context.seed is None:
        safe_source()  # fail early if OpenDP is missing
    if own_series is not None:
        design = fitting_design(design, own_series)
    series_for = own_series.cut if own_series is not None else default_series
    todo = cells(design, series_for, context.seed)
    total = sum(cell.cost for cell in todo)
    # Longest cells first, so that none is left for the end.
    order = sorted(range(len(todo)), key=lambda i: -todo[i].cost)
    work = [todo[i] for i in order]
    done = context.workers.map(run_cell, work, advance=lambda cell: context.advance(cell.cost / total))
    results = dict(zip(order, done, strict=True))
    points: list[Point] = []
    flawed: list[Point] = []
    short: list[Point] = []
    standardised = {name: np.zeros(len(BINS) - 1, np.int64) for name in FAMILIES}
    for i, cell in enumerate(todo):
        is_flawed = isinstance(cell.structure, FlawedStructure)
        kind = flawed if is_flawed else short if cell.lengths == EVEN_LENGTHS else points
        kind.extend(results[i].points)
        if kind is points:
            standardised[cell.structure.family] += results[i].standardised
    noise, example = _examples(design, series_for, context.seed)
    series = tuple(map(series_for, design.lengths))
    parts = tuple(points), tuple(flawed), tuple(short)
    return RangeStudy(design, series, *parts, standardised, noise, example)


def _examples(
    design: RangeDesign, series_for: Callable[[int], Daily], seed: int | None
) -> tuple[Counts, dict[str, Floats]]:
    """Return the noise of many single counts, and one fit of each structure together with the counts."""
    source = source_of(np.random.SeedSequence(seed), seed is None)
    counts = series_for(max(design.lengths)).counts
    example_counts = series_for(min(design.lengths, key=lambda n: abs(n - 128))).counts

    def days_of(structure: Structure, counts: Counts) -> Floats:
        at = np.arange(len(counts))
        return structure.fit(counts, design.middle, source).answer(at, at + 1)

    noise = np.concatenate([days_of(CentralFlat(), counts) - counts for _ in range(design.fits)])
    structures = (CentralFlat(), CentralHierarchy(), LocalFlat(), LocalHierarchy())
    example = {"counts": example_counts.astype(np.float64)}
    example |= {structure.family: days_of(structure, example_counts) for structure in structures}
    return noise.astype(np.int64), example
