"""What the study of ranges varies: domains, ε, structures and flaws; a full design and a quick one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from .daily import Daily, flights, synthetic
from .flawed import CORRECT, THESIS, FlawedStructure, Flaws
from .frame import StudyError
from .noise import NeighbourRelation
from .structures import CentralFlat, CentralHierarchy, LocalFlat, LocalHierarchy

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
EVEN_LENGTHS = (1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64, 91, 128)
_MOST_REPORTS = 20_000_000  # of local structures at one ε; where records are more, there are fewer fits
_FEWEST_FITS = 3


@dataclass(frozen=True)
class RangeDesign:
    """What is varied: ε in nats, days and their range lengths, fanouts; fits per cell, ranges per length.

    local_fits: of a local structure, whose every record makes a report. flaw_days: the domain of the runs
    with flaws. even_days, even_fanouts: domains of this many days or more are also asked for the short
    ranges of EVEN_LENGTHS, with these fanouts: where does a hierarchy begin to win?
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
        """The ε that figures show where they show one."""
        return min(self.epsilons, key=lambda e: abs(e - 1))


FULL = RangeDesign(EPSILONS, LENGTHS, FANOUTS, (2, 4, 16), 512)
QUICK = RangeDesign(
    (2.0, 1.0, 0.4), {n: LENGTHS[n] for n in (32, 128, 512)}, (2, 4, 16), (2, 16), 128, fits=12, local_fits=6
)


def default_series(days: int) -> Daily:
    """Flights per day where the year is long enough, synthetic counts where it is not."""
    real = flights()
    return real.cut(days) if days <= len(real.counts) else synthetic(days)


def fitting_design(design: RangeDesign, series: Daily) -> RangeDesign:
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


def fits_for(design: RangeDesign, structure: AnyStructure, series: Daily) -> int:
    """How many times a structure is fitted to a series: less often where its reports would be too many."""
    if isinstance(structure, CentralFlat | CentralHierarchy):
        return design.fits
    return min(design.local_fits, max(_FEWEST_FITS, _MOST_REPORTS // int(series.counts.sum())))


def structures(fanouts: Sequence[int]) -> Iterator[AnyStructure]:
    """The structures that are compared; fanout 0 is the one that theory chooses."""
    for neighbours in NeighbourRelation:
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


def flaw_lengths(days: int) -> tuple[int, ...]:
    """Lengths of the runs with flaws, from a single day to nearly all."""
    return tuple(sorted({max(1, round(share * days)) for share in FLAW_SHARES}))
