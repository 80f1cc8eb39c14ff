"""`hushmote demo`: real readings, a real broker, a whole fleet."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..simulator import demo
from .options import AsJson, print_json


def demo_command(
    broker: Annotated[
        str,
        typer.Option(help="auto (mosquitto where it is installed), embedded, mosquitto, or mqtt://host:port"),
    ] = "auto",
    out: Annotated[Path, typer.Option(help="Folder for the plots, the store and the log.")] = Path("out"),
    devices: Annotated[int | None, typer.Option(help="How many of the 26,115 readings are used.")] = None,
    as_json: AsJson = False,
) -> None:
    """Watch thousands of devices report real readings through a real broker, and what is learned of them."""
    outcome = demo.run(broker, out, devices, quiet=as_json)
    if as_json:
        print_json(outcome.to_dict())
    else:
        demo.show_outcome(outcome)
