"""`hushmote flash`: the command for a board on the desk."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from ..server.answers import tables as show
from ..server.provisioning.flash import flash
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
            help="A further mechanism for it: a word such as sw, your my_channel.py or package.module:Class. "
            "Repeat it for several.",
            show_default=False,
        ),
    ] = None,
    umqtt: Annotated[
        Path | None, typer.Option(help="A umqtt/simple.py, where the firmware has none.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Put Hushmote on a board over USB; a ledger that is there is never overwritten."""
    done = flash(
        port,
        settings,
        source=source,
        provision_again=provision_again,
        main=main,
        umqtt=umqtt,
        further=further or (),
        say=(lambda _line: None) if as_json else (lambda line: show.out.print(line, soft_wrap=True)),
    )
    if as_json:
        print_json(dataclasses.asdict(done))
