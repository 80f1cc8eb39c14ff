"""Options shared by several commands, and JSON output."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..server.errors import NO_STORE, UsageError, choose_name, refusing

if TYPE_CHECKING:
    from ..server.experiments.definition import Definition
    from ..server.store.store import Store

StoreUrl = Annotated[str, typer.Option(help="SQLAlchemy URL of the store.", envvar="HUSHMOTE_STORE")]
FleetName = Annotated[str | None, typer.Option(help="Name of the fleet; required if there are several.")]
PUBLIC_KEY = "The log's public key, as `hushmote log key` printed it, or a file with it."
AggregatorUrl = Annotated[
    str | None,
    typer.Option(
        help="Address given to serve --http, such as http://127.0.0.1:9417, to show the aggregator's health.",
        envvar="HUSHMOTE_AGGREGATOR",
        metavar="URL",
    ),
]
Folder = Annotated[
    Path | None,
    typer.Option(
        help="The fleet's folder, created by `hushmote provision fleet`; default: the current folder.",
        envvar="HUSHMOTE_FOLDER",
        metavar="FOLDER",
    ),
]
FolderFleet = Annotated[
    str | None, typer.Option(help="Name of the fleet; default: the folder's fleet, or the only one.")
]
MasterKey = Annotated[
    Path | None,
    typer.Option(
        help="Master key file; default: the folder's. Or set HUSHMOTE_MASTER_KEY to the keys.", metavar="FILE"
    ),
]
SigningKey = Annotated[
    Path | None,
    typer.Option(
        help="File of the key that signs experiments, if the master key file does not contain it.",
        metavar="FILE",
    ),
]
PolicyFile = Annotated[
    Path | None,
    typer.Option(
        "--policy", help="Firmware file that contains the devices' POLICY, or a .json of that policy."
    ),
]
WorkersOption = Annotated[
    str | None,
    typer.Option(
        "--workers",
        help="Divide the work among processes on this machine or a Dask scheduler's workers, such as 4 or "
        "tcp://10.0.0.5:8786. The results do not change.",
        metavar="N|URL",
    ),
]
KeepValue = Annotated[
    list[float] | None,
    typer.Option(
        "--keep-value",
        help="Number to keep as a reading although it looks like a sensor error, such as -200. "
        "May be repeated.",
    ),
]
DecimalSeparator = Annotated[
    str | None,
    typer.Option("--decimal", help="Decimal separator in the file: . or ,", show_default="detected"),
]
ExperimentName = Annotated[str, typer.Argument(help="Name of the experiment.")]
ExperimentFile = Annotated[
    Path, typer.Argument(help="TOML file of the experiment, or std:NAME of `hushmote questions`.")
]
LabelsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--label", help="For a standard question with labels: one of your own labels. May be repeated."
    ),
]
Rename = Annotated[
    str | None,
    typer.Option(
        "--name", help="For a standard question: the experiment's name; for std:feature, the feature's name."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Privacy = Annotated[bool, typer.Option("--privacy", help="Also show each ε and whom it protects against.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", help="Also show the method and the details of each version.")
]
DEFAULT_STORE = "sqlite:///hushmote.sqlite"


def check_exists(file: Path) -> None:
    """Raise UsageError if the file does not exist, before loading the code that reads it.

    A question of the library is not a file.
    """
    if is_library(file):
        return
    with refusing(UsageError, f"read {file}"):
        file.stat()


def is_library(file: Path) -> bool:
    """Return whether an argument names a question of the library or a pack rather than a file."""
    return str(file).startswith(("std:", "pack:"))


def load_questions(file: Path) -> list[Definition]:
    """Return the unchanged experiments of std:NAME, pack:NAME or a file."""
    from ..planning import library
    from ..server.experiments.definition import load

    names = library.question_names(str(file))
    return [library.question(name) for name in names] if is_library(file) else [load(file)]


def load_experiment(file: Path) -> Definition:
    """Return the experiment of std:NAME or of a file; raise UsageError for a pack."""
    first, *more = load_questions(file)
    if more:
        names = ", ".join(f"std:{definition.name}" for definition in (first, *more))
        raise UsageError(f"{file} has several questions: use one of {names}")
    return first


def read_store(url: str) -> Store:
    """Open a store for reading; reject a missing file before loading SQLAlchemy."""
    plain = re.fullmatch("sqlite:///([^?:]+)", url)  # Database reports errors in any other URL
    if plain and not (file := Path(plain[1])).exists() and file.parent.is_dir():
        raise UsageError(NO_STORE.format(plain[1], "path"))
    from ..server.store.store import Store

    return Store(url, read_only=True)


def choose_fleet(store: Store, name: str | None) -> str:
    """Return the named fleet, or the store's only fleet; otherwise raise UsageError with the names."""
    return choose_name("fleet", name, tuple(store.fleets()), f"in {store.where}")


def print_json(value: Any) -> None:
    """Print one JSON document on standard output."""
    typer.echo(json.dumps(value, indent=2))


def set_parameters(call: Callable[..., Any], parameters: Sequence[inspect.Parameter]) -> None:
    """Replace the parameters of a command whose options are a model's fields."""
    setattr(call, "__signature__", inspect.Signature(parameters))  # noqa: B010 (type checkers do not know the attribute)
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}


def keyword(name: str, kind: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    """Return a parameter for set_parameters(); one without a default is required."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def on_command_line(context: typer.Context, option: str) -> bool:
    """Return whether an option was typed, rather than read from the environment or omitted."""
    source = context.get_parameter_source(option)
    return source is not None and source.name == "COMMANDLINE"
