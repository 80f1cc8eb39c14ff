"""What `hushmote plan` does."""

import datetime
from pathlib import Path

from ...planning.answer import PlanAnswer, answer
from ...planning.devices import PlanError
from ...planning.experiment_file import NEEDS_RANGE, Named, name_from
from ...planning.wish import Wish
from ...planning.wished import reading_of
from ...server.answers import facts
from ...server.answers import tables as show
from ...server.experiments.definition import parse
from ...simulator.proposal import Proposal, proposed
from ...simulator.simulate import SimulatedEstimate, simulate
from .. import output
from ..options import print_json
from ..progress import progress
from ..simulate.run import asked, plain
from ..simulate.run import show as show_simulated
from .options import EXPERIMENT, PlanOptions

WORKED_EXAMPLES = (
    (
        "How many devices does a yes-or-no question need?",
        "hushmote plan --epsilon 2 --values yes-no --error 0.02",
        "Take 4,140 devices, each with one report of ε = 2. The share of yes is then known to ±2 points, 95"
        " times in 100.",
    ),
    (
        "How exactly do 5,000 devices tell their mean temperature?",
        "hushmote plan --for mean --devices 5000 --epsilon 2 --values 64 --low -30 --high 34 --unit °C",
        "Take one report of ε = 2 from each of 5,000 devices. The mean is then known to ±1.94 % of the range,"
        " 95 times in 100.",
    ),
    (
        "How should 20,000 devices spend a budget of ε = 4 in two years?",
        "hushmote plan --devices 20000 --values yes-no --lifetime 4 --horizon 2y --call 1h --share 0.05",
        "Let a device make 1 report of ε = 4 in its life. One call in 17,513 makes one.",
    ),
)
"""Question, command, and the sentence that the command's answer begins with."""


def named(path: Path) -> Named:
    """What people say of an experiment in the file at path, from today on."""
    return Named(name_from(path), None, "owner@example.org", datetime.datetime.now(datetime.UTC).date())


def run(options: PlanOptions) -> None:
    """Plan, print and write; without options print worked examples. Raises UsageError or PlanError."""
    if options == PlanOptions():
        for question, line, sentence in WORKED_EXAMPLES:
            show.out.print(f"{question}\n  {line}\n{sentence}\n", soft_wrap=True)
        show.out.print("hushmote plan --help lists the options; docs/planning.md explains them.")
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
