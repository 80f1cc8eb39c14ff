"""`hushmote study ranges`: errors of range queries over days, for four structures and for a flawed one.

A `Design` is cut into cells (days, ε, structure); each cell fits its structure many times to the same counts
and compares the mean squared error of its ranges with the theory's. Cells are independent: they have seeds of
their own and run on all cores.
"""

from __future__ import annotations

import math
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ...server.errors import HushmoteError
from . import ranges_theory as study_theory
from .central import CentralFlat, CentralHierarchy
from .daily import Daily, flights, synthetic
from .flawed import CORRECT, THESIS, FlawedStructure, Flaws
from .local import LocalFlat, LocalHierarchy
from .structures import Counts, Neighbours, safe_source, seeded_source

Floats = npt.NDArray[np.float64]
AnyStructure = CentralFlat | CentralHierarchy | LocalFlat | LocalHierarchy | FlawedStructure

EPSILONS = (2.0, 1.4, 1.2, 1.0, 0.8, 0.6, 0.4, 0.2)
FANOUTS = (2, 3, 4, 8, 16)
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
BINS = np.linspace(-5.1, 5.1, 52)  # of standardised errors; one is about 0, where whole numbers pile up


class StudyError(HushmoteError):
    """A study that cannot be run; the text says what would."""


@dataclass(frozen=True)
class Design:
    """What is varied: ε in nats, days and their range lengths, fanouts; fits per cell, ranges per length.

    flaw_days: the domain of the runs with flaws.
    """

    epsilons: tuple[float, ...]
    lengths: dict[int, tuple[int, ...]]
    fanouts: tuple[int, ...]
    flaw_fanouts: tuple[int, ...]
    flaw_days: int
    fits: int = 25
    ranges: int = 100

    @property
    def middle(self) -> float:
        """The ε that figures show where they show one."""
        return min(self.epsilons, key=lambda e: abs(e - 1))


FULL = Design(EPSILONS, LENGTHS, FANOUTS, (2, 4, 16), 512)
QUICK = Design((2.0, 1.0, 0.4), {n: LENGTHS[n] for n in (32, 128, 512)}, (2, 4, 16), (2, 16), 128, fits=12)


@dataclass(frozen=True)
class Cell:
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
class Row:
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

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return dict(vars(self))


@dataclass(frozen=True)
class Outcome:
    """Rows of one cell, and how many of its errors, divided by what theory says, fell into each of BINS."""

    rows: tuple[Row, ...]
    standardised: npt.NDArray[np.int64]


@dataclass(
    frozen=True, eq=False
)  # one is equal to itself alone, so that what is computed from it can be kept
class Study:
    """All rows of a design; noise: errors of single counts of central flat at design.middle."""

    design: Design
    series: tuple[Daily, ...]
    rows: tuple[Row, ...]
    flawed: tuple[Row, ...]
    standardised: dict[str, npt.NDArray[np.int64]]
    noise: npt.NDArray[np.int64]
    example: dict[str, Floats]

    def select(self, **wanted: Any) -> list[Row]:
        """Rows of the correct structures with these values."""
        return [row for row in self.rows if all(getattr(row, k) == v for k, v in wanted.items())]

    def select_flawed(self, **wanted: Any) -> list[Row]:
        """Rows of the runs with flaws, the correct ones beside them included."""
        return [row for row in self.flawed if all(getattr(row, k) == v for k, v in wanted.items())]


def default_series(days: int) -> Daily:
    """Flights per day where the year is long enough, synthetic counts where it is not."""
    real = flights()
    return real.cut(days) if days <= len(real.counts) else synthetic(days)


def fitting_design(design: Design, series: Daily) -> Design:
    """The design without domains that are more than a step longer than a series; empty days pad the last.

    Raises StudyError where not even the shortest domain is filled by half.
    """
    days = len(series.counts)
    sizes = sorted(design.lengths)
    kept = [n for i, n in enumerate(sizes) if n <= days or (i and sizes[i - 1] < days)]
    if not kept:
        if 2 * days < sizes[0]:
            raise StudyError(f"{series.name} has {days} days; at least {sizes[0] // 2} are needed")
        kept = sizes[:1]
    first = series.counts[: kept[0]]
    if first.sum() < 1000:
        raise StudyError(
            f"{series.name} has {first.sum()} records in its first {kept[0]} days; 1000 are needed"
        )
    flaw_days = max((n for n in kept if n <= design.flaw_days), default=kept[0])
    return replace(design, lengths={n: design.lengths[n] for n in kept}, flaw_days=flaw_days)


def structures(fanouts: Sequence[int]) -> Iterator[AnyStructure]:
    """The structures that are compared; fanout 0 is the one that theory chooses."""
    for neighbours in Neighbours:
        yield CentralFlat(neighbours)
        yield CentralHierarchy(0, neighbours)
    for fanout in fanouts:
        yield CentralHierarchy(fanout)
    yield LocalFlat()
    for fanout in (0, *fanouts):
        yield LocalHierarchy(fanout)


def flawed_structures(fanouts: Sequence[int]) -> Iterator[FlawedStructure]:
    """Correct; each flaw alone; the thesis's; that with each flaw undone; the wrong inverse."""
    names = ("lie", "no_hash", "root", "inconsistent")
    alone = [Flaws(**{name: True}) for name in names]
    undone = [replace(THESIS, **{name: False}) for name in names]
    no_hash_naive = Flaws(no_hash=True, inconsistent=True)
    wrong = [replace(f, lie=True, wrong_inverse=True) for f in (CORRECT, THESIS)]
    for fanout in fanouts:
        for flaws in (CORRECT, *alone, *undone, no_hash_naive, THESIS, *wrong):
            yield FlawedStructure(fanout, flaws)
    for lie, no_hash in ((False, False), (False, True), (True, False), (True, True)):
        yield FlawedStructure(0, Flaws(lie=lie, no_hash=no_hash))


def starts(days: int, length: int, ranges: int) -> Counts:
    """First days of the ranges of a length: all places that fit, evenly; some twice where they are few."""
    return ((np.arange(ranges) + 0.5) * (days - length + 1) / ranges).astype(np.int64)


def law(structure: AnyStructure, counts: Counts, epsilon: float, lo: Counts, hi: Counts) -> study_theory.Law:
    """What theory says about a structure's errors."""
    if isinstance(structure, FlawedStructure):
        return structure.law(counts, epsilon, lo, hi)
    return study_theory.law(structure, counts, epsilon, lo, hi)


def run_cell(cell: Cell) -> Outcome:
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
    rows = []
    spread = np.empty(len(lo))
    for i, length in enumerate(cell.lengths):
        part = slice(i * per_length, (i + 1) * per_length)
        found = law(cell.structure, counts, cell.epsilon, lo[part], hi[part])
        spread[part] = np.sqrt(np.diag(found.covariance))
        mse = float(np.mean(errors[:, part] ** 2))
        rows.append(_row(cell, length, mse, found))
    standardised, _ = np.histogram(errors / spread, BINS)
    return Outcome(tuple(rows), standardised)


def _row(cell: Cell, length: int, mse: float, found: study_theory.Law) -> Row:
    structure, days = cell.structure, len(cell.series.counts)
    plan, true_epsilon, neighbours, flaws = "", cell.epsilon, Neighbours.replaced, CORRECT
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
    return Row(
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
        predicted=found.rmse,
        deviations=found.deviations(mse, cell.fits),
        bias=math.sqrt(float(np.mean(found.bias**2))),
    )


def family(structure: AnyStructure) -> str:
    """Which of the four a structure is."""
    side = "central" if isinstance(structure, CentralFlat | CentralHierarchy) else "local"
    flat = isinstance(structure, CentralFlat | LocalFlat) or getattr(structure, "fanout", 1) == 0
    if isinstance(structure, CentralHierarchy | LocalHierarchy):
        flat = False
    return f"{side} {'flat' if flat else 'hierarchy'}"


def flaw_lengths(days: int) -> tuple[int, ...]:
    """Lengths of the runs with flaws, from a single day to nearly all."""
    return tuple(sorted({max(1, round(share * days)) for share in FLAW_SHARES}))


def cells(design: Design, series_for: Callable[[int], Daily], seed: int | None) -> list[Cell]:
    """All cells of a design, with seeds of their own; without a seed they are unpredictable and safe."""
    root = np.random.SeedSequence(seed)
    common = {"fits": design.fits, "ranges": design.ranges, "safe": seed is None}
    made = []
    for days, lengths in design.lengths.items():
        series = series_for(days)
        for epsilon in design.epsilons:
            made += [(series, epsilon, structure, lengths) for structure in structures(design.fanouts)]
    series = series_for(design.flaw_days)
    for epsilon in design.epsilons:
        lengths = flaw_lengths(design.flaw_days)
        made += [
            (series, epsilon, structure, lengths) for structure in flawed_structures(design.flaw_fanouts)
        ]
    return [Cell(*what, seed=s, **common) for what, s in zip(made, root.spawn(len(made)), strict=True)]


def run(
    design: Design,
    seed: int | None = None,
    own: Daily | None = None,
    progress: Callable[[float], None] = lambda _: None,
    workers: int | None = None,
) -> Study:
    """Run a design on all cores. progress is told the share of the work that is done.

    own: daily counts to study instead of the default ones. Without a seed noise comes from OpenDP and no two
    runs are alike. Raises NoiseError where OpenDP is not installed, StudyError for a series too short.
    """
    if seed is None:
        safe_source()  # says at once where OpenDP is missing
    if own is not None:
        design = fitting_design(design, own)
    series_for = own.cut if own is not None else default_series
    todo = cells(design, series_for, seed)
    outcomes: dict[int, Outcome] = {}
    done, total = 0.0, sum(cell.cost for cell in todo)
    order = sorted(range(len(todo)), key=lambda i: -todo[i].cost)
    with _workers(workers or os.cpu_count() or 1) as pool:
        futures = {pool.submit(run_cell, todo[i]): i for i in order}
        for future in as_completed(futures):
            i = futures[future]
            outcomes[i] = future.result()
            done += todo[i].cost
            progress(done / total)
    rows: list[Row] = []
    flawed: list[Row] = []
    standardised = {name: np.zeros(len(BINS) - 1, np.int64) for name in FAMILIES}
    for i, cell in enumerate(todo):
        if isinstance(cell.structure, FlawedStructure):
            flawed.extend(outcomes[i].rows)
        else:
            rows.extend(outcomes[i].rows)
            standardised[family(cell.structure)] += outcomes[i].standardised
    noise, example = _examples(
        design, series_for(max(design.lengths)), series_for(_example_days(design)), seed
    )
    series = tuple(series_for(days) for days in design.lengths)
    return Study(design, series, tuple(rows), tuple(flawed), standardised, noise, example)


FAMILIES: tuple[str, ...] = ("central flat", "central hierarchy", "local flat", "local hierarchy")


def _example_days(design: Design) -> int:
    return min(design.lengths, key=lambda n: abs(n - 128))


def _examples(
    design: Design, longest: Daily, shown: Daily, seed: int | None
) -> tuple[npt.NDArray[np.int64], dict[str, Floats]]:
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
        answers = structure.fit(shown.counts, design.middle, source).answer(days, days + 1)
        example[family(structure)] = answers
    return noise, example


@contextmanager
def _workers(count: int) -> Iterator[ProcessPoolExecutor]:
    """Processes with one thread of linear algebra each: more would fight over the same cores."""
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        pool = ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"))
        try:
            yield pool
        finally:
            pool.shutdown(cancel_futures=True)
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
