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
        typer.Argument(
            help="The board's serial port: /dev/ttyACM0, COM3, or the port that `hushmote board` prints."
        ),
    ],
    settings: Annotated[
        Path, typer.Argument(help="The board's settings file, written by `hushmote provision device`.")
    ],
    source: Annotated[
        bool, typer.Option("--source", help="Copy .py files instead of compiled ones, which load faster.")
    ] = False,
    provision_again: Annotated[
        bool,
        typer.Option(
            "--provision-again", help="Create a new, empty ledger, which restarts the board's privacy bound."
        ),
    ] = False,
    main: Annotated[
        Path | None,
        typer.Option(help="Application to install on the board as main.py instead of the example."),
    ] = None,
    further: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            help="Additional mechanism to install: a name such as sw, your my_channel.py or "
            "package.module:Class; or a umqtt/simple.py if the firmware lacks one. May be repeated.",
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="The people at the board have agreed to take part; do not ask.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Put Hushmote on a board over USB; an existing ledger is kept."""
    result = flash(
        port,
        settings,
        Load(source, provision_again, main, further or (), yes),
        ask=_ask,
        say=(lambda _line: None) if as_json else (lambda line: show.out.print(line, soft_wrap=True)),
    )
    if as_json:
        print_json(dataclasses.asdict(result))


def _ask() -> bool:
    """Ask whether the people at the board agree to take part; without a terminal, return False."""
    if not sys.stdin.isatty():
        return False
    return typer.confirm("Do the people whom this board measures agree to take part?", err=True)
