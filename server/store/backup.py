"""Copy a snapshot of a SQLite store while other processes continue to write to it."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from .. import private_file
from ..errors import refusing
from .database import BUSY_TIMEOUT_S, StoreError, parse_url

_STEP_PAGES = 4096  # 16 MiB between two progress reports


class BackupRefused(StoreError):
    """Raised when a copy cannot be created; the message says why and what to do."""


def backup(
    url: str, file: Path, advance: Callable[[float], object] = lambda _: None, step_pages: int = _STEP_PAGES
) -> int:
    """Copy a SQLite store of any schema version to a new file with mode 0600.

    When this returns, the copy is on disk and every page has been checked. A failure leaves no file.

    Args:
        url: The store's URL.
        file: The file to create.
        advance: Called as work progresses, with the additional share that is done, 0 to 1.
        step_pages: The number of pages to copy between two calls of advance.

    Returns:
        The size of the copy in bytes.

    Raises:
        BackupRefused: If the store is in PostgreSQL, missing, damaged or another program's database, or if
            the file already exists.
    """
    path = _path(url)
    exists = f"{file} already exists; choose another name, because a backup never replaces a file"
    if file.exists():
        raise BackupRefused(exists)
    if not file.parent.is_dir():
        raise BackupRefused(f"cannot write {file}: the folder {file.parent} does not exist; create it")
    part = file.with_name(file.name + ".part")
    try:
        with refusing(BackupRefused, f"write {file}", exists):
            # Create it before SQLite opens it, to set its mode. A killed backup's file may be replaced.
            part.unlink(missing_ok=True)
            private_file.create(part, b"")
            _copy(path, part, advance, step_pages)
            private_file.sync(part)
            try:
                # Unlike a rename, a link does not replace a file that was created there in the meantime.
                os.link(part, file)
            except FileExistsError:
                raise
            except OSError:  # the file system has no links, as on a memory stick
                private_file.create(file, b"")
                os.replace(part, file)
            private_file.sync(file.parent)
            return file.stat().st_size
    except sqlite3.Error as e:
        raise BackupRefused(f"cannot copy {path} to {file}: {e}") from None
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def _path(url: str) -> Path:
    location = parse_url(url)
    if location.get_backend_name() != "sqlite":
        raise BackupRefused(
            "back up a PostgreSQL store with PostgreSQL's tools: pg_dump --format=custom, or pg_basebackup"
        )
    path = Path(location.database or "")
    if not path.is_file():
        raise BackupRefused(f"there is no store at {path}: correct the path")
    return path


def _copy(path: Path, part: Path, advance: Callable[[float], object], step_pages: int) -> None:
    share_left = 1.0

    def follow(_status: int, remaining: int, pages: int) -> None:
        nonlocal share_left
        advance(share_left - remaining / pages)
        share_left = remaining / pages

    with closing(sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)) as source:
        # One transaction around all steps copies a single snapshot; in WAL mode, writers do not have to wait.
        source.execute("BEGIN")
        tables = source.execute("SELECT name FROM sqlite_master WHERE name = 'schema_version'").fetchall()
        if not tables:
            raise BackupRefused(f"{path} is another program's database: give another path")
        with closing(sqlite3.connect(part)) as target:
            source.backup(target, pages=step_pages, progress=follow)
            verdict = target.execute("PRAGMA integrity_check(1)").fetchone()[0]
            # The copy is one file; opening it as a store switches back to WAL mode.
            target.execute("PRAGMA journal_mode=DELETE")
    if verdict != "ok":
        raise BackupRefused(f"{path} is damaged ({verdict}): keep it and the last good backup")
