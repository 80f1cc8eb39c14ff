"""A SQLite store opened so that nothing of it can be written, while others go on writing to it.

Not a byte changes beside the store either: a -wal or -shm that a reader made would be the reader's own, and
might keep out the aggregator that comes after it.
"""

from __future__ import annotations

import os
import sqlite3
from urllib.parse import quote

from sqlalchemy import Connection, Engine, NullPool, create_engine, event
from sqlalchemy.engine import URL

BUSY_TIMEOUT_S = 2  # in WAL mode nobody who reads waits; where one must, whoever looks wants to be told


def open_engine(url: URL) -> Engine:
    """Return an engine that connects anew for each transaction: how, depends on who writes at that moment."""
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
    """Whether somebody writes to a SQLite file, or ended without having tidied up."""
    return os.path.exists(f"{path}-wal") or os.path.exists(f"{path}-journal")


def _uri(path: str) -> str:
    if path.startswith("file:"):
        return path
    if not is_being_written(path):
        options = "immutable=1"  # the file is all there is; otherwise SQLite would make the other two
    elif os.path.exists(f"{path}-shm"):
        options = "readonly_shm=1"
    else:
        options = ""  # what a crash left, without its index, which SQLite makes again
    return f"file:{quote(os.path.abspath(path))}?mode=ro&{options}"
