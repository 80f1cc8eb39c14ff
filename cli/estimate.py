"""`hushmote estimate`: estimates for a fleet, with changes and trends."""

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

import typer

from ..server.answers.question import BEFORE, Question
from ..server.errors import UsageError, choose_name
from ..server.plain_text import CsvDialect
from ..server.words.numbers import counted
from . import output
from .options import (
    DEFAULT_STORE,
    AsJson,
    FleetName,
    Privacy,
    StoreUrl,
    Verbose,
    keyword,
    print_json,
    read_store,
    set_parameters,
)
from .output import PICTURES, CsvDialectOption, Results

if TYPE_CHECKING:
    from ..server.answers.ask import Reply
    from ..server.store.versions import Version

_Candidates = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="For texts: file with the texts to look for, one per line."),
]
_AgainstLast = Annotated[
    str,
    typer.Option(
        metavar="LENGTH", help="Compare the last 7d, 12h or 2w with the same length of time before."
    ),
]
_WITH_EPSILON = (".csv", ".json")
_OPTION_SETTINGS: dict[str, dict[str, Any]] = {
    "last": {"metavar": "LENGTH"},
    "group": {"metavar": "VALUE"},
    "against": {"metavar": "WINDOW"},
    "top": {"min": 0},
    "rows": {"min": 1},
}


def estimate_command(
    store: str,
    fleet: str | None,
    candidates: Path | None,
    against_last: str,
    outputs: list[Path] | None,
    csv_dialect: CsvDialect,
    privacy: bool,
    verbose: bool,
    as_json: bool,
    **fields: Any,
) -> None:
    """Estimate frequencies, ranges, quantiles, mean, trends and changes, with intervals.

    --trend shows how the fleet changed; --against compares it with another window, fleet, version or group.
    A picture shows everything that was requested, or the histogram by default. Missing readings are spread
    over all values unless the experiment sets missing.
    """
    paths = output.check_paths(outputs, ".csv", ".json", *PICTURES)
    output.check_dialect(csv_dialect, paths)
    options = {name: value for name, value in fields.items() if value is not None}
    with read_store(store) as opened:
        from ..server.store.versions import check_readable  # imported lazily so that help starts fast

        name = choose_name("fleet", fleet, tuple(opened.fleets()), "in this store")
        versions, unreadable = opened.readable_experiments(name)
        check_readable(unreadable, options["experiment"])
        names = sorted({version.experiment.name for version in versions})
        choose_name("experiment", options["experiment"], names, f"in fleet {name}")
        question = Question(fleet=name, **options)
        if not (privacy or as_json or any(path.suffix.lower() in _WITH_EPSILON for path in paths)):
            _refuse_epsilon_options(question)
        if against_last:
            question = _against_last(question, against_last)
        # Imported lazily so that the errors above appear quickly.
        from ..server.answers import second_epsilon, tables
        from ..server.answers.ask import ask
        from ..server.answers.query import Facts

        facts = Facts(opened, _versions={name: versions}, _unreadable={name: unreadable})
        selected = facts.selected(question.all_windows)
        if candidates is not None:
            question = _with_candidates(question, candidates, selected.versions)
        reply = ask(facts, question)
        purpose = selected.newest.purpose
        for path in paths:
            if path.suffix.lower() in PICTURES:
                reply.picture_answers().plot(path, purpose)
            else:
                csv = path.suffix.lower() == ".csv"
                output.write(path, reply.answers.to_csv(csv_dialect) if csv else reply.to_json())
        if as_json:
            print_json(reply.to_dict())
            return
        answers = reply.answers
        comparison = f"; against {answers[0].against}" if answers[0].against else ""
        if reply.headline:
            tables.out.print(f"{reply.headline}\n")
        count = counted(reply.reports)
        tables.out.print(f"{question.experiment}: {count}, {reply.which}{comparison}")
        by_window = question.is_trend and not question.rows
        printable = reply.to_print if privacy else second_epsilon.remove_epsilons(reply.to_print)
        tables.print_answers(printable, tables.trend_table if by_window else tables.answer)
        if reply.groups is not None:
            tables.out.print("", tables.text_table(reply.groups.table()), sep="\n")
        if verbose:
            tables.out.print("\n" + "\n".join(_method(reply)))
        if privacy:
            tables.out.print(f"\n{second_epsilon.both_words(reply.once, reply.every_day)}")
        tables.out.print(f"\n{reply.guide.words()}")
        for path in paths:
            tables.out.print(f"written: {path}")


def _refuse_epsilon_options(question: Question) -> None:
    """Raise UsageError for options that change only an ε, which is not shown."""
    for name in ("delta", "honest"):
        if getattr(question, name) != Question.model_fields[name].default:
            raise UsageError(f"--{name} changes only the ε of the histogram: add --privacy, or omit --{name}")


def _against_last(question: Question, length: str) -> Question:
    """Return the question as a comparison of the last 7d, 12h or 2w with the period before."""
    if question.windows:
        raise UsageError("--window and --against-last set different periods: give only one")
    if question.last not in ("", length):
        raise UsageError("--last and --against-last set different periods: give only one")
    if question.against:
        raise UsageError("--against-last and --against are two comparisons: give only one")
    return question.replace(last=length, against=(BEFORE,))


def _method(reply: "Reply") -> list[str]:
    """Return lines that name each version's mechanism and describe how the estimates are computed."""
    from ..server.words.experiment import mechanism

    estimates, lines = reply.estimate.estimates, list[str]()
    for _, part in estimates.parts:
        version = f"version {part.experiment.digest.hex()}"
        lines.append(f"{version}: {mechanism(part.experiment)}; {counted(part.reports)}")
    if len(lines) > 1:
        lines.append(f"Versions are weighed by {reply.question.weigh}.")
    lines.append(f"Standard errors are {estimates.stderr_method}.")
    if any(getattr(row, "p_adjusted", None) is not None for answer in reply.answers for row in answer.rows):
        lines.append("The p-values in a table are adjusted jointly by Holm's method.")
    return lines


def _with_candidates(question: Question, file: Path, versions: "tuple[Version, ...]") -> Question:
    """Return the question with a file's texts; raise UnanswerableError if the experiment has no texts."""
    from ..server.experiments.answerable import require
    from .candidates import read_candidates

    require([version.experiment for version in versions], "candidates", "omit --candidates")
    return question.replace(ranges=(*question.ranges, *read_candidates(file)))


def _parameters() -> list[inspect.Parameter]:
    extra_parameters: dict[str, list[inspect.Parameter]] = {
        "experiment": [keyword("store", StoreUrl, DEFAULT_STORE)],
        "post": [keyword("candidates", _Candidates, None)],
        "by": [keyword("against_last", _AgainstLast, "")],
    }
    parameters = list[inspect.Parameter]()
    for name, field in Question.model_fields.items():
        if name == "fleet":
            parameters.append(keyword("fleet", FleetName, None))
        elif name == "experiment":
            argument = typer.Argument(metavar="name", help=field.description)
            parameters.append(keyword(name, Annotated[str, argument]))
        else:
            is_list = get_origin(field.annotation) is tuple
            kind = list[get_args(field.annotation)[0]] | None if is_list else field.annotation
            option = typer.Option(
                f"--{field.serialization_alias or name}",
                help=field.description,
                **_OPTION_SETTINGS.get(name, {}),
            )
            parameters.append(keyword(name, Annotated[kind, option], None if is_list else field.default))
        parameters += extra_parameters.get(name, [])
    return [
        *parameters,
        keyword("outputs", Results, None),
        keyword("csv_dialect", CsvDialectOption, "plain"),
        keyword("privacy", Privacy, False),
        keyword("verbose", Verbose, False),
        keyword("as_json", AsJson, False),
    ]


set_parameters(estimate_command, _parameters())
