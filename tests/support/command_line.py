"""Run the command line: hushmote() and runner() in-process, hushmote_process() in a subprocess."""

import contextlib
import io
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from unittest import mock

import pytest

from hushmote.__main__ import main
from hushmote.cli.main import load

Run = Callable[..., str]

DOOR = """
name = "door_open"
purpose = "Do people leave the cold room open?"
owner = "ops@example.org"
expires = 9999-12-31
type = "bool"
epsilon = 2
window = "all"
[budget]
rule = "count"
cap = 2
"""


VERDICTS = (3, 4)
"""The exit statuses of `hushmote release` that are results: stop, and not yet."""


def hushmote(
    *arguments: str,
    cwd: Path,
    expect: int = 0,
    environment: Mapping[str, str] | None = None,
    writes: bool = False,
) -> str:
    """Run the command line in this process, 80 columns wide, as a new process in `cwd` would.

    environment: additional variables. writes: whether the command writes before it fails; if not, a rejected
    command must write nothing. Returns the output, or with expect=1 the one-line error message.
    """
    variables = _environment() | dict(environment or {})
    with contextlib.chdir(cwd), mock.patch.dict(os.environ, variables, clear=True):
        return _called(*arguments, expect=expect, writes=writes)


def hushmote_process(*arguments: str, cwd: Path, expect: int = 0, columns: str = "80") -> str:
    """Run the command in a subprocess, to test its startup, exit or children."""
    command = [sys.executable, "-m", "hushmote", *arguments]
    environment = _environment() | {"COLUMNS": columns}
    run = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=600)
    return _checked(run.returncode, run.stdout, run.stderr, expect)


def _called(*arguments: str, expect: int, writes: bool = False) -> str:
    out, error = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["hushmote", *arguments]),
        # the page lowers its priority, which would affect the rest of the test process
        mock.patch.object(os, "nice"),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(error),
        unchanged(Path.cwd()) if expect in (1, 2) and not writes else contextlib.nullcontext(),
        pytest.raises(SystemExit) as ended,
    ):
        main()
    return _checked(ended.value.code or 0, out.getvalue(), error.getvalue(), expect)


@contextlib.contextmanager
def unchanged(folder: Path) -> Iterator[None]:
    """Check that the block changes neither a folder's files nor its databases' rows."""
    before = _contents(folder)
    yield
    after = _contents(folder)
    written = {str(path) for path, _ in before.items() ^ after.items()}
    assert not written, f"a refused command or call wrote {', '.join(sorted(written))}"


def _contents(folder: Path) -> dict[Path, bytes]:
    """Return the content of each file in a folder; folders have b""."""
    contents: dict[Path, bytes] = {}
    for path in folder.rglob("*"):
        if "__pycache__" in path.parts or path.name.endswith(("-shm", "-wal", "mosquitto.db")):
            continue  # written by Python, by a database that it read, or by a broker that runs in the folder
        if path.is_symlink():
            contents[path] = os.fsencode(path.readlink())
        elif path.suffix == ".sqlite":
            contents[path] = _rows(path)
        # created empty by a check for write permission
        elif path.stat().st_size or not path.name.endswith(".audit.jsonl"):
            contents[path] = path.read_bytes() if path.is_file() else b""
    return contents


def _rows(path: Path) -> bytes:
    try:
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as store:
            return "\n".join(line for line in store.iterdump() if line.startswith("INSERT")).encode()
    except sqlite3.Error:  # not a database, or locked
        return path.read_bytes()


def _environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith("HUSHMOTE_")} | {"COLUMNS": "80"}


def _checked(status: object, out: str, error: str, expect: int) -> str:
    assert status == expect, out + error
    assert "Traceback" not in error
    if expect in VERDICTS and not error:
        return out
    if expect:
        assert error.startswith("hushmote: ")
        assert 1 <= error.count("\n") <= expect  # with status 2, a second line may point to --help
        return error
    return out


def parse(command: Sequence[str]) -> None:
    """Raise the command line's own error for unknown commands or options, without running anything."""
    program, *arguments = command
    with load(program).make_context(program, arguments):
        pass


def runner(command: str, folder: Path, monkeypatch: pytest.MonkeyPatch, *unless_a_fleet: str) -> Run:
    """Return run(*arguments, expect=0): a command in this process, with the test's folder and environment.

    The test starts in the given folder. Output is at most 80 columns wide. unless_a_fleet: arguments to add
    unless "--fleet" is given.
    """
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments: str, expect: int = 0) -> str:
        if "--fleet" not in arguments:
            arguments += unless_a_fleet
        text = _called(command, *arguments, expect=expect)
        if "--json" not in arguments and not expect:
            assert max(map(len, text.splitlines()), default=0) <= 80
        return text

    return run
