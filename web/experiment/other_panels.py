"""Panels for experiments without a histogram, which show a mean, or tables and the equivalent command."""

from collections.abc import Sequence
from dataclasses import replace

from nicegui import ui

from ...server.answers.answer import Answer, Answers
from ...server.errors import UsageError
from ...server.experiments.answerable import answerable_questions, answers_only
from ...server.plain_text import visible
from ...server.words import answers as words
from ...server.words import findings
from ..frame import heading, sentence
from ..in_locale import in_locale
from . import charts, sentences
from .answer_table import format_row, number_tiles, rows_table
from .chart import RangeSelectChart
from .choices import Choices, typed_texts
from .controls import PanelContext

_COLUMNS = ("of", "estimate", "from", "to")
_COMMANDS = {
    "candidates": "The equivalent command; with --candidates=FILE it looks for the texts in a file:",
    "discovery": "The command that lists the texts that many devices sent:",
    "pairs": "The equivalent command; see --help for other questions:",
}
_TEXTS = "Texts to look for, one on each line"
_MAX_BARS = 24


class MeanPanel:
    """The mean in a sentence, with its uncertainty; the trend below is its picture."""

    def __init__(self, context: PanelContext) -> None:
        self._context, self._unit, self._reader = context, context.unit, context.reader
        heading("Mean", 2)
        self._sentence = ui.label().classes("experiment-sentence").props('id="mean"')
        self._exact = ui.label().props('id="exact"')
        ui.label("Devices were asked only for this mean, so no histogram is available.").classes(
            "experiment-note"
        )
        self._approximate = ui.label(words.APPROXIMATE).classes("experiment-note")
        self._readings = ui.element("ul").classes("numbers-tiles").props('id="readings"')
        self._missing = ui.label().props('id="missing"')

    def show(self, answer: Answer, when: str) -> None:
        """Show the mean and the other answers; `when` describes the windows."""
        mean, *others = answer.rows
        has_enough = answer.tells(mean)
        value = findings.amount(mean, self._unit, self._reader) if has_enough else "too few reports to tell"
        self._sentence.text = f"{words.capitalize(mean.name)}: {value}, {when}"
        more = words.capitalize(
            words.halving_advice(answer.reports, self._reader, approximate=answer.approximate)
        )
        self._exact.text = f"{words.confidence_note(answer.confidence, self._reader)} {more}"
        number_tiles(self._readings, [replace(answer, rows=tuple(others))], self._context)
        self._missing.text = sentence(sentences.missing(answer, self._reader))
        self._approximate.visible = answer.approximate


class TextsOrPairPanel:
    """The answers to an experiment on texts or a pair, with a picture, tables, and the equivalent command."""

    def __init__(self, context: PanelContext, file_texts: Sequence[str]) -> None:
        """Create the panel.

        Args:
            context: The context that all panels share.
            file_texts: The texts that the experiment's file lists.
        """
        self._context, self._reader, self._file_texts = context, context.reader, tuple(file_texts)
        kind = min(answerable_questions(context.experiment))
        self._texts: ui.textarea | None = None
        self._texts_in_field: tuple[str, ...] = ()
        heading("Answers", 2)
        ui.label(f"{answers_only(context.experiment)}.").props('id="answers"')
        if kind == "candidates":
            self._texts = (
                ui.textarea(_TEXTS).classes("experiment-texts").props("outlined autogrow stack-label")
            )
            self._texts.on("change", self._typed)
            ui.label("The answer appears when you leave the field.").classes("experiment-note")
        self._title = heading("", 3)
        self._chart = RangeSelectChart("Shares with their intervals")
        self._tables = ui.column().classes("experiment-wide").props('id="tables"')
        ui.label(_COMMANDS[kind])
        command = ui.label().props('id="command-ask" role="code" tabindex="0"')
        self._command = command.classes("experiment-command")

    async def _typed(self) -> None:
        """Look for the typed texts, or for the file's texts if none are typed."""
        assert self._texts is not None
        try:
            texts = typed_texts(self._texts.value or "", self._file_texts)
        except UsageError as e:
            self._texts.error = sentence(str(e))
            return
        self._texts.error = None
        await self._context.choose(ranges=texts)

    def show(self, choices: Choices, answers: Answers, picture: Answer | None, command: str) -> None:
        """Show answers.

        Args:
            choices: The reader's choices; for texts, they include the texts to look for.
            answers: The tables; empty as long as no text is chosen.
            picture: The table that the picture shows, or None for no picture.
            command: The equivalent `estimate` command.
        """
        if self._texts is not None and not choices.ranges:
            command = f"{command} --candidates=FILE"
        self._command.text = command
        if self._texts is not None and choices.ranges != self._texts_in_field:
            self._texts_in_field, self._texts.value = (
                choices.ranges,
                "\n".join(choices.ranges),
            )
        self._show_picture(picture)
        self._tables.clear()
        with self._tables:
            for answer in answers:
                self._table(answer)

    def _show_picture(self, answer: Answer | None) -> None:
        rows = () if answer is None else answer.limit_rows().telling().rows[:_MAX_BARS]
        self._chart.element.visible = self._title.visible = bool(rows)
        if answer is None or not rows:
            return
        self._title.text = _heading_of(answer)
        values = ", ".join(f"{visible(row.name)} {format_row(row, self._reader)[0]}" for row in rows)
        share = answer.quantity == "share"
        summary = f"{answer.heading}: {values}" if share else answer.heading
        options = charts.named_bars(replace(answer, rows=rows), (), summary, self._reader.tag)
        self._chart.show(options, None, charts.rows_height(len(rows)))

    def _table(self, answer: Answer) -> None:
        share = answer.quantity == "share"
        heading(_heading_of(answer), 3)
        rows = answer.telling().rows
        if rows:
            rows_table(_COLUMNS, [(visible(r.name), *format_row(r, self._reader, share=share)) for r in rows])
        if len(rows) < len(answer.rows):
            ui.label(sentences.WIDE).classes("experiment-note")
        for note in answer.notes:
            ui.label(in_locale(visible(note), self._reader)).classes("experiment-note")


def _heading_of(answer: Answer) -> str:
    return sentence(visible(answer.heading)).removesuffix(".").removesuffix(" given")
