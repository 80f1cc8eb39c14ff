"""`hushmote simulate`: simulate a fleet before it is built."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from ...server.errors import UsageError
from ..options import AsJson, ExperimentFile, Privacy, Verbose, WorkersOption, check_exists
from ..output import describe_suffixes, output_option
from .options import CONVERGENCE, SUFFIXES, SimulateOptions

DATA = (".csv", ".tsv", ".txt")
"""Suffixes of files with readings."""


def simulate_command(  # noqa: PLR0913 - one for each option
    file: ExperimentFile,
    devices: Annotated[
        int | None,
        typer.Option(help="Number of devices.", min=2, show_default="100000"),
    ] = None,
    population: Annotated[
        str | None,
        typer.Option(
            help="What devices hold: normal:21:3, zipf:1.2, uniform:0:40, weights:1:2:7; texts: "
            "zipf:1:FILE; readings: file:FILE:COLUMN; pairs: file:FILE.",
            show_default="by the experiment's type",
        ),
    ] = None,
    calls: Annotated[
        float | None,
        typer.Option(
            help="Calls to report() by each device; with --to, each day.",
            show_default="until its budget is spent; with --to, 2/3 of it",
        ),
    ] = None,
    ranges: Annotated[
        list[str] | None, typer.Option("--range", help="low:high in the reading's unit, a label, or a text.")
    ] = None,
    quantiles: Annotated[list[float] | None, typer.Option("--quantile", help="Between 0 and 1.")] = None,
    rows: Annotated[int, typer.Option(help="Rows of a number's histogram at most.", min=1)] = 16,
    seed: Annotated[
        int | None, typer.Option(help="Repeat a run exactly; without it every run differs.", min=0)
    ] = None,
    output: Annotated[
        list[Path] | None,
        output_option(
            f"{describe_suffixes(*SUFFIXES)}. {CONVERGENCE}.png shows the estimates as the reports come in"
        ),
    ] = None,
    faithful: Annotated[
        bool, typer.Option("--faithful", help="Run the real client on every device.")
    ] = False,
    faults: Annotated[
        list[str] | None,
        typer.Option(
            "--fault",
            help="What happens to real clients: offline, reboot (chances of each call), duplicate (of each "
            "report), late (share of devices that send only at the end).",
            metavar="NAME=CHANCE",
        ),
    ] = None,
    attack: Annotated[
        str | None,
        typer.Option(
            help="What fake devices send, and their share: random:SHARE, promote:VALUE:SHARE, "
            "shift:LOW:HIGH:SHARE or flood:VALUE:SHARE (one code)."
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            help="Write the reports of some days into a store, by its SQLAlchemy URL.", metavar="URL"
        ),
    ] = None,
    days: Annotated[
        int | None,
        typer.Option(help="Whole days before today, UTC.", show_default="30"),
    ] = None,
    fleet: Annotated[
        str | None,
        typer.Option(help="A name that begins with sim.", show_default="simulated"),
    ] = None,
    drift: Annotated[
        float | None,
        typer.Option(
            help="How far readings move a day; of labels, the share that turns to yes or the first one.",
            show_default="1/8 of the range in all",
        ),
    ] = None,
    workers: WorkersOption = None,
    privacy: Privacy = False,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Simulate a fleet before it is built, and compare its estimates with the truth.

    With --to the fleet's reports of the last days go into a store, for estimate --trend, ledger, status.
    """
    check_exists(file)
    if file.suffix.lower() in DATA:
        from ...planning.proposal import column_of

        name = shlex.quote(f"{file}:{column_of(file)}")
        raise UsageError(f"{file} is data, not an experiment's file: hushmote plan --input {name}")
    from .run import run  # imported here so that usage errors are fast

    run(
        SimulateOptions(
            file=file,
            devices=devices,
            population=population,
            calls=calls,
            ranges=ranges,
            quantiles=quantiles,
            rows=rows,
            seed=seed,
            output=output,
            faithful=faithful,
            faults=faults,
            attack=attack,
            to=to,
            days=days,
            fleet=fleet,
            drift=drift,
            workers=workers,
            privacy=privacy,
            verbose=verbose,
            as_json=as_json,
        )
    )
