"""`hushmote check-mechanism`: what every mechanism must keep, looked at for one of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..server.answers import tables as show
from ..server.errors import HushmoteError, UsageError
from ..server.experiments.definition import load
from ..simulator.contract.check import Property, check
from .audit import Audit, audit
from .options import AsJson, print_json

_WORDS = {True: "holds", False: "FAILS", None: "not looked at"}


class PropertyBroken(HushmoteError):
    """A mechanism that must not be used; the text names what it does not keep."""


def check_mechanism_command(
    mechanism: Annotated[
        str | None,
        typer.Argument(
            help="A word such as olh, package.module:Class, looked for in this folder too, or an "
            "experiment's TOML file; with --samples or --port one of each where it is left out.",
            show_default=False,
        ),
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(
            min=100, help="Instead, run it so often on each of two inputs: lower bounds of ε by counting."
        ),
    ] = None,
    port: Annotated[
        str | None,
        typer.Option(help="Instead, so on a board at this serial port, with what is installed there."),
    ] = None,
    runtime: Annotated[
        str | None,
        typer.Option(
            help="Where samples are drawn: cpython, all, unix32f, mp32, path, wasm, env, a command line. "
            "For the proof: a MicroPython to compare codes with, else one of this machine's.",
            show_default=False,
        ),
    ] = None,
    client: Annotated[
        Path | None,
        typer.Option(help="With --samples: another ldp_client.py than the shipped one.", show_default=False),
    ] = None,
    confidence: Annotated[
        float, typer.Option(help="Confidence in all the bounds together, from 0.5 to below 1.")
    ] = 0.95,
    as_json: AsJson = False,
) -> None:
    """Prove a mechanism's ε by its every branch, and check all else it must keep. Exit 1 if it fails.

    With --samples or --port the shipped randomizer runs instead, and counts of what comes out bound ε from
    below. Exit 1 if a bound is above the nominal ε.
    """
    if samples or port:
        audit(Audit(mechanism, samples, port, runtime or "cpython", client, confidence), as_json)
        return
    if mechanism is None:
        raise UsageError("name a mechanism to prove, or give --samples to draw from one of each")
    if client is not None:
        raise UsageError("--client is for samples: add --samples")
    if mechanism.endswith(".toml"):
        mechanism = load(Path(mechanism)).experiment().mechanism
    found: list[Property] = []
    for one in check(mechanism, runtime):
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
