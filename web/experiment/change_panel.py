"""Two sets of windows, or two versions, side by side: what changed, in words and as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nicegui import ui

from ...device.ldp_client import Experiment
from ...server.answers.answer import Answers
from ...server.answers.rows import ChangeRow
from ..frame import heading
from ..reader import Reader
from . import charts, sentences
from .chart import CHOSEN, DraggedChart
from .choices import Choices
from .shares_panel import Choose


class ChangePanel:
    """What changed since other windows, or another version."""

    def __init__(self, experiment: Experiment, unit: str, reader: Reader, choose: Choose):
        self._experiment, self._unit, self._reader = experiment, unit, reader
        self._choose = choose
        heading("Compare", 2)
        ui.label(
            "What is chosen above, without a choice all other windows, is compared with what is chosen here."
        )
        with ui.row().classes("experiment-controls"):
            self._since = ui.select([], label="Compare with windows", multiple=True).props("clearable")
            self._earlier = ui.select({"": "the same"}, label="Compare with version", value="")
            for field in (self._since, self._earlier):
                field.on(CHOSEN, self._picked).classes("experiment-field")
        self._which = ui.label()
        self._said = ui.column().classes("experiment-lines").props('id="change"')
        self._shares = DraggedChart("What changed: shares")
        self._readings = DraggedChart("What changed: readings")
        self.nothing("")

    async def _picked(self) -> None:
        await self._choose(since=tuple(self._since.value or ()), earlier=self._earlier.value or "")

    def show_windows(self, choices: Choices, windows: Sequence[str], versions: Mapping[str, str]) -> None:
        """Show what there is to compare with; versions: digest -> what it is called."""
        if list(windows) != self._since.options:
            self._since.set_options(list(windows))
        if {"": "the same", **versions} != self._earlier.options:
            self._earlier.set_options({"": "the same", **versions})
        self._earlier.visible = len(versions) > 1
        self._since.value, self._earlier.value = list(choices.since), choices.earlier

    def show(self, answers: Answers) -> None:
        """Show changes."""
        self._which.text = f"{answers[0].about}, compared with {answers[0].against}:"
        pictures = {"share": self._shares, "reading": self._readings}
        shown: dict[str, list[str]] = {}
        self._said.clear()
        with self._said:
            for answer in answers:
                names = []
                for row in answer.rows:
                    assert isinstance(row, ChangeRow)
                    name = sentences.span(row, self._experiment, self._unit, self._reader)
                    names.append(name)
                    ui.label(sentences.change(row, name, answer, self._reader))
                shown[answer.quantity] = names
        for answer in answers:
            names, picture = shown[answer.quantity], pictures.pop(answer.quantity)
            height = charts.rows_height(len(names))
            summary = f"{len(names)} changes with their intervals, told above one by one"
            picture.element.visible = True
            picture.show(charts.changes(answer, names, summary, self._reader.tag), None, height)
        for unused in pictures.values():
            unused.element.visible = False

    def nothing(self, why: str) -> None:
        """Say why there is no comparison."""
        self._which.text = why
        self._said.clear()
        for picture in (self._shares, self._readings):
            picture.element.visible = False
