"""The progress bar of slow commands, which is shown only on a terminal."""

import io

import pytest
from rich.console import Console

from hushmote.cli.progress import progress
from hushmote.server.answers import tables


@pytest.mark.parametrize("is_terminal", [True, False])
def test_is_shown_only_on_a_terminal(is_terminal: bool, monkeypatch: pytest.MonkeyPatch):
    output = io.StringIO()
    monkeypatch.setattr(tables, "err", Console(file=output, force_terminal=is_terminal, width=80))
    with progress("copying", 4.0) as advance:
        advance(1.0)
    assert ("copying" in output.getvalue()) == is_terminal
    assert is_terminal or not output.getvalue()
