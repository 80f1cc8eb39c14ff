"""What tests need from npm, as web/board/package-lock.json pins it."""

import fcntl
from pathlib import Path

import pytest

from hushmote.web.board.fetch import CannotFetch, packages

_FOLDER = Path(__file__).parents[2] / "build" / "npm"


def packed(name: str) -> Path:
    """Return a file of node_modules; skip the test where npm cannot fetch it."""
    file = _FOLDER / "node_modules" / name
    _FOLDER.mkdir(parents=True, exist_ok=True)
    with open(_FOLDER / "lock", "w") as lock:  # tests run side by side
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            try:
                packages(_FOLDER, tests=True)
            except CannotFetch as e:
                pytest.skip(f"{file.name} is not here: {e}")
    return file
