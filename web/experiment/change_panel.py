"""Two sets of windows, or two versions, side by side: what changed, in words and as a picture."""

import datetime
from collections.abc import Mapping, Sequence
from functools import partial

from nicegui import ui

from ...server.answers.answer import Answers
from ...server.answers.periods import last
from ...server.answers.rows import ChangeRow
from ...server.errors import UsageError
from ..frame import heading, sentence, tag
from . import charts, sentences
from .chart import DraggedChart
from .choices import PERIODS, Choices
from .controls import Given, offer, select, versioned


class ChangePanel:
    """What changed since other windows, or another version."""

    def __init__(self, given: Given):
        self._given, self._reader = given, given.reader
        self._windows: Sequence[str] = ()
        heading("Compare", 2).props('id="compare"')
        ui.label(
            "Choose what to compare with: it is set against the windows chosen above, or all the others."
        )
        with ui.element("div").classes("presets").props('role="group" aria-label="Compare periods"'):
            for period in filter(None, PERIODS):
                button = tag("button", f"{PERIODS[period]}, with those before").props('type="button"')
                button.on("click", partial(self._before, period))
        with ui.row().classes("experiment-controls"):
            self._since = select([], "Compare with windows", self._picked, multiple=True).props("clearable")
            self._earlier = select({"": "the same"}, "Compare with version", self._picked, value="")
        self._which = ui.label()
        self._said = ui.column().classes("experiment-lines").props('id="change"')
        self._shares = DraggedChart("What changed: shares")
        self._readings = DraggedChart("What changed: readings")
        self.nothing("")

    async def _picked(self) -> None:
        await self._given.choose(since=tuple(self._since.value or ()), earlier=self._earlier.value or "")

    async def _before(self, period: str) -> None:
        """Compare the last days of a period with as many before."""
        try:
            since = last(period, self._windows, datetime.datetime.now(datetime.UTC), before=1)
        except UsageError as e:
            self.nothing(sentence(str(e)))
            return
        await self._given.choose(last=period, windows=(), since=since)

    def show_windows(self, choices: Choices, windows: Sequence[str], versions: Mapping[str, str]) -> None:
        """Show what there is to compare with; versions: digest -> what it is called."""
        self._windows = windows
        offer(self._since, list(windows), list(choices.since))
        versioned("the same", self._earlier, versions, choices.earlier)

    def show(self, answers: Answers) -> None:
        """Show changes."""
        self.nothing(f"{answers[0].about}, compared with {answers[0].against}:")
        given = self._given
        for answer in answers:
            rows = [row for row in answer.rows if isinstance(row, ChangeRow)]
            names = [sentences.span(row, given.experiment, given.unit, self._reader) for row in rows]
            with self._said:
                for row, name in zip(rows, names, strict=True):
                    ui.label(sentences.change(row, name, answer, self._reader))
            summary = f"{len(names)} changes with their intervals, told above one by one"
            options = charts.changes(answer, names, summary, self._reader.tag)
            picture = self._shares if answer.quantity == "share" else self._readings
            picture.element.visible = True
            picture.show(options, None, charts.rows_height(len(names)))

    def nothing(self, why: str) -> None:
        """Say why there is no comparison, or what is compared."""
        self._which.text = why
        self._said.clear()
        for picture in (self._shares, self._readings):
            picture.element.visible = False
