"""Archives that are the same bytes wherever and whenever they are made from the same files.

Names are sorted; every file has the same time, owner 0, and mode 644, or 755 if it is a script.
"""

import gzip
import io
import os
import tarfile
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path

Tree = Mapping[str, bytes]  # the content of files by path, with "/" between folders
_EARLIEST = 315_532_800  # 1980-01-01, the first day that a zip archive can express


def epoch() -> int:
    """Return the time of every file, in seconds since 1970: SOURCE_DATE_EPOCH, or 1980-01-01."""
    return max(_EARLIEST, int(os.environ.get("SOURCE_DATE_EPOCH", _EARLIEST)))


def read_tree(folder: Path) -> dict[str, bytes]:
    """Return all files below a folder."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def write_tree(folder: Path, tree: Tree) -> None:
    """Write files below a folder, which is created if it is missing."""
    for name, content in tree.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(_mode(content))
        os.utime(path, (epoch(), epoch()))


def write_tar(path: Path, tree: Tree) -> None:
    """Write a .tar.gz archive."""
    with (
        open(path, "wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=epoch()) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, content in sorted(tree.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = len(content), epoch(), _mode(content)
            archive.addfile(entry, io.BytesIO(content))


def write_zip(path: Path, tree: Tree) -> None:
    """Write a .zip archive."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in sorted(tree.items()):
            entry = zipfile.ZipInfo(name, time.gmtime(epoch())[:6])
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # Unix, whatever this machine is
            entry.external_attr = (0o100000 | _mode(content)) << 16
            archive.writestr(entry, content)


def _mode(content: bytes) -> int:
    return 0o755 if content.startswith(b"#!") else 0o644
