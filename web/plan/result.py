"""The answer in the Plan view: sentences, both ε, the chart, a device's lifetime, the file."""

from typing import Any

from nicegui import ui

from ...planning.second_epsilon import HistogramEpsilon
from ...server.words.epsilon import own_reports, rounded_up
from ..charts import COLOURS, axis, chart, table, tooltip
from ..frame import heading, sentence, skeleton, tag
from ..glossary import WORDS, word
from ..in_locale import in_locale
from ..reader import Reader
from .answer import SolvedPlan
from .file import FilePart

_FACTORS = (0.25, 1, 4)


class ResultPart:
    """The display of an answer; an error is only one line, with the last answer greyed out below."""

    def __init__(self, who: Reader) -> None:
        self._reader = who
        with ui.element("section").classes("plan-answer"):
            heading("Answer", 2)
            self._fault = ui.label().classes("plan-fault").props('role="alert"')
            self._sentence = ui.label().props('role="status"')
            self._waiting = skeleton(2)
            self._busy = ui.label("Working it out ...").classes("plan-busy").props('role="status"')
        with ui.element("div").classes("plan-result"):
            with ui.element("div") as self._rest:
                self._facts = ui.element("dl").classes("plan-facts")
                heading("What more devices would bring", 2)
                self._chart = chart({}, "Error by number of devices")
                self._steps = ui.label()
                self._lifetime = ui.element("div")
            self._file = FilePart(who)
        self._rest.set_visibility(False)

    def at_work(self) -> None:
        """Show that the answer is being computed."""
        self._busy.set_visibility(True)
        self._rest.classes(add="plan-old")

    def refuse(self, text: str) -> None:
        """Show why there is no answer; "" if a field shows the reason."""
        self._waiting.set_visibility(False)
        self._busy.set_visibility(False)
        self._fault.set_text(self._localize(sentence(text) if text else ""))
        self._sentence.set_text("" if text else "One of the fields cannot be planned with; it says why.")
        self._rest.classes(add="plan-old")
        self._file.show(None)

    def show(self, answer: SolvedPlan) -> None:
        """Replace the last answer."""
        plan_answer = answer.plan_answer
        self._waiting.set_visibility(False)
        self._busy.set_visibility(False)
        self._fault.set_text("")
        self._sentence.set_text(self._localize(" ".join(plan_answer.sentences[:2])))
        self._rest.set_visibility(True)
        self._rest.classes(remove="plan-old")
        self._facts.clear()
        with self._facts:
            for name, text in answer.facts:
                with ui.element("dt"):
                    word(name) if name in WORDS else ui.label(name)
                tag("dd", self._localize(text))
        counts = [max(2, round(plan_answer.plan.devices * factor)) for factor in _FACTORS]
        steps = "; ".join(f"{n:,} devices: {answer.error(plan_answer.error_with(n))}" for n in counts)
        self._chart.options.clear()
        self._chart.options.update(self._options(answer))
        self._chart.props["aria-label"] = f"Error by number of devices. {self._localize(steps)}"
        self._chart.update()
        self._steps.set_text(self._localize(f"Half the error takes four times the devices. {steps}."))
        self._show_lifetime(answer)
        self._file.show(answer)

    def _options(self, answer: SolvedPlan) -> dict[str, Any]:
        tag, plan_answer = self._reader.tag, answer.plan_answer
        here = [float(plan_answer.plan.devices), 100 * plan_answer.error]
        series: list[dict[str, Any]] = [
            {
                "type": "line", "name": "error", "showSymbol": False, "data": [list(p) for p in answer.curve],
                "color": COLOURS[0], "lineStyle": {"width": 2},
            },
            {"type": "scatter", "name": "this plan", "data": [here], "symbolSize": 12, "color": COLOURS[1]},
        ]  # fmt: skip
        if plan_answer.target_error is not None:
            target = {"yAxis": 100 * plan_answer.target_error, "name": "wanted"}
            series[0]["markLine"] = {
                "symbol": "none", "silent": True, "data": [target], "lineStyle": {"color": COLOURS[2]},
                "label": {"formatter": "wanted", "position": "insideStartTop"},
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
                ui.label(self._localize(text)).classes("plan-said")
            rows = [
                (w.name, f"{w.reports:,.0f}", answer.error(w.error), _format_epsilon(w.histogram))
                for w in plan_answer.windows
            ]
            heads = ("at the end, over", "reports", "error", "ε of the histogram")
            table("A device's lifetime", heads, [[self._localize(cell) for cell in row] for row in rows])

    def _localize(self, text: str) -> str:
        return in_locale(text, self._reader)


def _format_epsilon(of: HistogramEpsilon) -> str:
    """Return the ε of a window's histogram; with several reports per device it may exceed that of one."""
    epsilon = rounded_up(of.epsilon)
    return epsilon if of.own_reports == 1 else f"{epsilon} ({own_reports(of.own_reports)})"
