"""One batch's reads and writes: dedupe sets, histogram counts, reject counters.

SQLAlchemy Core, in statements that SQLite and PostgreSQL share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, Table, and_, select
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
        keys = set(keys)
        seen = self._select_seen(keys)
        missing = sorted(keys - seen.keys())
        if missing and self._connection.dialect.name != "sqlite":
            # A row that is not there cannot be locked. SQLite needs no rows: its one writer holds the file.
            rows = [
                {"fleet": f, "experiment": e, "device": d, "numbers": "", "accepted": 0}
                for f, e, d in missing
            ]
            self._connection.execute(_insert(self._connection, schema.dedupe).on_conflict_do_nothing(), rows)
            seen |= self._select_seen(set(missing))
        return {key: seen.get(key, NumberSet()) for key in keys}

    def _select_seen(self, keys: set[DedupeKey]) -> dict[DedupeKey, NumberSet]:
        table = schema.dedupe
        groups: dict[tuple[str, str], list[str]] = {}
        for fleet, experiment, device in sorted(keys):
            groups.setdefault((fleet, experiment), []).append(device)
        seen: dict[DedupeKey, NumberSet] = {}
        for (fleet, experiment), devices in groups.items():
            for start in range(0, len(devices), _PARAMETERS):
                part = devices[start : start + _PARAMETERS]
                where = and_(
                    table.c.fleet == fleet, table.c.experiment == experiment, table.c.device.in_(part)
                )
                query = select(table.c.device, table.c.numbers).where(where)
                query = query.order_by(table.c.device).with_for_update()
                for device, numbers in self._connection.execute(query):
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
        rows = [
            {"fleet": f, "experiment": e, "device": d, "numbers": numbers.encode(), "accepted": len(numbers)}
            for (f, e, d), numbers in sorted(seen.items(), key=lambda item: item[0])
        ]
        self._upsert(schema.dedupe, rows, replace=("numbers", "accepted"))
        rows = [
            {"experiment": e, "window": w, "code": c, "count": n} for (e, w, c), n in sorted(counts.items())
        ]
        self._upsert(schema.histogram, rows, add="count")
        rows = [{"fleet": f, "reason": r, "count": n} for (f, r), n in sorted(rejects.items())]
        self._upsert(schema.reject, rows, add="count")

    def _upsert(
        self, table: Table, rows: list[dict[str, Any]], replace: tuple[str, ...] = (), add: str | None = None
    ) -> None:
        if not rows:
            return
        statement = _insert(self._connection, table)
        new = {name: statement.excluded[name] for name in replace}
        if add is not None:
            new[add] = table.c[add] + statement.excluded[add]
        keys = [column.name for column in table.primary_key]
        statement = statement.on_conflict_do_update(index_elements=keys, set_=new)
        self._connection.execute(statement, rows)


def _insert(connection: Connection, table: Table) -> Any:
    return (sqlite if connection.dialect.name == "sqlite" else postgresql).insert(table)
