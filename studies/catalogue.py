"""The studies by name, and functions to parse parameters and to print and write results."""

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
    """A study's help line and features.

    Attributes:
        uses_all_cores: Whether the study uses all cores unless --workers is given.
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
        "A fleet's needs: set-up, machines, and the limit that is reached first.",
        has_figure=False,
    ),
    "arrival": Study(
        "The time until all boards reconnect after a power cut, with and without a random delay.",
        takes_seed=True,
    ),
    "ranges": Study(
        "Errors of ranges over days compared with theory: central and local, flat and hierarchy.",
        takes_seed=True,
        takes_workers=True,
        uses_all_cores=True,
        has_figure=False,
    ),
    "lifetime": Study(
        "A lifetime of reports: a few large ones or many small ones, predicted and measured.",
        takes_seed=True,
        takes_workers=True,
        writes_csv=True,
    ),
    "reconstruction": Study(
        "Reconstruction by many questions to a curator whose noise is new each time or kept.",
        takes_seed=True,
        takes_workers=True,
        uses_all_cores=True,
    ),
    "plan-check": Study(
        "A plan's errors compared with simulated fleets; accepts the options of `hushmote plan`.",
        takes_seed=True,
        takes_workers=True,
        has_figure=False,
    ),
    "composition": Study(
        "An adversary's view of 3 and 3,000 releases, and the reports that a budget allows.",
    ),
    "compose": Study(
        "The combined guarantee of releases with different ε, pure or with a δ, by every theorem.",
    ),
    "curves": Study(
        "Composition theorems as curves: ε per report, total cost, and number of reports.",
    ),
    "majority": Study(
        "The ε of each report by the majority rule, which is not LDP: its raw curve and the envelope.",
    ),
    "central": Study(
        "ε for a curator's answers with Laplace noise: Lee and Clifton's upper bound and the tight one.",
    ),
}


def run(name: str, parameters: StudyParameters, context: RunContext) -> StudyResult:
    """Run a study with its parameters; raise the study's own errors."""
    return _module(name).run(parameters, context)


def _module(name: str) -> Any:
    return import_module(f".{name.replace('-', '_')}", __package__)


def model(name: str) -> type[StudyParameters]:
    """Return the model of a study's parameters."""
    return get_type_hints(_module(name).run)["parameters"]


# --- Parameters -----------------------------------------------------------------------------------


def option(key: str) -> str:
    """Return a parameter's command-line option."""
    return f"--{key.replace('_', '-')}"


def parameters(name: str, texts: Mapping[str, Any]) -> StudyParameters:
    """Return a study's parameters from its options' texts; a parameter with several values has a list.

    Each text may contain several values separated by commas, unless the parameter's values are lists
    themselves.

    Raises:
        StudyError: If a text is invalid; the message says what was expected.
    """
    fields = model(name).model_fields
    values = dict(texts)
    for key, field in fields.items():
        if key in values and get_origin(field.annotation) is tuple and field.json_schema_extra is None:
            values[key] = [part for text in values[key] for part in text.split(",")]
    try:
        return model(name)(**values)
    except ValidationError as e:
        raise StudyError(_mistake(name, fields, e)) from None


def _mistake(name: str, fields: Mapping[str, FieldInfo], error: ValidationError) -> str:
    """Return a message about the first invalid parameter that says what was expected."""
    first = error.errors(include_url=False)[0]
    key = str(first["loc"][0]) if first["loc"] else ""
    if first["type"] == "missing":
        return f"study {name} needs {option(key)}: {fields[key].description}"
    return f"{option(key) if key else ''} {wrong_value(first)}".lstrip()


def default(field: FieldInfo) -> str:
    """Return a parameter's default as a user would type it, or "" if it has none."""
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
