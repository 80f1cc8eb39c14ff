"""The runs of the study of ranges: a design cut into cells, each a structure at one ε on one series.

A cell fits its structure many times to the same counts and compares the mean squared error of its ranges with
the theoretical one. Cells are independent: they have seeds of their own, and workers run them.
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
# A flaw shows on lengths that the table above leaves out: single days, and nearly all of them.
FLAW_SHARES = (1 / 512, 1 / 128, 1 / 32, 0.08, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95)
EVEN_LENGTHS = (1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64, 91, 128)
FAMILIES: tuple[str, ...] = ("central flat", "central hierarchy", "local flat", "local hierarchy")
BINS = np.linspace(-5.1, 5.1, 52)  # one bin is around 0, where whole numbers accumulate
_MOST_REPORTS = 20_000_000  # reports of local structures at one ε; with more records, there are fewer fits
_FEWEST_FITS = 3


@dataclass(frozen=True)
class RangeDesign:
    """The parameters to vary: ε in nats, days and range lengths, fanouts; fits per cell, ranges per length.

    Attributes:
        local_fits: Fits of a local structure, in which every record makes a report.
        flaw_days: The domain of the runs with flaws.
        even_days, even_fanouts: Domains of this many days or more are also asked for the short ranges of
            EVEN_LENGTHS, with these fanouts, to see where a hierarchy begins to win.
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
    """Return the flights per day if the year is long enough, else synthetic counts."""
    real = flights()
    return real.cut(days) if days <= len(real.counts) else synthetic(days)


def fitting_design(design: RangeDesign, series: Daily) -> RangeDesign:
    """Return the design without domains over a step longer than a series; empty days pad the last.

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
    """Return how often to fit a structure to a series: less often if there would be too many reports."""
    if structure.central:
        return design.fits
    return min(design.local_fits, max(_FEWEST_FITS, _MOST_REPORTS // int(series.counts.sum())))


def structures(fanouts: Sequence[int]) -> Iterator[Structure]:
    """Return the structures to compare; fanout 0 is the one that theory chooses."""
    for neighbours in NeighbourRelation:
        yield CentralFlat(neighbours)
        yield CentralHierarchy(0, neighbours)
    yield from map(CentralHierarchy, fanouts)
    yield LocalFlat()
    yield from map(LocalHierarchy, (0, *fanouts))


def flawed_structures(fanouts: Sequence[int]) -> Iterator[FlawedStructure]:
    """Yield the correct one; each flaw alone; the thesis's; that with each flaw undone; the wrong inverse."""
    names = ("lie", "no_hash", "root", "inconsistent")
    alone = [Flaws(**{name: True}) for name in names]
    undone = [replace(THESIS, **{name: False}) for name in names]
    wrong = [replace(f, lie=True, wrong_inverse=True) for f in (CORRECT, THESIS)]
    every = (CORRECT, *alone, *undone, Flaws(no_hash=True, inconsistent=True), THESIS, *wrong)
    yield from (FlawedStructure(fanout, flaws) for fanout in fanouts for flaws in every)
    for lie, no_hash in ((False, False), (False, True), (True, False), (True, True)):
        yield FlawedStructure(0, Flaws(lie=lie, no_hash=no_hash))


def flaw_lengths(days: int) -> tuple[int, ...]:
    """Return lengths of the runs with flaws, from a single day to nearly all."""
    return tuple(sorted({max(1, round(share * days)) for share in FLAW_SHARES}))


def starts(days: int, length: int, ranges: int) -> Counts:
    """Return first days of ranges of a length: all places that fit, evenly; some twice if there are few."""
    return ((np.arange(ranges) + 0.5) * (days - length + 1) / ranges).astype(np.int64)


def predicted(structure: Structure, series: Daily, epsilon: float, length: int, ranges: int) -> float:
    """Return the theoretical RMSE of this many ranges of a length."""
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
        """Approximate cost, for the order of work."""
        return len(self.series.counts) if self.structure.central else float(self.series.counts.sum())


@dataclass(frozen=True)
class Point:
    """Measured and predicted errors, in counts, of one structure at one ε for ranges of one length.

    Attributes:
        family: "central flat", "central hierarchy", "local flat" or "local hierarchy".
        fanout: 0 for flat, and for the fanout chosen by theory; plan says which one that is.
        neighbours: "added" or "replaced".
        flaws: What is wrong with it; "correct" for all but the runs with flaws.
        true_epsilon: What a report or the publication really spends.
        deviations: Of the measured from the predicted mean squared error, in standard deviations.
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
    """Return the points with these values."""
    return [point for point in points if criteria.items() <= vars(point).items()]


@dataclass(frozen=True)
class CellResult:
    """Points of one cell, and how many of its standardised errors fell into each of BINS."""

    points: tuple[Point, ...]
    standardised: Counts


def run_cell(cell: RangeCell) -> CellResult:
    """Fit a cell's structure again and again, and compare its errors with the theoretical ones."""
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
        flawed: Of the runs with flaws, including the correct ones beside them.
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
        return next(one for one in self.series if len(one.counts) == self.design.flaw_days)


def cells(design: RangeDesign, series_for: Callable[[int], Daily], seed: int | None) -> list[RangeCell]:
    """Return all cells of a design, with seeds of their own.

    Without a seed they are unpredictable and safe.
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
        RangeCell(*what, fits_for(design, what[2], what[0]), design.ranges, one, seed is None)
        for what, one in zip(chosen, seeds, strict=True)
    ]


def run_design(design: RangeDesign, own: Daily | None, context: RunContext) -> RangeStudy:
    """Run a design on the context's workers.

    Args:
        design: The design.
        own: Daily counts to study instead of the default ones.
        context: The workers and the seed; without a seed, noise comes from OpenDP, and no two runs are alike.

    Raises:
        NoiseError: If OpenDP is not installed.
        StudyError: If the series is too short.
    """
    if context.seed is None:
        safe_source()  # fails at once if OpenDP is missing
    if own is not None:
        design = fitting_design(design, own)
    series_for = own.cut if own is not None else default_series
    todo = cells(design, series_for, context.seed)
    total = sum(cell.cost for cell in todo)
    order = sorted(range(len(todo)), key=lambda i: -todo[i].cost)  # so that no long cell is left for the end
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
    """Return noise of many single counts, and one fit of each structure beside the counts themselves."""
    source = source_of(np.random.SeedSequence(seed), seed is None)
    counts = series_for(max(design.lengths)).counts
    example_counts = series_for(min(design.lengths, key=lambda n: abs(n - 128))).counts

    def days_of(structure: Structure, counts: Counts) -> Floats:
        at = np.arange(len(counts))
        return structure.fit(counts, design.middle, source).answer(at, at + 1)

    noise = np.concatenate([days_of(CentralFlat(), counts) - counts for _ in range(design.fits)])
    each = (CentralFlat(), CentralHierarchy(), LocalFlat(), LocalHierarchy())
    example = {"counts": example_counts.astype(np.float64)}
    example |= {one.family: days_of(one, example_counts) for one in each}
    return noise.astype(np.int64), example
