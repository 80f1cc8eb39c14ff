"""The answer's side of the Plan view: sentences, both ε, the chart, the life of a board, the file."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from ...server.words.epsilon import rounded_up
from ...server.words.numbers import percent
from ..charts import COLOURS, axis, chart, table, tooltip
from ..frame import heading, sentence, tag
from ..glossary import WORDS, word
from ..in_locale import in_locale
from ..reader import Reader
from .answer import Window, Worked
from .file import FilePart

_HALF_WIDTH = "error, ± %"


class ResultPart:
    """What is shown of an answer; of a refusal only its one line, with the last answer greyed below."""

    def __init__(self, who: Reader) -> None:
        self._reader = who
        with ui.element("section").classes("plan-answer"):
            heading("Answer", 2)
            self._fault = ui.label().classes("plan-fault").props('role="alert"')
            self._said = ui.label().props('role="status"')
            self._busy = ui.label("Working it out ...").classes("plan-busy").props('role="status"')
        with ui.element("div").classes("plan-result"):
            with ui.element("div") as self._rest:
                self._facts = ui.element("dl").classes("plan-facts")
                heading("What more devices would bring", 2)
                self._chart = chart({}, "Error by number of devices")
                self._steps = ui.label()
                self._life = ui.element("div")
            self._file = FilePart(who)
        self._rest.set_visibility(False)

    def at_work(self) -> None:
        """Say that the answer is on its way."""
        self._busy.set_visibility(True)
        self._rest.classes(add="plan-old")

    def refuse(self, text: str) -> None:
        """Show why there is no answer; an empty text where a field says it."""
        self._busy.set_visibility(False)
        self._fault.set_text(self._written(sentence(text) if text else ""))
        self._said.set_text("" if text else "One of the fields cannot be planned with; it says why.")
        self._rest.classes(add="plan-old")
        self._file.show(None)

    def show(self, answer: Worked) -> None:
        """Show an answer in the place of the last one."""
        self._busy.set_visibility(False)
        self._fault.set_text("" if answer.met else self._written(answer.not_met))
        self._said.set_text(self._written(" ".join(answer.said)))
        self._rest.set_visibility(True)
        self._rest.classes(remove="plan-old")
        self._facts.clear()
        with self._facts:
            for name, said in answer.facts:
                with ui.element("dt"):
                    word(name) if name in WORDS else ui.label(name)
                tag("dd", self._written(said))
        steps = "; ".join(f"{n:,} devices: {error}" for n, error in answer.steps)
        self._chart.options.clear()
        self._chart.options.update(self._options(answer))
        self._chart.props["aria-label"] = f"Error by number of devices. {self._written(steps)}"
        self._chart.update()
        self._steps.set_text(self._written(f"Twice as exact takes four times the devices. {steps}."))
        self._show_life(answer)
        self._file.show(answer)

    def _options(self, answer: Worked) -> dict[str, Any]:
        tag = self._reader.tag
        here = [float(answer.devices), 100 * answer.made.error]
        series: list[dict[str, Any]] = [
            {
                "type": "line", "name": "error", "showSymbol": False, "data": [list(p) for p in answer.curve],
                "color": COLOURS[0], "lineStyle": {"width": 2},
            },
            {"type": "scatter", "name": "this plan", "data": [here], "symbolSize": 12, "color": COLOURS[1]},
        ]  # fmt: skip
        if answer.made.wanted is not None:
            wanted = {"yAxis": 100 * answer.made.wanted, "name": "wanted"}
            series[0]["markLine"] = {
                "symbol": "none", "silent": True, "data": [wanted], "lineStyle": {"color": COLOURS[2]},
                "label": {"formatter": "wanted", "position": "insideStartTop"},
            }  # fmt: skip
        return {
            "animation": False,
            "grid": {"left": 60, "right": 20, "top": 15, "bottom": 50},
            "tooltip": tooltip(tag, " %"),
            "xAxis": axis("log", "devices", tag, min=answer.curve[0][0], max=answer.curve[-1][0]),
            "yAxis": axis("log", _HALF_WIDTH, tag, nameGap=45),
            "series": series,
        }

    def _show_life(self, answer: Worked) -> None:
        self._life.clear()
        if answer.life is None:
            return
        with self._life:
            heading("A board's life", 2)
            for said in answer.lasting:
                ui.label(self._written(said)).classes("plan-said")
            rows = [(w.name, f"{w.reports:,.0f}", percent(w.error), _seen(w)) for w in answer.windows]
            heads = ("at the end, over", "reports", "error", "ε of the histogram")
            table("A board's life", heads, [[self._written(cell) for cell in row] for row in rows])

    def _written(self, text: str) -> str:
        return in_locale(text, self._reader)


def _seen(window: Window) -> str:
    """The ε of a window's histogram; of several reports of a board it may be larger than that of one."""
    epsilon = rounded_up(window.epsilon)
    return epsilon if window.own == 1 else f"{epsilon} (up to {window.own:,} reports of a board)"
