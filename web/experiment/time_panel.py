"""Windows on a time axis: which are looked at, how a statistic went over them, and whether it changed."""

from __future__ import annotations

from collections.abc import Sequence, Set

from nicegui import ui

from ...server.answers.answer import Answer
from ..frame import heading
from ..reader import Reader
from . import charts, sentences
from .chart import CHOSEN, DraggedChart, Ends
from .choices import Choices, over_names
from .shares_panel import Choose


class TimePanel:
    """The picture of a trend, and the choice of windows; dragging over windows chooses them."""

    def __init__(self, can: Set[str], reader: Reader, choices: Choices, choose: Choose):
        self._can, self._reader, self._choose = can, reader, choose
        self._windows: tuple[str, ...] = ()
        self._shown: tuple[str, ...] = ()
        heading("Over time", 2)
        names = dict(over_names(can, choices.quantiles))
        over = choices.over if choices.over in names else next(iter(names))
        with ui.row().classes("experiment-controls"):
            self._over = ui.select(names, label="What is shown over time", value=over)
            self._over.on(CHOSEN, self._statistic).classes("experiment-field")
        self._chart = DraggedChart("What is chosen, over the windows", self._dragged)
        self._said = ui.label().props('id="trend"')
        with ui.row().classes("experiment-controls"):
            self._first = ui.select([], label="From window", with_input=False)
            self._last = ui.select([], label="To window", with_input=False)
            for field in (self._first, self._last):
                field.on(CHOSEN, self._between).classes("experiment-field")
            self._only = ui.select([], label="Windows (all if none)", multiple=True)
            self._only.on(CHOSEN, self._picked).classes("experiment-field").props("clearable")

    async def _statistic(self) -> None:
        await self._choose(over=self._over.value)

    async def _dragged(self, area: Ends) -> None:
        shown = self._shown
        low, high = max(0, round(area[0])), min(len(shown) - 1, round(area[1]))
        if low <= high:
            await self._choose_windows(shown[low : high + 1])

    async def _between(self) -> None:
        if self._first.value in self._windows and self._last.value in self._windows:
            low, high = self._windows.index(self._first.value), self._windows.index(self._last.value)
            await self._choose_windows(self._windows[min(low, high) : max(low, high) + 1])

    async def _picked(self) -> None:
        chosen = set(self._only.value or ())
        await self._choose_windows([w for w in self._windows if w in chosen])

    async def _choose_windows(self, chosen: Sequence[str]) -> None:
        windows = () if len(chosen) == len(self._windows) else tuple(chosen)
        await self._choose(windows=windows)

    def show_windows(self, choices: Choices, windows: Sequence[str]) -> None:
        """Show which windows there are, and which are chosen."""
        names = dict(over_names(self._can, choices.quantiles))
        if names != self._over.options:
            self._over.set_options(names, value=choices.over if choices.over in names else next(iter(names)))
        chosen = list(choices.windows)
        if tuple(windows) != self._windows:
            self._windows = tuple(windows)
            for field in (self._first, self._last, self._only):
                field.set_options(list(windows))
        self._only.value = chosen
        self._first.value = (chosen or windows or [None])[0]
        self._last.value = (chosen or windows or [None])[-1]

    def show(self, choices: Choices, answer: Answer) -> None:
        """Show a trend over all windows; the chosen ones are marked."""
        self._said.text = " ".join(sentences.trend(answer, self._reader))
        self._shown = tuple(dict.fromkeys(row.window for row in answer.rows))  # type: ignore[attr-defined]
        at = [i for i, window in enumerate(self._shown) if window in choices.windows]
        area = (at[0], at[-1]) if at else None
        self._chart.element.visible = True
        self._chart.show(charts.over_time(answer, self._said.text, self._reader.tag), area)

    def nothing(self, why: str) -> None:
        """Say why there is no trend."""
        self._chart.element.visible = False
        self._said.text = why
