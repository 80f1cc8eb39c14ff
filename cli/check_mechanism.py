"""`hushmote check-mechanism`: what every mechanism must keep, looked at for one of them."""

from __future__ import annotations

from typing import Annotated

import typer

from ..server.answers import tables as show
from ..server.errors import HushmoteError
from ..simulator.contract.check import Property, check
from .options import AsJson, print_json

_WORDS = {True: "holds", False: "FAILS", None: "not looked at"}


class PropertyBroken(HushmoteError):
    """A mechanism that must not be used; the text names what it does not keep."""


def check_mechanism_command(
    mechanism: Annotated[
        str,
        typer.Argument(help="package.module:Class, looked for in this folder too; or a word such as olh."),
    ],
    micropython: Annotated[
        str | None,
        typer.Option(
            help="A MicroPython to compare codes with; else one of this machine's.", show_default=False
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Prove a mechanism's ε by its every branch, and check all else it must keep. Exit 1 if it fails."""
    found: list[Property] = []
    for one in check(mechanism, micropython):
        found.append(one)
        if not as_json:
            style = "red" if one.holds is False else ""
            show.out.print(f"{one.name:<10}  {_WORDS[one.holds]}: {one.words}", style=style, soft_wrap=True)
    broken = [one.name for one in found if one.holds is False]
    if as_json:
        print_json(
            {"mechanism": mechanism, "holds": not broken, "properties": [one.to_dict() for one in found]}
        )
    if broken:
        raise PropertyBroken(f"{mechanism} must not be used: it fails {', '.join(broken)}")
