"""Errors of range queries over days, for four structures and for a flawed one, beside what theory says."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from ..server.answers.files import output_folder
from ..server.epsilon import MICRO, check_epsilon
from . import ranges_findings as findings
from . import ranges_tables as tables
from . import ranges_theory
from .daily import Daily, flights, read_daily
from .frame import Running, StudyError, StudyParameters, StudyResult, StudyTable, plain, write_csv
from .noise import NeighbourRelation, source_of
from .ranges_design import FULL, QUICK
from .ranges_findings import BreakEven, number
from .ranges_run import RangeStudy, family, run_design
from .structures import CentralFlat, CentralHierarchy, LocalFlat, LocalHierarchy

_CAUSES = (
    ("flat falls for long ranges", "correct theory: errors of days cancel over the whole domain; not a flaw"),
    (
        "hierarchy like 1/ε²",
        "true of the squared error; of the RMSE only as far as missing hashing steepens it",
    ),
    ("smallest fanout best", "missing hashing, and the root level a little; not the lie"),
    ("hierarchy wins on short ranges", "the table's lengths, and missing hashing; not on single days"),
)


class RangesParameters(StudyParameters):
    """The whole study, or ranges of one's own; on flights of 2013, or on records of one's own."""

    out: Path = Field(Path("study"), description="Folder for the figures and the CSV files.")
    quick: bool = Field(False, description="Fewer days, ε and fanouts: seconds instead of minutes.")
    input: Path | None = Field(
        None, description="CSV file of your own records, a row each. A day without one counts as 0."
    )
    time: str | None = Field(None, description="Of your own records: the column of dates or timestamps.")
    value: str | None = Field(
        None, description="A column that says how many records a row stands for; else each row is one."
    )
    by: str | None = Field(None, description="A column to choose rows by, with only.")
    only: str | None = Field(None, description="The text that the column named by `by` must have.")
    range: tuple[str, ...] = Field(
        (), description="Answer only these, last day included: 2013-01-01:2013-01-31."
    )
    epsilon: float = Field(1.0, description="With range: ε of all answers together, in nats.")


def run(asked: RangesParameters, running: Running) -> StudyResult:
    """Run the study and write its folder; or answer the ranges that are asked for."""
    own = None
    if asked.input is not None:
        if asked.time is None:
            raise StudyError("input=FILE needs time=COLUMN, the column of dates or timestamps")
        own = read_daily(asked.input, asked.time, asked.value, asked.by, asked.only)
    elif asked.time or asked.value or asked.by or asked.only:
        raise StudyError("time, value, by and only are about a file: input=FILE")
    if asked.range:
        return answer(own or flights(), asked.range, asked.epsilon, running.seed)
    output_folder(asked.out)
    start = time.monotonic()
    found = run_design(QUICK if asked.quick else FULL, own, running)
    even, shown = write_folder(found, asked.out)
    seconds = time.monotonic() - start
    surprises = "surprises of a well-known study, and their causes"
    parts = [part for table in shown for part in (table, "")]
    parts += [_agreement(found), "", StudyTable(surprises, ("surprise", "cause"), _CAUSES, (0, 1)), ""]
    parts.append(f"figures and CSV files  {asked.out}  ({seconds:.0f} s)")
    head = {"folder": str(asked.out), "seconds": round(seconds, 1), "seed": running.seed}
    return StudyResult(head | summary(found, even, running.seed), parts)


def write_folder(study: RangeStudy, folder: Path) -> tuple[list[BreakEven], list[StudyTable]]:
    """Write every figure as PNG, the points, fits and verdicts as CSV, the tables of docs/study-ranges.md.

    The folder must be there. Returns where hierarchies begin to win, and the tables.
    """
    from .ranges_figures import FIGURES  # matplotlib takes a second to load

    middle = study.design.middle
    lengths = findings.length_fits(study.points, middle)
    series = [one for one in study.series if any(point.days == len(one.counts) for point in study.short)]
    even = findings.even_lengths(study.short, series, middle)
    verdicts = findings.all_verdicts(study)
    files: dict[str, Sequence[Any]] = {
        "ranges": study.points,
        "flaws": study.flawed,
        "fits": findings.fits([*study.points, *study.flawed]),
        "length_fits": lengths,
        "short": study.short if even else (),
        "break_even": even,
    }
    for name, rows in files.items():
        if rows:
            write_csv(folder / f"{name}.csv", plain(rows), "{:.6g}".format, "\n")
    write_csv(folder / "agreement.csv", [plain(v, "agrees") for v in verdicts], "{:.6g}".format, "\n")
    first, *others = shown = [
        tables.agreement(verdicts),
        tables.results(study.points, middle),
        tables.length_laws(lengths),
        tables.even(even),
        tables.flaws(study.design, findings.flaw_series(study)),
    ]
    (folder / "tables.md").write_text("\n".join(map(tables.markdown, shown)), encoding="utf-8")
    for name, draw in FIGURES.items():
        draw(study, folder / f"{name}.png")
    return even, [*others, first]


def summary(study: RangeStudy, even: Sequence[BreakEven], seed: int | None) -> dict[str, Any]:
    """Plain values of what was found."""
    everything = [*study.points, *study.flawed]
    verdicts = findings.all_verdicts(study)
    return {
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
        "fits": plain(findings.fits(everything)),
        "length_fits": plain(findings.length_fits(study.points, study.design.middle)),
        "break_even": plain(list(even)),
        "hierarchy_wins_from": findings.flaw_break_even(study),
    }


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


# --- Ranges that somebody asks for ----------------------------------------------------------------


def answer(series: Daily, ranges: Sequence[str], epsilon: float, seed: int | None) -> StudyResult:
    """Fit each structure once to all days of the series, and ask it for ranges such as 2013-01-01:2013-01-31.

    epsilon: nats; all have the same neighbours, one record replaced. Without a seed noise comes from OpenDP.
    Raises DailyError for a range that does not fit, StudyError for an ε out of range, StructureError for a
    series too short, NoiseError where OpenDP is not installed.
    """
    check_epsilon(epsilon * MICRO, StudyError, shown=epsilon)
    low, high = np.array([series.ends(text) for text in ranges]).T
    source = source_of(np.random.SeedSequence(seed), seed is None)
    truths = np.diff(np.concatenate(([0], np.cumsum(series.counts)))[np.stack((low, high))], axis=0)[0]
    replaced = NeighbourRelation.replaced
    answers, expected = {}, {}
    for structure in (CentralFlat(replaced), CentralHierarchy(0, replaced), LocalFlat(), LocalHierarchy()):
        theory = ranges_theory.law(structure, series.counts, epsilon, low, high)
        answers[family(structure)] = structure.fit(series.counts, epsilon, source).answer(low, high)
        expected[family(structure)] = np.sqrt(np.diag(theory.covariance))
    rows: list[dict[str, Any]] = []
    total, first, last = series.counts.sum(), series.first, series.last
    shown: list[StudyTable | str] = [
        f"# {series.name}: {total:,} records, {first} to {last}, ε = {epsilon:g}"
    ]
    for i, text in enumerate(ranges):
        days, truth = int(high[i] - low[i]), int(truths[i])
        cells = []
        for structure in answers:
            value, off = float(answers[structure][i]), float(expected[structure][i])
            row = {"range": text, "days": days, "structure": structure, "truth": truth}
            rows.append(row | {"answer": value, "error": value - truth, "expected": off})
            cells.append(
                (structure, f"{truth:,}", f"{value:,.1f}", f"{value - truth:+,.1f}", f"±{number(off)}")
            )
        long = "1 day" if days == 1 else f"{days:,} days"
        title = f"{text.replace(':', ' to ')}: {long}, {truth:,} records"
        shown += ["", StudyTable(title, ("structure", "truth", "answer", "error", "by theory"), cells)]
    return StudyResult({"epsilon": epsilon, "seed": seed, "ranges": rows}, shown)
