"""`hushmote study NAME PARAMETER=VALUE ...`: every study of studies/, listed, explained and run."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from ..server.answers import tables as show
from ..server.errors import UsageError
from ..simulator.workers import workers
from ..studies import catalogue
from ..studies.catalogue import STUDIES
from ..studies.frame import Running
from . import tables
from .options import AsJson, WhichWorkers, print_json
from .output import PICTURES, by_name, checked, output_option
from .progress import progress


def study_command(
    name: Annotated[
        str,
        typer.Argument(
            help="Name of the study; without one, all are listed.", autocompletion=lambda: list(STUDIES)
        ),
    ] = "",
    parameters: Annotated[
        list[str] | None,
        typer.Argument(metavar="PARAMETER=VALUE", help="`hushmote study NAME --help` lists them."),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Repeat a run exactly, with simulated noise; else OpenDP's is drawn.", min=0),
    ] = None,
    output: Annotated[list[Path] | None, output_option(by_name(".csv", *PICTURES))] = None,
    crew: WhichWorkers = None,
    as_json: AsJson = False,
) -> None:
    """Run a study, which reproduces a source or a claim, beside its theory."""
    if not name:
        _list(as_json)
        return
    study = catalogue.study(name)
    for given, takes, option in (
        (seed is not None, study.seeded, "--seed: it draws nothing"),
        (crew is not None, study.divided, "--workers: it is one piece"),
        (bool(output), bool(study.suffixes), "--output: it has no picture of its own"),
    ):
        if given and not takes:
            raise UsageError(f"study {name} takes no {option}")
    paths = checked(output, *study.suffixes)
    asked = catalogue.asked(name, parameters or ())
    with workers(crew, study.pool) as hands, progress(f"study {name}", 1.0) as advance:
        result = catalogue.run(name, asked, Running(seed, hands, advance))
    for path in paths:
        catalogue.write(name, result, path)
    if as_json:
        print_json(result.json)
        return
    catalogue.print_result(result)
    for path in paths:
        show.out.print(f"written: {path}", soft_wrap=True)


def _list(as_json: bool) -> None:
    if as_json:
        print_json({name: study.line for name, study in STUDIES.items()})
        return
    table = tables.table(None, ("study", "what it shows"), 2)
    for name, study in STUDIES.items():
        table.add_row(name, study.line)
    show.out.print(table)
    show.out.print("\n`hushmote study NAME --help` lists a study's parameters.")


class StudyCommand(TyperCommand):
    """The command, whose help is that of the study that stands beside --help."""

    _NAME = "study"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[self._NAME] = next((word for word in args if word in STUDIES), "")
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        name = ctx.meta.get(self._NAME)
        if name:
            write_help(name, formatter)
        else:
            super().format_help(ctx, formatter)


def write_help(name: str, formatter: Any) -> None:
    """Write a study's line, its parameters and an example to click's formatter."""
    study = catalogue.study(name)
    formatter.write_usage(f"hushmote study {name}", "[PARAMETER=VALUE ...]")
    formatter.write_paragraph()
    with formatter.indentation():
        formatter.write_text(study.line)
    with formatter.section("Parameters"):
        formatter.write_dl(
            [
                (f"{key}=", f"{meaning}  [default: {default}]" if default else meaning)
                for key, meaning, default in catalogue.parameters(name)
            ]
        )
    with formatter.section("Examples"):
        formatter.write_text(f"hushmote study {name} {study.example}")


setattr(study_command, "command_class", StudyCommand)  # noqa: B010 (main reads it; pyright knows none)
