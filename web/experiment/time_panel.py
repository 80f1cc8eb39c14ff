"""Windows on a time axis, with a statistic over the windows, whether it changed, and the chosen windows."""

from collections.abc import Mapping, Sequence

from nicegui import ui

from ...server.answers.answer import Answer
from ...server.answers.fleet_estimate import MEAN
from ...server.answers.periods import ALL
from ...server.words import answers as words
from ..frame import heading
from . import charts, sentences
from .chart import Ends, RangeSelectChart
from .choices import SHARE, Choices, as_span, names_of, over_names
from .controls import PanelContext, offer, select, summarize


class TimePanel:
    """The picture of a trend, and controls to choose windows; readers can also drag over windows."""

    def __init__(self, context: PanelContext):
        self._can, self._reader, self._choose = context.can, context.reader, context.choose
        self._windows: tuple[str, ...] = ()
        self._drawn_windows: tuple[str, ...] = ()
        self._chosen: tuple[str, ...] = ()
        self._has_days = False
        heading("Over time", 2).props('id="over-time"')
        with ui.row().classes("experiment-controls"):
            self._over = select({}, "Statistic", self._choose_statistic).props('id="over"')
        self._hint = ui.label("Drag over the line to choose windows.").classes("experiment-hint")
        self._chart = RangeSelectChart("The chosen statistic over time", self._dragged)
        self._sentence = ui.label().props('id="trend"')
        with ui.row().classes("experiment-controls"):
            self._first = select([], "From window", self._choose_span)
            self._last = select([], "To window", self._choose_span)
            self._only = select([], "Windows (all if none)", self._picked, multiple=True).props("clearable")

    async def _choose_statistic(self) -> None:
        await self._choose(over=self._over.value)

    async def _dragged(self, area: Ends) -> None:
        windows = self._drawn_windows
        low, high = max(0, round(area[0])), min(len(windows) - 1, round(area[1]))
        if low <= high:
            await self._choose_windows(windows[low : high + 1])

    async def _choose_span(self) -> None:
        if self._first.value in self._windows and self._last.value in self._windows:
            low, high = self._windows.index(self._first.value), self._windows.index(self._last.value)
            await self._choose_windows(self._windows[min(low, high) : max(low, high) + 1])

    async def _picked(self) -> None:
        chosen = set(self._only.value or ())
        await self._choose_windows([w for w in self._windows if w in chosen])

    async def _choose_windows(self, chosen: Sequence[str]) -> None:
        if not chosen or len(chosen) == len(self._windows):
            await self._choose(windows=(), last=ALL)
        else:
            windows = as_span(tuple(chosen), self._windows) if self._has_days else tuple(chosen)
            await self._choose(windows=windows, last="")

    def show_windows(self, choices: Choices, windows: Mapping[str, tuple[str, ...]]) -> None:
        """Show the available windows or local days, and the chosen ones.

        Args:
            choices: The choices.
            windows: The names that readers can choose, with the windows of each.
        """
        names = dict(over_names(self._can, choices.quantiles))
        if MEAN in names and not choices.ranges:
            names.pop(SHARE, None)
        offer(self._over, names, choices.over if choices.over in names else next(iter(names)))
        self._windows = tuple(windows)
        available, chosen = list(windows), names_of(choices.windows, windows)
        self._has_days = any(members != (name,) for name, members in windows.items())
        self._chosen = tuple(chosen)
        offer(self._only, available, chosen)
        summarize(self._only, len(chosen), len(available))
        offer(self._first, available, (chosen or available or [None])[0])
        offer(self._last, available, (chosen or available or [None])[-1])

    def show(self, choices: Choices, answer: Answer) -> None:
        """Show a trend over the newest windows, with the chosen ones marked."""
        verdict = " ".join(sentences.trend(answer, self._reader))
        period = words.period(tuple(charts.trend_windows(answer)), self._windows, self._reader)
        self._sentence.text = f"{words.capitalize(period)}. {verdict}".strip()
        names = list(dict.fromkeys(row.name for row in answer.rows))
        if choices.over == MEAN and answer.quantity == "reading" and names[:1] != [MEAN]:
            # Versions that are pooled at common edges have a median instead of a mean.
            offer(self._over, dict(over_names(self._can, choices.quantiles)) | {MEAN: names[0]}, MEAN)
        answer = answer.telling()
        self._drawn_windows = tuple(charts.trend_windows(answer))
        positions = [i for i, window in enumerate(self._drawn_windows) if window in self._chosen]
        area = (positions[0], positions[-1]) if positions else None
        self._hint.visible = self._chart.element.visible = bool(answer.rows)
        if answer.rows:
            self._chart.show(charts.over_time(answer, self._sentence.text, self._reader.tag), area)

    def show_message(self, message: str) -> None:
        """Show a message instead of a trend."""
        self._hint.visible = self._chart.element.visible = False
        self._sentence.text = message
