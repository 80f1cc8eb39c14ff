"""The options of `hushmote simulate`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ..options import AsJson, ExperimentFile, WhichWorkers
from ..output import PICTURES, by_name, output_option

WRITTEN = (".csv", ".json", *PICTURES)
CONVERGENCE = "convergence"


@dataclass(frozen=True)
class SimulateOptions:
    """What was asked for; None where it was left out."""

    file: ExperimentFile
    devices: Annotated[
        int | None,
        typer.Option(help="Number of devices.", min=2, show_default="100000"),
    ] = None
    population: Annotated[
        str | None,
        typer.Option(
            help="What devices hold: normal:21:3, zipf:1.2, uniform:0:40, weights:1:2:7; texts: "
            "zipf:1:FILE; readings: file:FILE:COLUMN; pairs: file:FILE.",
            show_default="by the experiment's type",
        ),
    ] = None
    calls: Annotated[
        float | None,
        typer.Option(
            help="Calls to report() by each device; with --to, each day.",
            show_default="until its budget is spent; with --to, 2/3 of it",
        ),
    ] = None
    ranges: Annotated[list[str] | None, "low:high in the reading's unit, a label, or a text.", "--range"] = (
        None
    )
    quantiles: Annotated[list[float] | None, "Between 0 and 1.", "--quantile"] = None
    rows: Annotated[int, typer.Option(help="Rows of a number's histogram at most.", min=1)] = 16
    seed: Annotated[
        int | None, typer.Option(help="Repeat a run exactly; without it every run differs.", min=0)
    ] = None
    output: Annotated[
        list[Path] | None,
        output_option(f"{by_name(*WRITTEN)}. {CONVERGENCE}.png shows the estimates as the reports come in"),
    ] = None
    faithful: Annotated[bool, "Run the real client on every device."] = False
    faults: Annotated[
        list[str] | None,
        "What happens to real clients: offline, reboot (chances of each call), duplicate (of each "
        "report), late (share of devices that send only at the end).",
        "--fault",
        "NAME=CHANCE",
    ] = None
    attack: Annotated[
        str | None,
        "What fake devices send, and their share: random:SHARE, promote:VALUE:SHARE, "
        "shift:LOW:HIGH:SHARE or flood:VALUE:SHARE (one code).",
    ] = None
    to: Annotated[
        str | None,
        "Write the reports of some days into a store, by its SQLAlchemy URL.",
        "URL",
    ] = None
    days: Annotated[
        int | None,
        typer.Option(help="Whole days before today, UTC.", show_default="30"),
    ] = None
    fleet: Annotated[
        str | None,
        typer.Option(help="A name that begins with sim.", show_default="simulated"),
    ] = None
    drift: Annotated[
        float | None,
        typer.Option(
            help="How far readings move a day; of labels, the share that turns to yes or the first one.",
            show_default="1/8 of the range in all",
        ),
    ] = None
    workers: WhichWorkers = None
    as_json: AsJson = False
