"""One batch's reads and writes: dedupe sets, histogram counts, reject counters.

SQLAlchemy Core, in statements that SQLite and PostgreSQL share.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, Dialect, Table, bindparam, select
from sqlalchemy.dialects import postgresql, sqlite

from . import schema
from .intervals import NumberSet

_PARAMETERS = 500  # devices in one select: well below any database's limit

# A device's dedupe row: fleet, experiment name, device id.
DedupeKey = tuple[str, str, str]


class IngestTransaction:
    """Reads and writes of one batch; everything holds once the transaction is committed, or nothing does."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def seen(self, keys: Iterable[DedupeKey]) -> dict[DedupeKey, NumberSet]:
        """Return the numbers seen so far per key, locked against other aggregators until the commit."""
        keys = sorted(set(keys))
        # SQLite's one writer holds the whole file.
        lockless = self._connection.dialect.name == "sqlite"
        seen = self._select_seen(keys) if lockless else self._lock_seen(keys)
        return {key: seen.get(key, NumberSet()) for key in keys}

    def _lock_seen(self, keys: list[DedupeKey]) -> dict[DedupeKey, NumberSet]:
        savepoint = self._connection.begin_nested()
        seen = self._select_seen(keys)
        missing = [key for key in keys if key not in seen]
        if not missing:
            savepoint.commit()  # which keeps the locks
            return seen
        # A row that is not there cannot be locked. The others are let go first: whoever inserts rows while
        # holding others, and then wants more, may wait for one who waits for him.
        savepoint.rollback()
        insert = _insert(self._connection.dialect, schema.dedupe).on_conflict_do_nothing()
        rows = [
            {"fleet": f, "experiment": e, "device": d, "numbers": "", "accepted": 0} for f, e, d in missing
        ]
        self._connection.execute(insert, rows)
        return self._select_seen(keys)

    def allowed(self, fleet: str, devices: Iterable[str]) -> set[str]:
        """Return those of the devices that the fleet's list allows."""
        found: set[str] = set()
        ids = sorted(devices)
        for start in range(0, len(ids), _PARAMETERS):
            part = {"fleet": fleet, "devices": ids[start:][:_PARAMETERS]}
            found.update(self._connection.scalars(_ALLOWED, part))
        return found

    def _select_seen(self, keys: list[DedupeKey]) -> dict[DedupeKey, NumberSet]:
        groups: dict[tuple[str, str], list[str]] = {}
        for fleet, experiment, device in keys:
            groups.setdefault((fleet, experiment), []).append(device)
        seen: dict[DedupeKey, NumberSet] = {}
        for (fleet, experiment), devices in groups.items():
            for start in range(0, len(devices), _PARAMETERS):
                part = {"fleet": fleet, "experiment": experiment, "devices": devices[start:][:_PARAMETERS]}
                for device, numbers in self._connection.execute(_SEEN, part):
                    seen[fleet, experiment, device] = NumberSet.decode(numbers)
        return seen

    def write(
        self,
        seen: Mapping[DedupeKey, NumberSet],
        counts: Mapping[tuple[int, str, int], int],
        rejects: Mapping[tuple[str, str], int],
    ) -> None:
        """Replace dedupe sets and add to the counters.

        counts: (version id, window, code) -> reports. rejects: (fleet, reason) -> reports.
        """
        # Sorted, so that two aggregators lock rows in one order and the file keeps no order of arrival.
        self._upsert(schema.dedupe, [(*key, numbers.encode(), len(numbers)) for key, numbers in seen.items()])
        self._upsert(schema.histogram, [(*key, count) for key, count in counts.items()])
        self._upsert(schema.reject, [(*key, count) for key, count in rejects.items()])

    def _upsert(self, table: Table, rows: list[tuple[Any, ...]]) -> None:
        if rows:
            rows.sort()
            self._connection.exec_driver_sql(_upsert_text(self._connection.dialect, table), rows)


_ALLOWED = select(schema.device.c.device).where(
    schema.device.c.fleet == bindparam("fleet"),
    schema.device.c.state == "allowed",
    schema.device.c.device.in_(bindparam("devices", expanding=True)),
)

_SEEN = (
    select(schema.dedupe.c.device, schema.dedupe.c.numbers)
    .where(
        schema.dedupe.c.fleet == bindparam("fleet"),
        schema.dedupe.c.experiment == bindparam("experiment"),
        schema.dedupe.c.device.in_(bindparam("devices", expanding=True)),
    )
    .order_by(schema.dedupe.c.device)
    .with_for_update()
)


@functools.lru_cache(maxsize=16)
def _upsert_text(dialect: Dialect, table: Table) -> str:
    """The statement that inserts whole rows; of one that is there, it adds the count or replaces the rest.

    As text, for rows in tuples: a dictionary of parameters for each row costs more than writing the row.
    """
    new = _insert(dialect, table)
    changes = {
        column.name: table.c.count + new.excluded.count
        if column.name == "count"
        else new.excluded[column.name]
        for column in table.columns
        if not column.primary_key
    }
    new = new.on_conflict_do_update(index_elements=list(table.primary_key), set_=changes)
    own = sqlite.dialect if dialect.name == "sqlite" else postgresql.dialect
    style = "qmark" if dialect.name == "sqlite" else "format"
    return str(new.compile(dialect=own(paramstyle=style)))


def _insert(dialect: Dialect, table: Table) -> Any:
    return (sqlite if dialect.name == "sqlite" else postgresql).insert(table)
