"""Copies a SQLite store, as it is at one moment, while others go on writing to it."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from .. import private_file
from ..errors import refusing
from .database import BUSY_TIMEOUT_S, StoreError, parse_url

_STEP_PAGES = 4096  # 16 MiB are copied between two reports of progress


class BackupRefused(StoreError):
    """A copy cannot be made; the text says why and what would be right."""


def backup(url: str, file: Path, advance: Callable[[float], object] = lambda _: None) -> int:
    """Copy a SQLite store, of any schema version, to a new file of mode 0600; returns its size in bytes.

    advance: called with each further share of the work that is done, 0 to 1. When this returns, the copy is
    on disk and was checked page by page; a failure leaves no file. Raises BackupRefused for a PostgreSQL
    store, a file that exists already, and a store that is missing, damaged or another program's database.
    """
    path = _path(url)
    exists = f"{file} exists: a backup replaces nothing, give another name"
    if file.exists():
        raise BackupRefused(exists)
    if not file.parent.is_dir():
        raise BackupRefused(f"cannot write {file}: the folder {file.parent} does not exist; create it")
    part = file.with_name(file.name + ".part")
    try:
        with refusing(BackupRefused, f"write {file}", exists):
            # Made before SQLite opens it, for its mode; a file left by a killed backup may be replaced.
            part.unlink(missing_ok=True)
            private_file.create(part, b"")
            _copy(path, part, advance)
            private_file.sync(part)
            try:
                # Unlike a rename, a link does not replace a file that was made there meanwhile.
                os.link(part, file)
            except FileExistsError:
                raise
            except OSError:  # a memory stick's file system has no links
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
    parsed = parse_url(url)
    if parsed.get_backend_name() != "sqlite":
        raise BackupRefused(
            "a PostgreSQL store is backed up with its own tools: pg_dump --format=custom, or pg_basebackup"
        )
    path = Path(parsed.database or "")
    if not path.is_file():
        raise BackupRefused(f"there is no store at {path}: correct the path")
    return path


def _copy(path: Path, part: Path, advance: Callable[[float], object]) -> None:
    left = 1.0

    def follow(_status: int, remaining: int, pages: int) -> None:
        nonlocal left
        advance(left - remaining / pages)
        left = remaining / pages

    with closing(sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)) as source:
        # One transaction around all steps copies one state, and in WAL mode no writer has to wait.
        source.execute("BEGIN")
        tables = source.execute("SELECT name FROM sqlite_master WHERE name = 'schema_version'").fetchall()
        if not tables:
            raise BackupRefused(f"{path} is a database of something else: give another path")
        with closing(sqlite3.connect(part)) as target:
            source.backup(target, pages=_STEP_PAGES, progress=follow)
            verdict = target.execute("PRAGMA integrity_check(1)").fetchone()[0]
            # One file, whoever looks at it; when it is opened as a store it is in WAL mode again.
            target.execute("PRAGMA journal_mode=DELETE")
    if verdict != "ok":
        raise BackupRefused(f"{path} is damaged ({verdict}): keep it and the last good backup")
