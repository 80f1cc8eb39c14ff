"""The studies by name: what each takes, how its parameters are read, how its result is shown and written."""

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, get_origin, get_type_hints

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from ..server.answers import tables as show
from ..server.wrong_value import wrong_value
from .frame import Running, StudyError, StudyParameters, StudyResult, StudyTable, write_csv

PICTURES = (".png", ".pdf", ".svg")


@dataclass(frozen=True)
class Study:
    """A study's line of help, and what it takes.

    example: parameters to try. seeded: it draws, and takes a seed. divided: it takes workers. pool: it has
    all cores where nobody says how many. pictured: it has a picture. tabular: it writes CSV.
    """

    line: str
    example: str = ""
    seeded: bool = False
    divided: bool = False
    pool: bool = False
    pictured: bool = True
    tabular: bool = False

    @property
    def suffixes(self) -> tuple[str, ...]:
        """The suffixes of the files that it writes."""
        return ((".csv",) if self.tabular else ()) + (PICTURES if self.pictured else ())


STUDIES = {
    "scale": Study(
        "What a fleet of so many boards needs: set-up, machines, and what breaks first.",
        "boards=2000000 every=1w",
        pictured=False,
    ),
    "arrival": Study(
        "A power cut ends and all boards come back: how long that takes, with a random delay and without.",
        "boards=20000",
        seeded=True,
    ),
    "ranges": Study(
        "Errors of ranges over days: central and local, flat and hierarchy, beside what theory says.",
        "quick=yes",
        seeded=True,
        divided=True,
        pool=True,
        pictured=False,
    ),
    "lifetime": Study(
        "A life of reports: few large against many small ones, predicted and measured.",
        "quick=yes",
        seeded=True,
        divided=True,
        tabular=True,
    ),
    "reconstruction": Study(
        "What many questions rebuild, of a curator who draws noise anew and of one who keeps it.",
        "epsilon=0.2",
        seeded=True,
        divided=True,
        pool=True,
    ),
    "plan-check": Study(
        "A plan's errors beside those of simulated fleets; it takes what `hushmote plan` does.",
        "devices=5000 epsilon=1 values=yes-no fleets=100",
        seeded=True,
        divided=True,
        pictured=False,
    ),
    "composition": Study(
        "An adversary's view of 3 and of 3,000 releases; how many reports spend a budget.",
        "epsilon=0.1 total=10",
    ),
    "compose": Study(
        "What releases of different ε, pure or with a δ, are together under every theorem.",
        "releases=0.1x12,0.5x3 delta=1e-6",
    ),
    "curves": Study(
        "Composition theorems as curves: ε per report, what reports spend, how many there are.",
        "show=reports totals=2",
    ),
    "majority": Study(
        "The ε of each report by the majority rule, which is not LDP: its raw curve and the envelope.",
        "total=2 reports=20",
    ),
    "central": Study(
        "ε for a curator's answers with Laplace noise: Lee and Clifton's upper bound and the tight one.",
        "records=1,2,3,10 risk=1/3 queries=mean",
    ),
}


def study(name: str) -> Study:
    """Return a study by its name; StudyError lists the names where there is none."""
    if name not in STUDIES:
        raise StudyError(f"there is no study {name}; there are {', '.join(STUDIES)}")
    return STUDIES[name]


def run(name: str, parameters: StudyParameters, running: Running) -> StudyResult:
    """Run a study with parameters of asked(). Raises the study's own errors."""
    return _module(name).run(parameters, running)


def _module(name: str) -> Any:
    study(name)
    return import_module(f".{name.replace('-', '_')}", __package__)


def _model(name: str) -> type[StudyParameters]:
    return get_type_hints(_module(name).run)["asked"]


# --- Parameters -----------------------------------------------------------------------------------


def asked(name: str, texts: Iterable[str]) -> StudyParameters:
    """Return a study's parameters from NAME=VALUE texts.

    A parameter with several values takes them with commas between; one of lists is given once for each.
    StudyError says in one line what was wrong and what would be right.
    """
    model = _model(name)
    known = model.model_fields
    given: dict[str, list[str]] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if key not in known or not equals:
            what = f"has no parameter {key}" if equals else f"takes NAME=VALUE, not {text}"
            raise StudyError(f"study {name} {what}; its parameters: {', '.join(known) or 'none'}")
        given.setdefault(key, []).append(value)
    values: dict[str, Any] = {}
    for key, several in given.items():
        field = known[key]
        if get_origin(field.annotation) is tuple:
            repeated = field.json_schema_extra is not None
            values[key] = several if repeated else [one for text in several for one in text.split(",")]
        elif len(several) > 1:
            raise StudyError(f"{key} is given {len(several)} times: once is enough")
        else:
            values[key] = several[0]
    try:
        return model(**values)
    except ValidationError as e:
        raise StudyError(_mistake(name, known, e)) from None


def _mistake(name: str, known: dict[str, FieldInfo], error: ValidationError) -> str:
    """Say what is wrong with the first bad parameter, and what would be right."""
    first = error.errors(include_url=False)[0]
    key = str(first["loc"][0]) if first["loc"] else ""
    if first["type"] == "missing":
        return f"study {name} needs {key}=: {known[key].description}"
    return f"{key} {wrong_value(first)}".lstrip()


def parameters(name: str) -> list[tuple[str, str, str]]:
    """Each parameter of a study: its name, its line of help, its default as it would be typed."""
    listed = []
    for key, field in _model(name).model_fields.items():
        note = ""
        if field.default is not PydanticUndefined and field.default is not None:
            default = field.default
            note = ",".join(map(_typed, default)) if isinstance(default, tuple) else _typed(default)
        listed.append((key, field.description or "", note))
    return listed


def _typed(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


# --- Results ----------------------------------------------------------------------------------------


def print_result(result: StudyResult) -> None:
    """Print a result's tables and paragraphs."""
    for part in result.shown:
        if isinstance(part, StudyTable):
            table = show.table(part.title)
            for i, heading in enumerate(part.headings):
                table.add_column(heading, justify="left" if i in part.left else "right")
            for row in part.rows:
                table.add_row(*row)
            show.out.print(table)
        elif part.startswith("# "):
            show.out.print(part[2:], style="bold")
        else:
            show.out.print(part)


def write(name: str, result: StudyResult, path: Path) -> None:
    """Write a result's picture or its rows, by the file's suffix. UsageError where that cannot be done."""
    if path.suffix.lower() == ".csv":
        write_csv(path, result.rows)
    else:
        _module(name).draw(path, result.pictured)
