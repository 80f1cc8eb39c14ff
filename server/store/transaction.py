"""One batch's reads and writes: dedupe sets, histogram counts, reject counters.

SQLAlchemy Core, in statements that SQLite and PostgreSQL share.
"""

import datetime
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from sqlalchemy import ARRAY, Connection, LargeBinary, Table, Text, bindparam, cast, func, select, true
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import SQLAlchemyError

from . import schema
from .counting import record_counting
from .database import StoreError
from .number_set import NumberSet

_PARAMETERS = 4000  # devices in one SELECT, well below any database's limit

DedupeKey = tuple[str, str, str]  # key of a device's dedupe row: fleet, experiment name, device id
CountKey = tuple[int, str, int, int]  # key of a histogram row: version id, window, group index, code


class NumbersFault(StoreError):
    """Raised when some devices' report numbers cannot be read, extended or written.

    Attributes:
        faults: The reason for each dedupe key.
    """

    def __init__(self, faults: Mapping[DedupeKey, Exception]) -> None:
        super().__init__(f"the report numbers of {len(faults):,} devices cannot be stored")
        self.faults = faults


class TimeNotRecorded(StoreError):
    """Raised when the counting time cannot be recorded; the transaction can continue without it."""


class IngestTransaction:
    """The reads and writes of one batch, which are committed together or not at all."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def read_numbers(
        self, keys: Iterable[DedupeKey], faults: dict[DedupeKey, Exception] | None = None
    ) -> dict[DedupeKey, NumberSet]:
        """Return each key's accepted numbers, locked against other aggregators until the commit.

        Args:
            keys: The dedupe keys.
            faults: Receives the error for each row that cannot be read; if it is None, the error is raised.
        """
        keys = sorted(set(keys))
        numbers = dict.fromkeys(keys, NumberSet())
        # SQLite's single writer locks the whole file.
        is_sqlite = self._connection.dialect.name == "sqlite"
        for key, text, beyond in self._select_rows(keys) if is_sqlite else self._lock_rows(keys):
            try:
                numbers[key] = NumberSet.decode(text.decode() if is_sqlite else text, beyond)
            except Exception as e:
                if faults is None:
                    raise
                faults[key] = e
                del numbers[key]
        return numbers

    def _lock_rows(self, keys: list[DedupeKey]) -> Iterator[tuple[DedupeKey, Any, Any]]:
        if not keys:
            return
        # A missing row cannot be locked, so one statement creates the missing rows and locks the others, in
        # key order. FOR UPDATE writes half as much, but cannot lock rows across several servers.
        new = [(*key, "", 0, None) for key in keys]
        rows: Any = self._connection.execute(_lock_statement(), _arrays(schema.dedupe, new))
        for fleet, experiment, device, text, beyond in rows:
            yield (fleet, experiment, device), text, beyond

    def allowed_devices(self, fleet: str, devices: Iterable[str]) -> set[str]:
        """Return the devices that are on the fleet's allow-list."""
        matches: set[str] = set()
        ids = sorted(devices)
        query = _ALLOW_LIST_QUERIES[self._connection.dialect.name]
        for start in range(0, len(ids), _PARAMETERS):
            part = {"fleet": fleet, "devices": ids[start:][:_PARAMETERS]}
            matches.update(self._connection.scalars(query, part))
        return matches

    def barred_numbers(self, marks: Callable[[], Mapping[DedupeKey, list[str]]]) -> dict[DedupeKey, int]:
        """Return the number up to which reports no longer count, by erased device's key.

        Args:
            marks: Returns each key's possible marks; called only if a device has been erased.
        """
        table = schema.erased
        if self._connection.scalar(select(table.c.mark).limit(1)) is None:
            return {}
        highest_of_mark, keys = dict[str, int](), marks()
        names = [mark for key_marks in keys.values() for mark in key_marks]
        for start in range(0, len(names), _PARAMETERS):
            in_part = table.c.mark.in_(names[start:][:_PARAMETERS])
            rows = self._connection.execute(select(table.c.mark, table.c.highest).where(in_part))
            highest_of_mark.update((mark, highest) for mark, highest in rows)
        highest = {
            key: max(highest_of_mark.get(mark, 0) for mark in key_marks) for key, key_marks in keys.items()
        }
        return {key: number for key, number in highest.items() if number}

    def _select_rows(self, keys: list[DedupeKey]) -> Iterator[tuple[DedupeKey, Any, Any]]:
        groups: dict[tuple[str, str], list[str]] = {}
        for fleet, experiment, device in keys:
            groups.setdefault((fleet, experiment), []).append(device)
        for (fleet, experiment), devices in groups.items():
            for start in range(0, len(devices), _PARAMETERS):
                part = {"fleet": fleet, "experiment": experiment, "devices": devices[start:][:_PARAMETERS]}
                rows: Any = self._connection.execute(_NUMBERS_QUERY, part)
                for device, text, beyond in rows:
                    yield (fleet, experiment, device), text, beyond

    def write(
        self,
        number_sets: Mapping[DedupeKey, NumberSet],
        counts: Mapping[CountKey, int],
        rejects: Mapping[tuple[str, str], int],
    ) -> None:
        """Replace dedupe sets and add to the counters.

        Args:
            number_sets: The new sets.
            counts: Numbers of reports by version id, window, group index (0 without a group) and code.
            rejects: Numbers of reports by fleet and reason.

        Raises:
            NumbersFault: If a set cannot be written; in that case nothing is written.
        """
        rows: list[tuple[Any, ...]] = []
        faults: dict[DedupeKey, Exception] = {}
        for key, number_set in number_sets.items():
            try:
                text, beyond = number_set.encode()
                rows.append((*key, text, len(number_set), beyond))
            except Exception as e:
                faults[key] = e
        if faults:
            raise NumbersFault(faults)
        # Sorted, so that all aggregators lock rows in one order and the file does not reveal arrival order.
        self._upsert(schema.dedupe, rows)
        self._upsert(schema.histogram, [(*key, count) for key, count in counts.items()])
        self._upsert(schema.reject, [(*key, count) for key, count in rejects.items()])

    def record_time(self, now: datetime.datetime) -> None:
        """Record that counting works at this time.

        Call it last, because other aggregators share the row.

        Raises:
            TimeNotRecorded: If only this failed; the transaction can continue and be committed.
        """
        savepoint = self._connection.begin_nested()
        try:
            record_counting(self._connection, now)
            savepoint.commit()
        except (SQLAlchemyError, TypeError, ValueError) as e:
            # This raises, and so rolls back the batch, if the database has aborted the whole transaction.
            savepoint.rollback()
            cause = str(getattr(e, "orig", None) or e).strip().split("\n")[0]
            raise TimeNotRecorded(
                f"the time at which counting works cannot be recorded ({cause}): allow writing it, or run "
                "`hushmote store check`"
            ) from None

    def _upsert(self, table: Table, rows: list[tuple[Any, ...]]) -> None:
        if not rows:
            return
        rows.sort()
        if self._connection.dialect.name == "sqlite":
            self._connection.exec_driver_sql(_sqlite_upsert(table), rows)
        else:
            self._connection.execute(_postgresql_upsert(table), _arrays(table, rows))


def _allow_list_queries() -> dict[str, Any]:
    """Return each dialect's query for the devices in parameter `devices` that are on an allow-list."""
    table = schema.device
    query = select(table.c.device).where(table.c.fleet == bindparam("fleet"), table.c.state == "allowed")
    # One index search per device. With a join or a list, PostgreSQL may read the whole table for each device
    # until it has statistics. Nothing is locked, because an aggregator may read the list but not write it.
    devices = bindparam("devices", type_=ARRAY(Text))
    ids = func.unnest(devices).table_valued("device").render_derived("ids")
    match = query.where(table.c.device == ids.c.device).limit(1).lateral("match")
    for_postgresql = select(match.c.device).select_from(ids.join(match, true()))
    among = table.c.device.in_(bindparam("devices", expanding=True))
    return {"sqlite": query.where(among), "postgresql": for_postgresql}


_ALLOW_LIST_QUERIES = _allow_list_queries()
_DEDUPE = schema.dedupe.c
# Read as bytes, because a SQLite text that is not UTF-8 would fail every batch with that device.
_NUMBERS_QUERY = select(
    _DEDUPE.device, cast(_DEDUPE.numbers, LargeBinary), cast(_DEDUPE.beyond, LargeBinary)
).where(
    _DEDUPE.fleet == bindparam("fleet"),
    _DEDUPE.experiment == bindparam("experiment"),
    _DEDUPE.device.in_(bindparam("devices", expanding=True)),
)


# Passing thousands of parameter dictionaries would take longer than writing the rows. Therefore SQLite gets a
# text statement with tuples, and PostgreSQL a single statement with an array for each column.


@functools.cache
def _sqlite_upsert(table: Table) -> str:
    upsert = _with_upsert(sqlite.insert(table), table)
    return str(upsert.compile(dialect=sqlite.dialect(paramstyle="qmark")))


@functools.cache
def _postgresql_upsert(table: Table) -> Any:
    return _with_upsert(_from_arrays(table), table)


def _from_arrays(table: Table) -> Any:
    """Return an INSERT that reads its rows from one array per column, in order."""
    from sqlalchemy.dialects.postgresql import insert  # imported lazily: SQLite does not need it

    columns = [func.unnest(bindparam(c.name, type_=ARRAY(c.type))).label(c.name) for c in table.columns]
    return insert(table).from_select(table.columns.keys(), select(*columns))


def _arrays(table: Table, rows: list[tuple[Any, ...]]) -> dict[str, list[Any]]:
    return dict(zip(table.columns.keys(), map(list, zip(*rows, strict=True)), strict=True))


def _with_upsert(insert: Any, table: Table) -> Any:
    """Return the INSERT with a clause that, for existing rows, adds to the count or replaces the columns."""
    changes = {c.name: insert.excluded[c.name] for c in table.columns if not c.primary_key}
    if "count" in changes:
        changes["count"] = table.c.count + insert.excluded.count
    return insert.on_conflict_do_update(index_elements=list(table.primary_key), set_=changes)


@functools.cache
def _lock_statement() -> Any:
    """Return the PostgreSQL statement that creates missing rows, and locks and returns the others."""
    key, unchanged = list(schema.dedupe.primary_key), {"accepted": _DEDUPE.accepted}
    insert = _from_arrays(schema.dedupe).on_conflict_do_update(index_elements=key, set_=unchanged)
    return insert.returning(*key, _DEDUPE.numbers, _DEDUPE.beyond)
