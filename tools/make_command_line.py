"""Write docs/commands-*.md from the commands' own help: python tools/make_command_line.py."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import typer

from hushmote.cli import main

DOCS = Path(__file__).parents[1] / "docs"
# Each page, and its command groups in `hushmote --help`.
PAGES = {
    DOCS / "commands-ask.md": ("Start", "Plan", "Read results", "Study"),
    DOCS / "commands-fleet.md": ("Run a fleet", "Maintain"),
    DOCS / "commands-boards.md": ("Boards",),
}
_BEGIN = "<!-- Below: made by tools/make_command_line.py from the commands; change their help. -->\n"
# Lines that appear only once on each page, above the commands.
_SAME = re.compile(
    r"^  (-h, --help +Show this message and exit|--json +Print JSON instead of tables)\.\n?", re.MULTILINE
)
# The end of a group's help, where its commands are listed.
_BELOW = re.compile(r"\n+(Options:\n+)?Commands:\n.*", re.DOTALL)


def help_texts() -> Iterator[tuple[str, Any, str]]:
    """Yield path, command and help of all commands, 80 columns wide, starting with `hushmote` itself."""
    top = typer.main.get_command(main.app)
    with mock.patch.dict(os.environ, {"COLUMNS": "80"}):
        above = {"": typer.Context(top, info_name="hushmote", **top.context_settings)}
        yield "", top, top.get_help(above[""])
        for name in main.COMMANDS:
            for path, command in main.walk_commands(name, main.load(name)):
                parent, _, leaf = path.rpartition(" ")
                above[path] = typer.Context(command, info_name=leaf, parent=above[parent])
                yield path, command, command.get_help(above[path])


def text(page: Path) -> str:
    """Return the whole page: the text above the mark, unchanged, and every command of its groups."""
    intro = page.read_text(encoding="utf-8").partition(_BEGIN)[0]
    parts = [intro + _BEGIN]
    for path, _, help_text in help_texts():
        if path and main.COMMANDS[path.split()[0]][0] in PAGES[page]:
            parts.append(f"{'#' * min(2 + path.count(' '), 4)} hushmote {path}\n")
            parts.append(f"```text\n{_BELOW.sub('', _SAME.sub('', help_text)).strip()}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(text(page), encoding="utf-8")
