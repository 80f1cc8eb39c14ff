"""The command line: hushmote() runs a process, runner() the test's own, where a start would take seconds."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hushmote.cli import main as cli
from hushmote.server.answers import tables as show

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


def hushmote(*arguments: str, cwd: Path, expect: int = 0) -> str:
    """Run the command line; the output, or with expect=1 the one line of the mistake."""
    command = [sys.executable, "-m", "hushmote", *arguments]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HUSHMOTE_")} | {"COLUMNS": "80"}
    run = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120)
    assert run.returncode == expect, run.stdout + run.stderr
    assert "Traceback" not in run.stderr
    if expect == 1:
        assert run.stderr.startswith("hushmote: ")
        assert run.stderr.count("\n") == 1
        return run.stderr
    return run.stdout


def runner(
    command: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Returns run(*arguments, expect=0), which runs a command in a folder, 80 columns wide.

    It returns the output, or with expect=1 the mistake's line.
    """
    monkeypatch.chdir(folder)
    monkeypatch.setattr(show.out, "_width", 80)

    def run(*arguments: str, expect: int = 0) -> str:
        monkeypatch.setattr("sys.argv", ["hushmote", command, *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capsys.readouterr()
        assert (ended.value.code or 0) == expect, captured.err
        if expect:
            assert captured.err.startswith("hushmote: ")
            assert captured.err.count("\n") == 1
        if "--json" not in arguments:
            assert max(map(len, captured.out.splitlines()), default=0) <= 80
        return captured.err if expect else captured.out

    return run
