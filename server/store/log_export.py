"""Write a store's log as static files, which any web server can serve."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from .. import private_file
from ..errors import HushmoteError, os_reason, refusing
from ..log.note import Checkpoint, NoteRefused
from ..log.tiles import CHECKPOINT, WIDTH, file_of, files
from .log import StoredLog


class ExportRefused(HushmoteError):
    """Raised when a log cannot be exported; the message says why and what to do."""


def export(stored: StoredLog, folder: Path) -> tuple[int, int]:
    """Write what a folder lacks, each file atomically and the checkpoint last.

    An interrupted export leaves the folder as it was for readers; the next one completes it.

    Returns:
        The size of the log that the folder had, and the size that it has now.

    Raises:
        ExportRefused: If the log is empty, the folder has another log or a longer one, or a file cannot be
            written.
        StoreError: If the store fails.
    """
    stored.refresh()
    checkpoint, tree = stored.checkpoint, stored.tree
    if checkpoint is None:
        raise ExportRefused("the store has no log: run `hushmote serve --log-key FILE` first")
    since = _exported_size(stored, folder, checkpoint)
    entries = [bytes(each.entry) for each in stored.entries[since // WIDTH * WIDTH :]]
    with refusing(ExportRefused, f"write {folder}"):
        for path, data in files(tree, entries, since):
            _write(folder / path, data)
        stored.refresh()  # another export may have written what was added meanwhile
        if _exported_size(stored, folder, stored.checkpoint or checkpoint) <= checkpoint.size:
            _write(folder / CHECKPOINT, str(checkpoint).encode())
    return since, checkpoint.size


def log_file(stored: StoredLog, path: str) -> bytes | None:
    """Return the content of one file of the log as it is now; None if there is no such file.

    Raises:
        StoreError: If the store fails.
    """
    stored.refresh()
    if path == CHECKPOINT:
        return None if stored.checkpoint is None else str(stored.checkpoint).encode()
    return file_of(path, stored.tree, lambda start, end: [bytes(e.entry) for e in stored.entries[start:end]])


def _exported_size(stored: StoredLog, folder: Path, checkpoint: Checkpoint) -> int:
    try:
        text = (folder / CHECKPOINT).read_text("utf-8", "replace")
        exported = Checkpoint.parse(text)
    except FileNotFoundError:
        return 0
    except (OSError, NoteRefused) as e:
        why = os_reason(e) if isinstance(e, OSError) else e
        raise ExportRefused(f"{folder / CHECKPOINT} cannot be read ({why}): choose another folder") from None
    if exported.origin != checkpoint.origin:
        raise ExportRefused(f"{folder} has the log {exported.origin}: choose another folder")
    if exported.size > checkpoint.size:
        raise ExportRefused(
            f"{folder} has {exported.size:,} entries and the store only {checkpoint.size:,}: after a "
            f"restored backup, run `hushmote log restore {folder}`"
        )
    if stored.tree.root(exported.size) != exported.root:
        raise ExportRefused(f"{folder} has other entries of {exported.origin}: choose another folder")
    return exported.size


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.{secrets.token_hex(8)}.new")  # another export may write it as well
    try:
        new.write_bytes(data)
        private_file.sync(new)
        os.replace(new, path)
    except OSError:
        with suppress(OSError):
            new.unlink()
        raise
    private_file.sync(path.parent)
