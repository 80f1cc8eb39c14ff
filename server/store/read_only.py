"""Open a SQLite store read-only while other processes continue to write to it.

The files next to the store do not change either, except for the WAL index, in which readers set their marks.
A -wal or -shm created by a reader would belong to the reader and might lock out the next aggregator.
"""

import os
import sqlite3
from contextlib import suppress
from urllib.parse import quote, unquote

from sqlalchemy import Connection, Engine, NullPool, create_engine, event
from sqlalchemy.engine import URL

BUSY_TIMEOUT_S = 2  # readers never wait in WAL mode; in other modes they should fail quickly


def open_engine(url: URL) -> Engine:
    """Return an engine that opens a new connection per transaction, because options depend on the writers."""
    path = url.database or ""
    engine = create_engine(url, creator=lambda: _connect(path), poolclass=NullPool)
    event.listen(engine, "begin", _begin)
    return engine


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN")


def _connect(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        _uri(path), uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
    )
    connection.execute("PRAGMA query_only=ON")
    return connection


def is_being_written(path: str) -> bool:
    """Return whether a process is writing to a SQLite file, or stopped without cleaning up."""
    return os.path.exists(f"{path}-wal") or os.path.exists(f"{path}-journal")


def _uri(path: str) -> str:
    if path.startswith("file:"):
        path = unquote(path.removeprefix("file:"))
    options = "immutable=1"  # so that SQLite does not create a -wal or -shm
    if is_being_written(path):
        options = ""
        with suppress(OSError):  # the index is missing after a crash, and SQLite recreates it
            # Another user's index must not be recreated. This user's is opened for writing, because all of
            # the process's connections share it as first opened, and a later connection may write.
            if os.stat(f"{path}-shm").st_uid != getattr(os, "geteuid", int)():  # Windows has no owners
                options = "readonly_shm=1"
    return f"file:{quote(os.path.abspath(path))}?mode=ro&{options}"
