"""`hushmote demo`: real readings, a real broker, a whole fleet."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..simulator import demo
from .broker import PANEL, PasswordFile, broker_address
from .options import AsJson, print_json
from .progress import progress


def demo_command(
    broker: Annotated[
        str,
        typer.Option(
            help="auto (mosquitto where it is installed), embedded, mosquitto, or a broker that runs: "
            "mqtt://[user@]host[:1883].",
            rich_help_panel=PANEL,
        ),
    ] = "auto",
    password_file: PasswordFile = None,
    out: Annotated[Path, typer.Option(help="Folder for the plots, the store and the log.")] = Path("out"),
    devices: Annotated[
        int | None,
        typer.Option(help="How many of the 26,115 readings are used; else all.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Watch thousands of devices report real readings through a real broker, and what is learned of them."""
    where = broker_address(broker, password_file, typed=True) if "://" in broker else broker
    outcome = demo.run(where, out, devices, quiet=as_json, progress=progress)
    if as_json:
        print_json(outcome.to_dict())
    else:
        demo.show_outcome(outcome)
