"""What `hushmote plan` does."""

import datetime
import itertools
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ...planning.answer import PlanAnswer, answer
from ...planning.devices import PlanError
from ...planning.experiment_file import NEEDS_RANGE, Named, name_from
from ...planning.five_questions import asked as wished
from ...planning.five_questions import next_steps, recommendation
from ...planning.proposal import Proposal, propose
from ...planning.request import PlanRequest, reading_of
from ...server.answers import facts
from ...server.answers import tables as show
from ...server.errors import UsageError
from .. import output
from ..options import print_json
from ..progress import progress
from .options import EXPERIMENT, PlanOptions

if TYPE_CHECKING:
    from .trial import Trial


def named(path: Path, purpose: str | None = None) -> Named:
    """What people say of an experiment in the file at path, from today on."""
    return Named(name_from(path), purpose, "owner@example.org", datetime.datetime.now(datetime.UTC).date())


def run(options: PlanOptions) -> None:
    """Plan, print and write; without options ask first. Raises UsageError or PlanError."""
    if options.says_nothing:
        _guided(options)
        return
    proposal = None if options.input is None else propose(options.input, options)
    request = options if proposal is None else proposal.request
    paths = _files(options.output, request)
    made = answer(request)
    trial = None if proposal is None else _trial(made, proposal)
    for path in paths:
        if path.suffix.lower() == EXPERIMENT:
            output.write(path, made.file(named(path)))
            continue
        from .plot import plot  # matplotlib takes a second to load

        plot(path, made.plan)
    if options.as_json:
        tried = {} if trial is None else {"simulated": trial.to_dict()}
        print_json(made.to_dict() | ({} if proposal is None else {"input": proposal.words}) | tried)
        return
    if proposal is not None:
        show.out.print(f"{proposal.words}\n")
    show.out.print(facts.printed(made.lines, made.facts, made.tables))
    show.out.print()
    if trial is not None:
        trial.print()
    for path in paths:
        show.out.print(f"wrote {path}")
    written = [path for path in paths if path.suffix.lower() == EXPERIMENT]
    add = "add --output NAME.toml to write the experiment's file"
    show.out.print(f"next: {f'hushmote experiment show {written[0]}' if written else add}")


def _trial(made: PlanAnswer, proposal: Proposal) -> "Trial":
    """Return the planned fleet, simulated with the readings that the plan was proposed from."""
    from .trial import try_plan  # the simulator takes a second to load

    column = proposal.population.rpartition(":")[2]
    return try_plan(made.file(named(Path(column))), proposal.population)


def _files(output_paths: list[Path] | None, request: PlanRequest) -> tuple[Path, ...]:
    """The files to write. Raises UsageError or PlanError where one cannot be."""
    paths, reading = output.checked(output_paths, EXPERIMENT, *output.PICTURES), reading_of(request)
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
    request, purpose = wished(_on_terminal)
    with progress("comparing ways to spend the budget", None):
        made = answer(request)
    for line in recommendation(made, purpose):
        show.out.print(line)
    show.out.print()
    if not typer.confirm(f"Write {', '.join(map(str, paths))}?", default=True, prompt_suffix="> "):
        show.out.print("Nothing is written.")
        return
    for path in output.checked(paths, EXPERIMENT):
        output.write(path, made.file(named(path, purpose)))
    for line in next_steps(made, paths[0], name_from(paths[0])):
        show.out.print(line)


def _on_terminal(question: str, default: str) -> str:
    show.out.print(f"\n{question}")
    return typer.prompt(" ", default=default, prompt_suffix="> ")
