"""Writes docs/command-line.md from the commands themselves: python tests/support/make_command_line.py."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import typer

from hushmote.cli import main
from hushmote.cli.study import write_help
from hushmote.studies.catalogue import STUDIES

FILE = Path(__file__).parents[2] / "docs" / "command-line.md"

_TOP = """# Command line

<!-- Made by tests/support/make_command_line.py from the commands themselves: change their help instead. -->

All commands and their options, as `hushmote COMMAND --help` (or `-h`) shows them. Settings that are the same
each time can be [environment variables](environment.md). Every command that prints a result takes `--json`. A
mistake is one line on standard error and exit status 1; a mistake in the command line itself has status 2.

`hushmote --install-completion` has bash, zsh or fish complete commands and options, in shells that are opened
afterwards.
"""


def helps() -> Iterator[tuple[str, Any, str]]:
    """Yield path, command and help of all commands, 80 columns wide; `hushmote` itself is the first."""
    top = typer.main.get_command(main.app)
    with mock.patch.dict(os.environ, {"COLUMNS": "80"}):
        above = {"": typer.Context(top, info_name="hushmote", **top.context_settings)}
        yield "", top, top.get_help(above[""])
        for name in main.COMMANDS:
            for path, command in main.below(name, main.load(name)):
                parent, _, own = path.rpartition(" ")
                above[path] = typer.Context(command, info_name=own, parent=above[parent])
                yield path, command, command.get_help(above[path])


def studies() -> Iterator[str]:
    """What each study takes, as `hushmote study NAME --help` says it."""
    context = typer.Context(main.load("study"))
    for name in STUDIES:
        formatter = context.make_formatter()
        formatter.width = 80
        write_help(name, formatter)
        yield f"### hushmote study {name}\n"
        yield f"```text\n{formatter.getvalue().strip()}\n```\n"


def text() -> str:
    """The whole document."""
    parts = [_TOP]
    for path, _, shown in helps():
        if path:
            parts.append(f"{'#' * min(2 + path.count(' '), 4)} hushmote {path}\n")
        parts.append(f"```text\n{shown.strip()}\n```\n")
        if path == "study":
            parts += studies()
    return "\n".join(parts)


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
