"""Opens a SQLite store so that it cannot be written, while other processes go on writing to it.

No file beside the store changes either, except for the index of its log, in which readers set their marks. A
-wal or -shm created by a reader would belong to the reader and might keep out the next aggregator.
"""

import os
import sqlite3
from contextlib import suppress
from urllib.parse import quote

from sqlalchemy import Connection, Engine, NullPool, create_engine, event
from sqlalchemy.engine import URL

BUSY_TIMEOUT_S = 2  # readers never wait in WAL mode; in other modes a reader should fail soon


def open_engine(url: URL) -> Engine:
    """Return an engine that connects anew for each transaction, depending on the current writers."""
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
    """Return whether a process is writing to a SQLite file, or has stopped without cleaning up."""
    return os.path.exists(f"{path}-wal") or os.path.exists(f"{path}-journal")


def _uri(path: str) -> str:
    if path.startswith("file:"):
        return path
    options = "immutable=1"  # without the other two files, which SQLite would create otherwise
    if is_being_written(path):
        options = ""
        with suppress(OSError):  # a missing index was lost in a crash, and SQLite recreates it
            # Another user's index must not be recreated. The user's own is opened for writing, because all
            # connections of a process share the index as first opened, and the next one may write.
            if os.stat(f"{path}-shm").st_uid != getattr(os, "geteuid", int)():  # Windows has no owners
                options = "readonly_shm=1"
    return f"file:{quote(os.path.abspath(path))}?mode=ro&{options}"
