"""Erasing a device, an experiment or a fleet, and windows that are older than they are kept.

A device's rows go. So that no report of it is counted again, a row of `erased` is left for each experiment's
name that it had reported to: the highest number, how many reports were counted, and a mark, which is an HMAC
of fleet, name and device under the fleet's master key. Anyone with the store's file can read that some erased
device had so many reports counted. They can neither try ids nor see that two rows are of one device. With the
master key as well, which the aggregators have, they can try ids. Anyone with an older copy of the store knows
all that was in it. A device that reports again has a row of its own again, and that says up to which number
nothing of it counts.

An open fleet has no master key: anyone can send reports there under any id, old ones or new ones. If its
aggregators are given one all the same, a device is sealed as elsewhere. Without one the mark is random: it
stands for nothing, and old reports that are sent again are counted.

Old pages of the database's files may hold what was deleted until the files are written anew. The transaction
that deletes records that this is due. So if a process dies before it is done, the next one finishes it.
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
from .database import COUNTING_LOCK, StoreError, StoreLocked, insert_erased, insert_erasure
from .number_set import NumberSet
from .store import Store, Version, VersionRefused

_ALL = (1 << 32) - 1  # the highest number there is
_LOCK_S = 30  # how long it waits for a table; batches wait as long for it
_READERS_S = 30.0  # how long a rewrite waits for transactions that still see what was deleted


@dataclass(frozen=True)
class Erasure:
    """What erasing does.

    experiment, device: None where it is not about one. devices: whose numbers go. reports: counted, of what
    is erased; a device's stay in the counts. sealed: whether a device's numbers are barred from counting
    again. notices: what the server says of tables that it does not let us write anew.
    """

    fleet: str
    experiment: str | None = None
    device: str | None = None
    devices: int = 0
    reports: int = 0
    sealed: bool = False
    notices: tuple[str, ...] = ()


class NotRewritten(StoreError):
    """It is erased, but old pages of the database's files may still hold it."""


_Agree = Callable[[Erasure], object]


def erase(
    store: Store,
    fleet: str,
    *,
    experiment: str | None = None,
    device: str | None = None,
    fleet_keys: FleetKeys | None = None,
    agree: _Agree = lambda _: None,
) -> Erasure:
    """Erase a device, or an experiment of all versions, or with neither the fleet, while nobody counts.

    agree: is told what will be erased before anything is; what it raises leaves all as it was. Then the
    database's files are written anew. Raises VersionRefused for what is not there or is still asked of
    boards, MasterKeyError where a keyed fleet's key is missing or another's, StoreLocked while an aggregator
    has an SQLite store open or a batch of a PostgreSQL store lasts, and StoreError.
    """
    with _alone(store) as connection:
        with connection.begin():
            _lock_out_batches(connection)
            store.check_version(connection)
            plan = Erasure(fleet, experiment, device)
            row = _fleet(store, connection, fleet)
            if device is None:
                versions = store.versions(connection, fleet)
                versions = [v for v in versions if experiment in (None, v.experiment.name)]
                erasure = _whole(connection, versions, plan, agree)
            else:
                erasure = _device(connection, row, fleet_keys, plan, agree)
            _record_erasure(connection)
        try:
            with store.errors():
                return replace(erasure, notices=_rewrite(connection, _READERS_S))
        except StoreError as e:
            raise NotRewritten(
                f"it is erased, but old pages of {store.where} may still hold it ({e}): `hushmote store "
                "erase URL` writes its files anew"
            ) from None


def queue_erasure(store: Store, fleet: str, device: str, agree: _Agree = lambda _: None) -> Erasure:
    """Have the store's aggregators erase a device; doing it again changes nothing.

    agree: as of erase(). Raises VersionRefused for what is not there, and StoreError.
    """
    with store.writing() as connection:
        row = _fleet(store, connection, fleet)
        rows, state = _rows(connection, fleet, device)
        reports = sum(int(of["accepted"]) for of in rows)
        _check_known(rows, state, fleet, device)
        sealed = bool(row["keyed"]) or row["master_check"] is not None
        plan = Erasure(fleet, None, device, 1, reports, sealed)
        agree(plan)
        connection.execute(insert_erasure(connection), {"fleet": fleet, "device": device})
    return plan


def queued_erasures(store: Store) -> list[tuple[str, str]]:
    """Return (fleet, device) of each erasure that waits for an aggregator."""
    table = schema.erasure.c
    return [(fleet, device) for fleet, device in store.read(select(table.fleet, table.device))]


def erase_queued(store: Store, fleet: str, device: str, fleet_keys: FleetKeys | None) -> Erasure | None:
    """Erase a device whose erasure is queued, with that request; None if somebody else has done so.

    The files are to be written anew afterwards: finish_rewrite(). Raises as erase() does; then the request
    stays.
    """
    request = and_(schema.erasure.c.fleet == fleet, schema.erasure.c.device == device)
    with store.writing() as connection:
        _lock_out_batches(connection)
        store.check_version(connection)
        if not connection.execute(delete(schema.erasure).where(request)).rowcount:
            return None
        _record_erasure(connection)
        row = _fleet(store, connection, fleet)
        try:
            return _device(connection, row, fleet_keys, Erasure(fleet, device=device), lambda _: None)
        except VersionRefused:  # it was erased by hand in the meantime
            return Erasure(fleet, device=device)


def was_erased(store: Store, fleet: str, device: str, fleet_keys: FleetKeys | None) -> bool:
    """Return whether a device that had been revoked was erased; False where no master key can tell."""
    if fleet_keys is None:
        return False
    marks = [keys.erased_mark(master, fleet, "", device) for master in fleet_keys.masters]
    table = schema.erased.c
    return bool(store.read(select(table.mark).where(table.fleet == fleet, table.mark.in_(marks))))


def is_rewrite_due(connection: Connection) -> bool:
    """Return whether something was erased since the files were last written anew."""
    table = schema.rewrite.c
    return connection.scalar(select(table.erasures).where(table.erasures > table.rewritten)) is not None


def unfinished_erasures(connection: Connection) -> tuple[str, ...]:
    """Return a line for each kind of erasure that is not finished, with what would finish it."""
    lines: list[str] = []
    if is_rewrite_due(connection):
        lines.append(
            "old pages of the files may still hold what was erased: an aggregator or `hushmote store erase "
            "URL` writes them anew"
        )
    if queued := connection.scalar(select(func.count()).select_from(schema.erasure)):
        devices = f"{queued:,} device{'s' * (queued > 1)}"
        lines.append(
            f"{devices} wait{'s' * (queued == 1)} for an aggregator to erase {'them' if queued > 1 else 'it'}"
        )
    return tuple(lines)


def finish_rewrite(store: Store, readers_s: float = _READERS_S) -> bool:
    """Write the database's files anew if that is due; aggregators may go on. Return whether it was done.

    readers_s: seconds to wait for transactions that still see what was erased. Raises StoreError.
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
            connection.invalidate()  # with its settings


def _fleet(store: Store, connection: Connection, fleet: str) -> Any:
    fleets = connection.execute(select(schema.fleet).where(schema.fleet.c.name == fleet)).mappings()
    row = fleets.one_or_none()
    if row is None:
        raise VersionRefused(f"there is no fleet {fleet} in {store.where}")
    return row


def _record_erasure(connection: Connection) -> None:
    connection.execute(update(schema.rewrite).values(erasures=schema.rewrite.c.erasures + 1))


def _lock_out_batches(connection: Connection) -> None:
    """Let no aggregator count until the end of this transaction; SQLite has one writer at a time anyway."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("SET LOCAL lock_timeout = '2s'")
        connection.execute(select(func.pg_advisory_xact_lock(COUNTING_LOCK)))


@contextmanager
def _alone(store: Store) -> Generator[Connection, None, None]:
    """A connection for an erasure; StoreLocked within it where somebody counts meanwhile.

    Nobody else has an SQLite file open at all, and there is no -wal or -shm.
    """
    store.engine.dispose()
    with store.errors(), store.engine.connect() as found:
        connection = found.execution_options(hushmote_write=True)
        try:
            with store.errors():
                if connection.dialect.name == "sqlite":
                    file: Any = connection.connection.driver_connection
                    file.execute("PRAGMA locking_mode=EXCLUSIVE")
                    file.execute("PRAGMA journal_mode=DELETE")
                yield connection
        except StoreLocked:
            raise StoreLocked(
                f"{store.where} is in use, and nothing was erased: stop its aggregators and what else has it "
                "open, or add --queue to have an aggregator erase a device"
            ) from None
        finally:
            if connection.dialect.name == "sqlite":
                with suppress(sqlite3.Error):  # as it was, so that two that start at once need not both do it
                    connection.connection.driver_connection.execute("PRAGMA journal_mode=WAL")  # pyright: ignore
            connection.invalidate()  # with its locks


def _device(
    connection: Connection, row: Any, given: FleetKeys | None, plan: Erasure, agree: _Agree
) -> Erasure:
    """Erase a device of the fleet in a row, and seal its numbers where there is a master key."""
    fleet, device = plan.fleet, str(plan.device)
    if given is None and (row["keyed"] or row["master_check"] is not None):
        raise MasterKeyError(
            f"an erased device of fleet {fleet} is sealed with its master key: give it as a file or in "
            f"{ENVIRONMENT_VARIABLE}"
        )
    keys.check_masters(given, fleet, row["master_check"])
    rows, state = _rows(connection, fleet, device)
    _check_known(rows, state, fleet, device)
    left = [(of["experiment"], _highest(of), int(of["accepted"])) for of in rows]
    plan = replace(plan, devices=1, reports=sum(n for _, _, n in left), sealed=given is not None)
    agree(plan)
    if state == "revoked":
        left.append(("", _ALL, 0))
    for name, highest, reports in left:
        mark, barred = os.urandom(16).hex(), 0
        if given is not None:
            mark, barred = keys.erased_mark(given.masters[0], fleet, name, device), highest
        values = {"mark": mark, "fleet": fleet, "experiment": name, "highest": barred, "reports": reports}
        if highest:
            connection.execute(insert_erased(connection), values)
    for table in (schema.dedupe, schema.device, schema.erasure):
        connection.execute(delete(table).where(table.c.fleet == fleet, table.c.device == device))
    if given is not None and row["master_check"] is None:
        check = keys.master_check(given.masters[0], fleet)
        table = schema.fleet
        connection.execute(update(table).where(table.c.name == fleet).values(master_check=check))
    return plan


def _rows(connection: Connection, fleet: str, device: str) -> tuple[Sequence[Any], str | None]:
    """Return a device's rows of numbers, and its state if it was named."""
    dedupe, named = schema.dedupe, schema.device
    own, listed = (and_(t.c.fleet == fleet, t.c.device == device) for t in (dedupe, named))
    rows = connection.execute(select(dedupe).where(own)).mappings().all()
    return rows, connection.scalar(select(named.c.state).where(listed))


def _check_known(rows: Sequence[Any], state: str | None, fleet: str, device: str) -> None:
    if not rows and state is None:
        raise VersionRefused(f"fleet {fleet} knows no device {device}: nothing was erased")


def _highest(row: Any) -> int:
    """The highest number of a device's row; of one that is damaged none is to count again."""
    try:
        return NumberSet.decode(row["numbers"], row["beyond"]).highest
    except (TypeError, ValueError):
        return _ALL


def _whole(connection: Connection, versions: list[Version], plan: Erasure, agree: _Agree) -> Erasure:
    """Erase an experiment's versions, or all of a fleet."""
    fleet, name = plan.fleet, plan.experiment
    if name is not None and not versions:
        raise VersionRefused(f"there is no experiment {name} in fleet {fleet}: nothing was erased")
    for v in versions:
        if v.published_on(datetime.datetime.now(datetime.UTC).date()):
            raise VersionRefused(
                f"boards of fleet {fleet} are still asked {v.experiment.name}: `hushmote experiment withdraw "
                f"{v.experiment.name}`, and let `hushmote serve` run until it has told them"
            )

    def of(table: Table) -> ColumnElement[bool]:
        return and_(table.c.fleet == fleet, true() if name is None else table.c.experiment == name)

    dedupe = schema.dedupe.c
    counted = select(func.count(dedupe.device.distinct()), func.coalesce(func.sum(dedupe.accepted), 0))
    devices, reports = connection.execute(counted.where(of(schema.dedupe))).one()
    plan = replace(plan, devices=devices, reports=int(reports))
    agree(plan)
    ids = [v.id for v in versions]
    connection.execute(delete(schema.histogram).where(schema.histogram.c.experiment.in_(ids)))
    connection.execute(delete(schema.experiment).where(schema.experiment.c.id.in_(ids)))
    for table in (
        schema.dedupe,
        schema.erased,
        *(() if name else (schema.device, schema.reject, schema.erasure)),
    ):
        connection.execute(delete(table).where(of(table)))
    if name is None:
        connection.execute(delete(schema.fleet).where(schema.fleet.c.name == fleet))
    return plan


def _rewrite(connection: Connection, readers_s: float) -> tuple[str, ...]:
    """Write the database's files anew, without what was deleted, and record that.

    Returns what the server says against it; where that is about one of our tables, the rewrite stays due.
    """
    table = schema.rewrite.c
    with connection.begin():
        erasures = connection.scalar(select(table.erasures))
    if connection.dialect.name == "sqlite":
        done, notices = _rewrite_sqlite(connection), ()
    else:
        done, notices = _rewrite_postgresql(connection, readers_s)
    if done:
        with connection.begin():
            done = update(schema.rewrite).where(table.rewritten < erasures).values(rewritten=erasures)
            connection.execute(done)
    return notices


def _rewrite_sqlite(connection: Connection) -> bool:
    file: Any = connection.connection.driver_connection
    file.execute("VACUUM")
    # Without a log there is nothing to do, and it is not busy.
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
        # The statistics have device ids in them, which ANALYZE replaces; pg_statistic is where they were
        # before.
        autocommit.exec_driver_sql(f"VACUUM (FULL, ANALYZE) {tables}")
        done = not notices
        autocommit.exec_driver_sql("VACUUM FULL pg_statistic")
    finally:
        autocommit.rollback()
        autocommit.execution_options(isolation_level=connection.default_isolation_level)
    return done, tuple(notices)


# VACUUM keeps what any of these still sees.
_READERS = """SELECT count(*) FROM (
    SELECT backend_xmin AS oldest FROM pg_stat_activity
    WHERE pid <> pg_backend_pid() AND backend_type <> 'autovacuum worker'
    AND (datname = current_database() OR datname IS NULL)
    UNION ALL SELECT xmin FROM pg_replication_slots
    UNION ALL SELECT transaction FROM pg_prepared_xacts WHERE database = current_database()
) AS readers WHERE age(oldest) >= age(%s::xid8::xid)"""


def _await_readers(connection: Connection, last: str, readers_s: float) -> None:
    """Wait for all that began before a transaction; raises StoreError if some have not ended in time."""
    end = time.monotonic() + readers_s
    while readers := connection.exec_driver_sql(_READERS, (last,)).scalar_one():
        if time.monotonic() > end:
            raise StoreError(
                f"transactions, standbys or replication slots that still see what was erased: {readers:,}; "
                "end them, or wait"
            )
        time.sleep(0.1)


def _replace_statistics(connection: Connection) -> None:
    """Analyze all tables with rows of our own in them: of an empty one PostgreSQL keeps the statistics."""
    # Tables of one row have no key, and nothing of a device.
    tables = [t for t in schema.metadata.sorted_tables if t.primary_key.columns]
    for table in tables:
        row = {c.name: "." if c.type.python_type is str else c.type.python_type() for c in table.columns}
        row |= {"state": "allowed"} if table is schema.device else {}
        # As many as reach all of its parts.
        rows = [row | {"device": f".{i}"} for i in range(200)] if table is schema.dedupe else [row]
        connection.execute(table.insert(), rows)
    connection.exec_driver_sql(f"ANALYZE {', '.join(t.name for t in tables)}")
    for table in tables[::-1]:
        key = table.primary_key.columns[0]
        connection.execute(delete(table).where(key == ("." if key.type.python_type is str else 0)))


def expire(store: Store, now: datetime.datetime) -> tuple[Version, str, int] | None:
    """Erase one window that ended longer ago than its experiment's are kept; None where there is none.

    Returns its version, the window, and how many reports it had. What holds for a name is what its newest
    version says. now: UTC. Raises StoreError.
    """
    versions, table = store.experiments(), schema.histogram
    newest = {(v.fleet, v.experiment.name): v for v in sorted(versions, key=lambda v: v.serial)}
    for v in versions:
        kind = v.experiment.window
        hours = kept_hours(newest[v.fleet, v.experiment.name].keep)
        if hours is None or kind == "all":
            continue
        ended = datetime.timedelta(hours=hours + (24 if kind == "day" else 1))
        last = window(kind, now.astimezone(datetime.UTC) - ended)
        old = select(func.min(table.c.window)).where(table.c.experiment == v.id, table.c.window <= last)
        oldest = store.read(old)[0][0]
        if oldest is None:
            continue
        with store.writing() as connection:
            store.check_version(connection)
            gone = delete(table).where(table.c.experiment == v.id, table.c.window == oldest)
            reports = sum(connection.scalars(gone.returning(table.c.count)))
            more = {"erased": schema.experiment.c.erased + reports}
            connection.execute(update(schema.experiment).where(schema.experiment.c.id == v.id).values(**more))
        return v, oldest, reports
    return None
