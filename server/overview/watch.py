"""Detect commits to a store, and the end of each hour, by checking several times per second.

The checks do not read any rows, because SQLite and PostgreSQL count commits themselves.
"""

from __future__ import annotations

import datetime
import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from ..answers.store_reader import StoreReader
from ..answers.windows import SETTLED
from ..store.database import OtherSchema, StoreAbsent, StoreError, StoreLocked, parse_url
from ..store.read_only import is_being_written
from ..store.store import Store

Kind = Literal["ready", "absent", "other schema", "locked", "unreadable"]

# Compare the whole snapshot because transactions do not end in the order of their numbers.
_MARK = {"sqlite": "PRAGMA data_version", "postgresql": "SELECT pg_current_snapshot()::text"}


@dataclass(frozen=True)
class StoreState:
    """A store's state at a point in time.

    Attributes:
        kind: "ready", or why it cannot be read.
        words: A sentence with the problem and its solution, or "" if the store is ready.
        version: A number that changes after each commit, each change of kind, and each hour once its windows
            are final, because views become outdated even without commits.
    """

    kind: Kind
    words: str
    version: int

    @property
    def is_ready(self) -> bool:
        """Whether it can be read."""
        return self.kind == "ready"


def kind_of(error: StoreError) -> Kind:
    """Return the kind of store state that an error indicates."""
    kinds: dict[type[StoreError], Kind] = {
        StoreAbsent: "absent",
        OtherSchema: "other schema",
        StoreLocked: "locked",
    }
    return kinds.get(type(error), "unreadable")


class StoreWatch:
    """Checks a store repeatedly, given its SQLAlchemy URL; a thread-safe context manager.

    The store is reopened automatically after its file is replaced, removed or recreated, or its server
    becomes available again. Later problems are reported in the StoreState and never raised.

    Raises:
        StoreError: If the URL is invalid.
    """

    def __init__(self, url: str) -> None:
        parsed = parse_url(url)
        self._url = url
        self._path = (parsed.database or "") if parsed.get_backend_name() == "sqlite" else None
        self._lock = threading.Lock()
        self._reader: StoreReader | None = None
        self._connection: Connection | None = None
        self._file_identity: Any = None
        self._mark: Any = None
        self._state = StoreState("absent", "the store has not been checked yet", 0)

    @property
    def store(self) -> Store | None:
        """The store, opened read-only, or None if the last check could not open it."""
        return None if self._reader is None else self._reader.store

    def reader(self) -> StoreReader:
        """Return a reader for estimates.

        Raises:
            StoreError: If the last check could not open the store.
        """
        reader = self._reader
        if reader is None:
            raise StoreError(self._state.words)
        return reader

    def refresh(self) -> StoreState:
        """Check the store and return its state."""
        with self._lock:
            try:
                mark = self._read_mark()
            except StoreError as e:
                self._close()
                self._update(None, kind_of(e), str(e))
            else:
                self._update(mark, "ready", "")
            return self._state

    def close(self) -> None:
        """Close all connections; the next check opens the store again."""
        with self._lock:
            self._close()

    def __enter__(self) -> StoreWatch:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _update(self, mark: Any, kind: Kind, words: str) -> None:
        if (mark, kind, words) != (self._mark, self._state.kind, self._state.words):
            self._mark = mark
            self._state = StoreState(kind, words, self._state.version + 1)

    def _read_mark(self) -> Any:
        """Return a value that changes with each commit and each hour; raise StoreError on failure."""
        file = None if self._path is None else _file_identity(self._path)
        if self._reader is not None and file != self._file_identity:
            self._close()
        if self._reader is None:
            self._reader, self._file_identity = StoreReader(self._url), file
        store = self._reader.store
        with store.errors():
            if self._connection is None:
                self._connection = store.engine.connect()
            mark = self._connection.exec_driver_sql(_MARK[self._connection.dialect.name]).scalar()
            self._connection.rollback()  # an open transaction would see this state of the store forever
            mark = mark, _hour(), file, None if self._path is None else _content_state(self._path)
            if mark != self._mark:
                store.check_version(self._connection)
                self._connection.rollback()
        return mark

    def _close(self) -> None:
        with suppress(SQLAlchemyError):
            if self._connection is not None:
                self._connection.close()
        self._connection = self._reader = None  # callers that still use the reader close it by dropping it


def _hour() -> str:
    """Return the hour whose windows are still open or not yet final."""
    return f"{datetime.datetime.now(datetime.UTC) - SETTLED:%Y-%m-%dT%H}"


def _file_identity(path: str) -> Any:
    """Return a file's identity, whether it is being written and, if not, the state of its content."""
    with suppress(OSError):
        status, writing = os.stat(path), is_being_written(path)
        return status.st_dev, status.st_ino, writing, None if writing else _content_state(path)
    return None


def _content_state(path: str) -> Any:
    """Return a value that changes if a file is modified other than by commits, such as by overwriting."""
    with suppress(OSError):
        status = os.stat(path)
        return status.st_size, status.st_mtime_ns
    return None
