"""`hushmote study ...`: simulations that a planner can repeat, each with its theory beside it."""

from __future__ import annotations

import csv
import time
from pathlib import Path
from typing import Annotated

import typer

from ..server.accounting import AccountingError
from ..server.answers import tables as show
from ..server.answers.files import output_folder
from ..server.epsilon import MICRO, check_epsilon, micro_nats
from ..server.errors import refusing
from ..server.planning.devices import PlanError
from ..simulator.workers import workers
from ..studies.composition import FEW, TUTORIAL, Composition, fails
from ..studies.composition import study as run_composition
from ..studies.lifetime import DELTA, FLEETS, LIFETIMES, WAYS, LifetimeCell, LifetimeStudy
from ..studies.lifetime import run as run_lifetime
from ..studies.ranges_design import StudyError
from ..studies.reconstruction import Reconstruction, words
from ..studies.reconstruction import study as run_reconstruction
from . import tables
from .options import AsJson, print_json
from .output import PICTURES, Force, Pictures, checked, output_option
from .progress import progress
from .study_scale import arrival_command, scale_command
from .workers import DaskUrl, WorkerCount

study_app = typer.Typer(help="Studies: simulations with their theory beside them.", no_args_is_help=True)
study_app.command("scale")(scale_command)
study_app.command("arrival")(arrival_command)

_OWN = "Your own records"
_HEADINGS = {
    "once": "one report",
    "once, 31 days": "31 days",
    "coin": "by coin",
    "basic": "365 basic",
    "optimal": "365 optimal",
}


@study_app.command("ranges")
def ranges(
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Folder for the figures and the CSV files.")
    ] = Path("study"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer days, ε and fanouts: takes seconds instead of minutes.")
    ] = False,
    records: Annotated[
        Path | None,
        typer.Option(
            "--input",
            help="CSV file of your own records, a row each. A day without one counts as 0.",
            rich_help_panel=_OWN,
        ),
    ] = None,
    time_column: Annotated[
        str | None,
        typer.Option(
            "--time", metavar="COLUMN", help="The column of dates or timestamps.", rich_help_panel=_OWN
        ),
    ] = None,
    value: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="A column that says how many records a row stands for; else each row is one.",
            rich_help_panel=_OWN,
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="A column to choose rows by, with --only.", rich_help_panel=_OWN),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(help="The text that the column of --by must have.", rich_help_panel=_OWN),
    ] = None,
    asked: Annotated[
        list[str] | None,
        typer.Option(
            "--range",
            metavar="DATE:DATE",
            help="Answer only this range, last day included: 2013-01-01:2013-01-31.",
        ),
    ] = None,
    epsilon: Annotated[float, typer.Option(help="With --range: ε of all answers together, in nats.")] = 1.0,
    seed: Annotated[
        int | None,
        typer.Option(help="Repeat a run exactly, with simulated noise; without it, OpenDP's.", min=0),
    ] = None,
    worker_count: WorkerCount = None,
    dask: DaskUrl = None,
    as_json: AsJson = False,
) -> None:
    """Errors of ranges over days: central and local, flat and hierarchy, beside what theory says."""
    # The numbers are quick to load, their figures are not: only this command waits for matplotlib.
    from ..studies import daily, ranges_report
    from ..studies.ranges import run
    from ..studies.ranges_asked import ask
    from ..studies.ranges_design import FULL, QUICK

    own = None
    if records is not None:
        if time_column is None:
            raise StudyError("--input FILE needs --time COLUMN, the column of dates or timestamps")
        own = daily.read_daily(records, time_column, value, by, only)
    elif time_column or value or by or only:
        raise StudyError("--time, --value, --by and --only are about a file: --input FILE")
    if asked:
        if worker_count is not None or dask is not None:
            raise StudyError("one range is answered in no time: leave --workers and --dask out")
        series = own or daily.flights()
        answers = ask(series, asked, epsilon, seed)
        if as_json:
            print_json({"epsilon": epsilon, "seed": seed, "ranges": [vars(one) for one in answers]})
        else:
            ranges_report.show_asked(answers, series, epsilon)
        return
    output_folder(out)
    start = time.monotonic()
    with workers(worker_count, dask, pool=True) as crew, progress("fitting structures", 1.0) as advance:
        study = run(QUICK if quick else FULL, seed, own, advance, crew)
    with progress("drawing figures", None):
        even = ranges_report.write(study, out)
    seconds = time.monotonic() - start
    if as_json:
        print_json(ranges_report.summary(study, even, out, seconds, seed))
    else:
        ranges_report.show_summary(study, even, out, seconds)


@study_app.command("lifetime")
def lifetime_command(
    devices: Annotated[
        list[int] | None,
        typer.Option(help="Number of devices of a fleet; may be repeated.", show_default="1000000, 100000"),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer days of 20,000 devices: takes seconds instead of minutes.")
    ] = False,
    seed: Annotated[int | None, typer.Option(help="Repeat a run exactly.", min=0)] = None,
    output: Annotated[list[Path] | None, output_option(".csv", *PICTURES)] = None,
    force: Force = False,
    worker_count: WorkerCount = None,
    dask: DaskUrl = None,
    as_json: AsJson = False,
) -> None:
    """Study a life of reports: few large against many small ones, predicted and measured."""
    fleets = tuple(devices) if devices else (20_000,) if quick else FLEETS
    if min(fleets) < 10_000 or max(fleets) > 10_000_000:
        raise PlanError(f"the study draws fleets of 10,000 to 10,000,000 devices, not {min(fleets):,}")
    paths = checked(output, force, ".csv", *PICTURES)
    with workers(worker_count, dask) as crew, progress("drawing fleets", 1.0) as advance:
        study = run_lifetime(fleets, quick, seed, advance, crew)
    for path in paths:
        if path.suffix.lower() == ".csv":
            _write_csv(path, study)
        else:
            from ..studies.plots import plot_study

            plot_study(path, study)
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
    _say_written(paths)


def _write_csv(path: Path, study: LifetimeStudy) -> None:
    rows = [cell.to_dict() for cell in study.cells]
    with refusing(PlanError, f"write {path}"), path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def _say_written(paths: tuple[Path, ...]) -> None:
    for path in paths:
        show.out.print(f"written: {path}", soft_wrap=True)


def _show_cells(devices: int, cells: list[LifetimeCell]) -> None:
    show.out.print(
        f"\n{devices:,} devices, 365 days, 64 values: RMSE of a day's frequencies, in %", style="bold"
    )
    table = tables.table(None, ("ε for life", "", *(_HEADINGS[way] for way in WAYS)), 2)
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


@study_app.command("reconstruction")
def reconstruction_command(
    epsilon: Annotated[
        float, typer.Option(help="ε of a question, and of what is drawn once, in nats.")
    ] = 0.2,
    seed: Annotated[
        int | None,
        typer.Option(help="Repeat a run exactly, with simulated noise; without it, OpenDP's.", min=0),
    ] = None,
    output: Pictures = None,
    force: Force = False,
    worker_count: WorkerCount = None,
    dask: DaskUrl = None,
    as_json: AsJson = False,
) -> None:
    """What many questions rebuild, of a curator who draws noise anew and of one who keeps it."""
    paths = checked(output, force, *PICTURES)
    check_epsilon(micro_nats(epsilon, StudyError), StudyError, shown=epsilon)
    with workers(worker_count, dask, pool=True) as crew, progress("asking questions", 1.0) as advance:
        study = run_reconstruction(epsilon, seed, progress=advance, workers=crew)
    for path in paths:
        from ..studies.reconstruction_plot import plot as plot_reconstruction

        plot_reconstruction(path, study)
    if as_json:
        print_json(study.to_dict())
        return
    _show_reconstruction(study)
    _say_written(paths)


def _show_reconstruction(study: Reconstruction) -> None:
    titles = {
        "records": f"{study.records} records, yes or no: share that is guessed right, %",
        "days": f"{study.days} days, {study.per_day:,.0f} records on average: RMS error of a count",
    }
    for target, title in titles.items():
        headings = ("noise and questions", "questions", "Σε", "measured", "theory")
        table = tables.table(title, headings, 1)
        scale, digits = (100, "{:.1f}") if target == "records" else (1, "{:,.2f}")
        for outcome in (o for o in study.outcomes if o.target == target):
            values = (scale * outcome.measured, scale * outcome.predicted)
            cells = (f"{outcome.questions:,}", f"{outcome.spent:,.1f}", *map(digits.format, values))
            table.add_row(words(outcome.attack), *cells)
        show.out.print(table)
        show.out.print()
    show.out.print(
        f"ε = {study.epsilon:g} in all lets nobody who knows nothing before get more than"
        f" {100 * study.allowed:.1f} % right.",
        soft_wrap=True,
    )


@study_app.command("composition")
def composition_command(
    epsilon: Annotated[float, typer.Option(help="ε of each release that an adversary sees, in nats.")] = 0.1,
    total: Annotated[float, typer.Option(help="Budget of all reports together, in nats.")] = 10.0,
    delta: Annotated[float, typer.Option(help="δ of (total, δ)-LDP, above 0.")] = 1e-6,
    output: Pictures = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """An adversary's view of 3 and of 3,000 releases; how many reports there are until a budget is spent."""
    paths = checked(output, force, *PICTURES)
    composition = run_composition(micro_nats(epsilon, AccountingError), total, delta)
    for path in paths:
        from ..studies.plots import plot_composition

        plot_composition(path, composition)
    if as_json:
        print_json(composition.to_dict())
        return
    _show_composition(composition)
    _say_written(paths)


def _show_composition(composition: Composition) -> None:
    epsilon = composition.views[0].epsilon / MICRO
    headings = ("releases", "Σε", "best guess is right", f"δ at a total of {composition.total:g}")
    table = tables.table(f"what an adversary sees, ε = {epsilon:g} per release", headings)
    for view in composition.views:
        delta = fails(view.epsilon, view.releases, composition.total)
        spent = view.epsilon / MICRO * view.releases
        table.add_row(f"{view.releases:,}", f"{spent:g}", f"{100 * view.right:.4g} %", f"{delta:.3g}")
    show.out.print(table)
    title = f"\nreports until the budget is spent: total {composition.total:g}, δ = {composition.delta:g}"
    table = tables.table(title, ("ε per report", "basic", "zCDP filter", "optimal", "advanced", "misprint"))
    for row in composition.spent:
        counts = (row.basic, row.zcdp, row.optimal, row.advanced, row.misprint)
        table.add_row(f"{row.epsilon / MICRO:g}", *(f"{x:,}" for x in counts))
    show.out.print(table)
    epsilon, reports, delta = TUTORIAL
    show.out.print(
        "\nbasic is ε-LDP, the next three are (ε, δ)-LDP, the misprint is no theorem: it is\n"
        "advanced composition as a tutorial prints it, without the factor ε before the\n"
        "root. What its numbers should be:",
        soft_wrap=True,
    )
    few, pays = composition.few, composition.pays
    title = f"\nthe tutorial's example: ε = {epsilon / MICRO:g}, δ' = {delta:g}"
    table = tables.table(title, ("", "basic", "theorem", "misprint"), 1)
    for k, right, wrong in (
        (FEW, few.advanced, few.misprint),
        (reports, composition.advanced, composition.misprint),
    ):
        table.add_row(f"k = {k} reports cost", f"{k * epsilon / MICRO:g}", f"{right:.3f}", f"{wrong:.3f}")
    table.add_row("cheaper than basic from k =", "", f"{pays.advanced:g}", f"{pays.misprint:g}")
    show.out.print(table)
