"""Options that several commands share, and how a command prints JSON."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_type_hints

import typer

from ..server.errors import UsageError, refusing, the_name

if TYPE_CHECKING:
    from ..server.store.store import Store

Options = TypeVar("Options")

StoreUrl = Annotated[
    str, typer.Option("--store", help="SQLAlchemy URL of the store.", envvar="HUSHMOTE_STORE")
]
FleetName = Annotated[
    str | None,
    typer.Option("--fleet", help="Name of the fleet; the only one needs none.", show_default=False),
]
AggregatorUrl = Annotated[
    str | None,
    typer.Option(
        "--aggregator",
        metavar="URL",
        help="Address of serve --http, to show the aggregator's health: http://127.0.0.1:9417.",
        envvar="HUSHMOTE_AGGREGATOR",
        show_default=False,
    ),
]
PolicyFile = Annotated[
    Path | None, typer.Option("--policy", help="Firmware file with the devices' POLICY, or its .json.")
]
ExperimentFile = Annotated[Path, typer.Argument(help="TOML file of the experiment.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
DEFAULT_STORE = "sqlite:///hushmote.sqlite"


def check_there(file: Path) -> None:
    """Raise UsageError if there is no such file, before loading the code that would read it."""
    with refusing(UsageError, f"read {file}"):
        file.stat()


def the_fleet(store: Store, name: str | None) -> str:
    """Return the named fleet of a store, or its only one. Otherwise UsageError lists them."""
    return the_name("fleet", name, tuple(store.fleets()), f"in {store.where}")


def print_json(value: Any) -> None:
    """Print one JSON document on standard output."""
    typer.echo(json.dumps(value, indent=2))


def command(options: type[Options], run: Callable[[Options], None]) -> Callable[..., None]:
    """A command for typer whose arguments and options are the fields of a dataclass; run gets them.

    A field that is annotated with a text is an option with this help; further texts are its names.
    """

    def call(**values: Any) -> None:
        run(options(**values))

    hints = {name: _option(name, hint) for name, hint in get_type_hints(options, include_extras=True).items()}
    fields = inspect.signature(options).parameters.values()
    call.__doc__ = run.__doc__
    call.__annotations__ = hints
    parameters = [f.replace(annotation=hints[f.name], kind=f.KEYWORD_ONLY) for f in fields]
    setattr(call, "__signature__", inspect.Signature(parameters))  # noqa: B010 (no type checker knows it)
    return call


def _option(name: str, hint: Any) -> Any:
    texts = [text for text in getattr(hint, "__metadata__", ()) if isinstance(text, str)]
    if not texts:
        return hint
    kind = get_args(hint)[0]
    if str in get_args(kind):  # what Python may give as a number or as texts is typed as one text
        kind = str | None
    elif Sequence[str] in get_args(kind):
        kind = list[str] | None
    names = texts[1:] or ([f"--{name.replace('_', '-')}"] if kind is bool else [])
    return Annotated[kind, typer.Option(*names, help=texts[0], show_default=False)]


def master_key_option(text: str) -> Any:
    """The option --master-key with this help."""
    return typer.Option(metavar="FILE", help=text, show_default=False)


def on_command_line(context: typer.Context, option: str) -> bool:
    """Whether an option was typed, rather than read from the environment or left out."""
    source = context.get_parameter_source(option)
    return source is not None and source.name == "COMMANDLINE"
