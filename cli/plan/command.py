"""`hushmote plan`: plan an experiment, or how to spend a lifetime budget."""

import dataclasses
import inspect
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer

from ...planning.request import OTHER_NAMES, PlanRequest
from ...planning.written_numbers import ReadingRules
from ...server.errors import UsageError
from ..options import AsJson, DecimalSeparator, KeepValue, keyword, set_parameters
from ..output import output_option

_Input = Annotated[
    str | None,
    typer.Option(
        help="Derive the range, bins and unit, the labels, or yes and no from the readings in a CSV file, "
        "and simulate the plan on them.",
        metavar="FILE:COLUMN",
    ),
]
_Files = Annotated[
    list[Path] | None, output_option("the experiment as .toml, a picture as .png, .pdf or .svg")
]


_Release = Annotated[
    bool,
    typer.Option(
        "--release",
        help="Plan a rollout: the reports and days that a verdict on a release takes, and the rises that a "
        "stage of 5%, 25% or 50% of --devices can detect. --share is the old version's. Defaults: "
        "--share 0.05, --epsilon 2, --lifetime 8, --horizon 5y, --call 14d.",
    ),
]
_Questions = Annotated[
    list[str] | None,
    typer.Option(
        "--question",
        help="Plan a set of questions that share a device's budget: std:NAME of `hushmote questions`, or an "
        "experiment's file. May be repeated. Needs --devices. Defaults: --lifetime 8, --horizon 5y, "
        "--call 1h.",
        metavar="QUESTION",
    ),
]
_Pack = Annotated[
    str | None, typer.Option(help="Plan the questions of a pack: release, radio or power.", metavar="NAME")
]
_Rise = Annotated[
    float | None, typer.Option(help="With --release: rise to detect, such as 0.03 for 3 points.")
]
_WorseBy = Annotated[
    float | None, typer.Option(help="With --release: accepted rise, as in the experiment; default: 0.02.")
]
_Days = Annotated[int | None, typer.Option(help="With --release: days of a stage; default: 14.")]
_Every = Annotated[
    int | None,
    typer.Option(help="With --release: 1 in this many calls on the old version makes a report; default: 1."),
]


def plan_command(
    input: str | None,
    output: list[Path] | None,
    release: bool,
    rise: float | None,
    worse_by: float | None,
    days: int | None,
    every: int | None,
    as_json: bool,
    **fields: Any,
) -> None:
    """Plan an experiment: devices, ε, error, and how to spend a lifetime budget.

    Give three of devices, ε, values and error to get the fourth. With --lifetime, --horizon and --call
    instead of --epsilon, show how to spend a lifetime budget, and how precise a day, a week and 30 days
    will be. With --pack or --question, show how precise several questions are in a quarter of a year if they
    share a budget. Without options, print worked examples.
    """
    from .run import run, run_release, run_set  # imported here so that usage errors are fast

    rules = ReadingRules(tuple(fields.pop("keep_value") or ()), fields.pop("decimal") or "")
    if input is None and rules != ReadingRules():
        name = "--keep-value" if rules.keep else "--decimal"
        raise UsageError(f"{name} says how to read --input: add --input FILE:COLUMN, or omit {name}")
    questions, pack = fields.pop("question") or [], fields.pop("pack")
    values = {"rise": rise, "margin": worse_by, "days": days, "every": every}
    given = {name: value for name, value in values.items() if value is not None}
    if pack is not None or questions:
        if release or given or input or output:
            raise UsageError("--pack and --question plan a set: omit --release, --input and --output")
        run_set(PlanRequest(**fields), pack, questions, as_json)
        return
    if release:
        run_release(PlanRequest(**fields), given, bool(input or output), as_json)
        return
    if given:
        name = next(iter(given)).replace("margin", "worse-by")
        raise UsageError(f"--{name} needs --release: add --release or omit --{name}")
    run(PlanRequest(**fields), input, rules, output, as_json)


def _request_parameters() -> Iterator[inspect.Parameter]:
    kinds = get_type_hints(PlanRequest)
    for field in dataclasses.fields(PlanRequest):
        kind, kinds_of_values = kinds[field.name], get_args(kinds[field.name])
        if str in kinds_of_values:  # Python accepts a number or texts here; the command line accepts one text
            kind = str | None
        elif Sequence[str] in kinds_of_values:
            kind = list[str] | None
        default_name = OTHER_NAMES.get(field.name, f"--{field.name.replace('_', '-')}")
        option = typer.Option(*(field.metadata["names"] or (default_name,)), help=field.metadata["help"])
        yield keyword(field.name, Annotated[kind, option], field.default)


set_parameters(
    plan_command,
    [
        *_request_parameters(),
        keyword("input", _Input, None),
        keyword("keep_value", KeepValue, None),
        keyword("decimal", DecimalSeparator, None),
        keyword("output", _Files, None),
        keyword("release", _Release, False),
        keyword("question", _Questions, None),
        keyword("pack", _Pack, None),
        keyword("rise", _Rise, None),
        keyword("worse_by", _WorseBy, None),
        keyword("days", _Days, None),
        keyword("every", _Every, None),
        keyword("as_json", AsJson, False),
    ],
)
