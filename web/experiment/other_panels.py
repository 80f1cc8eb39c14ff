"""What stands in place of the histogram where an experiment has none: its mean, or how to ask it."""

from __future__ import annotations

from nicegui import ui

from ...device.ldp_client import Experiment
from ...server.answers.answer import Answer, Answers
from ...server.answers.rows import TITLES
from ...server.experiments.asking import answers_of, answers_only
from ...server.plain_text import visible
from ..frame import heading, sentence
from ..reader import Reader
from . import sentences

_COLUMNS = ("of", "estimate", "from", "to")
_ASKED = {
    "candidates": (
        "Write the texts that you ask about into a file, one a line, and run:",
        "--candidates=FILE",
    ),
    "discovery": ("This lists the texts that many boards sent:", ""),
    "pairs": ("This asks the same. --help lists what else can be asked:", ""),
}


class MeanPanel:
    """The mean in a sentence, and how sure it is; its picture is the trend below."""

    def __init__(self, unit: str, reader: Reader) -> None:
        self._unit, self._reader = unit, reader
        heading("Mean", 2)
        self._sentence = ui.label().classes("experiment-sentence").props('id="mean"')
        self._exact = ui.label().props('id="exact"')
        ui.label("Boards were asked for this mean alone: there is no histogram.").classes("experiment-note")
        self._readings = ui.column().classes("experiment-lines").props('id="readings"')

    def show(self, answer: Answer, when: str) -> None:
        """Show the mean, and what else is known with it; when: the windows, in words."""
        mean, *others = (sentences.value(row, self._unit, self._reader) for row in answer.rows)
        self._sentence.text = f"{mean[0].upper()}{mean[1:]} ({when})"
        more = (
            f"Four times as many reports ({self._reader.number(4 * answer.reports, 0)}) halve the interval."
        )
        self._exact.text = f"{sentences.sure(answer.confidence, self._reader)} {more}"
        self._readings.clear()
        with self._readings:
            for said in others:
                ui.label(f"{said[0].upper()}{said[1:]}")


class AskedPanel:
    """What an experiment of texts or of pairs answers, and the command that asks it."""

    def __init__(self, experiment: Experiment, reader: Reader) -> None:
        self._reader = reader
        word = min(answers_of(experiment))
        heading("What it answers", 2)
        ui.label(f"{answers_only(experiment)}.").props('id="answers"')
        self._tables = ui.column().classes("experiment-wide").props('id="tables"')
        words, self._option = _ASKED[word]
        ui.label(words)
        command = ui.label().props('id="command-ask" role="code" tabindex="0"')
        self._command = command.classes("experiment-command")

    def show(self, answers: Answers, command: str) -> None:
        """Show tables, none where something has to be named first, and the command of `estimate`."""
        self._command.text = f"{command} {self._option}".strip()
        self._tables.clear()
        with self._tables:
            for answer in answers:
                self._table(answer)

    def _table(self, answer: Answer) -> None:
        share = answer.quantity == "share"
        rows: list[dict[str, str | int]] = []
        for number, row in enumerate(answer.rows):
            scale = 100 if share else 1
            places = sentences.digits(row.low * scale, row.high * scale)
            write = self._reader.percent if share else self._reader.number
            value, low, high = (write(x, places) for x in (row.value, row.low, row.high))
            rows.append({"of": visible(row.name), "estimate": value, "from": low, "to": high, "key": number})
        heading(sentence(visible(answer.title or TITLES[answer.kind])).removesuffix("."), 3)
        if rows:
            self._rows(rows)
        for note in answer.notes:
            ui.label(visible(note)).classes("experiment-note")

    def _rows(self, rows: list[dict[str, str | int]]) -> None:
        columns = [{"name": n, "label": n, "field": n, "align": "left"} for n in _COLUMNS]
        table = ui.table(rows=rows, columns=columns, row_key="key", pagination=0)
        table.props("dense wrap-cells")
