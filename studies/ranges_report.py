"""A study of ranges in a folder and on the screen: figures, CSV files, a summary."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..server.answers import tables as show
from . import ranges_figures as figures
from . import ranges_findings as findings
from . import ranges_tables as tables
from .daily import Daily
from .ranges import RangeStudy
from .ranges_asked import AskedRange
from .ranges_cell import FAMILIES
from .ranges_findings import BreakEven, number, rms

FIGURES: dict[str, Callable[[RangeStudy, Path], None]] = {
    "lengths": figures.lengths,
    "hierarchy": figures.hierarchy,
    "epsilon": figures.epsilon,
    "fanouts": figures.fanouts,
    "price": figures.price,
    "noise": figures.noise,
    "example": figures.example,
    "agreement": figures.agreement,
    "flat": figures.flat,
    "exponents": figures.exponents,
    "short": figures.short,
    "spent": figures.spent,
}
CAUSES = (
    ("flat falls for long ranges", "correct theory: errors of days cancel over the whole domain; not a flaw"),
    (
        "hierarchy like 1/ε²",
        "true of the squared error; of the RMSE only as far as missing hashing steepens it",
    ),
    ("smallest fanout best", "missing hashing, and the root level a little; not the lie"),
    ("hierarchy wins on short ranges", "the table's lengths, and missing hashing; not on single days"),
)


def write(study: RangeStudy, folder: Path) -> list[BreakEven]:
    """Write every figure as PNG, the points, fits and verdicts as CSV, the tables of docs/study-ranges.md.

    The folder must be there. Returns where hierarchies begin to win, which takes seconds to find.
    """
    everything = [*study.points, *study.flawed]
    _write_csv(folder / "ranges.csv", [vars(point) for point in study.points])
    _write_csv(folder / "flaws.csv", [vars(point) for point in study.flawed])
    _write_csv(folder / "fits.csv", [vars(f) for f in findings.fits(everything)])
    middle = study.design.middle
    lengths = findings.length_fits(study.points, middle)
    _write_csv(folder / "length_fits.csv", [vars(f) for f in lengths])
    series = [one for one in study.series if any(point.days == len(one.counts) for point in study.short)]
    even = findings.even_lengths(study.short, series, middle)
    if even:
        _write_csv(folder / "short.csv", [vars(point) for point in study.short])
        _write_csv(folder / "break_even.csv", [vars(e) for e in even])
    verdicts = findings.all_verdicts(study)
    _write_csv(folder / "agreement.csv", [vars(v) | {"agrees": v.agrees} for v in verdicts])
    blocks = [
        tables.agreement(verdicts),
        tables.results(study.points, middle),
        tables.length_laws(lengths),
        tables.even(even),
        tables.flaws(study.design, findings.flaw_series(study)),
    ]
    (folder / "tables.md").write_text("\n".join(blocks), encoding="utf-8")
    for name, draw in FIGURES.items():
        draw(study, folder / f"{name}.png")
    return even


def _write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})


def summary(
    study: RangeStudy, even: Sequence[BreakEven], folder: Path, seconds: float, seed: int | None
) -> dict[str, Any]:
    """Plain values, for JSON."""
    everything = [*study.points, *study.flawed]
    verdicts = findings.all_verdicts(study)
    return {
        "folder": str(folder),
        "seconds": round(seconds, 1),
        "seed": seed,
        "noise": "OpenDP" if seed is None else "seeded, for simulation only",
        "days": list(study.design.lengths),
        "epsilons": list(study.design.epsilons),
        "fanouts": list(study.design.fanouts),
        "structures_per_point": study.design.fits,
        "ranges_per_length": study.design.ranges,
        "points": len(everything),
        "curves": len(verdicts),
        "curves_that_agree": sum(v.agrees for v in verdicts),
        "farthest_deviation": round(max((p.deviations for p in everything), key=abs), 2),
        "fits": [vars(f) for f in findings.fits(everything)],
        "length_fits": [vars(f) for f in findings.length_fits(study.points, study.design.middle)],
        "break_even": [vars(e) for e in even],
        "hierarchy_wins_from": findings.flaw_break_even(study),
    }


def show_summary(study: RangeStudy, even: Sequence[BreakEven], folder: Path, seconds: float) -> None:
    """Print the errors at the middle ε and what was found, in 80 columns."""
    sizes = list(study.design.lengths)
    relation = "neighbours: one record replaced"
    show.out.print(
        f"RMSE in records at ε = {study.design.middle:g}, over all lengths; {relation}", style="bold"
    )
    table = show.table()
    table.add_column("structure")
    for days in sizes:
        table.add_column(f"{days:,} days", justify="right", no_wrap=True)
    for family in FAMILIES:
        cells = []
        for days in sizes:
            wanted = {"days": days, "epsilon": study.design.middle, "neighbours": "replaced", "fanout": 0}
            cells.append(number(rms([p.rmse for p in study.select(family=family, **wanted)])))
        table.add_row(family, *cells)
    show.out.print(table)
    show.out.print()
    _show_lengths(study, even)
    show.out.print(_agreement(study))
    show.out.print()
    surprises = show.table("surprises of a well-known study, and their causes")
    surprises.add_column("surprise")
    surprises.add_column("cause")
    for surprise, cause in CAUSES:
        surprises.add_row(surprise, cause)
    show.out.print(surprises)
    show.out.print()
    show.out.print(f"figures and CSV files  {folder}  ({seconds:.0f} s)", soft_wrap=True)


def _show_lengths(study: RangeStudy, even: Sequence[BreakEven]) -> None:
    days = findings.shown_days(study)
    table = show.table(f"R² of RMSE against the length r, {days:,} days")
    for i, heading in enumerate(("structure", "a + b √r", "a + b ln r", "a + b r")):
        table.add_column(heading, justify="right" if i else "left")
    for fit in findings.length_fits(study.points, study.design.middle):
        if fit.days == days and fit.neighbours == "replaced":
            table.add_row(fit.family, *(f"{x:.3f}" for x in (fit.r2_root, fit.r2_log, fit.r2_line)))
    show.out.print(table)
    show.out.print()
    if not even:
        return
    table = show.table("days from which on a local hierarchy errs less than flat")
    for i, heading in enumerate(
        ("fanout", "days", "2 B ⌈log_B D⌉²", "exact, summed", "exact, consistent", "measured")
    ):
        table.add_column(heading, justify="right" if i > 1 else "left")
    for row in even:
        lengths = (row.formula, row.summed, row.consistent, row.measured)
        table.add_row(str(row.fanout), f"{row.days:,}", *("never" if x is None else str(x) for x in lengths))
    show.out.print(table)
    show.out.print()


def show_asked(asked: Sequence[AskedRange], series: Daily, epsilon: float) -> None:
    """Print the answers about ranges of days, in 80 columns."""
    show.out.print(
        f"{series.name}: {series.counts.sum():,} records, {series.first} to {series.last}, ε = {epsilon:g}",
        style="bold",
        soft_wrap=True,
    )
    for text in dict.fromkeys(one.range for one in asked):
        rows = [one for one in asked if one.range == text]
        days = "1 day" if rows[0].days == 1 else f"{rows[0].days:,} days"
        title = f"{text.replace(':', ' to ')}: {days}, {rows[0].truth:,} records"
        table = show.table(title)
        for i, heading in enumerate(("structure", "truth", "answer", "error", "by theory")):
            table.add_column(heading, justify="right" if i else "left")
        for one in rows:
            cells = (f"{one.truth:,}", f"{one.answer:,.1f}", f"{one.error:+,.1f}", f"±{number(one.expected)}")
            table.add_row(one.structure, *cells)
        show.out.print()
        show.out.print(table)


def _agreement(study: RangeStudy) -> str:
    everything = [*study.points, *study.flawed]
    z = np.array([point.deviations for point in everything])
    beyond = int(np.sum(np.abs(z) > findings.DISAGREES))
    verdicts = findings.all_verdicts(study)
    agree = sum(v.agrees for v in verdicts)
    return (
        f"{agree} of {len(verdicts)} curves agree with theory: of {len(everything):,} points {beyond} are "
        f"more than {findings.DISAGREES:g} standard deviations off, the farthest {max(z, key=abs):+.1f}; the "
        f"deviations have mean {z.mean():+.2f} and standard deviation {z.std():.2f} (0 and 1 by theory)."
    )
