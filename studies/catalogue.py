"""The studies by name, and functions that parse parameters and print and write results."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, get_origin, get_type_hints

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from ..server.answers import tables as show
from ..server.words.text_table import TextTable
from ..server.wrong_value import wrong_value
from .frame import RunContext, StudyError, StudyParameters, StudyResult, write_csv

PICTURES = (".png", ".pdf", ".svg")


@dataclass(frozen=True)
class Study:
    """A study's help line and its features.

    Attributes:
        uses_all_cores: Whether it uses all cores unless --workers is given.
    """

    line: str
    takes_seed: bool = False
    takes_workers: bool = False
    uses_all_cores: bool = False
    has_figure: bool = True
    writes_csv: bool = False

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Suffixes of the files that the study writes."""
        return ((".csv",) if self.writes_csv else ()) + (PICTURES if self.has_figure else ())


STUDIES = {
    "scale": Study(
        "What a fleet of so many boards needs: set-up, machines, and what breaks first.",
        has_figure=False,
    ),
    "arrival": Study(
        "A power cut ends and all boards come back: how long that takes, with a random delay and without.",
        takes_seed=True,
    ),
    "ranges": Study(
        "Errors of ranges over days: central and local, flat and hierarchy, beside what theory says.",
        takes_seed=True,
        takes_workers=True,
        uses_all_cores=True,
        has_figure=False,
    ),
    "lifetime": Study(
        "A lifetime of reports: few large against many small ones, predicted and measured.",
        takes_seed=True,
        takes_workers=True,
        writes_csv=True,
    ),
    "reconstruction": Study(
        "What many questions rebuild, of a curator who draws noise anew and of one who keeps it.",
        takes_seed=True,
        takes_workers=True,
        uses_all_cores=True,
    ),
    "plan-check": Study(
        "A plan's errors beside those of simulated fleets; it takes what `hushmote plan` does.",
        takes_seed=True,
        takes_workers=True,
        has_figure=False,
    ),
    "composition": Study(
        "An adversary's view of 3 and of 3,000 releases; how many reports spend a budget.",
    ),
    "compose": Study(
        "What releases of different ε, pure or with a δ, are together under every theorem.",
    ),
    "curves": Study(
        "Composition theorems as curves: ε per report, what reports spend, how many there are.",
    ),
    "majority": Study(
        "The ε of each report by the majority rule, which is not LDP: its raw curve and the envelope.",
    ),
    "central": Study(
        "ε for a curator's answers with Laplace noise: Lee and Clifton's upper bound and the tight one.",
    ),
}


def run(name: str, parameters: StudyParameters, context: RunContext) -> StudyResult:
    """Run a study with its parameters; raises the study's own errors."""
    return _module(name).run(parameters, context)


def _module(name: str) -> Any:
    return import_module(f".{name.replace('-', '_')}", __package__)


def model(name: str) -> type[StudyParameters]:
    """Return the model of a study's parameters."""
    return get_type_hints(_module(name).run)["parameters"]


# --- Parameters -----------------------------------------------------------------------------------


def option(key: str) -> str:
    """Return the option that gives a parameter."""
    return f"--{key.replace('_', '-')}"


def parameters(name: str, texts: Mapping[str, Any]) -> StudyParameters:
    """Return a study's parameters from the texts of its options; a parameter of several values has a list.

    Each text may contain several values separated by commas, unless the parameter's values are lists
    themselves.

    Raises:
        StudyError: If a text is wrong; one line says what was wrong and what would be right.
    """
    fields = model(name).model_fields
    values = dict(texts)
    for key, field in fields.items():
        if key in values and get_origin(field.annotation) is tuple and field.json_schema_extra is None:
            values[key] = [one for text in values[key] for one in text.split(",")]
    try:
        return model(name)(**values)
    except ValidationError as e:
        raise StudyError(_mistake(name, fields, e)) from None


def _mistake(name: str, fields: Mapping[str, FieldInfo], error: ValidationError) -> str:
    """Return what is wrong with the first invalid parameter, and what would be right."""
    first = error.errors(include_url=False)[0]
    key = str(first["loc"][0]) if first["loc"] else ""
    if first["type"] == "missing":
        return f"study {name} needs {option(key)}: {fields[key].description}"
    return f"{option(key) if key else ''} {wrong_value(first)}".lstrip()


def default(field: FieldInfo) -> str:
    """Return a parameter's default as it would be typed, or "" if it has none."""
    value = field.default
    if value is PydanticUndefined or value is None or value is False:
        return ""
    return ",".join(map(_typed, value)) if isinstance(value, tuple) else _typed(value)


def _typed(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


# --- Results ----------------------------------------------------------------------------------------


def print_result(result: StudyResult) -> None:
    """Print a result's tables and paragraphs."""
    for part in result.output:
        if isinstance(part, TextTable):
            show.out.print(show.text_table(part))
        elif part.startswith("# "):
            show.out.print(part[2:], style="bold")
        else:
            show.out.print(part)


def write(name: str, result: StudyResult, path: Path) -> None:
    """Write a result's figure or rows, by the file's suffix; raise UsageError on failure."""
    if path.suffix.lower() == ".csv":
        write_csv(path, result.rows)
    else:
        _module(name).draw(path, result.figure_data)
