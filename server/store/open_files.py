"""Detect that a SQLite store's open files were moved or removed, so that writes to them would be lost.

Removing or moving a file does not stop a program that has it open, and SQLite continues to report success.
"""

import os
import sqlite3

from sqlalchemy import Connection

from ..errors import HushmoteError

_OPEN = "hushmote_open_files"  # key in the connection's info: maps each path to the file opened there
_Identity = tuple[int, int] | None


class StoreMoved(HushmoteError):
    """Raised when a store's file is no longer where it was opened; putting it back fixes this."""


class StoreRemoved(HushmoteError):
    """Raised when an open store's -wal or -shm was removed or replaced; the store must be opened again."""


def remember(connection: sqlite3.Connection, info: dict[str, object]) -> None:
    """Record in a new connection's info which files it has open."""
    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # also opens the -wal and -shm
    path = connection.execute("PRAGMA database_list").fetchone()[2]
    info[_OPEN] = {name: _identity(name) for name in (path, f"{path}-wal", f"{path}-shm")}


def check(connection: Connection) -> None:
    """Check that the paths still lead to the open files, with three stat() calls.

    If only a removed -wal contains the latest commits, they are first moved into the store's file, unless
    another program may have written to it since.

    Raises:
        StoreMoved: If the store's file was moved, removed or replaced.
        StoreRemoved: If its -wal or -shm was removed or replaced.
    """
    files: dict[str, _Identity] = connection.info.get(_OPEN, {})
    changed_files = {name: now for name, before in files.items() if (now := _identity(name)) != before}
    if not changed_files:
        return
    path = next(iter(files))
    if path in changed_files:
        raise StoreMoved(
            f"{path} was moved, removed or replaced while it was open: put it back, "
            "or stop all programs that use it, restore a backup and start again"
        )
    first = f"{next(iter(changed_files))} was removed or replaced while it was open"
    # Any program that has opened the store since has created new files at these paths.
    if not any(changed_files.values()) and _checkpoint(connection):
        raise StoreRemoved(f"{first}; everything counted is in {path}: start again")
    raise StoreRemoved(
        f"{first}, and the last reports counted may be lost: stop all programs that use {path}, "
        f"check it with `hushmote store check`, and start again"
    )


def _checkpoint(connection: Connection) -> bool:
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
