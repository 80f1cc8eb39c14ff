"""Has anything been committed to a store since last time, or an hour ended? Asked several times a second.

Nothing of the store's rows is read for that: SQLite and PostgreSQL themselves count what is committed.
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

# Whole, because transactions do not end in the order of their numbers.
_MARK = {"sqlite": "PRAGMA data_version", "postgresql": "SELECT pg_current_snapshot()::text"}


@dataclass(frozen=True)
class StoreState:
    """How a store is at a moment.

    kind: "ready", or what keeps it from being read. words: what that is and what would be right, one
    sentence; empty where it is ready. version: another number after each commit and each change of kind, and
    each hour once its windows are settled, since what is said of a quiet store ages too.
    """

    kind: Kind
    words: str
    version: int

    @property
    def ready(self) -> bool:
        """Whether it can be read."""
        return self.kind == "ready"


def kind_of(error: StoreError) -> Kind:
    """What keeps a store from being read, by the error that says so."""
    kinds: dict[type[StoreError], Kind] = {
        StoreAbsent: "absent",
        OtherSchema: "other schema",
        StoreLocked: "locked",
    }
    return kinds.get(type(error), "unreadable")


class StoreWatch:
    """A look at a store by SQLAlchemy URL, again and again; a context manager, safe in several threads.

    Raises StoreError for an invalid URL; what becomes of the store is a StoreState and never raises. A
    file that was replaced, removed or made anew, or a server that was away, is opened again by itself.
    """

    def __init__(self, url: str) -> None:
        parsed = parse_url(url)
        self._url = url
        self._path = (parsed.database or "") if parsed.get_backend_name() == "sqlite" else None
        self._lock = threading.Lock()
        self._reader: StoreReader | None = None
        self._kept: Connection | None = None
        self._file: Any = None
        self._mark: Any = None
        self._state = StoreState("absent", "nobody has looked yet", 0)

    @property
    def store(self) -> Store | None:
        """The store, which can only be read; None where the last look could not open it."""
        return None if self._reader is None else self._reader.store

    def reader(self) -> StoreReader:
        """The store, to ask it for estimates; raises StoreError where the last look could not open it."""
        reader = self._reader
        if reader is None:
            raise StoreError(self._state.words)
        return reader

    def look(self) -> StoreState:
        """Return how the store is now."""
        with self._lock:
            try:
                mark = self._look()
            except StoreError as e:
                self._close()
                self._say(None, kind_of(e), str(e))
            else:
                self._say(mark, "ready", "")
            return self._state

    def close(self) -> None:
        """Close all connections; the next look opens the store again."""
        with self._lock:
            self._close()

    def __enter__(self) -> StoreWatch:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _say(self, mark: Any, kind: Kind, words: str) -> None:
        if (mark, kind, words) != (self._mark, self._state.kind, self._state.words):
            self._mark = mark
            self._state = StoreState(kind, words, self._state.version + 1)

    def _look(self) -> Any:
        """What is another after each commit and each hour; raises StoreError."""
        file = None if self._path is None else _file(self._path)
        if self._reader is not None and file != self._file:
            self._close()
        if self._reader is None:
            self._reader, self._file = StoreReader(self._url), file
        store = self._reader.store
        with store.errors():
            if self._kept is None:
                self._kept = store.engine.connect()
            mark = self._kept.exec_driver_sql(_MARK[self._kept.dialect.name]).scalar()
            self._kept.rollback()  # what is kept open would see the store as it is now for ever
            mark = mark, _hour(), file, None if self._path is None else _content(self._path)
            if mark != self._mark:
                store.check_version(self._kept)
                self._kept.rollback()
        return mark

    def _close(self) -> None:
        with suppress(SQLAlchemyError):
            if self._kept is not None:
                self._kept.close()
        self._kept = self._reader = None  # who is still asking it closes it by letting it go


def _hour() -> str:
    """The hour whose windows run, or are not settled yet."""
    return f"{datetime.datetime.now(datetime.UTC) - SETTLED:%Y-%m-%dT%H}"


def _file(path: str) -> Any:
    """Which file stands at a path, how it has to be opened and, where nobody writes to it, in which state."""
    with suppress(OSError):
        status, writing = os.stat(path), is_being_written(path)
        return status.st_dev, status.st_ino, writing, None if writing else _content(path)
    return None


def _content(path: str) -> Any:
    """What is another where a file was changed in another way than by commits, as by a copy over it."""
    with suppress(OSError):
        status = os.stat(path)
        return status.st_size, status.st_mtime_ns
    return None
