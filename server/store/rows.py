"""Reads rows of the large tables: some thousands at a time with progress, or a window's in one text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Connection, Row, Select, String, Table, cast, func, select, true

from . import schema

if TYPE_CHECKING:
    from ..arrays import Counts

_ROWS = 2000  # read or written at a time


class Rows:
    """A walk through whole tables; advance is called with each further share that is done, 0 to 1."""

    def __init__(
        self,
        connection: Connection,
        tables: Sequence[Table],
        advance: Callable[[float], object] = lambda _: None,
        where: ColumnElement[bool] | None = None,
    ) -> None:
        self._connection, self._advance = connection, advance
        of = true() if where is None else where
        self.count = sum(
            connection.scalar(select(func.count()).select_from(t).where(of)) or 0 for t in tables
        )

    def parts(self, query: Select[*tuple[Any, ...]]) -> Iterator[Sequence[Row[*tuple[Any, ...]]]]:
        """Yield a query's rows; asking for the next part says that the last one is done."""
        for part in self._connection.execute(query.execution_options(yield_per=_ROWS)).partitions():
            yield part
            self._advance(len(part) / self.count)

    def of(self, query: Select[*tuple[Any, ...]]) -> Iterator[Row[*tuple[Any, ...]]]:
        """Yield a query's rows one by one."""
        for part in self.parts(query):
            yield from part


def window_counts(
    connection: Connection, version: int, windows: Sequence[str]
) -> Iterator[tuple[str, Counts, Counts]]:
    """Yield (window, its codes, each once, their reports) of a version, for these windows or for all.

    Raises ValueError or TypeError where a row is no number.
    """
    import numpy as np  # only here: who is refused does not wait for it

    table = schema.histogram.c
    query = select(table.window).where(table.experiment == version).group_by(table.window)
    if windows:
        query = query.where(table.window.in_(windows))
    # A text for each window: a row for each code would take four times as long.
    texts = (func.aggregate_strings(cast(column, String), " ") for column in (table.code, table.count))
    query = query.add_columns(func.count(), *texts).execution_options(yield_per=16)
    for window, rows, *both in connection.execute(query):
        codes, reports = (np.fromstring(text, np.int64, sep=" ") for text in both)
        if not len(codes) == len(reports) == rows:  # NumPy before 2.3 ends at what is no number
            raise ValueError(f"a row of window {window} is no number")
        yield window, codes, reports
