"""Options that several commands share, and how a command prints JSON."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import typer

from ..server.errors import NO_STORE, UsageError, choose_name, refusing

if TYPE_CHECKING:
    from ..server.store.store import Store

Options = TypeVar("Options")

StoreUrl = Annotated[str, "SQLAlchemy URL of the store.", "HUSHMOTE_STORE"]
FleetName = Annotated[str | None, "Name of the fleet; the only one needs none."]
AggregatorUrl = Annotated[
    str | None,
    "Address of serve --http, to show the aggregator's health: http://127.0.0.1:9417.",
    "URL",
    "HUSHMOTE_AGGREGATOR",
]
Folder = Annotated[
    Path | None,
    "The fleet's folder, which `hushmote provision fleet` made; else the current folder.",
    "FOLDER",
    "HUSHMOTE_FOLDER",
]
FleetOf = Annotated[str | None, "Name of the fleet; else the folder's, or the only one."]
SigningKey = Annotated[
    Path | None, "File of the key that signs experiments, where the master key's file lacks it.", "FILE"
]
PolicyFile = Annotated[Path | None, "Firmware file with the devices' POLICY, or its .json.", "--policy"]
WhichWorkers = Annotated[
    str | None,
    "Divide the work among processes of this machine, or a Dask scheduler's workers: 4, tcp://10.0.0.5:8786. "
    "The numbers stay the same.",
    "--workers",
    "N|URL",
]
ExperimentFile = Annotated[Path, typer.Argument(help="TOML file of the experiment.")]
AsJson = Annotated[bool, "Print JSON instead of tables.", "--json"]
DEFAULT_STORE = "sqlite:///hushmote.sqlite"


def check_there(file: Path) -> None:
    """Raise UsageError if there is no such file, before loading the code that would read it."""
    with refusing(UsageError, f"read {file}"):
        file.stat()


def read_store(url: str) -> Store:
    """Open a store to read it. One whose file is not there is refused before SQLAlchemy is loaded."""
    plain = re.fullmatch("sqlite:///([^?:]+)", url)  # of any other URL, Database says what is wrong
    if plain and not (file := Path(plain[1])).exists() and file.parent.is_dir():
        raise UsageError(NO_STORE.format(plain[1], "path"))
    from ..server.store.store import Store

    return Store(url, read_only=True)


def the_fleet(store: Store, name: str | None) -> str:
    """Return the named fleet of a store, or its only one. Otherwise UsageError lists them."""
    return choose_name("fleet", name, tuple(store.fleets()), f"in {store.where}")


def print_json(value: Any) -> None:
    """Print one JSON document on standard output."""
    typer.echo(json.dumps(value, indent=2))


def command(options: type[Options], run: Callable[[Options], None]) -> Callable[..., None]:
    """A command for typer whose arguments and options are the fields of a dataclass; run gets them."""

    def call(**values: Any) -> None:
        run(options(**values))

    hints, fields = get_type_hints(options, include_extras=True), inspect.signature(options).parameters
    call.__doc__ = run.__doc__
    set_parameters(call, [f.replace(annotation=hints[f.name], kind=f.KEYWORD_ONLY) for f in fields.values()])
    return call


def set_parameters(call: Callable[..., Any], parameters: Sequence[inspect.Parameter]) -> None:
    """Have typer take these parameters as a command's arguments and options, not the function's own."""
    setattr(call, "__signature__", inspect.Signature(parameters))  # noqa: B010 (no type checker knows it)
    call.__annotations__ = {one.name: one.annotation for one in parameters}


def keyword(name: str, kind: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    """Return a parameter for set_parameters(); one without a default is required."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def understood(call: Callable[..., Any]) -> None:
    """Have typer take a command's parameters that are annotated with a text as options with this help.

    Further texts are its names, with a dash, its HUSHMOTE_ variable, and what stands for its value.
    """
    hints = {name: _option(name, hint) for name, hint in get_type_hints(call, include_extras=True).items()}
    parameters = inspect.signature(call).parameters.values()
    set_parameters(call, [one.replace(annotation=hints[one.name]) for one in parameters])


def _option(name: str, hint: Any) -> Any:
    texts = [text for text in getattr(hint, "__metadata__", ()) if isinstance(text, str)]
    if not texts:
        return hint
    kind = get_args(hint)[0]
    several = () if get_origin(kind) is list else get_args(kind)
    if str in several:  # what Python may give as a number or as texts is typed as one text
        kind = str | None
    elif Sequence[str] in several:
        kind = list[str] | None
    words, *more = texts
    names = [text for text in more if text.startswith("-")]
    if kind is bool and not names:
        names = [f"--{name.replace('_', '-')}"]
    variable = next((text for text in more if text.startswith("HUSHMOTE_")), None)
    value = next((text for text in more if text not in (*names, variable)), None)
    return Annotated[kind, typer.Option(*names, help=words, envvar=variable, metavar=value)]


def on_command_line(context: typer.Context, option: str) -> bool:
    """Whether an option was typed, rather than read from the environment or left out."""
    source = context.get_parameter_source(option)
    return source is not None and source.name == "COMMANDLINE"
