"""`hushmote flash`: install Hushmote on a board over USB."""

import dataclasses
import sys
from pathlib import Path
from typing import Annotated

import typer

from ..fleet.provisioning.flash import Load, flash
from ..server.answers import tables as show
from .options import AsJson, print_json


def flash_command(
    port: Annotated[
        str,
        typer.Argument(help="The board's serial port: /dev/ttyACM0, COM3, or what `hushmote board` says."),
    ],
    settings: Annotated[
        Path, typer.Argument(help="The board's settings file, which `hushmote provision device` wrote.")
    ],
    source: Annotated[
        bool, typer.Option("--source", help="Copy .py files instead of compiled ones, which load faster.")
    ] = False,
    provision_again: Annotated[
        bool,
        typer.Option(
            "--provision-again", help="Make a new, empty ledger: the board's privacy bound starts again."
        ),
    ] = False,
    main: Annotated[
        Path | None,
        typer.Option(help="An application to put on the board as main.py, instead of the example."),
    ] = None,
    further: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            help="A further mechanism for it: a word such as sw, your my_channel.py or package.module:Class; "
            "or a umqtt/simple.py, where the firmware has none. Repeat it for several.",
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="The people at the board have agreed to take part; do not ask.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Put Hushmote on a board over USB; a ledger that is there is kept."""
    done = flash(
        port,
        settings,
        Load(source, provision_again, main, further or (), yes),
        ask=_ask,
        say=(lambda _line: None) if as_json else (lambda line: show.out.print(line, soft_wrap=True)),
    )
    if as_json:
        print_json(dataclasses.asdict(done))


def _ask() -> bool:
    """Ask whether the people at the board take part; without a terminal the answer is no."""
    if not sys.stdin.isatty():
        return False
    return typer.confirm("Do the people whom this board measures agree to take part?", err=True)
