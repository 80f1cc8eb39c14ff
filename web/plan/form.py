"""The Plan view's fields, and their values."""

from collections.abc import Callable
from functools import partial
from typing import Any, cast, get_args

from nicegui import ui

from ...planning.request import LOG
from ..frame import heading
from ..reader import Reader
from .entries import START, Entries, Fourth
from .quantity import Quantity, Scale, number

_FORMS = {"number": "a number", "labels": "one of several labels", "yes_no": "yes or no"}
_KINDS = {
    "frequency": "how many devices have one value",
    "range": "how many are in any range",
    "quantile": "a quantile, such as the median",
    "mean": "the mean",
}
_BINS = {"linear": "equal", "log": "wider for higher readings (logarithmic)"}
_REPETITIONS = {False: "once", True: "repeatedly"}
_SCALES = {
    "devices": Scale("Devices", "devices", 10, 1_000_000_000, whole=True),
    "epsilon": Scale("ε of one report", "nats", 0.01, 16),
    "domain": Scale("Values to distinguish", "bins", 2, 4096, whole=True),
    "error": Scale("Error", "± points", 0.05, 49, percent=True),
}
_LIFETIME = Scale("ε of all of a device's reports", "nats", 0.1, 100.0)


class FormPart:
    """All fields; on_change() is called after each change by the reader."""

    def __init__(self, reader: Reader, on_change: Callable[[], None]) -> None:
        self._entries = dict(START)
        self._on_change = on_change
        self._quantities: dict[str, Quantity] = {}
        self._inputs: dict[str, Any] = {}
        with ui.element("div").classes("plan-form"):
            heading("What a device reads", 2)
            self._add_choice("form", "What a device reads", _FORMS)
            self._add_reading()
            heading("What you want to know", 2)
            self._add_question()
            heading("Enter three; the fourth is calculated", 2)
            for name in get_args(Fourth):
                self._add_quantity(name, reader)
            heading("How often each device is asked", 2)
            self._add_choice("lasting", "How often each device is asked", _REPETITIONS)
            self._add_lifetime(reader)
        self._quantities[self.fourth].update_props(answer=True)
        self._fit()

    @property
    def fourth(self) -> Fourth:
        """The name of the number that is computed from the other three."""
        return cast(Fourth, self._entries["answer"])

    @property
    def entries(self) -> Entries:
        """The fields' values, without the computed number."""
        return self._entries | {self.fourth: None}

    def epsilon(self, name: str) -> float | None:
        """Return the typed or computed ε in a field, or None if the field has no number."""
        return self._entries[name]

    def _change(self, name: str, value: Any) -> None:
        self._entries[name] = value
        self._on_change()

    def update_props(self, name: str, **properties: Any) -> None:
        """Set the note or the error of a number."""
        self._quantities[name].update_props(**properties)

    def show(self, name: str, value: float) -> None:
        """Put a computed number into its field."""
        self._entries[name] = value
        self._quantities[name].show(value)

    def show_fixed_limit(self, text: str) -> None:
        """Show below the question how many devices a fixed limit would save; "" shows nothing."""
        self._fixed.set_text(text)

    def clear(self) -> None:
        """Remove all errors."""
        for quantity in self._quantities.values():
            quantity.update_props(fault="")
        for field in self._inputs.values():
            field.error = None

    def refuse(self, name: str, text: str) -> bool:
        """Show an error on a field; return False if no such field exists."""
        name = "labels" if name == "values" else name
        if name in self._quantities:
            self._quantities[name].update_props(fault=text)
        elif name in self._inputs:
            self._inputs[name].error = text
        return name in self._quantities or name in self._inputs

    def _add_choice(self, field: str, label: str, options: dict[Any, str]) -> ui.radio:
        choice = ui.radio(options, value=START[field], on_change=lambda e: self._chosen(field, e.value))
        choice.props["aria-label"] = label
        return choice

    def _chosen(self, field: str, value: Any) -> None:
        self._entries[field] = value
        if field == "form":
            self._fit()
            if value != "number":
                self._stop_calculating_values()
        elif field == "scale" and value == LOG:
            self._stop_calculating_values()
        elif field == "lasting":
            self._lasting.set_visibility(bool(value))
        elif field == "kind":
            self._fit()
        self._on_change()

    def _stop_calculating_values(self) -> None:
        if self._quantities["domain"].props["answer"]:
            self._answer("error")

    def _fit(self) -> None:
        """Show only the fields that apply to this reading and question, and the error's unit."""
        form, kind = self._entries["form"], self._entries["kind"]
        is_mean = form == "number" and kind == "mean"
        self._quantities["error"].update_props(unit="± % of the range" if is_mean else _SCALES["error"].unit)
        self._inputs["quantile"].set_visibility(kind == "quantile")
        self._number.set_visibility(form == "number")
        self._inputs["labels"].set_visibility(form == "labels")
        self._quantities["domain"].set_visibility(form == "number")
        self._kinds.set_visibility(form == "number")
        self._single.set_visibility(form != "number")

    def _add_reading(self) -> None:
        with ui.element("div") as self._number:
            with ui.element("div").classes("plan-fields"):
                for name, label in (("low", "Lowest reading"), ("high", "Highest reading")):
                    self._add_number(name, label)
                self._add_text("unit", "Unit")
            ui.label("Bins")
            self._add_choice("scale", "Bins", _BINS).props("inline")
        self._add_text("labels", "Labels, separated by commas")

    def _add_question(self) -> None:
        with ui.element("div") as self._kinds:
            self._add_choice("kind", "What you want to know", _KINDS)
            self._add_number("quantile", "Quantile, as % of devices below it", is_percent=True)
            self._fixed = ui.label().props('role="status"')
        self._single = ui.label("Each answer's share of all devices.")

    def _add_quantity(self, name: Fourth, reader: Reader) -> None:
        self._quantities[name] = Quantity(
            name,
            _SCALES[name],
            START[name],
            reader.tag,
            on_number=partial(self._change, name),
            on_chosen=partial(self._answer, name),
        )

    def _answer(self, name: Fourth) -> None:
        for other, quantity in self._quantities.items():
            quantity.update_props(answer=other == name)
        self._change("answer", name)

    def _add_lifetime(self, reader: Reader) -> None:
        with ui.element("div") as self._lasting:
            with ui.element("div").classes("plan-fields"):
                self._add_text("horizon", "For how long")
                self._add_text("call", "A device takes a reading every")
            self._quantities["lifetime"] = Quantity(
                "lifetime", _LIFETIME, START["lifetime"], reader.tag, partial(self._change, "lifetime")
            )
        self._lasting.set_visibility(START["lasting"])

    def _add_text(self, name: str, label: str) -> None:
        field = ui.input(
            label,
            value=START[name],
            on_change=lambda e: self._change(name, str(e.value or "")[:2000]),
        )
        self._inputs[name] = field.without_auto_validation()

    def _add_number(self, name: str, label: str, *, is_percent: bool = False) -> None:
        field = ui.input(
            label,
            value=f"{START[name]:g}",
            on_change=lambda e: self._change(name, number(e.value, is_percent=is_percent)),
        )
        self._inputs[name] = field.without_auto_validation()
