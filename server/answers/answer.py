"""Answers: tables of rows that can be printed, plotted and exported."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from rich.console import RenderableType

from ..arrays import Floats
from ..errors import UsageError
from ..estimate.estimate import Estimates
from ..estimate.statistic import EstimateError
from ..extras import require
from ..local_days import UTC_DAYS, Calendar
from ..plain_text import CsvDialect, cell
from ..wire.experiments import scale_of
from ..words.scope import Population
from . import periods, tables
from .rows import CONFIDENCE, AnswerRows, FoundRow, Kind, Quantity, Row
from .tables import Printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


class Tables(Printable):
    """One or more tables, printed one below the other."""

    @property
    def _tables(self) -> Sequence[Answer]:
        raise NotImplementedError

    def to_csv(self, dialect: CsvDialect = "plain") -> str:
        """Return all tables as one CSV text, with each table's name in the first column.

        Cells that a spreadsheet would read as formulas, and control characters, are escaped.

        Args:
            dialect: "excel-eu" is for spreadsheets in languages with a decimal comma: semicolons between
                cells, decimal commas, and a byte-order mark, without which Excel does not read UTF-8.

        Raises:
            UsageError: If the dialect does not exist.
        """
        if dialect not in (dialects := get_args(CsvDialect)):
            raise UsageError(f"a CSV dialect must be {' or '.join(dialects)}, not {dialect}")
        is_european = dialect == "excel-eu"
        text = io.StringIO(newline="")
        text.write("\ufeff" if is_european else "")
        lines = self._lines()
        columns = list(dict.fromkeys(key for line in lines or [_NO_LINE] for key in line))
        delimiter, line_end = (";", "\r\n") if is_european else (",", "\n")
        writer = csv.DictWriter(text, columns, delimiter=delimiter, lineterminator=line_end)
        writer.writeheader()
        for line in lines:
            cells = {k: cell(json.dumps(v) if type(v) is tuple else v) for k, v in line.items()}
            if is_european:
                cells |= {k: str(v).replace(".", ",") for k, v in cells.items() if isinstance(v, float)}
            writer.writerow(cells)
        return text.getvalue()

    def to_pandas(self) -> DataFrame:
        """Return all tables as one data frame; its first columns are name, value, low, high and se.

        The rows of a trend are indexed by the start of their window, in the experiment's time zone.

        Raises:
            ExtraMissing: If pandas is not installed.
        """
        calendar = self._tables[0].calendar if self._tables else UTC_DAYS
        return _data_frame(self._lines(), _NO_LINE, calendar)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the same table as an Arrow stream, for Polars, DuckDB and other Arrow readers.

        Raises:
            ExtraMissing: If pyarrow is not installed.
        """
        require("pyarrow", "Arrow")
        import pyarrow

        table = pyarrow.Table.from_pylist(self._lines() or [_NO_LINE])
        return table.slice(0, len(self._lines())).__arrow_c_stream__(requested_schema)

    def plot(self, path: Path | str | None = None, title: str = "", subtitle: str = "") -> Figure:
        """Plot the tables, and save the figure to `path` if given.

        Args:
            path: The file to write; its suffix selects PNG, PDF or SVG.
            title: The title; by default the experiment, fleet and windows.
            subtitle: The line below the title; by default the number of reports.
        """
        require("matplotlib", "a picture")
        from .plot import plot  # imported lazily because matplotlib takes a second to load

        answers = [table.limit_rows() for table in self._tables]
        return plot(None if path is None else Path(path), answers, title, subtitle)

    def _lines(self) -> list[dict[str, Any]]:
        return [
            {
                "kind": table.kind,
                "quantity": table.quantity,
                **({"approximate": True} if table.approximate else {}),
            }
            | row.to_dict()
            for table in self._tables
            for row in table.rows
        ]

    def __rich__(self) -> RenderableType:
        return tables.stack_tables(self._tables)

    def _repr_html_(self) -> str:
        return "".join(map(tables.html, self._tables))


@dataclass(frozen=True, repr=False)
class Answer(Tables, AnswerRows):
    """A table of results with the fields of AnswerRows, printed 80 columns wide."""

    @property
    def _tables(self) -> Sequence[Answer]:
        return (self,)

    @property
    def value(self) -> float:
        """The first row's value; tables of a single share or quantile have only this row."""
        return self._first.value

    @property
    def low(self) -> float:
        """The lower bound of the first row's interval."""
        return self._first.low

    @property
    def high(self) -> float:
        """The upper bound of the first row's interval."""
        return self._first.high

    @property
    def se(self) -> float | None:
        """The first row's standard error, or None if its interval is not based on one."""
        return self._first.se

    @property
    def _first(self) -> Row:
        if not self.rows:
            raise EstimateError(f"this table of {self.experiment} has no rows")
        return self.rows[0]

    def conf_int(self, alpha: float = 0.05) -> Floats:
        """Return each row's interval at a different confidence level.

        Args:
            alpha: One minus the confidence, between 0 and 1.

        Returns:
            Lower and upper bounds, shape (rows, 2).

        Raises:
            EstimateError: If alpha is not between 0 and 1, or a row is not based on a single statistic.
        """
        ends = list[tuple[float, float]]()
        for row in self.rows:
            if row.statistic is None:
                raise EstimateError(
                    f"{row.name} has only one interval; for another, estimate with confidence={1 - alpha:g}"
                )
            ends.append(row.statistic.interval(1 - alpha))
        return np.array(ends).reshape(-1, 2)

    def to_json(self) -> str:
        """Return one JSON document."""
        return json.dumps(self.to_dict(), indent=2)

    def to_pandas(self) -> DataFrame:
        """Return the rows as a data frame; its first columns are name, value, low, high and se.

        The rows of a trend are indexed by the start of their window, in the experiment's time zone.

        Raises:
            ExtraMissing: If pandas is not installed.
        """
        return _data_frame((row.to_dict() for row in self.rows), _NO_ROW, self.calendar)


@dataclass(frozen=True)
class Frame:
    """The fields shared by all tables that answer one question.

    Attributes:
        unit: The unit of the readings, or "".
        confidence: The confidence of the intervals, between 0 and 1.
        about: A description of the reports that the table is based on.
        against: For a change, a description of the reports it is compared with.
        calendar: The experiment's calendar.
        population: What shares are shares of.
    """

    unit: str = ""
    confidence: float = CONFIDENCE
    about: str = ""
    against: str = ""
    calendar: Calendar = UTC_DAYS
    population: Population = "devices"

    def answer(
        self, kind: Kind, estimates: Estimates, rows: Iterable[Row], quantity: Quantity = "share", **more: Any
    ) -> Answer:
        """Return a table with these rows and this frame's fields.

        Args:
            kind: The kind of question that the table answers.
            estimates: The estimates that the rows come from.
            rows: The rows, all of the same class.
            quantity: Whether the rows' values are shares or readings.
            more: Other fields of the Answer.
        """
        fields = {"experiment": estimates.experiment.name, "reports": estimates.reports, "quantity": quantity}
        fields |= {"approximate": estimates.approximate, "scale": scale_of(estimates.experiment)}
        return Answer(kind=kind, rows=tuple(rows), **(fields | vars(self) | more))


PLAIN = Frame()


class Answers(Tables, tuple[Answer, ...]):
    """Several tables, printed one below the other."""

    @property
    def _tables(self) -> Sequence[Answer]:
        return self


_FIRST = ("name", "value", "low", "high", "se")
_NO_ROW = FoundRow("", 0.0, 0.0, 0.0).to_dict()
"""The columns of an empty table; only a discovery can have no rows."""
_NO_LINE = {"kind": "discovery", "quantity": "share"} | _NO_ROW


def _data_frame(lines: Iterable[dict[str, Any]], empty_line: dict[str, Any], calendar: Calendar) -> DataFrame:
    """Return the lines as a data frame; if there are none, it has the columns of `empty_line`."""
    require("pandas", "to_pandas")
    import pandas

    rows = list(lines)
    columns = dict.fromkeys(key for line in rows or [empty_line] for key in line)
    frame = pandas.DataFrame(rows, columns=list(dict.fromkeys([*_FIRST, *columns])))
    starts = [periods.group_start(line.get("window", "all"), calendar) for line in rows]
    if starts and None not in starts:
        frame.index = pandas.DatetimeIndex(starts, name="start")
    return frame
