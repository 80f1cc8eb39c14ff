"""`hushmote plan`: how many devices, which epsilon, how many values, what error; how to spend a lifetime."""

from __future__ import annotations

import datetime
import itertools
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import typer

from ...server.answers import facts
from ...server.answers import tables as show
from ...server.errors import UsageError
from ...server.planning.answer import answer
from ...server.planning.devices import PlanError
from ...server.planning.experiment_file import NEEDS_RANGE, Named, name_from
from ...server.planning.five_questions import asked, recommendation
from ...server.planning.wish import Wish, reading_of
from .. import output
from ..options import AsJson, command, print_json
from ..progress import progress

EXPERIMENT = ".toml"
"""The end of an experiment file's name."""


@dataclass(frozen=True, kw_only=True)
class PlanOptions(Wish):
    """All of the command's options: the wish, whose fields have their help, and what comes out."""

    output: Annotated[
        list[Path] | None,
        typer.Option(
            "--output",
            "--plot",
            metavar="FILE",
            help="Write a file: the experiment as .toml, a picture as .png, .pdf or .svg. May be repeated. "
            "HUSHMOTE_OVERWRITE=1 overwrites.",
        ),
    ] = None
    as_json: AsJson = False

    @property
    def says_nothing(self) -> bool:
        """Whether no option says what is to be planned."""
        return all(getattr(self, f.name) == f.default for f in fields(self) if f.name != "output")

    def files(self) -> tuple[Path, ...]:
        """The files to write. Raises UsageError or PlanError where one cannot be."""
        paths, reading = output.checked(self.output, EXPERIMENT, *output.PICTURES), reading_of(self)
        number = not reading.yes_no and not reading.labels
        if number and reading.low is None and any(path.suffix.lower() == EXPERIMENT for path in paths):
            raise PlanError(NEEDS_RANGE)
        return paths


def named(path: Path, purpose: str | None = None) -> Named:
    """What people say of an experiment in the file at path, from today on."""
    return Named(name_from(path), purpose, "owner@example.org", datetime.datetime.now(datetime.UTC).date())


def _plan(options: PlanOptions) -> None:
    """Plan an experiment: five questions in words, or three of devices, ε, values and error.

    Without options it asks. Of devices, ε, values and error, three give the fourth. With --lifetime,
    --horizon and --call instead of --epsilon: how to spend a lifetime budget, and what a day, a week and 30
    days of the fleet will show.
    """
    if options.says_nothing:
        _guided(options)
        return
    paths = options.files()
    made = answer(options)
    for path in paths:
        if path.suffix.lower() == EXPERIMENT:
            output.write(path, made.file(named(path)))
            continue
        from .plot import plot  # matplotlib takes a second to load

        plot(path, made.plan)
    if options.as_json:
        print_json(made.to_dict())
        return
    show.out.print(facts.printed(made.lines, made.facts, made.tables))
    show.out.print()
    for path in paths:
        show.out.print(f"wrote {path}")
    written = [path for path in paths if path.suffix.lower() == EXPERIMENT]
    add = "add --output NAME.toml to write the experiment's file"
    show.out.print(f"next: {f'hushmote experiment show {written[0]}' if written else add}")


plan_command = command(PlanOptions, _plan)


def _guided(options: PlanOptions) -> None:
    """Ask five questions, plan, recommend and write. Raises UsageError where nobody can be asked."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "give three of --devices, --epsilon, --values and --error; on a terminal, plan alone asks"
        )
    names = itertools.chain(["plan.toml"], (f"plan_{n}.toml" for n in itertools.count(2)))
    new = next(path for path in map(Path, names) if not path.exists())
    paths = output.checked(options.output or [new], EXPERIMENT)
    show.out.print(
        "Five questions. Enter takes what stands in brackets; Ctrl-C ends without writing anything."
    )
    wish, purpose = asked(_on_terminal)
    with progress("comparing ways to spend the budget", None):
        made = answer(wish)
    for path in output.checked(paths, EXPERIMENT):
        output.write(path, made.file(named(path, purpose)))
    for line in recommendation(made, purpose, paths[0], name_from(paths[0])):
        show.out.print(line)


def _on_terminal(question: str, default: str) -> str:
    show.out.print(f"\n{question}")
    return typer.prompt(" ", default=default, prompt_suffix="> ")
