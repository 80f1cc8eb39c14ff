"""The histogram; readers drag on it, type two numbers or tick labels to see a share with its interval."""

from nicegui import ui

from ...server.answers.answer import Answer, Answers
from ...server.answers.rows import OUTSIDE, PostRow
from ...server.experiments.units import UnitsError, bin_edges, index_names
from ...server.plain_text import visible
from ...server.words import answers as words
from ...server.words import findings
from ..frame import heading, sentence
from ..in_locale import in_locale
from . import charts, sentences
from .answer_table import format_row, number_tiles, rows_table, table_rows
from .chart import CHOSEN, Ends, RangeSelectChart
from .choices import Choices, ends, range_between, typed_range
from .controls import PanelContext, select

_MAX_BOXES = 16  # labels with checkboxes; more labels are in a list
_DRAG = "Drag over the bars, or type From and To."
_TICK = "Tick labels to add up their shares."
_COLUMNS = ("range", "share", "from", "to", "processed")


class SharesPanel:
    """The picture of an experiment's shares, and the sentence on the chosen share."""

    def __init__(self, context: PanelContext, choices: Choices):
        self._context = context
        self._experiment, self._unit, self._reader = context.experiment, context.unit, context.reader
        self._choose = context.choose
        self._number = context.experiment.type == "number"
        self._answer: Answer | None = None
        self._heading = heading("Share of the fleet", 2)
        # Screen readers announce the reader's choices, but not the automatic updates, which would never end.
        self._announcement = ui.label().classes("unseen").props('role="status"')
        with ui.element("div").classes("experiment-main"):
            with ui.element("div"):
                self._hint = ui.label(_DRAG if self._number else _TICK)
                self._hint.classes("experiment-hint" if self._number else "faint")
                self._hint.props('id="range" role="status"')
                dragged = (self._dragged, self._clear) if self._number else (None, None)
                self._chart = RangeSelectChart("Histogram of the fleet", *dragged)
                self._wide_note = ui.label(sentences.WIDE).classes("experiment-note")
            with ui.element("div").classes("experiment-chosen"):
                self._sentence = ui.label().classes("experiment-sentence").props('id="share"')
                self._processed = ui.label().props('id="processed"')
                (self._add_fields if self._number else self._add_labels)(choices.ranges)
                self._exact = ui.label().props('id="exact"')
                self._beforehand = ui.label(sentences.BEFOREHAND).classes("experiment-note")
        self._readings = ui.element("ul").classes("numbers-tiles").props('id="readings"')
        self._missing = ui.label().props('id="missing"')
        self._note = ui.label().classes("experiment-note")
        self._add_table()

    # The reader's actions

    def _add_fields(self, chosen: tuple[str, ...]) -> None:
        edges = bin_edges(self._experiment)
        self._range = chosen[0] if chosen else ""
        low, high = ends(self._experiment, self._range) if chosen else (None, None)
        step = float(edges[1] - edges[0])
        with ui.row().classes("experiment-controls experiment-range"):
            self._from_to = (
                ui.number(f"From {self._unit}".strip(), value=low, step=step, format="%.10g"),
                ui.number(f"To {self._unit}".strip(), value=high, step=step, format="%.10g"),
            )
            for field in self._from_to:
                # This event follows Enter, an arrow key or leaving the field, but not every keystroke.
                field.on("change", self._typed).props("dense")

    async def _typed(self) -> None:
        low, high = (field.value for field in self._from_to)
        if not self._range and None in (low, high):  # the reader has yet to type the other number
            return
        try:
            text = typed_range(self._experiment, low, high)
        except UnitsError as e:
            self._hint.text = sentence(str(e))
            if self._range:
                name = sentences.range_name(self._experiment, self._range, self._unit, self._reader)
                self._hint.text += f" The page still shows {name}."
            for field in self._from_to:
                field.props("error no-error-icon")
            return
        await self._select(text)

    async def _dragged(self, area: Ends) -> None:
        try:
            text = range_between(self._experiment, *area)
        except UnitsError:
            return  # the reader dragged over less than half a bin
        await self._select(text)

    async def _select(self, text: str) -> None:
        self._fill_fields((text,))
        await self._chosen((text,))

    async def _clear(self) -> None:
        await self._choose(ranges=())

    def _fill_fields(self, ranges: tuple[str, ...]) -> None:
        """Fill the fields with the selection's ends, which are on whole bins, or clear the fields."""
        self._range = ranges[0] if ranges else ""
        limits = ends(self._experiment, self._range) if ranges else (None, None)
        for field, end in zip(self._from_to, limits, strict=True):
            field.value = end
        self._hint.text = _DRAG
        for field in self._from_to:
            field.props(remove="error no-error-icon")

    def _add_labels(self, chosen: tuple[str, ...]) -> None:
        self._ticked = chosen
        names = index_names(self._experiment)
        if len(names) > _MAX_BOXES:
            labels = {name: visible(name) for name in names}
            field = select(labels, "Labels", lambda: self._chosen(tuple(field.value)), multiple=True)
            field.classes("experiment-wide", remove="experiment-field").value = list(chosen)
            self._tick = lambda ranges: field.set_value(list(ranges))
            return
        with ui.row().classes("experiment-controls").props('role="group" aria-label="Labels"'):
            boxes = {name: ui.checkbox(visible(name), value=name in chosen) for name in names}
        self._tick = lambda ranges: [box.set_value(name in ranges) for name, box in boxes.items()]

        async def choose_ticked() -> None:
            await self._chosen(tuple(name for name, box in boxes.items() if box.value))

        for box in boxes.values():
            box.on(CHOSEN, choose_ticked)

    async def _chosen(self, ranges: tuple[str, ...]) -> None:
        self._ticked = ranges  # if empty, the view selects its default
        await self._choose(ranges=ranges)

    # Display

    @property
    def rows(self) -> int:
        """The number of rows in the picture."""
        return len(self._answer.rows) if self._answer else 0

    def show(
        self, choices: Choices, when: str, histogram: Answer, share: Answer | None, readings: Answers
    ) -> None:
        """Show answers to these choices.

        Args:
            choices: The reader's choices.
            when: The windows, in words.
            histogram: The shares of all rows.
            share: The selection's share, or None.
            readings: The means and quantiles.
        """
        all_rows = len(histogram.rows)
        self._answer = histogram = histogram.telling()
        self._heading.text = f"Share of the {'fleet' if histogram.population == 'devices' else 'readings'}"
        self._wide_note.visible = len(histogram.rows) < all_rows
        self._chart.element.visible = bool(histogram.rows)
        self.show_share(choices, when, share)
        summary = f"{len(histogram.rows)} rows; the table below contains all of them."
        summary = f"{self._sentence.text}. {summary}" if share else summary
        if self._number:
            area = ends(self._experiment, choices.ranges[0]) if choices.ranges else None
            self._chart.show(charts.histogram(histogram, self._unit, summary, self._reader.tag), area)
        else:
            options = charts.named_bars(histogram, choices.ranges, summary, self._reader.tag)
            self._chart.show(options, None, charts.rows_height(len(histogram.rows)))
        outside = any(note.startswith(OUTSIDE) for note in histogram.notes)
        self._missing.text = sentence(sentences.missing(histogram, self._reader))
        approximate = words.APPROXIMATE if histogram.approximate else ""
        note = " ".join(filter(None, [histogram.note, approximate, OUTSIDE if outside else ""]))
        self._note.text = in_locale(note, self._reader)
        number_tiles(self._readings, readings, self._context)
        self._fill()

    def read_aloud(self) -> None:
        """Announce the share to screen readers."""
        self._announcement.text = self._sentence.text

    def show_share(self, choices: Choices, when: str, share: Answer | None) -> None:
        """Update only the selection's share; for a number without a selection, hide it."""
        row = share.rows[0] if share else None
        for element in (self._sentence, self._beforehand):
            element.visible = row is not None
        if self._number:
            if choices.ranges != ((self._range,) if self._range else ()):  # keep what the reader is typing
                self._fill_fields(choices.ranges)
            self._chart.move(ends(self._experiment, choices.ranges[0]) if choices.ranges else None)
        elif choices.ranges != self._ticked:
            self._ticked = choices.ranges
            self._tick(choices.ranges)
        assert self._answer is not None  # show() has set the histogram
        has_enough = row is None or share is None or share.tells(row)
        self._exact.text = sentences.exact(self._answer, row, self._reader) if has_enough else ""
        if row is None or share is None:
            self._sentence.text, self._processed.visible = "", False
            return
        name = sentences.span(row, self._experiment, self._unit, self._reader)
        value = (
            findings.amount(row, None, self._reader, share.population)
            if has_enough
            else "too few reports to tell"
        )
        self._sentence.text = f"{name}: {value}, {when}"
        self._processed.visible = isinstance(row, PostRow)
        if isinstance(row, PostRow):
            processed_share = self._reader.percent(row.processed)
            self._processed.text = f"{processed_share} after {share.post}, which has no interval."

    def _add_table(self) -> None:
        expansion = ui.expansion("Show as table", on_value_change=self._fill).classes("experiment-wide")
        with expansion:
            self._numbers = expansion, rows_table(_COLUMNS, [])

    def _fill(self) -> None:
        expansion, table = self._numbers
        if self._answer is None or not expansion.value:
            return
        rows = []
        for row in self._answer.rows:
            name = sentences.span(row, self._experiment, self._unit, self._reader)
            post = (row.processed,) if isinstance(row, PostRow) else ()
            rows.append((name, *format_row(row, self._reader, *post)))
        table.rows = table_rows(_COLUMNS, rows)
