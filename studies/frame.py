"""One frame for all studies: parameters in, a result out; text, JSON, CSV and pictures are made from it.

A study is a module of this folder with a function `run(asked, running)`. The type of `asked` is a model of
its parameters, a subclass of StudyParameters. `run` returns a StudyResult. What it found are rows, plain
values by name: JSON and CSV have them as they are, and table() prints them. A study with a picture has a
function `draw(path, pictured)`, too. matplotlib takes a second to load, so only that function imports it, by
drawing.py. `catalogue.py` names the studies.
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
"""What is known of one thing: plain values by name."""


class StudyError(HushmoteError):
    """The study cannot run; the text says what would be right."""


class StudyParameters(BaseModel):
    """The parameters of a study, each with its default, bounds and a line of help."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def table(
    title: str, headings: str, cells: str, rows: Iterable[Row], left_columns: Sequence[int] = (0,)
) -> TextTable:
    """A table of rows; headings, cells: with bars between, cells as "{questions:,} | {spent:.1f}"."""
    forms = [form.strip() for form in cells.split("|")]
    named = [heading.strip() for heading in headings.split("|")]
    return TextTable(title, named, [[form.format_map(row) for form in forms] for row in rows], left_columns)


@dataclass(frozen=True)
class StudyResult:
    """What a study found.

    json: plain values. shown: tables and paragraphs as they are printed, a paragraph with "# " in bold.
    pictured: what the study's picture is drawn from. rows: of a CSV file, plain values by their column.
    """

    json: Any
    output: Sequence[TextTable | str]
    figure_data: Any = None
    rows: Sequence[Row] = ()


@dataclass(frozen=True)
class RunContext:
    """How a study runs: the seed, None for none; the workers; a function told how much more is done, of 1."""

    seed: int | None = None
    workers: Workers = THIS_PROCESS
    advance: Callable[[float], object] = lambda _: None


def write_csv(
    path: Path, rows: Sequence[Row], form: Callable[[float], object] = float, end: str = "\r\n"
) -> None:
    """Write rows below a line of headings; form: how floats are written; end: of a line."""
    with refusing(UsageError, f"write {path}"), path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator=end)
        writer.writeheader()
        for row in rows:
            writer.writerow({k: form(v) if isinstance(v, float) else v for k, v in row.items()})
