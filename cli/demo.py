"""`hushmote demo`: real readings, a real broker, a whole fleet."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from ..server.errors import UsageError
from ..simulator import demo, live_demo
from ..simulator.demo_fleet import Place
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
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Folder for the plots, the store and the log.")
    ] = Path("out"),
    devices: Annotated[
        int | None,
        typer.Option(help="How many of the 26,115 readings are used; else all.", show_default=False),
    ] = None,
    page: Annotated[
        bool,
        typer.Option("--page", help="Go on reporting, and look at it in a browser, until Ctrl-C."),
    ] = False,
    http: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where that page listens.")
    ] = "127.0.0.1:9419",
    as_json: AsJson = False,
) -> None:
    """Watch thousands of devices report real readings through a real broker, and what is learned of them.

    With --page boards go on reporting, and a page shows what is learned as it comes in.
    """
    where = broker_address(broker, password_file, typed=True) if "://" in broker else broker
    if page:
        if find_spec("nicegui") is None:
            raise UsageError("the page needs NiceGUI: pip install 'hushmote[page]', or make page in a clone")
        live_demo.run(where, out, http, _opened, progress)
    outcome = demo.run(Place(where, out, as_json, progress), devices)
    if as_json:
        print_json(outcome.to_dict())
    else:
        demo.show_outcome(outcome)


def _opened(live: live_demo.Opened) -> None:
    """Tell somebody where to look."""
    print(f"broker    {live.broker}")
    print(f"boards    {live_demo.PER_S:g} of fleet airports report each second")
    print(f"page      {live.page}   <- open this; Ctrl-C ends it", flush=True)
