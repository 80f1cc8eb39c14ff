"""`hushmote study NAME` for every study in studies/; its parameter model's fields are the options."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from ..server.answers import tables as show
from ..simulator.workers import workers
from ..studies import catalogue
from ..studies.catalogue import STUDIES
from ..studies.frame import RunContext
from .options import AsJson, WorkersOption, keyword, print_json, set_parameters
from .output import check_paths, describe_suffixes, output_option
from .progress import progress

Seed = Annotated[
    int | None,
    typer.Option(
        help="Repeat a run exactly, with simulated noise; by default OpenDP draws the noise.", min=0
    ),
]

study_app = typer.Typer()


def _run(name: str, values: dict[str, Any]) -> None:
    study = STUDIES[name]
    as_json, division = values.pop("as_json"), values.pop("workers", None)
    paths = check_paths(values.pop("output", None), *study.suffixes)
    seed = values.pop("seed", None)
    options = {key: value for key, value in values.items() if value not in (None, False, [])}
    parameters = catalogue.parameters(name, options)
    with workers(division, study.uses_all_cores) as pool, progress(f"study {name}", 1.0) as advance:
        result = catalogue.run(name, parameters, RunContext(seed, pool, advance))
    for path in paths:
        catalogue.write(name, result, path)
    if as_json:
        print_json(result.json)
        return
    catalogue.print_result(result)
    for path in paths:
        show.out.print(f"written: {path}", soft_wrap=True)


def _option(key: str, field: FieldInfo) -> Any:
    """Return the option for a parameter, which accepts text that the model validates."""
    kinds = {field.annotation, *get_args(field.annotation)}
    kind: Any = str | None
    metavar = "NUMBER" if kinds & {int, float} else "TEXT"
    if field.annotation is bool:
        kind, metavar = bool, None
    elif get_origin(field.annotation) is tuple:
        kind, metavar = list[str] | None, f"{metavar},..."
    elif get_origin(field.annotation) is Literal:
        metavar = "|".join(get_args(field.annotation))
    default = catalogue.default(field)
    option = typer.Option(
        catalogue.option(key), help=field.description, metavar=metavar, show_default=default or False
    )
    return Annotated[kind, option]


def _command(name: str) -> Callable[..., None]:
    study = STUDIES[name]
    hints = {key: _option(key, field) for key, field in catalogue.model(name).model_fields.items()}
    hints |= {"seed": Seed} if study.takes_seed else {}
    if study.suffixes:
        hints["output"] = Annotated[list[Path] | None, output_option(describe_suffixes(*study.suffixes))]
    hints |= {"workers": WorkersOption} if study.takes_workers else {}
    hints["as_json"] = AsJson

    def call(**values: Any) -> None:
        _run(name, values)

    parameters = [
        keyword(key, hint, False if get_args(hint)[0] is bool else None) for key, hint in hints.items()
    ]
    set_parameters(call, parameters)
    return call


for _name, _study in STUDIES.items():
    study_app.command(_name, help=_study.line)(_command(_name))
