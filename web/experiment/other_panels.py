"""What stands in place of the histogram where an experiment has none: its mean, or how to ask it."""

from nicegui import ui

from ...server.answers.answer import Answer, Answers
from ...server.answers.rows import TITLES
from ...server.experiments.asking import answers_of, answers_only
from ...server.plain_text import visible
from ...server.words import answers as words
from ..frame import heading, sentence
from . import sentences
from .answer_table import number_tiles, rows_table, tells, written
from .controls import Given

_COLUMNS = ("of", "estimate", "from", "to")
_ASKED = {
    "candidates": (
        "Write the texts that you ask about into a file, one a line, and run:",
        "--candidates=FILE",
    ),
    "discovery": ("This lists the texts that many devices sent:", ""),
    "pairs": ("This asks the same. --help lists what else can be asked:", ""),
}


class MeanPanel:
    """The mean in a sentence, and how sure it is; its picture is the trend below."""

    def __init__(self, given: Given) -> None:
        self._given, self._unit, self._reader = given, given.unit, given.reader
        heading("Mean", 2)
        self._sentence = ui.label().classes("experiment-sentence").props('id="mean"')
        self._exact = ui.label().props('id="exact"')
        ui.label("Devices were asked for this mean alone: there is no histogram.").classes("experiment-note")
        self._readings = ui.element("ul").classes("numbers-tiles").props('id="readings"')

    def show(self, answer: Answer, when: str) -> None:
        """Show the mean, and what else is known with it; when: the windows, in words."""
        mean, *others = answer.rows
        said = words.value(mean, mean.name, self._unit, self._reader)
        said = said if tells(mean, self._given.experiment) else "Mean: too few reports to tell"
        self._sentence.text = f"{said} ({when})"
        more = words.begun(words.halved(answer.reports, self._reader))
        self._exact.text = f"{words.sure(answer.confidence, self._reader)} {more}"
        number_tiles(self._readings, others, self._given)


class AskedPanel:
    """What an experiment of texts or of pairs answers, and the command that asks it."""

    def __init__(self, given: Given) -> None:
        self._reader = given.reader
        word = min(answers_of(given.experiment))
        heading("What it answers", 2)
        ui.label(f"{answers_only(given.experiment)}.").props('id="answers"')
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
        heading(sentence(visible(answer.title or TITLES[answer.kind])).removesuffix("."), 3)
        rows = [r for r in answer.rows if not share or tells(r)]
        if rows:
            rows_table(_COLUMNS, [(visible(r.name), *written(r, self._reader, share=share)) for r in rows])
        if len(rows) < len(answer.rows):
            ui.label(sentences.WIDE).classes("experiment-note")
        for note in answer.notes:
            ui.label(visible(note)).classes("experiment-note")
