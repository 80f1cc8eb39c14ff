"""Take it along: files, and the command lines that give the same."""

from __future__ import annotations

from nicegui import ui

from ...server.answers.query import Selected
from ...server.experiments.asking import OF_VALUES
from ..frame import heading
from .choices import Choices
from .files import ASKED, KINDS, address, command_line, question

_CALLED = {"estimate": "These numbers", "trend": "Over time", "change": "The comparison"}


class TakenPanel:
    """Links to CSV, JSON and PNG, and the commands."""

    def __init__(self, store: str) -> None:
        self._store = store
        heading("Take it along", 2)
        self._links: dict[tuple[str, str], ui.link] = {}
        self._commands: dict[str, ui.label] = {}
        self._rows: dict[str, ui.column] = {}
        for asked in ASKED:
            with ui.column().classes("experiment-lines") as self._rows[asked]:
                with ui.row().classes("experiment-controls"):
                    ui.label(_CALLED[asked])
                    for kind in KINDS:
                        link = ui.link(kind.upper(), "#").props(
                            f'download aria-label="{_CALLED[asked]}, {kind}"'
                        )
                        self._links[asked, kind] = link
                command = ui.label().props(f'id="command-{asked}" role="code" tabindex="0"')
                self._commands[asked] = command.classes("experiment-command")

    def show(self, of: Selected, choices: Choices) -> None:
        """Show files and commands of these choices."""
        s = of.selection
        for asked in ASKED:
            there = asked == "estimate" or (bool(of.can & OF_VALUES) and (
                (asked == "trend" and len(of.there) > 1) or (asked == "change" and choices.compares)
            ))  # fmt: skip
            self._rows[asked].visible = there
            if there:
                self._commands[asked].text = command_line(question(asked, choices, of), self._store)
                for kind in KINDS:
                    self._links[asked, kind].props["href"] = address(
                        s.fleet, s.experiment, asked, kind, choices
                    )
                    self._links[asked, kind].update()
