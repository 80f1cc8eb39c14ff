"""Errors of range queries over days, for four structures and a flawed one, compared with theory."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from ..server.answers.files import output_folder
from ..server.epsilon import MICRO, check_epsilon
from ..server.plain import plain
from ..server.words.text_table import TextTable
from . import ranges_findings as findings
from . import ranges_tables as tables
from .daily import Daily, flights, read_daily
from .frame import RunContext, StudyError, StudyParameters, StudyResult, write_csv
from .noise import NeighbourRelation, source_of
from .ranges_run import FULL, QUICK, RangeStudy, run_design
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
    """The whole study, or chosen ranges; on flights of 2013, or on your own records."""

    out: Path = Field(Path("study"), description="Folder for the figures and the CSV files.")
    quick: bool = Field(False, description="Fewer days, ε and fanouts: seconds instead of minutes.")
    input: Path | None = Field(
        None, description="CSV file of your own records, one per row. Days without a row count as 0."
    )
    time: str | None = Field(None, description="Of your own records: the column of dates or timestamps.")
    value: str | None = Field(
        None, description="Column with a row's number of records; default: one record per row."
    )
    by: str | None = Field(None, description="A column to choose rows by, with only.")
    only: str | None = Field(None, description="The text that the column named by `by` must have.")
    range: tuple[str, ...] = Field(
        (), description="Answer only these, last day included: 2013-01-01:2013-01-31."
    )
    epsilon: float = Field(1.0, description="With range: ε of all answers together, in nats.")


def run(parameters: RangesParameters, context: RunContext) -> StudyResult:
    """Run the study and write its folder, or answer the requested ranges."""
    own_series = None
    if parameters.input is not None:
        if parameters.time is None:
            raise StudyError("--input FILE needs --time COLUMN, the column of dates or timestamps")
        own_series = read_daily(
            parameters.input, parameters.time, parameters.value, parameters.by, parameters.only
        )
    elif parameters.time or parameters.value or parameters.by or parameters.only:
        raise StudyError("--time, --value, --by and --only are about a file: add --input FILE")
    if parameters.range:
        return answer(own_series or flights(), parameters.range, parameters.epsilon, context.seed)
    output_folder(parameters.out)
    start = time.monotonic()
    study = run_design(QUICK if parameters.quick else FULL, own_series, context)
    results, shown_tables = write_folder(study, parameters.out)
    seconds = time.monotonic() - start
    surprises = TextTable(
        "surprises of a well-known study, and their causes", ("surprise", "cause"), _CAUSES, (0, 1)
    )
    everything = [*study.points, *study.flawed]
    z = np.array([point.deviations for point in everything])
    beyond = int(np.sum(np.abs(z) > findings.DISAGREES))
    curves, agree = len(results["agreement"]), sum(row["agrees"] for row in results["agreement"])
    agreement = (
        f"{agree} of {curves} curves agree with theory: of {len(z):,} points {beyond} are more than "
        f"{findings.DISAGREES:g} standard deviations off, the farthest {max(z, key=abs):+.1f}; the "
        f"deviations have mean {z.mean():+.2f} and standard deviation {z.std():.2f} (0 and 1 by theory)."
    )
    output = [part for table in shown_tables for part in (table, "")]
    output += [agreement, "", surprises, "", f"figures and CSV files  {parameters.out}  ({seconds:.0f} s)"]
    json = {
        "folder": str(parameters.out),
        "seconds": round(seconds, 1),
        "seed": context.seed,
        "noise": "OpenDP" if context.seed is None else "seeded, for simulation only",
        "days": list(study.design.lengths),
        "epsilons": list(study.design.epsilons),
        "fanouts": list(study.design.fanouts),
        "structures_per_point": study.design.fits,
        "ranges_per_length": study.design.ranges,
        "points": len(z),
        "curves": curves,
        "curves_that_agree": agree,
        "farthest_deviation": round(max(z, key=abs), 2),
        **{name: results[name] for name in ("fits", "length_fits", "break_even")},
        "hierarchy_wins_from": findings.flaw_break_even(study),
    }
    return StudyResult(json, output)


def write_folder(study: RangeStudy, folder: Path) -> tuple[dict[str, Sequence[Any]], list[TextTable]]:
    """Write every figure as PNG, the points, fits and verdicts as CSV, and the tables for studies/README.md.

    The folder must exist.

    Returns:
        The rows of each CSV file, and the tables.
    """
    from .ranges_figures import FIGURES  # imported lazily because matplotlib is slow to load

    middle = study.design.middle
    short_days = {point.days for point in study.short}
    even = findings.even_lengths(
        study.short, [series for series in study.series if len(series.counts) in short_days], middle
    )
    verdicts = findings.all_verdicts(study)
    results: dict[str, Sequence[Any]] = {
        "ranges": study.points,
        "flaws": study.flawed,
        "fits": findings.fits([*study.points, *study.flawed]),
        "length_fits": findings.length_fits(study.points, middle),
        "short": study.short if even else (),
        "break_even": even,
        "agreement": verdicts,
    }
    for name, rows in results.items():
        if rows:
            write_csv(folder / f"{name}.csv", plain(rows), "{:.6g}".format, "\n")
    first, *others = all_tables = [
        tables.agreement(verdicts),
        tables.results(study.points, middle),
        tables.lengths(results["length_fits"]),
        tables.break_even(even),
        tables.flaws(study.design, study.flaw_series),
    ]
    (folder / "tables.md").write_text("\n".join(map(tables.markdown, all_tables)), encoding="utf-8")
    for name, draw in FIGURES.items():
        draw(study, folder / f"{name}.png")
    return results, [*others, first]


# --- Requested ranges ----------------------------------------------------------------


def answer(series: Daily, ranges: Sequence[str], epsilon: float, seed: int | None) -> StudyResult:
    """Fit each structure once to the whole series, and answer ranges such as 2013-01-01:2013-01-31.

    All structures have the same neighbours: one record is replaced.

    Args:
        series: The daily counts.
        ranges: The ranges.
        epsilon: ε in nats.
        seed: The noise's seed; None for noise from OpenDP.

    Raises:
        DailyError: If a range does not fit.
        StudyError: If ε is out of range.
        StructureError: If the series is too short.
        NoiseError: If OpenDP is not installed.
    """
    check_epsilon(epsilon * MICRO, StudyError, original=epsilon)
    low, high = np.array([series.index_range(text) for text in ranges]).T
    source = source_of(np.random.SeedSequence(seed), seed is None)
    truths = np.diff(np.concatenate(([0], np.cumsum(series.counts)))[np.stack((low, high))], axis=0)[0]
    replaced = NeighbourRelation.replaced
    answers_by_family = {}
    for structure in (CentralFlat(replaced), CentralHierarchy(0, replaced), LocalFlat(), LocalHierarchy()):
        law = structure.law(series.counts, epsilon, low, high)
        answers = structure.fit(series.counts, epsilon, source).answer(low, high)
        answers_by_family[structure.family] = list(
            zip(answers.tolist(), np.sqrt(np.diag(law.covariance)), strict=True)
        )
    rows: list[dict[str, Any]] = []
    total, first, last = series.counts.sum(), series.first, series.last
    output: list[TextTable | str] = [
        f"# {series.name}: {total:,} records, {first} to {last}, ε = {epsilon:g}"
    ]
    for i, (text, truth) in enumerate(zip(ranges, truths.tolist(), strict=True)):
        days = int(high[i] - low[i])
        cells = []
        for family, answered in answers_by_family.items():
            value, expected = answered[i]
            off = value - truth
            row = {"range": text, "days": days, "structure": family, "truth": truth, "answer": value}
            rows.append(row | {"error": off, "expected": float(expected)})
            wide = f"±{findings.number(expected)}"
            cells.append((family, f"{truth:,}", f"{value:,.1f}", f"{off:+,.1f}", wide))
        long = "1 day" if days == 1 else f"{days:,} days"
        title = f"{text.replace(':', ' to ')}: {long}, {truth:,} records"
        output += ["", TextTable(title, ("structure", "truth", "answer", "error", "by theory"), cells)]
    return StudyResult({"epsilon": epsilon, "seed": seed, "ranges": rows}, output)
