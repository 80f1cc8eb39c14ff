"""The implementation of `hushmote plan`."""

import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...planning import library
from ...planning.answer import PlanAnswer, answer
from ...planning.devices import PlanError
from ...planning.experiment_file import NEEDS_RANGE, ExperimentInfo, name_from
from ...planning.proposal import Proposal, propose
from ...planning.question_set import plan_set, set_question
from ...planning.release_stages import plan_release
from ...planning.request import PlanRequest, reading_of
from ...planning.written_numbers import ReadingRules
from ...server.answers import tables as show
from ...server.errors import UsageError
from .. import output
from ..options import load_questions, print_json

if TYPE_CHECKING:
    from .trial import Trial

EXPERIMENT = ".toml"
"""The suffix of experiment files."""

WORKED_EXAMPLES = (
    (
        "How many devices does a yes-or-no question need?",
        "hushmote plan --epsilon 2 --values yes-no --error 0.02",
        "Use 4,140 devices, each with one report of ε = 2. The share of yes is then known to ±2 points, 95"
        " times in 100.",
    ),
    (
        "How precisely can 5,000 devices measure their mean temperature?",
        "hushmote plan --for mean --devices 5000 --epsilon 2 --values 64 --low -30 --high 34 --unit °C",
        "Use one report of ε = 2 from each of 5,000 devices. The mean is then known to ±1.94% of the range,"
        " 95 times in 100.",
    ),
    (
        "How should 20,000 devices spend a budget of ε = 4 in two years?",
        "hushmote plan --devices 20000 --values yes-no --lifetime 4 --horizon 2y --call 1h --share 0.05",
        "Let a device make 1 report of ε = 4 in its lifetime. One call in 17,513 makes one.",
    ),
)
"""Question, command, and the first sentence of the command's answer."""


def placeholder_names(path: Path) -> ExperimentInfo:
    """Return a name and placeholders for an experiment file at this path, valid from today."""
    return ExperimentInfo(
        name_from(path), None, "owner@example.org", datetime.datetime.now(datetime.UTC).date()
    )


def run(
    request: PlanRequest,
    column: str | None,
    rules: ReadingRules,
    output_paths: list[Path] | None,
    as_json: bool,
) -> None:
    """Make a plan, print it and write it to files; without options, print worked examples.

    Args:
        request: The plan to make.
        column: FILE:COLUMN of readings that complete the request, or None.
        rules: How to read numbers, as stated by the user.
        output_paths: The files to write.
        as_json: Whether to print JSON instead of tables.

    Raises:
        UsageError, PlanError: If the options do not fit together, or no plan meets the request.
    """
    if request == PlanRequest() and column is None and output_paths is None and not as_json:
        for question, line, sentence in WORKED_EXAMPLES:
            show.out.print(f"{question}\n  {line}\n{sentence}\n", soft_wrap=True)
        show.out.print("hushmote plan --help lists the options; docs/planning.md explains them.")
        return
    proposal = None if column is None else propose(column, request, rules)
    request = request if proposal is None else proposal.request
    paths = _files(output_paths, request)
    plan_answer = answer(request)
    trial = None if proposal is None else _trial(plan_answer, proposal)
    for path in paths:
        if path.suffix.lower() == EXPERIMENT:
            output.write(path, plan_answer.file(placeholder_names(path)))
            continue
        from .plot import plot  # matplotlib takes a second to load

        plot(path, plan_answer.plan)
    if as_json:
        simulated = {} if trial is None else {"simulated": trial.to_dict()}
        print_json(
            plan_answer.to_dict()
            | ({} if proposal is None else {"input": " ".join(proposal.lines)})
            | simulated
        )
        return
    if proposal is not None:
        show.out.print("\n".join(proposal.lines) + "\n")
    show.out.print(show.sheet(plan_answer.lines, plan_answer.facts, plan_answer.tables))
    show.out.print()
    if trial is not None:
        trial.print()
    for path in paths:
        show.out.print(f"wrote {path}")
    experiment_files = [path for path in paths if path.suffix.lower() == EXPERIMENT]
    add = "add --output NAME.toml to write the experiment's file"
    show.out.print(f"next: {f'hushmote experiment show {experiment_files[0]}' if experiment_files else add}")


def run_release(request: PlanRequest, values: dict[str, Any], has_files: bool, as_json: bool) -> None:
    """Plan a rollout and print it.

    Args:
        request: The request.
        values: The options that belong to a release.
        has_files: Whether --input or --output was given.
        as_json: Whether to print JSON instead of tables.

    Raises:
        UsageError, PlanError: If the options do not fit together.
    """
    if has_files:
        raise UsageError("--release neither reads nor writes files: omit --input and --output")
    if "rise" not in values:
        raise UsageError("--release needs --rise, such as --rise 0.03 for 3 points")
    stages = plan_release(request, **values)
    if as_json:
        print_json(stages.to_dict())
        return
    show.out.print(show.sheet(stages.lines, (), stages.tables))


def run_set(request: PlanRequest, pack: str | None, questions: list[str], as_json: bool) -> None:
    """Plan a set of questions that share a device's budget, and print it.

    Args:
        request: The devices, the budget and the rhythm.
        pack: The name of a pack, or None.
        questions: std:NAME, or files of experiments.
        as_json: Whether to print JSON instead of tables.

    Raises:
        UsageError, PlanError: If the library lacks one of them, or the options do not fit together.
    """
    sources = ([library.PACK + pack.removeprefix(library.PACK)] if pack else []) + questions
    definitions = [definition for source in sources for definition in load_questions(Path(source))]
    plan = plan_set([set_question(definition) for definition in definitions], request)
    if as_json:
        print_json(plan.to_dict())
        return
    show.out.print(show.sheet(plan.lines, plan.facts, plan.tables))
    show.out.print()
    added = " ".join(sources) if len(sources) == 1 and library.question_names(sources[0]) else "std:NAME"
    show.out.print(f"next: hushmote experiment add {added} --owner WHO", soft_wrap=True)


def _trial(plan_answer: PlanAnswer, proposal: Proposal) -> "Trial":
    from .trial import try_plan  # the simulator takes a second to load

    return try_plan(plan_answer.file(placeholder_names(Path(proposal.column))), proposal)


def _files(output_paths: list[Path] | None, request: PlanRequest) -> tuple[Path, ...]:
    paths, reading = output.check_paths(output_paths, EXPERIMENT, *output.PICTURES), reading_of(request)
    is_number = not reading.yes_no and not reading.labels
    if is_number and reading.low is None and any(path.suffix.lower() == EXPERIMENT for path in paths):
        raise PlanError(NEEDS_RANGE)
    return paths
