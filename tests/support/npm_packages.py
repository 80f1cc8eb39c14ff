"""npm packages for tests, at the versions in web/board/package-lock.json."""

import fcntl
from pathlib import Path

import pytest

from hushmote.web.board.fetch import CannotFetch, packages

_FOLDER = Path(__file__).parents[2] / "build" / "npm"


def npm_file(name: str) -> Path:
    """Return a file in node_modules; skip the test if npm cannot fetch it."""
    file = _FOLDER / "node_modules" / name
    _FOLDER.mkdir(parents=True, exist_ok=True)
    with open(_FOLDER / "lock", "w") as lock:  # tests run in parallel
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            try:
                packages(_FOLDER, tests=True)
            except CannotFetch as e:
                pytest.skip(f"{file.name} is not here: {e}")
    return file
