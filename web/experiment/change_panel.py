"""Two sets of windows, or two versions, compared in words and as a picture."""

from collections.abc import Mapping, Sequence

from nicegui import ui

from ...server.answers.answer import Answers
from ...server.answers.question import BEFORE
from ...server.answers.rows import ChangeRow
from ..frame import heading, tag
from ..in_locale import in_locale
from . import charts, sentences
from .chart import DraggedChart
from .choices import Choices
from .controls import PanelContext, offer, select, summarize, versioned


class ChangePanel:
    """The change since other windows, or from another version."""

    def __init__(self, context: PanelContext):
        self._context, self._reader = context, context.reader
        self._follows = False  # whether the comparison's windows follow from the period
        heading("Compare", 2).props('id="compare"')
        ui.label(
            "Choose what to compare with. It is compared with the period above, or with all other windows."
        )
        with ui.element("div").classes("presets"):
            self._before = tag("button", "The time just before, as long").props('type="button"')
            self._before.props('aria-pressed="false"').on("click", self._compare_with_before)
        with ui.row().classes("experiment-controls"):
            self._since = select([], "Compare with windows", self._picked, multiple=True).props("clearable")
            self._earlier = select({"": "the same"}, "Compare with version", self._picked, value="")
        self._which = ui.label()
        self._sentences = ui.column().classes("experiment-lines").props('id="change"')
        self._shares = DraggedChart("What changed: shares")
        self._readings = DraggedChart("What changed: readings")
        self.nothing("")

    async def _picked(self) -> None:
        version = [f"version={self._earlier.value}"] if self._earlier.value else []
        await self._context.choose(against=(*(self._since.value or ()), *version))

    async def _compare_with_before(self) -> None:
        """Compare the period with the time just before it, or stop comparing."""
        version = [f"version={self._earlier.value}"] if self._earlier.value else []
        await self._context.choose(against=(*([] if self._follows else [BEFORE]), *version))

    def show_windows(self, choices: Choices, windows: Sequence[str], versions: Mapping[str, str]) -> None:
        """Show the possible comparisons; `versions` maps digest -> name."""
        self._follows = choices.follows
        self._before.props(f'aria-pressed="{str(self._follows).lower()}"')
        offer(self._since, list(windows), list(choices.since))
        summarize(self._since, len(choices.since), len(windows))
        versioned("the same", self._earlier, versions, choices.earlier)

    def show(self, answers: Answers, choices: Choices) -> None:
        """Show changes: of shares only those selected in words, and all in the picture."""
        self.nothing(f"{answers[0].about}, compared with {answers[0].against}:")
        context = self._context
        for answer in answers:
            rows = [row for row in answer.rows if isinstance(row, ChangeRow)]
            names = [sentences.span(row, context.experiment, context.unit, self._reader) for row in rows]
            if answer.quantity == "reading":  # such as "5% quantile"
                names = [in_locale(name, self._reader) for name in names]
            if answer.quantity == "reading" or choices.ranges:
                with self._sentences:
                    for row, name in zip(rows, names, strict=True):
                        ui.label(sentences.change(row, name, answer, self._reader))
            summary = "; ".join(
                sentences.change(row, n, answer, self._reader) for row, n in zip(rows, names, strict=True)
            )
            options = charts.changes(answer, names, summary, self._reader.tag)
            picture = self._shares if answer.quantity == "share" else self._readings
            picture.element.visible = True
            picture.show(options, None, charts.rows_height(len(names)))

    def nothing(self, why: str) -> None:
        """Show this text in place of a comparison."""
        self._which.text = why
        self._sentences.clear()
        for picture in (self._shares, self._readings):
            picture.element.visible = False
