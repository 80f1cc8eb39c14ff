"""Rows of an answer as a table of the page: what each is of, its estimate, and from where to where."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nicegui import ui

from ...server.answers.rows import Row
from ...server.words.answers import digits
from ..reader import Reader


def written(row: Row, reader: Reader, *more: float, share: bool = True) -> list[str]:
    """A row's value, the ends of its interval, and more of the same kind, to the digits that it leaves.

    share: of a population, in percent; otherwise a reading.
    """
    scale, write = (100, reader.percent) if share else (1, reader.number)
    places = digits(row.low * scale, row.high * scale)
    return [write(x, places) for x in (row.value, row.low, row.high, *more)]


def keyed(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[dict[str, str | int]]:
    """Rows as the table takes them; what a short one lacks is empty."""
    empty = dict.fromkeys(columns, "")
    return [{**empty, **dict(zip(columns, row, strict=False)), "key": n} for n, row in enumerate(rows)]


def rows_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> ui.table:
    """A table, dense so that a telephone is wide enough."""
    heads = [{"name": n, "label": n, "field": n, "align": "left"} for n in columns]
    table = ui.table(rows=keyed(columns, rows), columns=heads, row_key="key", pagination=0)
    return table.props("dense wrap-cells")
