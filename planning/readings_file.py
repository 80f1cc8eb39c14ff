"""Reads readings from columns of a table, as loggers, spreadsheets and meters write them.

What a cell means is decided for its whole column: the decimal separator, the unit, and the values that mean
that there is no reading.
"""

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..server.arrays import Bools
from ..server.plain_text import shorten
from ..server.words.numbers import counted
from .column_survey import Survey, decimal_of, find_sentinels, survey
from .tables import MAX_SKIPPED, Table
from .written_numbers import ReadingRules, is_blank_text, parse_number

Reading = float | int | str | bool | tuple["Reading", ...] | None
"""A device's reading: a tuple for a pair, or None if there is no reading."""

_MAX_QUOTED = 60  # characters of a cell in a message
_TRUE = ("1", "true", "yes", "on", "1.0")
_FALSE = ("0", "false", "no", "off", "0.0")
BOOLS = (*_TRUE, *_FALSE)


@dataclass(frozen=True)
class ColumnType:
    """A column to read, and the type of its readings.

    Attributes:
        name: The column's name, the beginning of it, its number, such as "#3", or its index.
        type: "number", "bool", or another type, whose readings are texts.
        labels: Texts that are readings even if they look like a missing one, such as "none".
        is_exact: Whether every cell must have the type; otherwise up to 5% are skipped.
    """

    name: str | int
    type: str
    labels: tuple[str, ...] = ()
    is_exact: bool = False


@dataclass(frozen=True)
class Readings:
    """The readings in some columns of a table.

    Attributes:
        columns: The readings of each column, in the order of the rows; None for a missing one.
        units: The unit behind each column's numbers, or "".
        notes: Sentences on what was assumed and what was left out.
    """

    columns: tuple[tuple[Reading, ...], ...]
    units: tuple[str, ...]
    notes: tuple[str, ...]


def is_blank(reading: Reading) -> bool:
    """Return whether a reading, or a part of a pair, is missing."""
    if isinstance(reading, tuple):
        return any(map(is_blank, reading))
    return reading is None or (isinstance(reading, float) and math.isnan(reading))


def read_readings(table: Table, columns: Sequence[ColumnType], rules: ReadingRules | None = None) -> Readings:
    """Return the readings in some columns.

    Raises:
        table.error: If a column does not exist, if its numbers can be read in two ways, or if more than 5% of
            its cells do not have its type.
    """
    rules = rules or ReadingRules()
    indices = [table.index(column.name) for column in columns]
    parsers = [_Parser(table, column, i, rules) for column, i in zip(columns, indices, strict=True)]
    rows_before, invalid_rows = 0, list[Bools]()
    for chunk in table.chunks(indices):
        is_valid = [
            parser.add(codes, texts, rows_before)
            for parser, (codes, texts) in zip(parsers, chunk, strict=True)
        ]
        invalid_rows.append(~np.logical_and.reduce(is_valid))
        rows_before += len(invalid_rows[-1])
    is_invalid = np.concatenate(invalid_rows)
    notes = list(table.assumptions)
    readings: list[tuple[Reading, ...]] = []
    for parser in parsers:
        parser.check()
        readings.append(parser.readings(~is_invalid, rules.keep))
        notes += parser.notes
    units = tuple(parser.unit for parser in parsers)
    return Readings(tuple(readings), units, tuple(dict.fromkeys(notes)))


class _Parser:
    """Parses the cells of one column.

    Attributes:
        unit: The unit behind its numbers, or "".
        notes: Sentences on what was assumed and what was left out.
    """

    def __init__(self, table: Table, column: ColumnType, index: int, rules: ReadingRules):
        self._table, self._column, self.notes = table, column, list[str]()
        self._cells = survey(table, index, column.labels)
        self._arrays: list[Any] = []
        self._invalid_count, self._first_invalid = 0, (0, "", "")  # its row, text and reason
        self._decimal, self.unit = "", ""
        if column.type == "number":
            self._decimal = rules.decimal or decimal_of(table, self._cells)
            self.unit = next((unit for unit, _ in self._cells.units.most_common() if unit), "")

    def add(self, codes: Any, texts: Sequence[str], first_row: int) -> Bools:
        """Add the cells of some rows, and return whether each has the column's type."""
        readings: list[Reading] = []
        is_valid = np.ones(len(texts), bool)
        counts, first_rows = np.bincount(codes, minlength=len(texts)), np.zeros(len(texts), int)
        first_rows[codes[::-1]] = np.arange(first_row, first_row + len(codes))[::-1]
        for i, text in enumerate(texts):
            try:
                readings.append(self._parse(text))
            except ValueError as e:
                readings.append(None)
                is_valid[i] = False
                if not self._invalid_count or first_rows[i] < self._first_invalid[0]:
                    self._first_invalid = int(first_rows[i]), text, str(e)
                self._invalid_count += int(counts[i])
        if self._column.type == "number":
            array = np.array([math.nan if x is None else x for x in readings], float)
        else:
            array = np.empty(len(readings), object)
            array[:] = readings
        self._arrays.append(array[codes])
        return is_valid[codes]

    def _parse(self, text: str) -> Reading:
        if text in self._column.labels:
            return text
        if is_blank_text(text):
            return None
        if self._column.type == "number":
            number = parse_number(text, self._decimal)
            if number is None:
                raise ValueError("not a number")
            if number.unit and number.unit != self.unit:
                raise ValueError(f"not in {self.unit}")
            return number.value
        if self._column.type != "bool":
            return text
        if text.lower() not in BOOLS:
            raise ValueError(f"not one of {', '.join(text for text in BOOLS if '.' not in text)}")
        return text.lower() in _TRUE

    def check(self) -> None:
        """Note the cells without the column's type; raise table.error if there are too many."""
        if not self._invalid_count:
            return
        cells, count = self._cells.cells - self._cells.blank, self._invalid_count
        row, text, reason = self._first_invalid
        first = f"{self._table.cell(row, self._cells.name)} is {shorten(text, _MAX_QUOTED)!r}, {reason}"
        if count > (0 if self._column.is_exact else MAX_SKIPPED * cells):
            others = f", like {counted(count - 1, 'other cell')}" if count > 1 else ""
            raise self._table.error(first + others)
        others = f" {counted(count, 'such row')} were skipped." if count > 1 else ""
        self.notes.append(f"{first}{'.' if others else '; the row was skipped.'}{others}")

    def readings(self, is_valid: Bools, keep: Sequence[float]) -> tuple[Reading, ...]:
        """Return the readings of the valid rows, and note how they were read."""
        array = np.concatenate(self._arrays)
        self._arrays.clear()
        if not is_valid.all():
            array = array[is_valid]
        if self._column.type != "number":
            return tuple(array.tolist())
        self.notes += _notation(self._cells, self._decimal, self.unit)
        sentinels = [] if self._column.is_exact else find_sentinels(array[~np.isnan(array)], keep)
        for value in sentinels:
            count = counted(int((array == value).sum()), "reading")
            self.notes.append(
                f"{count} of {value:g} in {self._cells.name} look like sensor errors and count as missing; "
                f"--keep-value {value:g} keeps them."
            )
            array[array == value] = math.nan
        readings: list[float | None] = array.tolist()
        for row in np.flatnonzero(np.isnan(array)).tolist():
            readings[row] = None
        return tuple(readings)


def _notation(cells: Survey, decimal: str, unit: str) -> list[str]:
    """Return a sentence with an example if numbers are not written as in Python."""
    for text in cells.texts:
        number = parse_number(text, decimal)
        if number is None:
            continue
        with contextlib.suppress(ValueError):
            if not number.unit and float(text) == number.value:
                continue
        return [f"{text} was read as {number.value:.15g}{f' with the unit {unit}' if unit else ''}."]
    return []
