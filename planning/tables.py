"""Tables of readings: a CSV file, which pandas splits into cells, or a list in memory."""

import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO
from unicodedata import normalize

import numpy as np

from ..server.arrays import Bools, Counts
from ..server.errors import HushmoteError
from ..server.extras import require
from ..server.plain_text import shorten
from ..server.words.numbers import counted
from .csv_form import DELIMITERS, find_form, readable

if TYPE_CHECKING:
    from pandas import DataFrame

MAX_SKIPPED = 0.05
"""Largest share of a table's rows, and of a column's cells with a value, that may be skipped as invalid."""

_CHUNK_ROWS, _CHUNK_CELLS = 1 << 13, 1 << 22
_MAX_LISTED = 500  # characters of the columns' names in a message
_OPEN_QUOTE = re.compile(r"EOF inside string starting at row (\d+)")
_WIDE_ROW = "Skipping line "  # in pandas' warning about a row with too many cells

Chunk = list[tuple[Counts, list[str]]]
"""Some rows: for each column, the index of each cell's text, and the different texts."""


class Table:
    """Rows of cells with names for the columns.

    Attributes:
        title: The file's path; "" if there is none.
        names: The columns' names.
        error: The class of the one-line error to raise for invalid content.
        delimiter: The character between cells, or "".
        decimal: The decimal separator in the columns whose numbers are unambiguous, or "".
        units: The columns' units, from a line of units; "" if there is none.
        assumptions: Sentences on what was assumed; complete after all rows were read.
    """

    def __init__(self, title: str, names: Sequence[str], error: type[HushmoteError]):
        self.title, self.names, self.error = title, tuple(names), error
        self.delimiter, self.decimal = "", ""
        self.units: tuple[str, ...] = ("",) * len(self.names)
        self.assumptions: tuple[str, ...] = ()

    def chunks(self, columns: Sequence[int]) -> Iterator[Chunk]:
        """Yield the rows' cells in some columns; raise `error` if there are no rows."""
        raise NotImplementedError

    def cell(self, row: int, column: str) -> str:
        """Return a row's cell in a column, for messages; rows are counted from 0."""
        raise NotImplementedError

    def where(self, column: int) -> str:
        """Return the name of a column, for messages."""
        return f"{self.names[column]} of {self.title}" if self.title else self.names[column]

    def rows(self, columns: Sequence[int]) -> Iterator[list[str]]:
        """Yield the cells of each row in some columns."""
        for chunk in self.chunks(columns):
            cells = ([texts[i] for i in codes.tolist()] for codes, texts in chunk)
            yield from map(list, zip(*cells, strict=True))

    def index(self, wanted: str | int) -> int:
        """Return the index of the column with this name or number, or whose name alone begins with it.

        Args:
            wanted: A name, the beginning of it, a number such as "#3", or the index itself.

        Raises:
            error: If there is no such column, or more than one.
        """
        if isinstance(wanted, int):
            return wanted
        name = " ".join(wanted.split())
        for matches in (
            [i for i, other in enumerate(self.names) if other == name],
            [i for i in range(len(self.names)) if f"#{i + 1}" == name],
            [i for i, other in enumerate(self.names) if other.lower() == name.lower()],
            [i for i, other in enumerate(self.names) if other.lower().startswith(name.lower())],
        ):
            if len(matches) > 1 and name:
                choices = " or ".join(f"#{i + 1}" for i in matches)
                raise self.error(f"{self.title}: {wanted!r} matches {len(matches)} columns; use {choices}")
            if matches and name:
                return matches[0]
        listed = shorten(", ".join(filter(None, self.names)), _MAX_LISTED) or "none"
        raise self.error(f"{self.title} has no column {wanted!r}; it has {listed}")


class CsvTable(Table):
    """The rows of a CSV file."""

    def __init__(self, path: Path | str, wanted: Sequence[str], error: type[HushmoteError]):
        """Find the file's form.

        Args:
            path: The file.
            wanted: Names of columns that will be read.
            error: The class of the one-line error to raise if the file is unreadable or its form unclear.

        Raises:
            ExtraMissing: If pandas is not installed.
        """
        require("pandas", "a CSV file of readings")
        self._form = find_form(Path(path), wanted, error)
        super().__init__(str(path), self._form.names, error)
        self.delimiter, self.decimal = self._form.delimiter, self._form.decimal
        self.units, self.assumptions = self._form.units, self._form.assumptions

    def chunks(self, columns: Sequence[int]) -> Iterator[Chunk]:
        import pandas

        row_count, has_blank_rows, waiting = 0, False, pandas.DataFrame()
        unsplit_rows: list[int] = []
        with readable(self._form.path, self.error), self._form.open() as text:
            for cells in self._frames(text):
                # Spreadsheets save rows of mere delimiters at the end, so blank rows wait for others.
                frame = pandas.concat([waiting, cells])
                filled: Bools = np.asarray(frame.ne("")).astype(bool)
                is_filled = np.asarray(filled.any(axis=1))
                count = 1 + int(np.flatnonzero(is_filled)[-1:].max(initial=-1))
                has_blank_rows = has_blank_rows or not is_filled[:count].all()
                frame, waiting = frame[:count], frame[count:]
                if len(self.names) > 1:
                    alone = np.flatnonzero(filled[:count, 0] & (filled[:count].sum(axis=1) == 1))
                    first_cells = np.asarray(frame[0], object)[alone].tolist()
                    is_unsplit = np.array([self._is_unsplit(cell) for cell in first_cells], bool)
                    unsplit_rows += (row_count + alone[is_unsplit]).tolist()
                row_count += count
                if count:
                    yield [_distinct(frame[column]) for column in columns]
        if len(unsplit_rows) > max(1, MAX_SKIPPED * row_count):
            raise self.error(
                f"{self.position(unsplit_rows[0])} has no {self.delimiter!r} between its cells, like "
                f"{counted(len(unsplit_rows) - 1, 'other row')}; use the same delimiter in all rows"
            )
        if has_blank_rows and len(waiting):
            yield [_distinct(waiting[column]) for column in columns]
        if not row_count:
            raise self.error(f"{self.title} has no rows below its heading")

    def _is_unsplit(self, cell: str) -> bool:
        """Return whether the only cell of a row seems to contain others, behind another delimiter."""
        return any(d in cell for d in DELIMITERS if d != self.delimiter)

    def _frames(self, text: TextIO) -> Iterator["DataFrame"]:
        """Yield some rows at a time, as texts, and check the number of rows that have too many cells."""
        import pandas

        row_count = wide_count = 0
        try:
            frames = pandas.read_csv(
                text,
                sep=self.delimiter,
                header=None,
                names=range(len(self.names)),
                index_col=False,
                dtype=object,
                na_filter=False,
                skipinitialspace=True,
                on_bad_lines="warn",
                chunksize=max(1, min(_CHUNK_ROWS, _CHUNK_CELLS // len(self.names))),
            )
            while True:
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always", pandas.errors.ParserWarning)
                    frame = next(frames, None)
                wide_count += sum(str(warning.message).count(_WIDE_ROW) for warning in caught)
                if frame is None:
                    break
                row_count += len(frame)
                yield frame
        except pandas.errors.ParserError as e:
            open_quote = _OPEN_QUOTE.search(str(e))
            if open_quote:
                line = self._form.line_after(int(open_quote[1]))
                raise self.error(f"{self.title}, line {line}: a cell's quote is not closed") from None
            raise self.error(f"{self.title} is not a CSV file: {e}") from None
        if wide_count:
            self._check_wide_rows(row_count + wide_count, wide_count)

    def _check_wide_rows(self, row_count: int, wide_count: int) -> None:
        what = f"{self.title}, line {self._form.line_of(0, is_wide=True)} has more cells than the heading"
        if wide_count > MAX_SKIPPED * row_count:
            raise self.error(
                f"{what}, as {wide_count:,} of {counted(row_count, 'row')} do; "
                "quote cells that contain the delimiter"
            )
        others = f"; {wide_count:,} such rows were skipped." if wide_count > 1 else ", so it was skipped."
        note = f"{what}{others}"
        if note not in self.assumptions:
            self.assumptions = (*self.assumptions, note)

    def position(self, row: int) -> str:
        """Return where a row is, for messages; rows are counted from 0."""
        return f"{self.title}, line {self._form.line_of(row)}"

    def cell(self, row: int, column: str) -> str:
        return f"{self.position(row)}: {column}"


class ListTable(Table):
    """One column of values in memory: a list, an array, or a column of a data frame."""

    def __init__(self, values: Iterable[Any], error: type[HushmoteError]):
        """Take the values.

        Args:
            values: Numbers, texts or bools; None and NaN are missing. A data frame's column has a name.
            error: The class of the one-line error to raise for invalid content.
        """
        if getattr(values, "ndim", 1) != 1:
            raise error("the readings must have one dimension, such as a data frame's column: frame['NAME']")
        super().__init__("", [str(getattr(values, "name", None) or "the list")], error)
        self._texts = ["" if value is None else normalize("NFC", str(value).strip()) for value in values]

    def chunks(self, columns: Sequence[int]) -> Iterator[Chunk]:
        if not self._texts:
            raise self.error("the list has no readings")
        numbers: dict[str, int] = {}
        codes = np.array([numbers.setdefault(text, len(numbers)) for text in self._texts])
        yield [(codes, list(numbers)) for _ in columns]

    def cell(self, row: int, column: str) -> str:
        return f"item {row} of {column}"


def _distinct(cells: Any) -> tuple[Counts, list[str]]:
    """Return each cell's number, and the numbered texts in the form NFC, which labels have."""
    codes, texts = cells.factorize()
    return codes, [normalize("NFC", text.strip()) for text in texts.tolist()]


def split_source(source: str) -> tuple[str, str]:
    """Return the path and the column of FILE:COLUMN, both of which may contain colons.

    Both are "" for a file without a column.
    """
    for colon in re.finditer(":", source):
        if Path(source[: colon.start()]).is_file():
            return source[: colon.start()], source[colon.end() :]
    if Path(source).is_file():
        return "", ""
    path, _, column = source.rpartition(":")
    return path, column
