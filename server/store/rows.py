"""Read rows of the large tables: a few thousand at a time with progress, or a window's rows as one text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Connection, Row, Select, String, Table, cast, func, select, true

from . import schema

if TYPE_CHECKING:
    from ..arrays import Counts

ROWS = 2000  # rows read or written at a time


class Rows:
    """Iteration over whole tables that reports its progress.

    Args:
        connection: A connection with an open transaction.
        tables: The tables whose rows make up the total work.
        advance: Called as work progresses, with the additional share that is done, 0 to 1.
        where: A condition that selects rows; None for all rows.
        batch_size: The largest number of rows in a part.
    """

    def __init__(
        self,
        connection: Connection,
        tables: Sequence[Table],
        advance: Callable[[float], object] = lambda _: None,
        where: ColumnElement[bool] | None = None,
        batch_size: int = ROWS,
    ) -> None:
        self._connection, self._advance, self._at_once = connection, advance, batch_size
        condition = true() if where is None else where
        self.count = sum(
            connection.scalar(select(func.count()).select_from(t).where(condition)) or 0 for t in tables
        )

    def parts(self, query: Select[*tuple[Any, ...]]) -> Iterator[Sequence[Row[*tuple[Any, ...]]]]:
        """Yield a query's rows in parts; requesting the next part reports the previous one as done."""
        for part in self._connection.execute(query.execution_options(yield_per=self._at_once)).partitions():
            yield part
            self._advance(len(part) / self.count)

    def iterate(self, query: Select[*tuple[Any, ...]]) -> Iterator[Row[*tuple[Any, ...]]]:
        """Yield a query's rows one by one."""
        for part in self.parts(query):
            yield from part


def has_reports(connection: Connection, version: int) -> bool:
    """Return whether reports of a version (its id) were counted, including those in erased windows."""
    histogram, versions = schema.histogram.c, schema.experiment.c
    if connection.scalar(select(histogram.code).where(histogram.experiment == version).limit(1)) is not None:
        return True
    return bool(connection.scalar(select(versions.erased).where(versions.id == version)))


def window_counts(
    connection: Connection, version: int, windows: Sequence[str], group: int | None = None
) -> Iterator[tuple[str, Counts, Counts]]:
    """Yield a version's windows: the name, the distinct codes, and the number of reports with each code.

    Args:
        connection: A connection with an open transaction.
        version: The version's id.
        windows: The windows to read; empty for all.
        group: The index of the open group's value; None for the sum over all groups.

    Raises:
        ValueError: If a row is not a number.
        TypeError: If a row is not a number.
    """
    import numpy as np  # imported lazily because it is slow to load

    table = schema.histogram.c
    query = select(table.window).where(table.experiment == version).group_by(table.window)
    if windows:
        query = query.where(table.window.in_(windows))
    if group is not None:
        query = query.where(table.group_index == group)
    # Reading one text per window is four times as fast as reading one row per code.
    texts = (func.aggregate_strings(cast(column, String), " ") for column in (table.code, table.count))
    query = query.add_columns(func.count(), *texts).execution_options(yield_per=16)
    for window, rows, *columns in connection.execute(query):
        codes, reports = (np.fromstring(text, np.int64, sep=" ") for text in columns)
        if not len(codes) == len(reports) == rows:
            raise ValueError(f"a row of window {window} is not a number")
        if group is None:
            codes, rows_of_code = np.unique(codes, return_inverse=True)
            totals = np.zeros(len(codes), np.int64)
            np.add.at(totals, rows_of_code, reports)
            reports = totals
        yield window, codes, reports
