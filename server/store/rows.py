"""Reads rows of the large tables: some thousands at a time with progress, or a window's rows as one text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Connection, Row, Select, String, Table, cast, func, select, true

from . import schema

if TYPE_CHECKING:
    from ..arrays import Counts

ROWS = 2000  # rows read or written at a time


class Rows:
    """A walk through whole tables that reports its progress.

    Args:
        connection: In a transaction.
        tables: The tables whose rows count as the work.
        advance: Called with each further share of the work that is done, 0 to 1.
        where: A condition for the rows; None for all.
        at_once: The largest number of rows in a part.
    """

    def __init__(
        self,
        connection: Connection,
        tables: Sequence[Table],
        advance: Callable[[float], object] = lambda _: None,
        where: ColumnElement[bool] | None = None,
        at_once: int = ROWS,
    ) -> None:
        self._connection, self._advance, self._at_once = connection, advance, at_once
        condition = true() if where is None else where
        self.count = sum(
            connection.scalar(select(func.count()).select_from(t).where(condition)) or 0 for t in tables
        )

    def parts(self, query: Select[*tuple[Any, ...]]) -> Iterator[Sequence[Row[*tuple[Any, ...]]]]:
        """Yield a query's rows in parts; requesting the next part reports the last one as done."""
        for part in self._connection.execute(query.execution_options(yield_per=self._at_once)).partitions():
            yield part
            self._advance(len(part) / self.count)

    def of(self, query: Select[*tuple[Any, ...]]) -> Iterator[Row[*tuple[Any, ...]]]:
        """Yield a query's rows one by one."""
        for part in self.parts(query):
            yield from part


def window_counts(
    connection: Connection, version: int, windows: Sequence[str]
) -> Iterator[tuple[str, Counts, Counts]]:
    """Yield the windows of a version: name, codes (each once) and their numbers of reports.

    Args:
        connection: In a transaction.
        version: The version's id.
        windows: The windows to read; empty for all.

    Raises:
        ValueError: If a row is not a number.
        TypeError: If a row is not a number.
    """
    import numpy as np  # imported here, because it loads slowly

    table = schema.histogram.c
    query = select(table.window).where(table.experiment == version).group_by(table.window)
    if windows:
        query = query.where(table.window.in_(windows))
    # A text for each window: a row for each code would take four times as long.
    texts = (func.aggregate_strings(cast(column, String), " ") for column in (table.code, table.count))
    query = query.add_columns(func.count(), *texts).execution_options(yield_per=16)
    for window, rows, *both in connection.execute(query):
        codes, reports = (np.fromstring(text, np.int64, sep=" ") for text in both)
        if not len(codes) == len(reports) == rows:
            raise ValueError(f"a row of window {window} is not a number")
        yield window, codes, reports
