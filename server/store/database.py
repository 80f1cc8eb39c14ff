"""Open and check the store's database, and turn its errors into one-line messages.

SQLite runs in WAL mode with synchronous=FULL, so that commits survive a power cut. PostgreSQL is accessed
through its URL.
"""

import os
import sqlite3
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Connection,
    Engine,
    Row,
    Select,
    Table,
    case,
    create_engine,
    event,
    func,
    inspect,
    select,
    update,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from .. import private_file
from ..errors import NO_STORE, HushmoteError, os_reason
from ..extras import require
from . import open_files, read_only, schema

BUSY_TIMEOUT_S = 10
_PAGE_BYTES = 1024  # page size of a new file, small because a batch changes one row in most pages
_CACHE_KIB = 64 << 10  # a million devices need about 35 MB
_LOG_BYTES = 32 << 20  # large, so that a page that several batches change is copied only once
_SCHEMA_LOCK = 0x6875_7368_6D6F_7465  # PostgreSQL's advisory lock for creating or changing the schema
COUNTING_LOCK = _SCHEMA_LOCK + 1  # batches hold it shared, an erasure exclusively


_VERSION = select(schema.schema_version.c.version)


class StoreError(HushmoteError):
    """Raised when the store cannot be opened, read or written; the message says why and what to do."""


class StoreDamaged(StoreError):
    """Raised for damaged rows; those of other experiments can still be read."""


def affects_whole_store(error: Exception) -> bool:
    """Return whether an error in reading one experiment means that no other can be read either."""
    return isinstance(error, StoreError) and not isinstance(error, StoreDamaged)


class StoreAbsent(StoreError):
    """Raised when there is no store, or only an empty database."""


class OtherSchema(StoreError):
    """Raised when the store's schema is older or newer than this version of Hushmote."""


class StoreLocked(StoreError):
    """Raised when another program has locked the store."""


_NO_PORT = "a store's port must be 1 to 65535; in a password write %3A for :, %2F for / and %40 for @"
_NOT_A_STORE = "not a store: write sqlite:///path or postgresql+psycopg://user@host/database"


def parse_url(url: str) -> URL:
    """Return a store's URL, parsed.

    Raises:
        StoreError: If the URL is invalid. The message does not quote it, because any part may be a password.
    """
    try:
        location = make_url(url)
    except ArgumentError:
        raise StoreError(_NOT_A_STORE) from None
    except ValueError:
        raise StoreError(_NO_PORT) from None
    if location.get_backend_name() == "postgresql":
        if "@" in f"{location.host}{location.database}{location.query}":
            raise StoreError(
                "a store's URL must have only one @: in a password write %40 for @, %2F for / and %3A for :"
            )
        if location.port is not None and not 1 <= location.port <= 65_535:
            raise StoreError(_NO_PORT)
    return location


class Database:
    """An open database that contains the store's schema.

    It does not touch another program's database, or an older schema unless `upgrade` is set.

    Args:
        url: An SQLAlchemy URL.
        create: Whether to create the database if it does not exist; otherwise its absence is an error.
        upgrade: Whether to upgrade an older schema to the current version, in one transaction.
        read_only: Whether the database should refuse every write and not create any files.
        wait_for_server: Whether to wait for a PostgreSQL server that is starting.

    Attributes:
        version_before: The schema version when it was opened; 0 for a new database.

    Raises:
        StoreError: If the database cannot be opened; the message is one line.
    """

    def __init__(
        self,
        url: str,
        *,
        create: bool = True,
        upgrade: bool = False,
        read_only: bool = False,
        wait_for_server: bool = False,
    ) -> None:
        self._url = parse_url(url)
        self._read_only = read_only
        create = create and not read_only
        self._dialect = self._url.get_backend_name()
        try:
            self.engine: Engine = self._open(create, wait_for_server)
        except ArgumentError:
            raise StoreError(_NOT_A_STORE) from None
        except ValueError:
            raise StoreError(
                "an option in the store's URL, after the ?, has a value of the wrong type"
            ) from None
        try:
            # A reader neither waits for a writer nor needs a writable disk.
            with self.writing() if create or upgrade else self.reading() as connection:
                self.version_before = self._check_schema(connection, create, upgrade)
        except StoreError:
            self.close()
            raise

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    @property
    def where(self) -> str:
        """The file's path, or the URL without its password."""
        return self._url.database or ":memory:" if self._dialect == "sqlite" else self._shown_url

    @property
    def _shown_url(self) -> str:
        return self._url.set(query={}).render_as_string(hide_password=True)  # options may contain passwords

    def _open(self, create: bool, wait_for_server: bool) -> Engine:
        if self._dialect == "sqlite":
            engine = create_engine(self._url, connect_args={"timeout": BUSY_TIMEOUT_S})
            engine.dialect.create_connect_args(self._url)  # raises for an invalid URL
            self._check_path(create)
            if self._read_only:
                return read_only.open_engine(self._url)
            event.listen(engine, "connect", _set_up_sqlite)
            event.listen(engine, "begin", _begin_sqlite)
            return engine
        if self._dialect != "postgresql":
            raise StoreError(
                f"a store must be sqlite:///path or postgresql+psycopg://..., not {self._dialect}"
            )
        if self._url.drivername == "postgresql":
            self._url = self._url.set(drivername="postgresql+psycopg")
        if self._url.drivername != "postgresql+psycopg":
            raise StoreError("a PostgreSQL store needs psycopg: write postgresql+psycopg://...")
        require("psycopg", "a PostgreSQL store")
        from . import postgresql

        engine = postgresql.open_engine(self._url, self._read_only)
        if wait_for_server:
            postgresql.await_server(engine)
        return engine

    def _check_path(self, create: bool) -> None:
        path = self._url.database
        if not path or path == ":memory:":
            # Otherwise each connection would open its own database.
            raise StoreError("a store needs a file: write sqlite:///path")
        if path.startswith("file:"):
            return
        folder = os.path.dirname(os.path.abspath(path))
        if not os.path.isdir(folder):
            raise StoreError(f"cannot open {path}: the folder {folder} does not exist; create it")
        if os.path.isdir(path):
            raise StoreError(f"cannot open {path}: it is a folder; a store is a file")
        if not create and not os.path.exists(path):
            raise StoreAbsent(NO_STORE.format(path, "path"))
        if not os.path.exists(path) and os.path.exists(f"{path}-wal"):
            raise StoreAbsent(  # SQLite would remove the -wal
                f"{path} is missing but its -wal exists: put it back, restore a backup, "
                "or for a new store remove the -wal"
            )
        if create:
            # Set the file's mode, which SQLite copies to -wal and -shm. If this fails, SQLite reports why.
            with suppress(OSError):
                private_file.create(Path(path), b"")

    def _check_schema(self, connection: Connection, create: bool, upgrade: bool) -> int:
        """Create or upgrade the schema if requested, and return the version before."""
        version = self._schema_version(connection)
        if version is None and not create:
            raise StoreAbsent(NO_STORE.format(self.where, "URL"))
        if version is None or (upgrade and version < schema.VERSION):
            if self._dialect == "postgresql":
                # If two processes start at once, the second one finds the first one's tables.
                connection.execute(select(func.pg_advisory_xact_lock(_SCHEMA_LOCK)))
                version = self._schema_version(connection)
            if version is None:
                schema.metadata.create_all(connection)
                connection.execute(schema.schema_version.insert().values(version=schema.VERSION))
                connection.execute(schema.counting.insert().values(alive=None))
                connection.execute(schema.rewrite.insert().values(erasures=0, rewritten=0))
                return 0
            if schema.BASELINE <= version < schema.VERSION:
                from . import migrations  # imported lazily: Alembic is slow to load

                migrations.upgrade(connection, version)
                return version
        if version != schema.VERSION:
            raise OtherSchema(self._other_version(version))
        if self._dialect == "sqlite" and create:
            # Detect an unwritable file now instead of at the first report.
            connection.execute(update(schema.schema_version).values(version=schema.VERSION))
        return version

    def check_version(self, connection: Connection) -> None:
        """Check that nobody has upgraded the store since it was opened.

        Raises:
            OtherSchema: If someone has.
        """
        version = connection.scalar(_VERSION)
        if version != schema.VERSION:
            raise OtherSchema(self._other_version(version or 0))

    def _schema_version(self, connection: Connection) -> int | None:
        """Return the store's schema version, or None for an empty database."""
        tables = set(inspect(connection).get_table_names())
        if not tables:
            return None
        # Check only the version table, because we do not know a later schema's other tables.
        if schema.schema_version.name not in tables:
            raise StoreError(f"{self.where} is another program's database: give another path")
        versions = list(connection.scalars(_VERSION))
        if len(versions) != 1 or not isinstance(versions[0], int) or versions[0] < 1:
            texts = ", ".join(map(str, versions)) or "none"
            raise StoreError(f"{self.where} is damaged: its schema version is {texts}; restore a backup")
        return versions[0]

    def _other_version(self, version: int) -> str:
        text = f"{self.where} has schema version {version}, but this Hushmote reads {schema.VERSION}: "
        if version > schema.VERSION:
            return text + "use the Hushmote that wrote it"
        if version < schema.BASELINE:
            return text + f"it can upgrade stores of version {schema.BASELINE} or later"
        return text + f"stop its aggregators, back it up, then `hushmote store upgrade {self._shown_url}`"

    @contextmanager
    def writing(self) -> Generator[Connection, None, None]:
        """Yield a connection with a write transaction, which is committed at the end of the block.

        Raises:
            StoreError: If the database fails.
            StoreRemoved: If the commit may have gone into a removed file.
        """
        with self.reading() as connection:
            connection = connection.execution_options(hushmote_write=True)
            with connection.begin():
                yield connection

    @contextmanager
    def reading(self) -> Generator[Connection, None, None]:
        """Yield a connection with a read transaction.

        Raises:
            StoreError: If the database fails.
        """
        with self.errors(), self.engine.connect() as connection:
            open_files.check(connection)
            try:
                yield connection
            finally:  # the failure may be caused by removed files
                open_files.check(connection)

    def hold_for_counting(self, connection: Connection) -> None:
        """Keep other processes from erasing until this transaction ends, as SQLite does automatically."""
        if self._dialect == "postgresql":
            connection.execute(select(func.pg_advisory_xact_lock_shared(COUNTING_LOCK)))

    @contextmanager
    def errors(self) -> Generator[None, None, None]:
        """Turn the database's errors within the block into StoreError with a one-line message.

        A PostgreSQL error also closes all pooled sessions, because their server may have become read-only.
        """
        try:
            yield
        except open_files.StoreMoved as e:
            raise StoreError(str(e)) from None
        except (SQLAlchemyError, sqlite3.Error) as e:
            if self._dialect == "postgresql":
                self.engine.dispose()
            text = _one_line(self.where, e)
            raise (StoreLocked if text.endswith(_LOCKED) else StoreError)(text) from e

    @contextmanager
    def decoding_errors(self) -> Generator[None, None, None]:
        """Turn a decoding error within the block into StoreError; SQLite accepts any type in any column."""
        try:
            yield
        except (TypeError, ValueError) as e:
            raise StoreDamaged(f"{self.where} is damaged: {e}") from e

    def read(self, query: Select[*tuple[Any, ...]]) -> Sequence[Row[*tuple[Any, ...]]]:
        """Return all rows of a query, read in its own transaction.

        Raises:
            StoreError: If the database fails.
        """
        with self.reading() as connection:
            return connection.execute(query).all()


def lock_out_batches(connection: Connection) -> None:
    """Keep aggregators from counting until this transaction ends; SQLite has only one writer anyway."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("SET LOCAL lock_timeout = '2s'")
        connection.execute(select(func.pg_advisory_xact_lock(COUNTING_LOCK)))


def insert_devices(connection: Connection) -> Any:
    """Return an INSERT of device rows; an existing row's state can only change to revoked."""
    statement = _insert(connection, schema.device)
    return statement.on_conflict_do_update(
        index_elements=["fleet", "device"],
        set_={"state": statement.excluded.state},
        where=statement.excluded.state == "revoked",  # revocation is permanent, whatever the other row has
    )


def _insert(connection: Connection, table: Table) -> Any:
    if connection.dialect.name == "sqlite":
        from sqlalchemy.dialects.sqlite import insert
    else:
        from sqlalchemy.dialects.postgresql import insert
    return insert(table)


def insert_erased(connection: Connection) -> Any:
    """Return an INSERT of erased devices; for an existing row, add the reports and keep the higher number."""
    statement, existing = _insert(connection, schema.erased), schema.erased.c
    new = statement.excluded
    highest = case((new.highest > existing.highest, new.highest), else_=existing.highest)
    values = {"highest": highest, "reports": existing.reports + new.reports}
    return statement.on_conflict_do_update(index_elements=["mark"], set_=values)


def insert_erasure(connection: Connection) -> Any:
    """Return an INSERT of a device to erase; an existing row is kept."""
    return _insert(connection, schema.erasure).on_conflict_do_nothing()


def insert_interruptions(connection: Connection) -> Any:
    """Return an INSERT of interrupted days; an existing day is kept."""
    return _insert(connection, schema.interruption).on_conflict_do_nothing()


def insert_release_plans(connection: Connection) -> Any:
    """Return an INSERT of releases' plans; an existing plan is kept."""
    return _insert(connection, schema.release_plan).on_conflict_do_nothing()


def insert_new(connection: Connection, table: Table) -> Any:
    """Return an INSERT into a table; an existing row is kept."""
    return _insert(connection, table).on_conflict_do_nothing()


def _set_up_sqlite(connection: Any, record: Any) -> None:
    # _begin_sqlite() begins transactions, because the driver would begin them without the write lock.
    connection.isolation_level = None
    cursor = connection.cursor()
    try:
        cursor.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_S * 1000}")
        cursor.execute(f"PRAGMA page_size={_PAGE_BYTES}")  # does not change an existing file
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=FULL")  # in WAL mode NORMAL may lose the last commits
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.execute("PRAGMA secure_delete=ON")  # overwrite deleted data
        cursor.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")
        (page_bytes,) = cursor.execute("PRAGMA page_size").fetchone()
        cursor.execute(f"PRAGMA wal_autocheckpoint={_LOG_BYTES // page_bytes}")
    finally:
        cursor.close()
    open_files.remember(connection, record.info)


def _begin_sqlite(connection: Connection) -> None:
    # A write transaction takes the lock before it reads, so that no other one can write in between.
    write = connection.get_execution_options().get("hushmote_write")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


_LOCKED = "another program holds its write lock; stop that program or wait"
_ADVICE = {
    "not a database": "it is not a SQLite database; give another path",
    "readonly": "it is read-only; make the file, its -wal and -shm, and the folder writable",
    "is full": "the disk is full; free some space",
    "No space left": "the disk is full; free some space",
    "SQLITE_IOERR_SHMSIZE": "the disk is full; free some space",
    "locked": _LOCKED,
    "malformed": "the file is damaged; restore a backup",
    "lock timeout": _LOCKED,
    "no such table": "it is damaged or another program's database; give another path",
}


def _open_failure(path: str) -> str:
    """Return why SQLite cannot open a file or create one next to it, because its error message does not."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as e:
        return os_reason(e)
    with suppress(OSError):
        disk = os.statvfs(os.path.dirname(os.path.abspath(path)))
        if disk.f_files and not disk.f_favail:
            return "the disk cannot hold another file (no inodes are left); remove some files"
    return "permission denied, read-only disk, or missing file; make it writable or give another path"


def _one_line(where: str, error: Exception) -> str:
    cause = getattr(error, "orig", None) or error
    text = str(cause)
    text = text.strip().split("\n")[0].removeprefix("connection failed: ")
    name = getattr(cause, "sqlite_errorname", "")
    if "unable to open" in text:
        return f"cannot use {where}: {_open_failure(where)}"
    for part, advice in _ADVICE.items():
        if part in text or part == name:
            return f"cannot use {where}: {advice}"
    if "permission denied" in text:
        return f"cannot use {where}: {text}; its owner can grant it"
    return f"cannot use {where}: {text}"
