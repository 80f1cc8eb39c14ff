"""`hushmote plan` without options: five questions on a terminal, a recommendation, an experiment's file."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import typer

from ...server.answers import tables as show
from ...server.errors import UsageError
from ...server.planning.answer import answer
from ...server.planning.experiment_file import name_from
from ...server.planning.five_questions import asked, recommendation
from .. import output
from ..progress import progress
from .options import EXPERIMENT, PlanOptions


def plan(options: PlanOptions) -> None:
    """Ask, plan, recommend and write. Raises UsageError where nobody can be asked."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "give three of --devices, --epsilon, --bins (or --labels, --yes-no) and --error; on a terminal, "
            "plan without options asks"
        )
    paths = output.checked(options.output or [_new_file()], EXPERIMENT)
    show.out.print(
        "Five questions. Enter takes what stands in brackets; Ctrl-C ends without writing anything."
    )
    wish, purpose = asked(_on_terminal)
    with progress("comparing ways to spend the budget", None):
        made = answer(wish)
    for path in output.checked(paths, EXPERIMENT):
        output.write(path, made.file(options.named(path, purpose)))
    for line in recommendation(made, purpose, paths[0], options.name or name_from(paths[0])):
        show.out.print(line)


def _on_terminal(question: str, default: str) -> str:
    show.out.print(f"\n{question}")
    return typer.prompt(" ", default=default, prompt_suffix="> ")


def _new_file() -> Path:
    """plan.toml, or the first of plan_2.toml, plan_3.toml, ... that is not there."""
    names = itertools.chain(["plan.toml"], (f"plan_{n}.toml" for n in itertools.count(2)))
    return next(path for path in map(Path, names) if not path.exists())
