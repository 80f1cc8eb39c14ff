"""Writes docs/command-line.md from the commands themselves: python tests/support/make_command_line.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import typer

from hushmote.cli import help_page, main
from hushmote.cli.help_page import HelpPage, HelpRow
from hushmote.cli.study import study_help
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


def pages() -> Iterator[HelpPage]:
    """The page of each command, in the order of `hushmote --help`."""
    top = typer.main.get_command(main.app)
    context = typer.Context(top, info_name="hushmote", **top.context_settings)
    yield help_page.page_of(top, context)
    for names in main.PANELS.values():
        for name in names:
            loaded = main.load(name)
            for one in help_page.walk(loaded, type(context)(loaded, info_name=name, parent=context)):
                yield help_page.page_of(*one)
            if name == "study":
                yield from studies()


def studies() -> Iterator[HelpPage]:
    """What each study takes, as `hushmote study NAME --help` says it."""
    for name in STUDIES:
        line, panels, examples = study_help(name)
        usage = f"hushmote study {name} [PARAMETER=VALUE ...]"
        yield HelpPage(f"hushmote study {name}", usage, (line,), panels, examples)


def text() -> str:
    """The whole document."""
    first, *rest = pages()
    parts = [_TOP, *_commands(first)]
    for page in rest:
        level = "#" * min(len(page.path.split()), 4)
        parts.append(f"{level} {page.path}\n")
        parts += (f"{_literal(paragraph)}\n" for paragraph in page.paragraphs)
        parts.append(f"`{page.usage}`\n")
        for title, rows in page.panels.items():
            shown = [row for row in rows if row.written != "--help, -h"]
            if shown:
                parts.append(_table(title, shown))
        if page.examples:
            parts.append("Examples:\n\n" + "\n".join(f"* `{example}`" for example in page.examples) + "\n")
    return "\n".join(parts)


def _commands(top: HelpPage) -> Iterator[str]:
    """A table of the commands for each panel, each with a link."""
    for title, rows in top.panels.items():
        if title == "Options":
            continue
        lines = [f"| [`{r.written}`](#hushmote-{r.written}) | {_literal(r.meaning)} |" for r in rows]
        yield "\n".join([f"| {title} | |", "|---|---|", *lines, ""])


def _table(title: str, rows: list[HelpRow]) -> str:
    lines = []
    for row in rows:
        notes = "".join(f" [{_literal(note)}]" for note in row.notes)
        written = row.written.replace("|", "\\|")
        lines.append(f"| `{written}` | {_literal(row.meaning)}{notes} |")
    return "\n".join([f"| {title} | |", "|---|---|", *lines, ""])


def _literal(words: str) -> str:
    """Words as they are, where Markdown would read more into them."""
    for mark in "\\|<*":
        words = words.replace(mark, f"\\{mark}")
    return words


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
