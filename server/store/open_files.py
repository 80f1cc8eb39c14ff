"""Tells whether the open files are still the SQLite store's: nobody will read what is written to others.

Removing or moving a file stops no program that has it open: SQLite goes on and reports success.
"""

import os
import sqlite3

from sqlalchemy import Connection

from ..errors import HushmoteError

_OPEN = "hushmote_open_files"  # in the connection's info: path -> the file that was there at opening
_Identity = tuple[int, int] | None


class StoreMoved(HushmoteError):
    """A store's file is not where it was opened; putting it back mends that."""


class StoreRemoved(HushmoteError):
    """An open store's -wal or -shm is not where it was opened; only opening the store anew mends that."""


def remember(connection: sqlite3.Connection, info: dict[str, object]) -> None:
    """Note in a new connection's info which files it has open."""
    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # opens the late ones too
    path = connection.execute("PRAGMA database_list").fetchone()[2]
    info[_OPEN] = {name: _identity(name) for name in (path, f"{path}-wal", f"{path}-shm")}


def check(connection: Connection) -> None:
    """Raise StoreMoved or StoreRemoved if a path leads to another file now; three calls of stat().

    Brings what only a removed -wal holds into the store's file first, unless somebody else may have
    written there since.
    """
    files: dict[str, _Identity] = connection.info.get(_OPEN, {})
    gone = {name: now for name, then in files.items() if (now := _identity(name)) != then}
    if not gone:
        return
    path = next(iter(files))
    if path in gone:
        raise StoreMoved(
            f"{path} was moved, removed or replaced while it was open: put it back, "
            "or stop all that use it, restore a backup and start again"
        )
    first = f"{next(iter(gone))} was removed or replaced while it was open"
    # Any program that opened the store since has made new files at these paths.
    if not any(gone.values()) and _moved_into_the_file(connection):
        raise StoreRemoved(f"{first}; everything counted is in {path} now: start again")
    raise StoreRemoved(
        f"{first}, and the last reports counted may be lost: stop all programs that use {path}, "
        f"look at it with `hushmote store check`, and start again"
    )


def _moved_into_the_file(connection: Connection) -> bool:
    connection.rollback()
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    try:
        busy, _, _ = driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.Error:
        return False
    return not busy


def _identity(path: str) -> _Identity:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
