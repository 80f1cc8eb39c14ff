"""`hushmote study ...`: simulations that a planner can repeat, each with its theory beside it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from ...server.answers import tables as show
from ...server.answers.files import output_folder
from ..options import AsJson, print_json
from .composition import composition_command
from .lifetime import lifetime_command

study_app = typer.Typer(help="Studies: simulations with their theory beside them.", no_args_is_help=True)


@study_app.command("ranges")
def ranges(
    out: Annotated[Path, typer.Option(help="Folder for the figures and the CSV files.")] = Path("study"),
    quick: Annotated[bool, typer.Option("--quick", help="Fewer days, ε and fanouts: seconds.")] = False,
    csv: Annotated[
        str | None, typer.Option(help="FILE:DATE:COUNT, your own daily counts; gaps count as 0.")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Repeat a run exactly, with simulated noise; without it, OpenDP's.", min=0),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Errors of ranges over days: central and local, flat and hierarchy, beside what theory says."""
    # The numbers are quick to load, their figures are not: only this command waits for matplotlib.
    from ...simulator.studies import daily, ranges_report
    from ...simulator.studies.ranges import run
    from ...simulator.studies.ranges_design import FULL, QUICK

    own = daily.parse_source(csv) if csv is not None else None
    output_folder(out)
    start = time.monotonic()
    columns = (TextColumn("{task.description}"), BarColumn(40), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=show.err, disable=as_json) as progress:
        task = progress.add_task("fitting structures", total=1.0)
        study = run(QUICK if quick else FULL, seed, own, lambda share: progress.update(task, completed=share))
        progress.update(task, description="drawing figures", total=None)
        ranges_report.write(study, out)
    seconds = time.monotonic() - start
    if as_json:
        print_json(ranges_report.summary(study, out, seconds, seed))
    else:
        ranges_report.show_summary(study, out, seconds)


study_app.command("lifetime")(lifetime_command)
study_app.command("composition")(composition_command)
