"""The end of the Plan view: the experiment's file, what people say in it, and the command for the same."""

import datetime
from typing import Any

from nicegui import ui

from ...planning.devices import PlanError
from ...planning.experiment_file import ExperimentInfo, FileRefused
from ..frame import heading, sentence
from ..in_locale import in_locale
from ..reader import Reader
from .answer import SolvedPlan

_PLAIN = {
    "name": "write 1 to 32 of a-z, 0-9, _ and -",
    "owner": "write who answers for it: 1 to 200 characters, such as an address",
}
_NO_RANGE = "write the lowest and the highest reading: the file needs both"


class FilePart:
    """Name, purpose and owner, and the file that follows from them and the answer."""

    def __init__(self, who: Reader) -> None:
        self._reader = who
        self._answer: SolvedPlan | None = None
        self._text = ""
        heading("The experiment's file", 2)
        self._inputs: dict[str, Any] = {}
        with ui.element("div").classes("plan-fields wide"):
            for name, label, value in (
                ("name", "Name of the experiment", "planned"),
                ("owner", "Owner: who answers for it", ""),
                ("purpose", "Purpose: why it is asked; people who take part read it", ""),
            ):
                field = ui.input(label, value=value, on_change=self._write)
                self._inputs[name] = field.without_auto_validation()  # it would take our errors away
        self._fault = ui.label().classes("plan-fault").props('role="alert"')
        self._hint = ui.label("Write who owns the experiment and why it is asked: then its file is here.")
        with ui.element("div") as self._ready:
            self._short = ui.label().classes("plan-fault").props('role="alert"')
            ui.button("Download the file", on_click=self._download, color=None).props("outline no-caps")
            self._file = ui.label().classes("plan-code").props('tabindex="0" role="region"')
            self._file.props["aria-label"] = "The experiment's file"
            ui.label("The same on the command line:")
            self._command = ui.label().classes("plan-code").props('tabindex="0" role="region"')
            self._command.props["aria-label"] = "The command line"
            ui.label("Then check it, and add it to the store:")
            self._next = ui.label().classes("plan-code").props('tabindex="0" role="region"')
            self._next.props["aria-label"] = "What to do next"
        self._ready.set_visibility(False)

    def show(self, answer: SolvedPlan | None) -> None:
        """Rewrite the file for this answer; without an answer there is no file."""
        self._answer = answer
        self._write()

    @property
    def _named(self) -> ExperimentInfo:
        texts = {name: str(field.value or "")[:4000] for name, field in self._inputs.items()}
        today = datetime.datetime.now(datetime.UTC).date()
        return ExperimentInfo(texts["name"], texts["purpose"] or None, texts["owner"], today)

    def _write(self) -> None:
        for field in self._inputs.values():
            field.error = None
        self._fault.set_text("")
        self._ready.set_visibility(False)
        self._hint.set_visibility(False)
        if self._answer is None:
            return
        named = self._named
        if not named.owner.strip() or not (named.purpose or "").strip():
            self._hint.set_visibility(True)
            return
        try:
            self._text = self._answer.plan_answer.file(named)
        except FileRefused as e:
            if e.field in self._inputs:
                self._inputs[e.field].error = _PLAIN.get(e.field, e.reason)
            else:
                self._fault.set_text(str(e))
        except PlanError as e:
            self._fault.set_text(sentence(_NO_RANGE if e.field == "low" else str(e)))
        else:
            self._ready.set_visibility(True)
            self._short.set_text(in_locale(self._answer.plan_answer.not_met, self._reader))
            self._file.set_text(self._text)
            self._command.set_text(self._answer.plan_answer.command(named.name))
            file = f"{named.name}.toml"
            self._next.set_text(f"hushmote experiment show {file}\nhushmote experiment add {file}")

    def _download(self) -> None:
        ui.download.content(self._text.encode(), f"{self._named.name}.toml", "application/toml")
