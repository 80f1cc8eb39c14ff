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
"""

import datetime
import os
import sqlite3
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, and_, delete, func, select, true, update

from ..wire import keys
from ..wire.keys import ENVIRONMENT_VARIABLE, FleetKeys, MasterKeyError
from ..wire.limits import kept_hours, window
from . import schema
from .database import COUNTING_LOCK, StoreError, StoreLocked, insert_erased
from .number_set import NumberSet
from .store import Store, Version, VersionRefused

_ALL = (1 << 32) - 1  # the highest number there is


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
    counts, and StoreError.
    """
    with _alone(store) as connection:
        with connection.begin():
            store.check_version(connection)
            fleets = connection.execute(select(schema.fleet).where(schema.fleet.c.name == fleet)).mappings()
            row = fleets.one_or_none()
            if row is None:
                raise VersionRefused(f"there is no fleet {fleet} in {store.where}")
            plan = Erasure(fleet, experiment, device)
            if device is None:
                versions = store.versions(connection, fleet)
                versions = [v for v in versions if experiment in (None, v.experiment.name)]
                erasure = _whole(connection, versions, plan, agree)
            else:
                erasure = _device(connection, row, fleet_keys, plan, agree)
        try:
            with store.errors():
                return replace(erasure, notices=_rewrite(connection))
        except StoreError as e:
            raise StoreError(
                f"it is erased, but old pages of {store.where} may still hold it ({e}): VACUUM it"
            ) from None


@contextmanager
def _alone(store: Store) -> Generator[Connection, None, None]:
    """A connection to a store that nobody counts into meanwhile; StoreLocked where somebody does.

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
                else:  # what has just ended may be there for a moment
                    connection.exec_driver_sql("SET LOCAL lock_timeout = '2s'")
                    connection.execute(select(func.pg_advisory_lock(COUNTING_LOCK)))
                    connection.commit()
            yield connection
        except StoreLocked:
            raise StoreLocked(
                f"{store.where} is in use, and nothing was erased: stop its aggregators and what else has it "
                "open, then try again"
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
    dedupe, named = schema.dedupe, schema.device
    own, listed = (and_(t.c.fleet == fleet, t.c.device == device) for t in (dedupe, named))
    rows = connection.execute(select(dedupe).where(own)).mappings().all()
    state = connection.scalar(select(named.c.state).where(listed))
    if not rows and state is None:
        raise VersionRefused(f"fleet {fleet} knows no device {device}: nothing was erased")
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
    for table, where in ((dedupe, own), (named, listed)):
        connection.execute(delete(table).where(where))
    if given is not None and row["master_check"] is None:
        check = keys.master_check(given.masters[0], fleet)
        table = schema.fleet
        connection.execute(update(table).where(table.c.name == fleet).values(master_check=check))
    return plan


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
    for table in (schema.dedupe, schema.erased, *(() if name else (schema.device, schema.reject))):
        connection.execute(delete(table).where(of(table)))
    if name is None:
        connection.execute(delete(schema.fleet).where(schema.fleet.c.name == fleet))
    return plan


def _rewrite(connection: Connection) -> tuple[str, ...]:
    """Write the database's files anew, without what was deleted; returns what the server says against it."""
    file: Any = connection.connection.driver_connection
    if connection.dialect.name == "sqlite":
        file.execute("VACUUM")
        return ()
    notices: list[str] = []

    def note(notice: Any) -> None:
        notices.append(str(notice.message_primary))

    file.add_notice_handler(note)
    tables = ", ".join(t.name for t in schema.metadata.sorted_tables)
    with connection.begin():
        _replace_statistics(connection)
    connection = connection.execution_options(isolation_level="AUTOCOMMIT")
    connection.exec_driver_sql("SET statement_timeout = 0")
    # The statistics have device ids in them, which ANALYZE replaces; pg_statistic is where they were before.
    for statement in (f"VACUUM (FULL, ANALYZE) {tables}", "VACUUM FULL pg_statistic"):
        connection.exec_driver_sql(statement)
    return tuple(notices)


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
