"""Reads existing readings from a column of a CSV file."""

import csv
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

from ..server.errors import HushmoteError, refusing

Reading = float | int | str | bool | tuple["Reading", ...] | None
"""A device's reading: a tuple for a pair, or None if there is no reading."""

_TRUE = ("1", "true", "yes")
_FALSE = ("0", "false", "no")
BOOLS = (*_TRUE, *_FALSE)
BLANK = ("", "na", "nan")
_QUOTED = re.compile(r'"[^"]*"')
_DECIMAL_COMMA = re.compile(r"\s*[-+]?(\d+|\d{1,3}(\.\d{3})+)?,\d+\s*", re.ASCII)


def is_blank(reading: Reading) -> bool:
    """Return whether a reading, or a part of a pair, is missing."""
    if isinstance(reading, tuple):
        return any(map(is_blank, reading))
    return reading is None or (isinstance(reading, float) and math.isnan(reading))


def read_column(path: Path | str, column: str, type: str, error: type[HushmoteError]) -> tuple[Reading, ...]:
    """Return the readings in a CSV file's column.

    A blank, NA or NaN cell is a missing reading. A bool is 1, true, yes, 0, false or no.

    Args:
        path: The file.
        column: The column's name.
        type: The experiment's type.
        error: The class of the one-line error to raise if there is no such file or column, or a text does not
            have the type.
    """
    readings: list[Reading] = []
    numbers = (column,) if type == "number" else ()
    for position, (cell,) in csv_rows(path, (column,), error, numbers=numbers):
        text = (cell or "").strip()
        try:
            readings.append(read_cell(text, type))
        except ValueError as e:
            raise error(f"{position}: {column} is {text!r}, {e}") from None
    return tuple(readings)


def csv_rows(
    path: Path | str,
    columns: Sequence[str],
    error: type[HushmoteError],
    optional: Sequence[str] = (),
    numbers: Sequence[str] = (),
) -> Iterator[tuple[str, list[str | None]]]:
    """Yield the position of each row of a CSV file (file and line) and its cells in the named columns.

    Cells are separated by commas, semicolons or tabs, as in the heading.

    Args:
        path: The file.
        columns: The columns to return.
        error: The class of the one-line error to raise if there is no such file, column or row.
        optional: Columns that may be missing, which yield None in each row.
        numbers: Columns of numbers; if the separator is not a comma, 1.234,5 is read as 1234.5.
    """
    is_empty = True
    with csv_table(path, error) as rows:
        column_names, is_comma_separated = rows.fieldnames or [], rows.reader.dialect.delimiter == ","
        for column in columns:
            if column not in column_names and column not in optional:
                raise error(f"{path} has no column {column!r}; it has {', '.join(column_names) or 'none'}")
        has_decimal_commas = [name in numbers and not is_comma_separated for name in columns]
        for row in rows:
            is_empty = False
            cells = [row.get(column) for column in columns]
            yield (
                f"{path}, line {rows.line_num}",
                [
                    _point(cell) if comma else cell
                    for cell, comma in zip(cells, has_decimal_commas, strict=True)
                ],
            )
    if is_empty:
        raise error(f"{path} has no rows below its heading")


@contextmanager
def csv_table(path: Path | str, error: type[HushmoteError]) -> Iterator["csv.DictReader[str]"]:
    """Open a CSV file with the delimiter used in its heading; raise `error` if that fails."""
    try:
        with refusing(error, f"read {path}"), open(path, newline="", encoding="utf-8-sig") as file:
            heading = file.readline()
            delimiter = max(",;\t", key=_QUOTED.sub("", heading).count)
            yield csv.DictReader(chain([heading], file), delimiter=delimiter)
    except (UnicodeDecodeError, csv.Error) as e:
        raise error(f"{path} is not a UTF-8 CSV file: {e}") from None


def _point(cell: str | None) -> str | None:
    """Return a number with its decimal comma replaced by a point, and any other text unchanged."""
    return cell.replace(".", "").replace(",", ".") if cell and _DECIMAL_COMMA.fullmatch(cell) else cell


def read_cell(text: str, type: str) -> Reading:
    """Return the reading in a cell of a CSV file.

    Raises:
        ValueError: If it does not have the type.
    """
    if text.lower() in BLANK:
        return None
    if type in ("choice", "text"):
        return text
    if type == "bool":
        if text.lower() not in BOOLS:
            raise ValueError(f"not one of {', '.join(BOOLS)}")
        return text.lower() in _TRUE
    try:
        return float(text)
    except ValueError:
        raise ValueError("not a number") from None
