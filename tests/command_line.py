"""The command line, run in the test's own process: a start of Python for each mistake would take seconds."""

from collections.abc import Callable
from pathlib import Path

import pytest

from hushmote.server import cli, show

Run = Callable[..., str]


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
