"""Opens a SQLite store so that it cannot be written, while others go on writing to it.

No file beside the store changes either, but for the index of its log, in which readers have their marks. A
-wal or -shm made by a reader would belong to the reader, and might keep out the aggregator that comes next.
"""

import os
import sqlite3
from contextlib import suppress
from urllib.parse import quote

from sqlalchemy import Connection, Engine, NullPool, create_engine, event
from sqlalchemy.engine import URL

BUSY_TIMEOUT_S = 2  # readers never wait in WAL mode; elsewhere a reader should soon be told


def open_engine(url: URL) -> Engine:
    """Return an engine that connects anew for each transaction; how depends on who writes at that moment."""
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
    """Return whether somebody writes to a SQLite file, or stopped without tidying up."""
    return os.path.exists(f"{path}-wal") or os.path.exists(f"{path}-journal")


def _uri(path: str) -> str:
    if path.startswith("file:"):
        return path
    options = "immutable=1"  # there is only the file; otherwise SQLite would make the other two
    if is_being_written(path):
        options = ""
        with suppress(OSError):  # an index that is missing was lost by a crash, and SQLite makes it again
            # Another user's must not be made anew as it goes away. One's own is opened to be written: all
            # that a process has open shares the index as the first has opened it, and the next may write.
            if os.stat(f"{path}-shm").st_uid != getattr(os, "geteuid", int)():  # Windows has neither
                options = "readonly_shm=1"
    return f"file:{quote(os.path.abspath(path))}?mode=ro&{options}"
