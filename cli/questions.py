"""`hushmote questions`: the standard library of questions about a fleet's health."""

from typing import Annotated

import typer

from ..server.errors import UsageError
from .options import AsJson, LabelsOption, Rename, print_json

SIZES = (2_000, 10_000, 50_000)
"""The numbers of devices for which the table shows errors."""


def questions_command(
    name: Annotated[
        str | None, typer.Argument(help="Print this question's file, to edit a copy; default: list all.")
    ] = None,
    labels: LabelsOption = None,
    rename: Rename = None,
    as_json: AsJson = False,
) -> None:
    """List the standard questions about a fleet's health, and what each can show.

    The errors are for the last quarter of five years, if a device's whole budget of ε = 8 is for one
    question; `hushmote plan --pack release` shows them for several questions that share it. `hushmote
    experiment add std:NAME` adds a question to a fleet, and pack:NAME a pack.
    """
    from ..planning import library  # imported lazily because NumPy slows --help down
    from ..server.experiments.definition import parse

    if name is not None:
        if as_json:
            raise UsageError("a question's file is TOML: omit --json, or use hushmote experiment show")
        text = library.customize(
            name.removeprefix(library.QUESTION), rename=rename or "", labels=labels or ()
        )
        parse(text).payload()  # a name or label of the user may be invalid
        typer.echo(text, nl=False)
        return
    if labels or rename:
        raise UsageError("--label and --name need a question, such as setup_step")
    from ..planning.question_set import SetPlan, format_error, set_question
    from ..server.answers import tables as show

    plans = {q: SetPlan((set_question(library.question(q)),), SIZES[0]) for q in library.QUESTIONS}
    errors = {
        q: {size: plan.with_devices(size).error(plan.questions[0]) for size in SIZES}
        for q, plan in plans.items()
    }
    if as_json:
        rows = [
            {"name": q, "purpose": library.question(q).purpose, "asks": list(library.question(q).asks)}
            | {"type": library.question(q).type, "epsilon": 2, "error": errors[q]}
            for q in library.QUESTIONS
        ]
        print_json({"questions": rows, "packs": library.PACKS})
        return
    headings = ("question", "answers", "asks", *(f"{size:,}" for size in SIZES))
    table = show.table("± points in a quarter, by number of devices", headings, range(3))
    for q, by_size in errors.items():
        asks = plans[q].questions[0].ask
        table.add_row(q, library.question(q).purpose, asks, *map(format_error, by_size.values()))
    show.out.print(table)
    for pack, members in library.PACKS.items():
        show.out.print(f"pack:{pack} has {', '.join(members)}")
    show.out.print("Several questions share a budget: hushmote plan --pack release --devices 20000")
