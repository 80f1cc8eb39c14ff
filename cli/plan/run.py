"""What `hushmote plan` does."""

from __future__ import annotations

import datetime
import itertools
import sys
from pathlib import Path

import typer

from ...server.answers import facts
from ...server.answers import tables as show
from ...server.errors import UsageError
from ...server.planning.answer import answer
from ...server.planning.devices import PlanError
from ...server.planning.experiment_file import NEEDS_RANGE, Named, name_from
from ...server.planning.five_questions import asked, recommendation
from ...server.planning.wished import reading_of
from .. import output
from ..options import print_json
from ..progress import progress
from .options import EXPERIMENT, PlanOptions


def named(path: Path, purpose: str | None = None) -> Named:
    """What people say of an experiment in the file at path, from today on."""
    return Named(name_from(path), purpose, "owner@example.org", datetime.datetime.now(datetime.UTC).date())


def run(options: PlanOptions) -> None:
    """Plan, print and write; without options ask first. Raises UsageError or PlanError."""
    if options.says_nothing:
        _guided(options)
        return
    paths = _files(options)
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


def _files(options: PlanOptions) -> tuple[Path, ...]:
    """The files to write. Raises UsageError or PlanError where one cannot be."""
    paths, reading = output.checked(options.output, EXPERIMENT, *output.PICTURES), reading_of(options)
    number = not reading.yes_no and not reading.labels
    if number and reading.low is None and any(path.suffix.lower() == EXPERIMENT for path in paths):
        raise PlanError(NEEDS_RANGE)
    return paths


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
