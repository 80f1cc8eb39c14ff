"""`hushmote demo`: real readings, a real broker, a whole fleet."""

from __future__ import annotations

import enum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from ..server.errors import UsageError
from ..server.ingest.broker_url import NatsAddress
from ..simulator import demo, live_demo
from ..simulator.stage import Place
from .broker import settings
from .options import AsJson, print_json
from .progress import progress


class FlightQuestion(enum.StrEnum):
    """What is asked of flights instead of temperatures."""

    mean = "mean"
    pairs = "pairs"
    labels = "labels"


def demo_command(
    broker: Annotated[
        str,
        typer.Option(
            help="auto (mosquitto where it is installed), embedded, mosquitto, nats (three servers, of which "
            "one dies), or what runs: mqtt://[user@]host[:1883], nats://[user@]host[:4222],host,...",
        ),
    ] = "auto",
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Folder for the plots, the store and the log.")
    ] = Path("out"),
    question: Annotated[
        FlightQuestion | None,
        typer.Option(
            help="Ask about flights: their mean delay, late airlines, or where they go, without a list.",
            show_default=False,
        ),
    ] = None,
    devices: Annotated[
        int | None,
        typer.Option(
            help="Number of readings to use, of 26,115 (else all), or of flights, of 327,346 (else 20,000).",
            show_default=False,
        ),
    ] = None,
    page: Annotated[
        bool,
        typer.Option("--page", help="Keep reporting, and show it in a browser, until Ctrl-C."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Watch thousands of devices report real readings through a real broker, and see what is learned.

    With --page devices keep reporting, and a page shows what is learned as reports arrive.
    """
    where = settings(broker).address() if "://" in broker else broker
    if (broker == "nats" or isinstance(where, NatsAddress)) and find_spec("nats") is None:
        raise UsageError("a demo on NATS needs more: pip install 'hushmote[cluster]'")
    if not page:
        asked = demo.TEMPERATURES if question is None else question.value
        outcome = demo.run(Place(where, out, as_json, progress), devices, asked)
        print_json(outcome.to_dict()) if as_json else demo.show_outcome(outcome)
        return
    if question is not None:
        raise UsageError("the page shows the demo without --question: leave one of them out")
    if find_spec("nicegui") is None:
        raise UsageError("the page needs NiceGUI: pip install 'hushmote[page]', or make page in a clone")
    live_demo.run(Place(where, out, True, progress), _opened)


def _opened(live: live_demo.Opened) -> None:
    """Tell somebody where to look."""
    print(f"broker    {live.broker}")
    if live.servers:
        print(f"servers   processes {', '.join(map(str, live.servers))}: kill any one, and reports go on")
    print(f"boards    {live_demo.PER_S:g} of fleet airports report each second")
    print(f"page      {live.page}   <- open this; Ctrl-C ends it", flush=True)
