"""The end of the Plan view, with the experiment's file, its texts, and the equivalent command."""

import datetime
from typing import Any

from nicegui import ui

from ...planning.devices import PlanError
from ...planning.experiment_file import ExperimentInfo, FileRefused
from ..frame import heading, sentence
from ..in_locale import in_locale
from ..reader import Reader
from .answer import SolvedPlan

_MESSAGES = {
    "name": "write 1 to 32 characters from a-z, 0-9, _ and -",
    "owner": "write who is responsible, such as an email address, in 1 to 200 characters",
}
_NO_RANGE = "write the lowest and the highest reading, because the file needs both"


class FilePart:
    """The fields for name, purpose and owner, and the file made from them and the answer."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._answer: SolvedPlan | None = None
        self._text = ""
        heading("The experiment's file", 2)
        self._inputs: dict[str, Any] = {}
        with ui.element("div").classes("plan-fields wide"):
            for name, label, value in (
                ("name", "Name of the experiment", "planned"),
                ("owner", "Owner, who is responsible for it", ""),
                ("purpose", "Purpose, which participants read", ""),
            ):
                field = ui.input(label, value=value, on_change=self._update)
                self._inputs[name] = field.without_auto_validation()  # validation would clear our errors
        self._error = ui.label().classes("plan-fault").props('role="alert"')
        self._hint = ui.label("To get the file, write who owns the experiment and what its purpose is.")
        with ui.element("div") as self._ready:
            self._warning = ui.label().classes("plan-fault").props('role="alert"')
            ui.button("Download the file", on_click=self._download, color=None).props("outline no-caps")
            self._file = ui.label().classes("plan-code").props('tabindex="0" role="region"')
            self._file.props["aria-label"] = "The experiment's file"
            ui.label("The equivalent command:")
            self._command = ui.label().classes("plan-code").props('tabindex="0" role="region"')
            self._command.props["aria-label"] = "The command line"
            ui.label("Then check it, and add it to the store:")
            self._next = ui.label().classes("plan-code").props('tabindex="0" role="region"')
            self._next.props["aria-label"] = "What to do next"
        self._ready.set_visibility(False)

    def show(self, answer: SolvedPlan | None) -> None:
        """Show the file for an answer; without an answer, show no file."""
        self._answer = answer
        self._update()

    @property
    def _info(self) -> ExperimentInfo:
        texts = {name: str(field.value or "")[:4000] for name, field in self._inputs.items()}
        today = datetime.datetime.now(datetime.UTC).date()
        return ExperimentInfo(texts["name"], texts["purpose"] or None, texts["owner"], today)

    def _update(self) -> None:
        for field in self._inputs.values():
            field.error = None
        self._error.set_text("")
        self._ready.set_visibility(False)
        self._hint.set_visibility(False)
        if self._answer is None:
            return
        info = self._info
        if not info.owner.strip() or not (info.purpose or "").strip():
            self._hint.set_visibility(True)
            return
        try:
            self._text = self._answer.plan_answer.file(info)
        except FileRefused as e:
            if e.field in self._inputs:
                self._inputs[e.field].error = _MESSAGES.get(e.field, e.reason)
            else:
                self._error.set_text(str(e))
        except PlanError as e:
            self._error.set_text(sentence(_NO_RANGE if e.field == "low" else str(e)))
        else:
            self._ready.set_visibility(True)
            self._warning.set_text(in_locale(self._answer.plan_answer.not_met, self._reader))
            self._file.set_text(self._text)
            self._command.set_text(self._answer.plan_answer.command(info.name))
            file = f"{info.name}.toml"
            self._next.set_text(f"hushmote experiment show {file}\nhushmote experiment add {file}")

    def _download(self) -> None:
        ui.download.content(self._text.encode(), f"{self._info.name}.toml", "application/toml")
