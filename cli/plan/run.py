"""What `hushmote plan` does."""

import datetime
import itertools
import sys
from pathlib import Path

import typer

from ...planning.answer import PlanAnswer, answer
from ...planning.devices import PlanError
from ...planning.experiment_file import NEEDS_RANGE, Named, name_from
from ...planning.five_questions import asked as wished
from ...planning.five_questions import next_steps, recommendation
from ...planning.wish import Wish
from ...planning.wished import reading_of
from ...server.answers import facts
from ...server.answers import tables as show
from ...server.errors import UsageError
from ...server.experiments.definition import parse
from ...simulator.proposal import Proposal, proposed
from ...simulator.simulate import SimulatedEstimate, simulate
from .. import output
from ..options import print_json
from ..progress import progress
from ..simulate.run import asked, plain
from ..simulate.run import show as show_simulated
from .options import EXPERIMENT, PlanOptions


def named(path: Path, purpose: str | None = None) -> Named:
    """What people say of an experiment in the file at path, from today on."""
    return Named(name_from(path), purpose, "owner@example.org", datetime.datetime.now(datetime.UTC).date())


def run(options: PlanOptions) -> None:
    """Plan, print and write; without options ask first. Raises UsageError or PlanError."""
    if options.says_nothing:
        _guided(options)
        return
    proposal = None if options.input is None else proposed(options.input, options)
    wish = options if proposal is None else proposal.wish
    paths = _files(options, wish)
    made = answer(wish)
    simulated = None if proposal is None else _simulated(made, proposal)
    for path in paths:
        if path.suffix.lower() == EXPERIMENT:
            output.write(path, made.file(named(path)))
            continue
        from .plot import plot  # matplotlib takes a second to load

        plot(path, made.plan)
    if options.as_json:
        tried = {} if simulated is None else {"simulated": plain(simulated, asked(simulated))}
        print_json(made.to_dict() | ({} if proposal is None else {"input": proposal.words}) | tried)
        return
    if proposal is not None:
        show.out.print(f"{proposal.words}\n")
    show.out.print(facts.printed(made.lines, made.facts, made.tables))
    show.out.print()
    if simulated is not None:
        show.out.print("simulated on these readings", style="bold")
        show_simulated(simulated, asked(simulated), None)
        show.out.print()
    for path in paths:
        show.out.print(f"wrote {path}")
    written = [path for path in paths if path.suffix.lower() == EXPERIMENT]
    add = "add --output NAME.toml to write the experiment's file"
    show.out.print(f"next: {f'hushmote experiment show {written[0]}' if written else add}")


def _simulated(made: PlanAnswer, proposal: Proposal) -> SimulatedEstimate:
    """The planned fleet, with the readings that the plan was proposed from."""
    column = proposal.population.rpartition(":")[2]
    text = made.file(named(Path(column)))
    with progress("simulating", 1.0) as advance:
        return simulate(parse(text), population=proposal.population, advance=advance)


def _files(options: PlanOptions, wish: Wish) -> tuple[Path, ...]:
    """The files to write. Raises UsageError or PlanError where one cannot be."""
    paths, reading = output.checked(options.output, EXPERIMENT, *output.PICTURES), reading_of(wish)
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
    wish, purpose = wished(_on_terminal)
    with progress("comparing ways to spend the budget", None):
        made = answer(wish)
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
