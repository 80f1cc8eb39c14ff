"""A comparison of two sets of windows, versions or values of the open group, in words and as a picture."""

from collections.abc import Mapping

from nicegui import ui

from ...server.answers.answer import Answers
from ...server.answers.query import Selected
from ...server.answers.question import BEFORE
from ...server.answers.rows import ChangeRow
from ..frame import heading, tag
from ..in_locale import in_locale
from . import charts, sentences
from .chart import RangeSelectChart
from .choices import Choices, names_of
from .controls import PanelContext, offer, offer_versions, select, summarize


class ChangePanel:
    """The change compared with other windows, another version or another value of the open group."""

    def __init__(self, context: PanelContext):
        self._context, self._reader = context, context.reader
        self._follows = False  # whether the comparison's windows follow from the period
        heading("Compare", 2).props('id="compare"')
        ui.label("Choose windows or a version to compare with the period above, or with all other windows.")
        with ui.element("div").classes("presets"):
            self._before = tag("button", "The preceding period of equal length").props('type="button"')
            self._before.props('aria-pressed="false"').on("click", self._compare_with_before)
        with ui.row().classes("experiment-controls"):
            self._since = select([], "Compare with windows", self._picked, multiple=True).props("clearable")
            self._earlier = select({"": "the same"}, "Compare with version", self._picked, value="")
            self._other = select({"": "the same"}, "Compare with group", self._picked, value="")
        self._title = ui.label()
        self._sentences = ui.column().classes("experiment-lines").props('id="change"')
        self._shares = RangeSelectChart("What changed: shares")
        self._readings = RangeSelectChart("What changed: readings")
        self.show_message("")

    async def _picked(self) -> None:
        await self._context.choose(against=(*(self._since.value or ()), *self._version_and_group()))

    async def _compare_with_before(self) -> None:
        """Compare with the preceding period of equal length, or stop comparing."""
        before = () if self._follows else (BEFORE,)
        await self._context.choose(against=(*before, *self._version_and_group()))

    def _version_and_group(self) -> list[str]:
        version = [f"version={self._earlier.value}"] if self._earlier.value else []
        return version + ([f"group={self._other.value}"] if self._other.value else [])

    def show_windows(
        self,
        choices: Choices,
        selected: Selected,
        windows: Mapping[str, tuple[str, ...]],
        versions: Mapping[str, str],
    ) -> None:
        """Show the possible comparisons.

        Args:
            choices: The choices.
            selected: The experiment's data.
            windows: The names that readers can choose, with the windows of each.
            versions: The versions' names by digest.
        """
        since = names_of(choices.since, windows)
        self._follows = choices.follows
        self._before.props(f'aria-pressed="{str(self._follows).lower()}"')
        offer(self._since, list(windows), since)
        summarize(self._since, len(since), len(windows))
        offer_versions("the same", self._earlier, versions, choices.earlier)
        others = [value for value in selected.group_values if value != choices.question.group]
        offer(self._other, {"": "the same"} | dict(zip(others, others, strict=True)), choices.other_group)
        self._other.props["label"] = f"Compare with {selected.group_name}"
        self._other.visible = bool(choices.question.group)

    def show(self, answers: Answers, choices: Choices) -> None:
        """Show changes, all of them in the picture; in words, show shares only if they are selected."""
        self.show_message(f"{answers[0].about}, compared with {answers[0].against}:")
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

    def show_message(self, message: str) -> None:
        """Show a message instead of a comparison."""
        self._title.text = message
        self._sentences.clear()
        for picture in (self._shares, self._readings):
            picture.element.visible = False
