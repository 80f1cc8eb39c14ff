"""`hushmote simulate`: simulate a fleet before it is built."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from ...planning.written_numbers import ReadingRules
from ...server.errors import UsageError
from ..options import (
    AsJson,
    DecimalSeparator,
    ExperimentFile,
    KeepValue,
    Privacy,
    Verbose,
    WorkersOption,
    check_exists,
)
from ..output import CsvDialectOption, describe_suffixes, output_option
from .options import CONVERGENCE, SUFFIXES, SimulateOptions

DATA = (".csv", ".tsv", ".txt", ".gz")
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
            help="Distribution of readings: normal:21:3, zipf:1.2, uniform:0:40, weights:1:2:7; for texts "
            "zipf:1:FILE; from data file:FILE:COLUMN; for pairs file:FILE.",
            show_default="by the experiment's type",
        ),
    ] = None,
    keep_value: KeepValue = None,
    decimal: DecimalSeparator = None,
    calls: Annotated[
        float | None,
        typer.Option(
            help="Number of calls to report() per device; with --to, per day.",
            show_default="until its budget is spent; with --to, 2/3 of it",
        ),
    ] = None,
    ranges: Annotated[
        list[str] | None, typer.Option("--range", help="low:high in the reading's unit, a label, or a text.")
    ] = None,
    quantiles: Annotated[list[float] | None, typer.Option("--quantile", help="Between 0 and 1.")] = None,
    rows: Annotated[
        int | None,
        typer.Option(help="Maximum number of rows in a number's histogram.", min=1, show_default="16"),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Seed that makes a run repeatable; by default every run differs.", min=0),
    ] = None,
    output: Annotated[
        list[Path] | None,
        output_option(
            f"{describe_suffixes(*SUFFIXES)}. {CONVERGENCE}.png shows the estimates as reports arrive"
        ),
    ] = None,
    csv_dialect: CsvDialectOption = "plain",
    faithful: Annotated[
        bool, typer.Option("--faithful", help="Run the real client on every device.")
    ] = False,
    faults: Annotated[
        list[str] | None,
        typer.Option(
            "--fault",
            help="Fault in real clients: offline or reboot (chance per call), duplicate (chance per "
            "report), late (share of devices that send only at the end).",
            metavar="NAME=CHANCE",
        ),
    ] = None,
    attack: Annotated[
        str | None,
        typer.Option(
            help="Kind and share of reports from fake devices: random:SHARE, promote:VALUE:SHARE, "
            "shift:LOW:HIGH:SHARE or flood:VALUE:SHARE (one code)."
        ),
    ] = None,
    groups: Annotated[
        list[str] | None,
        typer.Option(
            "--group",
            help="Share of devices with a value of the open group; with --to, a share for each stage of a "
            "rollout: 2.4.0=0.01,0.05,0.25,1. All others have the newest other value.",
            metavar="VALUE=SHARE",
            show_default="the last value is rolled out",
        ),
    ] = None,
    shifts: Annotated[
        list[str] | None,
        typer.Option(
            "--shift",
            help="Change of the readings on devices with this value of the open group, as for --drift.",
            metavar="VALUE=CHANGE",
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            help="Write several days of reports to a store with this SQLAlchemy URL.", metavar="URL"
        ),
    ] = None,
    days: Annotated[
        int | None,
        typer.Option(help="Number of full days before today, UTC.", show_default="30"),
    ] = None,
    fleet: Annotated[
        str | None,
        typer.Option(help="Name of the fleet; must begin with sim.", show_default="simulated"),
    ] = None,
    drift: Annotated[
        float | None,
        typer.Option(
            help="Daily change of readings; for labels, the share that changes to yes or to the first label.",
            show_default="1/8 of the range in all",
        ),
    ] = None,
    workers: WorkersOption = None,
    privacy: Privacy = False,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Simulate a fleet before it is built and compare its estimates with the truth.

    With --to, write the reports of several days to a store, for estimate --trend, ledger and status.
    """
    check_exists(file)
    if file.suffix.lower() in DATA:
        from ...planning.proposal import column_of

        name = shlex.quote(f"{file}:{column_of(file)}")
        raise UsageError(f"{file} is data, not an experiment's file; try hushmote plan --input {name}")
    from .run import run  # imported lazily so that usage errors are fast

    run(
        SimulateOptions(
            file=file,
            devices=devices,
            population=population,
            rules=ReadingRules(tuple(keep_value or ()), decimal or ""),
            calls=calls,
            ranges=ranges,
            quantiles=quantiles,
            rows=rows,
            seed=seed,
            output=output,
            csv_dialect=csv_dialect,
            faithful=faithful,
            faults=faults,
            attack=attack,
            groups=groups,
            shifts=shifts,
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
