"""Files given with `hushmote flash --with`: further mechanisms and types, checked before they are copied."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from ...server.errors import refusing
from ...server.wire import board_files
from ...server.wire.experiments import is_own
from .usb import FlashError

MAX_BYTES = 16 * 1024
"""The size limit of a source file, in bytes, because a board has little memory to load it into."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")
_RESERVED = {"main", "boot", "micropython", "machine", "network", "umqtt", "esp32", "rp2", "hushmote"}


def further_files(words: Sequence[str], reserved: Sequence[str]) -> dict[str, bytes]:
    """Return source by module name, ordered so that each module can import the ones before it.

    Args:
        words: Short names of shipped files (sw), paths of .py files, or package.module:Class.
        reserved: Modules that boards always have.

    Raises:
        FlashError: If a file cannot be used.
    """
    files: dict[str, bytes] = {}
    for word in words:
        path = _path(word)
        with refusing(FlashError, f"read {path}"):
            source = path.read_bytes()
        for needed in board_files.with_imports(source):
            files.setdefault(needed.stem, needed.read_bytes())
        _check(path, source, files, reserved)
        files[path.stem] = source
    return files


def _path(word: str) -> Path:
    shipped = board_files.shipped_files()
    if word in shipped:
        return shipped[word]
    if is_own(word):
        from ...server.mechanisms.custom import board_file  # imported lazily because it loads NumPy

        return board_file(word)
    if word.endswith(".py"):
        return Path(word)
    shipped_names = "".join(f"{name}, " for name in shipped)
    raise FlashError(
        f"--with {word}: use {shipped_names}your own file (my_channel.py), or package.module:Class"
    )


def _check(path: Path, source: bytes, files: dict[str, bytes], reserved: Sequence[str]) -> None:
    name = path.stem
    if not _NAME.fullmatch(name):
        raise FlashError(f"--with {path}: name the file with a-z, 0-9 and _, so that boards can import it")
    if name in reserved or name in _RESERVED or name in sys.stdlib_module_names:
        raise FlashError(f"--with {path}: boards already have a module {name}: rename yours")
    if files.get(name, source) != source:
        raise FlashError(f"--with {path}: there are two files {name}.py: rename one of them")
    if len(source) > MAX_BYTES:
        raise FlashError(f"--with {path}: {len(source):,} bytes, but boards accept at most {MAX_BYTES:,}")
    try:
        compile(source, str(path), "exec")
    except (SyntaxError, ValueError) as e:
        raise FlashError(f"--with {path} does not compile: {' '.join(str(e).split())}") from None
