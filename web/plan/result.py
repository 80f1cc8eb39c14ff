"""The Plan view's answer, with sentences, both ε, the chart, a device's lifetime, and the file."""

from typing import Any

from nicegui import ui

from ...planning.second_epsilon import HistogramEpsilon
from ...server.words.epsilon import reports_per_device, rounded_up
from ..charts import COLOURS, axis, chart, table, tooltip
from ..frame import details, heading, sentence, skeleton, tag
from ..glossary import WORDS, word, words
from ..in_locale import in_locale
from ..reader import Reader
from .answer import SolvedPlan
from .file import FilePart

_TERMS = ("ε (epsilon)", "What an ε means", "ε of a report", "ε of the histogram", "δ (delta)", "Histogram")
_FACTORS = (0.25, 1, 4)


class ResultPart:
    """The displayed answer; an error is shown in one line, with the last answer greyed out below it."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        with ui.element("section").classes("plan-answer"):
            with ui.element("div").classes("plan-solved"):
                heading("Answer", 2)
                self._solved = tag("strong", "")
            self._error = ui.label().classes("plan-fault").props('role="alert"')
            self._sentence = ui.label().props('role="status"')
            self._waiting = skeleton(2)
            self._busy = ui.label("Calculating ...").classes("plan-busy").props('role="status"')
        with ui.element("div").classes("plan-result"):
            with ui.element("div") as self._details:
                self._facts = ui.element("dl").classes("plan-facts")
                with details("Details"):
                    self._method = ui.element("dl").classes("plan-facts")
                    heading("Glossary", 2)
                    words(*_TERMS)
                heading("Effect of more devices", 2)
                self._chart = chart({}, "Error by number of devices")
                self._steps = ui.label()
                self._lifetime = ui.element("div")
            self._file = FilePart(reader)
        self._details.set_visibility(False)

    def show_busy(self) -> None:
        """Show that the answer is being computed."""
        self._busy.set_visibility(True)
        self._details.classes(add="plan-old")

    def refuse(self, text: str) -> None:
        """Show the reason why no answer is available; "" if a field shows the reason."""
        self._waiting.set_visibility(False)
        self._busy.set_visibility(False)
        self._error.set_text(self._localize(sentence(text) if text else ""))
        self._solved.set_text("")
        self._sentence.set_text("" if text else "One of the fields is invalid; see the message on the field.")
        self._details.classes(add="plan-old")
        self._file.show(None)

    def show(self, answer: SolvedPlan) -> None:
        """Replace the last answer."""
        plan_answer = answer.plan_answer
        self._waiting.set_visibility(False)
        self._busy.set_visibility(False)
        self._error.set_text("")
        self._sentence.set_text(self._localize(" ".join(plan_answer.sentences[:2])))
        self._details.set_visibility(True)
        self._details.classes(remove="plan-old")
        self._solved.set_text(self._localize(answer.solved_text))
        self._facts.clear()
        self._method.clear()
        for name, text in answer.facts:
            with self._facts if name in WORDS else self._method:
                with ui.element("dt"):
                    word(name) if name in WORDS else ui.label(name)
                tag("dd", self._localize(text))
        counts = [max(2, round(plan_answer.plan.devices * factor)) for factor in _FACTORS]
        steps = "; ".join(f"{n:,} devices: {answer.error(plan_answer.error_with(n))}" for n in counts)
        self._chart.options.clear()
        self._chart.options.update(self._options(answer))
        self._chart.props["aria-label"] = f"Error by number of devices. {self._localize(steps)}"
        self._chart.update()
        self._steps.set_text(self._localize(f"Halving the error takes four times as many devices. {steps}."))
        self._show_lifetime(answer)
        self._file.show(answer)

    def _options(self, answer: SolvedPlan) -> dict[str, Any]:
        tag, plan_answer = self._reader.tag, answer.plan_answer
        point = [float(plan_answer.plan.devices), 100 * plan_answer.error]
        series: list[dict[str, Any]] = [
            {
                "type": "line", "name": "error", "showSymbol": False, "data": [list(p) for p in answer.curve],
                "color": COLOURS[0], "lineStyle": {"width": 2},
            },
            {"type": "scatter", "name": "this plan", "data": [point], "symbolSize": 12, "color": COLOURS[1]},
        ]  # fmt: skip
        if plan_answer.target_error is not None:
            target = {"yAxis": 100 * plan_answer.target_error, "name": "target"}
            series[0]["markLine"] = {
                "symbol": "none", "silent": True, "data": [target], "lineStyle": {"color": COLOURS[2]},
                "label": {"formatter": "target", "position": "insideStartTop"},
            }  # fmt: skip
        return {
            "animation": False,
            "grid": {"left": 60, "right": 20, "top": 15, "bottom": 50},
            "tooltip": tooltip(tag, f" {answer.points}"),
            "xAxis": axis("log", "devices", tag, min=answer.curve[0][0], max=answer.curve[-1][0]),
            "yAxis": axis("log", f"error, ± {answer.points}", tag, nameGap=45),
            "series": series,
        }

    def _show_lifetime(self, answer: SolvedPlan) -> None:
        plan_answer = answer.plan_answer
        self._lifetime.clear()
        if not plan_answer.windows:
            return
        with self._lifetime:
            heading("A device's lifetime", 2)
            for text in (plan_answer.sentences[2], sentence(plan_answer.cost)):
                ui.label(self._localize(text)).classes("plan-sentence")
            rows = [
                (w.name, f"{w.reports:,.0f}", answer.error(w.error), _format_epsilon(w.histogram))
                for w in plan_answer.windows
            ]
            headings = ("at the end, over", "reports", "error", "ε of the histogram")
            table("A device's lifetime", headings, [[self._localize(cell) for cell in row] for row in rows])

    def _localize(self, text: str) -> str:
        return in_locale(text, self._reader)


def _format_epsilon(histogram: HistogramEpsilon) -> str:
    """Return a histogram's ε, with the number of reports per device if it is more than one."""
    epsilon, reports = rounded_up(histogram.epsilon), histogram.own_reports
    return epsilon if reports == 1 else f"{epsilon} ({reports_per_device(reports)})"
