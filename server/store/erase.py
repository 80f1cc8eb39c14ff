"""Erase a device, an experiment, a fleet, or windows whose retention time is over.

Erasing a device deletes its rows. To keep its reports from being counted again, a row of `erased` remains for
each experiment name that it reported to. It holds the highest number, the number of counted reports, and a
mark, which is an HMAC of fleet, name and device under the fleet's master key. Someone with the store's file
can see how many reports of some erased device were counted, but can neither test ids nor see that two rows
belong to the same device. Someone who also has the master key, as the aggregators do, can test ids. An older
copy of the store still contains everything. A device that reports again gets a new row, which holds the
number up to which its reports do not count.

An open fleet has no master key, so anyone can send reports under any id, old or new. If its aggregators are
given a key anyway, a device is sealed as in a keyed fleet. Without a key the mark is random and meaningless,
and old reports that are sent again are counted.

Old pages of the database's files may contain deleted data until the files are rewritten. The transaction that
deletes data records that a rewrite is due, so if a process dies before the rewrite, the next one does it.
"""

import datetime
import os
import sqlite3
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, Text, and_, delete, func, select, true, update

from ..wire import keys
from ..wire.keys import ENVIRONMENT_VARIABLE, FleetKeys, MasterKeyError
from ..wire.limits import kept_hours, window
from . import schema
from .database import StoreError, StoreLocked, insert_erased, insert_erasure, lock_out_batches
from .number_set import NumberSet
from .store import Store, Version, VersionRefused
from .versions import newest_versions

_ALL = (1 << 32) - 1  # the highest possible number
_LOCK_S = 30  # the longest wait for a table lock, for which batches may be blocked
_READERS_S = 30.0  # the longest wait for transactions that can still see deleted data


@dataclass(frozen=True)
class Erasure:
    """The effect of an erasure.

    Attributes:
        fleet: The fleet's name.
        experiment: The experiment's name; None if a device or all experiments are erased.
        device: The device's id; None if an experiment or fleet is erased.
        devices: Number of devices whose report numbers are deleted.
        reports: Number of counted reports affected; an erased device's reports remain in the counts.
        sealed: Whether the device's old reports can never be counted again.
        notices: The server's messages about tables that it does not allow to be rewritten.
    """

    fleet: str
    experiment: str | None = None
    device: str | None = None
    devices: int = 0
    reports: int = 0
    sealed: bool = False
    notices: tuple[str, ...] = ()


class NotRewritten(StoreError):
    """Raised when data was erased, but old pages of the database's files may still contain it."""


_Confirm = Callable[[Erasure], object]


def erase(
    store: Store,
    fleet: str,
    *,
    experiment: str | None = None,
    device: str | None = None,
    fleet_keys: FleetKeys | None = None,
    confirm: _Confirm = lambda _: None,
    readers_s: float = _READERS_S,
) -> Erasure:
    """Erase a device, all versions of an experiment, or a whole fleet, while no aggregator is counting.

    Afterwards the database's files are rewritten.

    Args:
        store: The store.
        fleet: The fleet's name.
        experiment: The experiment to erase; None for all.
        device: The device to erase; None for all.
        fleet_keys: The fleet's keys, needed to erase a device of a keyed fleet.
        confirm: Called with the plan before anything is erased; if it raises an exception, nothing
            changes.
        readers_s: Seconds to wait for transactions that can still see erased data.

    Raises:
        VersionRefused: If the target does not exist, or boards still report to the experiment.
        ClockWrong: If a version is current and this machine's clock is wrong.
        MasterKeyError: If the keyed fleet's key is missing or wrong.
        StoreLocked: If an aggregator has a SQLite store open, or a PostgreSQL batch takes too long.
        StoreError: If the database fails.
    """
    with _exclusive_connection(store) as connection:
        with connection.begin():
            lock_out_batches(connection)
            store.check_version(connection)
            plan = Erasure(fleet, experiment, device)
            row = _fleet_row(store, connection, fleet)
            if device is None:
                versions = store.versions(connection, fleet)
                versions = [v for v in versions if experiment in (None, v.experiment.name)]
                erasure = _erase_versions(store, connection, versions, plan, confirm)
            else:
                erasure = _erase_device(connection, row, fleet_keys, plan, confirm)
            _record_erasure(connection)
        try:
            with store.errors():
                return replace(erasure, notices=_rewrite(connection, readers_s))
        except StoreError as e:
            raise NotRewritten(
                f"it is erased, but old pages of {store.where} may still contain it ({e}): run `hushmote "
                "store erase URL` to rewrite the files"
            ) from None


def queue_erasure(store: Store, fleet: str, device: str, confirm: _Confirm = lambda _: None) -> Erasure:
    """Queue a device for the store's aggregators to erase; queueing it again changes nothing.

    Args:
        store: The store.
        fleet: The fleet's name.
        device: The device's id.
        confirm: See erase().

    Raises:
        VersionRefused: If there is no such fleet or device.
        StoreError: If the database fails.
    """
    with store.writing() as connection:
        row = _fleet_row(store, connection, fleet)
        rows, state = _device_rows(connection, fleet, device)
        reports = sum(int(dedupe["accepted"]) for dedupe in rows)
        _check_exists(rows, state, fleet, device)
        sealed = bool(row["keyed"]) or row["master_check"] is not None
        plan = Erasure(fleet, None, device, 1, reports, sealed)
        confirm(plan)
        connection.execute(insert_erasure(connection), {"fleet": fleet, "device": device})
    return plan


def queued_erasures(store: Store) -> list[tuple[str, str]]:
    """Return the fleet and device of each erasure that is waiting for an aggregator."""
    table = schema.erasure.c
    return [(fleet, device) for fleet, device in store.read(select(table.fleet, table.device))]


def erase_queued(store: Store, fleet: str, device: str, fleet_keys: FleetKeys | None) -> Erasure | None:
    """Erase a device whose erasure is queued, and delete the request.

    The files must be rewritten afterwards, see finish_rewrite(). After an error the request remains queued.

    Returns:
        The effect, or None if another process has erased the device.

    Raises:
        MasterKeyError: If the keyed fleet's key is missing or wrong.
        StoreError: If the database fails.
    """
    request = and_(schema.erasure.c.fleet == fleet, schema.erasure.c.device == device)
    with store.writing() as connection:
        lock_out_batches(connection)
        store.check_version(connection)
        if not connection.execute(delete(schema.erasure).where(request)).rowcount:
            return None
        _record_erasure(connection)
        row = _fleet_row(store, connection, fleet)
        try:
            return _erase_device(connection, row, fleet_keys, Erasure(fleet, device=device), lambda _: None)
        except VersionRefused:  # it was erased manually in the meantime
            return Erasure(fleet, device=device)


def was_erased(store: Store, fleet: str, device: str, fleet_keys: FleetKeys | None) -> bool:
    """Return whether a revoked device was erased; False if there is no master key to check it with."""
    if fleet_keys is None:
        return False
    marks = [keys.erased_mark(master, fleet, "", device) for master in fleet_keys.masters]
    table = schema.erased.c
    return bool(store.read(select(table.mark).where(table.fleet == fleet, table.mark.in_(marks))))


def is_rewrite_due(connection: Connection) -> bool:
    """Return whether data has been erased since the files were last rewritten."""
    table = schema.rewrite.c
    return connection.scalar(select(table.erasures).where(table.erasures > table.rewritten)) is not None


def unfinished_erasures(connection: Connection) -> tuple[str, ...]:
    """Return a line for each kind of unfinished erasure that says how to finish it."""
    lines: list[str] = []
    if is_rewrite_due(connection):
        lines.append(
            "old pages of the files may still contain erased data: an aggregator or `hushmote store erase "
            "URL` rewrites them"
        )
    if queue_length := connection.scalar(select(func.count()).select_from(schema.erasure)):
        devices = f"{queue_length:,} device{'s' * (queue_length > 1)}"
        them = "them" if queue_length > 1 else "it"
        lines.append(f"{devices} wait{'s' * (queue_length == 1)} for an aggregator to erase {them}")
    return tuple(lines)


def finish_rewrite(store: Store, readers_s: float = _READERS_S) -> bool:
    """Rewrite the database's files if that is due; aggregators may continue to count.

    Args:
        store: The store.
        readers_s: Seconds to wait for transactions that can still see erased data.

    Returns:
        Whether the files were rewritten completely.

    Raises:
        StoreError: If the database fails.
    """
    with store.reading() as connection:
        if not is_rewrite_due(connection):
            return False
    with store.errors(), store.engine.connect() as connection:
        connection = connection.execution_options(hushmote_write=True)
        try:
            _rewrite(connection, readers_s)
            with connection.begin():
                return not is_rewrite_due(connection)
        finally:
            connection.invalidate()  # together with its settings


def _fleet_row(store: Store, connection: Connection, fleet: str) -> Any:
    fleets = connection.execute(select(schema.fleet).where(schema.fleet.c.name == fleet)).mappings()
    row = fleets.one_or_none()
    if row is None:
        raise VersionRefused(f"there is no fleet {fleet} in {store.where}")
    return row


def _record_erasure(connection: Connection) -> None:
    connection.execute(update(schema.rewrite).values(erasures=schema.rewrite.c.erasures + 1))


@contextmanager
def _exclusive_connection(store: Store) -> Generator[Connection, None, None]:
    """Yield a connection for an erasure; raise StoreLocked if another process is counting.

    Within the block no other process has a SQLite file open, and there is no -wal or -shm.
    """
    store.engine.dispose()
    with store.errors(), store.engine.connect() as plain_connection:
        connection = plain_connection.execution_options(hushmote_write=True)
        try:
            with store.errors():
                if connection.dialect.name == "sqlite":
                    file: Any = connection.connection.driver_connection
                    file.execute("PRAGMA locking_mode=EXCLUSIVE")
                    file.execute("PRAGMA journal_mode=DELETE")
                yield connection
        except StoreLocked:
            raise StoreLocked(
                f"{store.where} is in use, and nothing was erased: stop its aggregators and anything else "
                "that has it open, or add --queue to have an aggregator erase a device"
            ) from None
        finally:
            if connection.dialect.name == "sqlite":
                # Restored here, so that two processes starting at once do not both attempt it.
                with suppress(sqlite3.Error):
                    connection.connection.driver_connection.execute("PRAGMA journal_mode=WAL")  # pyright: ignore
            connection.invalidate()  # together with its locks


def _erase_device(
    connection: Connection, row: Any, fleet_keys: FleetKeys | None, plan: Erasure, confirm: _Confirm
) -> Erasure:
    """Erase a device of the fleet in `row`, and seal its numbers if there is a master key."""
    fleet, device = plan.fleet, str(plan.device)
    if fleet_keys is None and (row["keyed"] or row["master_check"] is not None):
        raise MasterKeyError(
            f"an erased device of fleet {fleet} is sealed with its master key: give the key as a file or in "
            f"{ENVIRONMENT_VARIABLE}"
        )
    keys.check_masters(fleet_keys, fleet, row["master_check"])
    rows, state = _device_rows(connection, fleet, device)
    _check_exists(rows, state, fleet, device)
    remains = [(d["experiment"], _highest_number(d), int(d["accepted"])) for d in rows]
    plan = replace(plan, devices=1, reports=sum(n for _, _, n in remains), sealed=fleet_keys is not None)
    confirm(plan)
    if state == "revoked":
        remains.append(("", _ALL, 0))
    for name, highest, reports in remains:
        mark, sealed_number = os.urandom(16).hex(), 0
        if fleet_keys is not None:
            mark, sealed_number = keys.erased_mark(fleet_keys.masters[0], fleet, name, device), highest
        values = {
            "mark": mark,
            "fleet": fleet,
            "experiment": name,
            "highest": sealed_number,
            "reports": reports,
        }
        if highest:
            connection.execute(insert_erased(connection), values)
    for table in (schema.dedupe, schema.device, schema.erasure):
        connection.execute(delete(table).where(table.c.fleet == fleet, table.c.device == device))
    if fleet_keys is not None and row["master_check"] is None:
        check = keys.master_check(fleet_keys.masters[0], fleet)
        table = schema.fleet
        connection.execute(update(table).where(table.c.name == fleet).values(master_check=check))
    return plan


def _device_rows(connection: Connection, fleet: str, device: str) -> tuple[Sequence[Any], str | None]:
    """Return a device's dedupe rows, and its state if an operator has named it."""
    dedupe, devices = schema.dedupe, schema.device
    in_dedupe, in_devices = (and_(t.c.fleet == fleet, t.c.device == device) for t in (dedupe, devices))
    rows = connection.execute(select(dedupe).where(in_dedupe)).mappings().all()
    return rows, connection.scalar(select(devices.c.state).where(in_devices))


def _check_exists(rows: Sequence[Any], state: str | None, fleet: str, device: str) -> None:
    if not rows and state is None:
        raise VersionRefused(f"there is no device {device} in fleet {fleet}: nothing was erased")


def _highest_number(row: Any) -> int:
    """Return the highest number in a device's row, or the highest possible number for a damaged row."""
    try:
        return NumberSet.decode(row["numbers"], row["beyond"]).highest
    except (TypeError, ValueError):
        return _ALL


def _erase_versions(
    store: Store, connection: Connection, versions: list[Version], plan: Erasure, confirm: _Confirm
) -> Erasure:
    """Erase an experiment's versions, or everything in a fleet."""
    fleet, name = plan.fleet, plan.experiment
    if name is not None and not versions:
        raise VersionRefused(f"there is no experiment {name} in fleet {fleet}: nothing was erased")
    for v in versions:
        if v.current and v.published_on(store.checked_time(connection).date()):
            raise VersionRefused(
                f"boards of fleet {fleet} still answer {v.experiment.name}: run `hushmote experiment "
                f"withdraw {v.experiment.name}`, then `hushmote serve` until it has published the withdrawal"
            )

    def in_scope(table: Table) -> ColumnElement[bool]:
        return and_(table.c.fleet == fleet, true() if name is None else table.c.experiment == name)

    dedupe = schema.dedupe.c
    query = select(func.count(dedupe.device.distinct()), func.coalesce(func.sum(dedupe.accepted), 0))
    devices, reports = connection.execute(query.where(in_scope(schema.dedupe))).one()
    plan = replace(plan, devices=devices, reports=int(reports))
    confirm(plan)
    ids = [v.id for v in versions]
    connection.execute(delete(schema.histogram).where(schema.histogram.c.experiment.in_(ids)))
    connection.execute(delete(schema.experiment).where(schema.experiment.c.id.in_(ids)))
    for table in (
        schema.dedupe,
        schema.erased,
        schema.alert,
        schema.alert_delivery,
        *(() if name else (schema.device, schema.reject, schema.erasure, schema.release_plan)),
    ):
        connection.execute(delete(table).where(in_scope(table)))
    if name is None:
        connection.execute(delete(schema.fleet).where(schema.fleet.c.name == fleet))
    return plan


def _rewrite(connection: Connection, readers_s: float) -> tuple[str, ...]:
    """Rewrite the database's files without the deleted data, and record it.

    Returns:
        The server's notices; if one of them concerns the store's tables, the rewrite remains due.
    """
    table = schema.rewrite.c
    with connection.begin():
        erasures = connection.scalar(select(table.erasures))
    if connection.dialect.name == "sqlite":
        is_complete, notices = _rewrite_sqlite(connection), ()
    else:
        is_complete, notices = _rewrite_postgresql(connection, readers_s)
    if is_complete:
        with connection.begin():
            statement = update(schema.rewrite).where(table.rewritten < erasures).values(rewritten=erasures)
            connection.execute(statement)
    return notices


def _rewrite_sqlite(connection: Connection) -> bool:
    file: Any = connection.connection.driver_connection
    file.execute("VACUUM")
    # Without a WAL this does nothing and reports that it is not busy.
    busy, _, _ = file.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        raise sqlite3.OperationalError("database is locked")
    return True


def _rewrite_postgresql(connection: Connection, readers_s: float) -> tuple[bool, tuple[str, ...]]:
    driver: Any = connection.connection.driver_connection
    notices: list[str] = []

    def note(notice: Any) -> None:
        notices.append(str(notice.message_primary))

    driver.add_notice_handler(note)
    tables = ", ".join(t.name for t in schema.metadata.sorted_tables)
    with connection.begin():
        _replace_statistics(connection)
        last = connection.scalar(select(func.pg_current_xact_id().cast(Text)))
    autocommit = connection.execution_options(isolation_level="AUTOCOMMIT")
    try:
        autocommit.exec_driver_sql("SET statement_timeout = 0")
        autocommit.exec_driver_sql(f"SET lock_timeout = '{_LOCK_S}s'")
        _await_readers(autocommit, str(last), readers_s)
        # The statistics contain device ids. ANALYZE replaces them, and rewriting pg_statistic removes the
        # old ones.
        autocommit.exec_driver_sql(f"VACUUM (FULL, ANALYZE) {tables}")
        is_complete = not notices
        autocommit.exec_driver_sql("VACUUM FULL pg_statistic")
    finally:
        autocommit.rollback()
        autocommit.execution_options(isolation_level=connection.default_isolation_level)
    return is_complete, tuple(notices)


# VACUUM retains rows that any of these transactions can still see.
_READERS = """SELECT count(*) FROM (
    SELECT backend_xmin AS oldest FROM pg_stat_activity
    WHERE pid <> pg_backend_pid() AND backend_type <> 'autovacuum worker'
    AND (datname = current_database() OR datname IS NULL)
    UNION ALL SELECT xmin FROM pg_replication_slots
    UNION ALL SELECT transaction FROM pg_prepared_xacts WHERE database = current_database()
) AS readers WHERE age(oldest) >= age(%s::xid8::xid)"""


def _await_readers(connection: Connection, last: str, readers_s: float) -> None:
    """Wait for all transactions that began before this one, or raise StoreError after readers_s."""
    end = time.monotonic() + readers_s
    while readers := connection.exec_driver_sql(_READERS, (last,)).scalar_one():
        if time.monotonic() > end:
            raise StoreError(
                f"transactions, standbys or replication slots that can still see erased data: {readers:,}; "
                "end them, or wait"
            )
        time.sleep(0.1)


def _replace_statistics(connection: Connection) -> None:
    """Analyze all tables with dummy rows, because PostgreSQL keeps an empty table's old statistics."""
    # Single-row tables have no key and no device data.
    tables = [t for t in schema.metadata.sorted_tables if t.primary_key.columns]
    for table in tables:
        row = {c.name: "." if c.type.python_type is str else c.type.python_type() for c in table.columns}
        row |= {"state": "allowed"} if table is schema.device else {}
        # Enough rows to reach every partition.
        rows = [row | {"device": f".{i}"} for i in range(200)] if table is schema.dedupe else [row]
        connection.execute(table.insert(), rows)
    connection.exec_driver_sql(f"ANALYZE {', '.join(t.name for t in tables)}")
    for table in tables[::-1]:
        key = table.primary_key.columns[0]
        connection.execute(delete(table).where(key == ("." if key.type.python_type is str else 0)))


def expire(store: Store, now: datetime.datetime) -> tuple[Version, str, int] | None:
    """Erase one window that ended longer ago than its experiment's retention time.

    The name's current version, or the last published one, determines how long windows are kept.

    Args:
        store: The store.
        now: The time, UTC.

    Returns:
        The version, the window and its number of reports, or None if no window is due.

    Raises:
        StoreError: If the database fails.
    """
    versions, table = store.experiments(), schema.histogram
    newest = newest_versions(versions)
    for v in versions:
        kind = v.experiment.window
        hours = kept_hours(newest[v.fleet, v.experiment.name].keep)
        if hours is None or kind == "all":
            continue
        age = datetime.timedelta(hours=hours + (24 if kind == "day" else 1))
        last = window(kind, now.astimezone(datetime.UTC) - age)
        query = select(func.min(table.c.window)).where(table.c.experiment == v.id, table.c.window <= last)
        oldest = store.read(query)[0][0]
        if oldest is None:
            continue
        with store.writing() as connection:
            store.check_version(connection)
            deletion = delete(table).where(table.c.experiment == v.id, table.c.window == oldest)
            reports = sum(connection.scalars(deletion.returning(table.c.count)))
            totals = {"erased": schema.experiment.c.erased + reports}
            connection.execute(
                update(schema.experiment).where(schema.experiment.c.id == v.id).values(**totals)
            )
        return v, oldest, reports
    return None
