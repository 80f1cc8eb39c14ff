"""`hushmote mechanisms`: what there is for a question, its error and its cost, beside what is not here."""

import math
from typing import Annotated, Literal

import typer

from ...server.epsilon import MICRO
from ...server.errors import UsageError
from .. import output
from ..options import AsJson, print_json

_VALUES, _MOST_VALUES = 64, 1 << 20
_MOST_DEVICES = 1 << 40


def mechanisms_command(
    values: Annotated[
        int | None,
        typer.Option(
            help="Number of values that a reading can have; with --for labels: slots.",
            show_default="64; 65,536 slots",
        ),
    ] = None,
    epsilon: Annotated[float, "ε of a report, nats."] = 1.0,
    asked: Annotated[
        Literal["frequency", "range", "quantile", "mean", "labels", "pairs"] | None,
        "The question; else all of them.",
        "--for",
    ] = None,
    devices: Annotated[int, "Devices, each with one report."] = 100_000,
    own: Annotated[
        list[str] | None, "One of your own to list with them: package.module:Class.", "NAME"
    ] = None,
    plot: output.Pictures = None,
    as_json: AsJson = False,
) -> None:
    """List the mechanisms: the questions each answers, its error and its cost.

    Published ones that are not here stand beside them, with errors from their formulas, and the reason.
    Errors of single values are for a value that nobody holds; those of ranges, quantiles and means are for
    values that are equally common. The mechanism "auto" of an experiment file is chosen by them.
    """
    if values is not None and not 2 <= values <= _MOST_VALUES:
        raise UsageError(f"--values must be from 2 to {_MOST_VALUES}, not {values}")
    if not math.isfinite(epsilon) or not 0.001 <= epsilon <= 16:
        raise UsageError(f"--epsilon must be from 0.001 to 16, not {epsilon:g}")
    if not 2 <= devices <= _MOST_DEVICES:
        raise UsageError(f"--devices must be from 2 to {_MOST_DEVICES}, not {devices}")
    paths = output.checked(plot, *output.PICTURES)

    from ...planning.listing import ASKED, SLOTS, besides, listing
    from ...server.answers import tables as show  # only now: help needs no NumPy
    from . import tables

    labels = asked == "labels"
    if labels and values is not None and values & (values - 1):
        raise UsageError(f"--values of labels are slots, a power of 2 such as {SLOTS}, not {values}")
    listings = [
        listing(
            word,
            (values if labels else None) or SLOTS if word == "labels" else values or _VALUES,
            round(epsilon * MICRO),
            tuple(own or ()),
        )
        for word in ([asked] if asked else ASKED)
    ]
    for path in paths:
        from .plot import plot_mechanisms  # matplotlib takes a second to load

        plot_mechanisms(path, listings[0], devices)
    if as_json:
        about: dict[str, object] = {"epsilon": epsilon, "devices": devices}
        about["questions"] = [tables.plain(one, devices) for one in listings]
        about["besides"] = besides(listings, own or ())
        print_json(about)
        return
    if asked:
        tables.question(listings[0], devices)
    else:
        tables.all_questions(listings, besides(listings, own or ()), devices)
    for path in paths:
        show.out.print(f"wrote {path}")
