"""Reads rows of the large tables some thousands at a time, and reports progress."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, Table, func, select, true

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
