"""`hushmote study lifetime`: the table, the plot and the CSV of the study of a life of reports."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress

from ...server.answers import tables as show
from ...server.planning.devices import PlanError
from ...simulator.studies.lifetime import DELTA, FLEETS, LIFETIMES, WAYS, LifetimeCell, LifetimeStudy, run
from ..options import AsJson, print_json

_HEADINGS = {
    "once": "one report",
    "once, 31 days": "31 days",
    "coin": "by coin",
    "basic": "365 basic",
    "optimal": "365 optimal",
}


def lifetime_command(
    devices: Annotated[
        list[int] | None, typer.Option(help="Fleet's size; may be repeated.", show_default="1000000, 100000")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer days of 20,000 devices.")] = False,
    seed: Annotated[int | None, typer.Option(help="Repeat a run exactly.", min=0)] = None,
    plot: Annotated[Path | None, typer.Option(help="Write the plot (PNG, PDF or SVG).")] = None,
    table: Annotated[Path | None, typer.Option("--csv", help="Write the table as CSV.")] = None,
    as_json: AsJson = False,
) -> None:
    """Study a life of reports: few large against many small ones, predicted and measured."""
    fleets = tuple(devices) if devices else (20_000,) if quick else FLEETS
    if min(fleets) < 10_000 or max(fleets) > 10_000_000:
        raise PlanError(f"the study draws fleets of 10,000 to 10,000,000 devices, not {min(fleets):,}")
    if plot and plot.suffix.lower() not in (".png", ".pdf", ".svg"):
        raise PlanError(f"a plot is a .png, .pdf or .svg file, not {plot}")
    with Progress(console=show.err, transient=True, disable=as_json) as bar:

        def follow(steps: Iterator[None]) -> None:
            for _ in bar.track(steps, total=len(fleets) * len(LIFETIMES) * len(WAYS), description="drawing"):
                pass

        study = run(fleets, quick, seed, follow)
    if table:
        _write_csv(table, study)
    if plot:
        from ...simulator.studies.lifetime_plot import plot_study

        plot_study(plot, study)
    if as_json:
        print_json(study.to_dict())
        return
    for count in fleets:
        _show_cells(count, [cell for cell in study.cells if cell.devices == count])
    _show_splits(study)
    for use in study.uses:
        show.out.print(
            f"budget of {use.reports} reports, {use.reports} × every calls:"
            f" {use.predicted:.1%} used, measured {use.measured:.1%}"
        )
    for path in (table, plot):
        if path:
            show.out.print(f"written: {path}")


def _write_csv(path: Path, study: LifetimeStudy) -> None:
    rows = [cell.to_dict() for cell in study.cells]
    try:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    except OSError as e:
        raise PlanError(f"cannot write {path}: {e.strerror}") from None


def _show_cells(devices: int, cells: list[LifetimeCell]) -> None:
    show.out.print(
        f"\n{devices:,} devices, 365 days, 64 values: RMSE of a day's frequencies, in %", style="bold"
    )
    table = show.table()
    table.add_column("ε for life")
    table.add_column("")
    for way in WAYS:
        table.add_column(_HEADINGS[way], justify="right")
    for lifetime in LIFETIMES:
        row = {cell.way: cell for cell in cells if cell.lifetime == lifetime}
        table.add_row(f"{lifetime:g}", "predicted", *(f"{100 * row[way].predicted:.3g}" for way in WAYS))
        table.add_row("", "measured", *(f"{100 * row[way].measured:.3g}" for way in WAYS))
    show.out.print(table)
    worst = max(cells, key=lambda cell: abs(cell.off))
    show.out.print(
        f"  measured is off by at most {abs(worst.off):.1%} (its own standard error"
        f" {worst.uncertainty / worst.measured:.1%}); optimal composition at δ = {DELTA:g}"
    )


def _show_splits(study: LifetimeStudy) -> None:
    cases = len(study.splits)
    best = [s for s in study.splits if s.best == 1]
    show.out.print(f"\none report is the best of 1, 2, 3, 4 in {len(best)} of {cases} cases", style="bold")
    for s in study.splits:
        if s.best != 1:
            gain = 1 - min(s.relative)
            show.out.print(
                f"  not for ε {s.lifetime:g}, {s.domain} values, {s.kind}: {s.best} gain {gain:.0%}"
            )
