"""A study's interface, which turns parameters into a result for text, JSON, CSV and figures.

A study is a module in this folder with a function `run(parameters, context)`. The type of `parameters` is a
subclass of StudyParameters. `run` returns a StudyResult, whose rows are plain values by name: JSON and CSV
contain them as they are, and table() formats them. A study with a figure also has a function
`draw(path, figure_data)`. Only that function imports drawing.py, because matplotlib is slow to load.
`catalogue.py` lists the studies.
"""

import csv
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from ..server.errors import HushmoteError, UsageError, refusing
from ..server.words.text_table import TextTable
from ..simulator.worker_pool import THIS_PROCESS, Workers

Row = dict[str, Any]
"""Plain values by name."""


class StudyError(HushmoteError):
    """The study cannot run; the message says what was expected."""


class StudyParameters(BaseModel):
    """A study's parameters, each with its default, bounds and help line."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def table(
    title: str, headings: str, cells: str, rows: Iterable[Row], left_columns: Sequence[int] = (0,)
) -> TextTable:
    """Return a table of rows; headings and cells are separated by |, as in "{questions:,} | {spent:.1f}"."""
    forms = [form.strip() for form in cells.split("|")]
    named = [heading.strip() for heading in headings.split("|")]
    return TextTable(title, named, [[form.format_map(row) for form in forms] for row in rows], left_columns)


@dataclass(frozen=True)
class StudyResult:
    """A study's result.

    Attributes:
        json: Plain values for JSON.
        output: The tables and paragraphs to print; a paragraph that starts with "# " is bold.
        figure_data: The argument of the study's draw().
        rows: The rows of a CSV file, plain values by column.
    """

    json: Any
    output: Sequence[TextTable | str]
    figure_data: Any = None
    rows: Sequence[Row] = ()


@dataclass(frozen=True)
class RunContext:
    """A study's seed or None, its workers, and a callback that receives additional progress, as a share."""

    seed: int | None = None
    workers: Workers = THIS_PROCESS
    advance: Callable[[float], object] = lambda _: None


def write_csv(
    path: Path, rows: Sequence[Row], form: Callable[[float], object] = float, end: str = "\r\n"
) -> None:
    """Write rows to a CSV file with a heading line.

    Args:
        path: The file.
        rows: The rows, all with the same columns.
        form: Function that formats floats.
        end: The line ending.
    """
    with refusing(UsageError, f"write {path}"), path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator=end)
        writer.writeheader()
        for row in rows:
            writer.writerow({k: form(v) if isinstance(v, float) else v for k, v in row.items()})
