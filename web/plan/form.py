"""The fields of the Plan view, and their values."""

from collections.abc import Callable
from functools import partial
from typing import Any, cast, get_args

from nicegui import ui

from ..frame import heading
from ..reader import Reader
from .entries import START, Entries, Fourth
from .quantity import Quantity, Scale, number

_FORMS = {"number": "a number", "labels": "one of some labels", "yes_no": "yes or no"}
_KINDS = {
    "frequency": "how many devices hold one value",
    "range": "how many lie in any range",
    "quantile": "a quantile, such as the median",
    "mean": "the mean",
}
_OFTEN = {False: "once", True: "again and again"}
_SCALES = {
    "devices": Scale("Devices", "devices", 10, 1_000_000_000, whole=True),
    "epsilon": Scale("ε, what one report may tell", "nats", 0.01, 16),
    "domain": Scale("Values to tell apart", "bins", 2, 4096, whole=True),
    "error": Scale("Error", "± points", 0.05, 49),
}
_LIFETIME = Scale("ε, what all reports of a device may tell", "nats", 0.1, 100.0)


class FormPart:
    """All fields; `change` is called after each change by the reader."""

    def __init__(self, who: Reader, change: Callable[[], None]) -> None:
        self._entries = dict(START)
        self._changed = change
        self._quantities: dict[str, Quantity] = {}
        self._inputs: dict[str, Any] = {}
        with ui.element("div").classes("plan-form"):
            heading("What a device reads", 2)
            self._choice("form", "What a device reads", _FORMS)
            self._reading()
            heading("What you want to know", 2)
            self._question_fields()
            heading("Three of four give the fourth", 2)
            for name in get_args(Fourth):
                self._quantity(name, who)
            heading("How often each device is asked", 2)
            self._choice("lasting", "How often each device is asked", _OFTEN)
            self._lifetime(who)
        self._quantities[self.fourth].tell(answer=True)
        self._fit()

    @property
    def fourth(self) -> Fourth:
        """The one of the four numbers that is computed from the others."""
        return cast(Fourth, self._entries["answer"])

    @property
    def entries(self) -> Entries:
        """Values of the fields, without the computed number."""
        return self._entries | {self.fourth: None}

    def epsilon(self, name: str) -> float | None:
        """Return the ε in one of the fields, typed or computed; None if it has no number."""
        return self._entries[name]

    def _change(self, name: str, value: Any) -> None:
        self._entries[name] = value
        self._changed()

    def tell(self, name: str, **properties: Any) -> None:
        """Set the note or the error of one of the numbers."""
        self._quantities[name].tell(**properties)

    def show(self, name: str, value: float) -> None:
        """Put a computed number into its field."""
        self._entries[name] = value
        self._quantities[name].show(value)

    def tell_fixed(self, text: str) -> None:
        """Show under the question what a fixed limit would save; "" shows nothing."""
        self._fixed.set_text(text)

    def clear(self) -> None:
        """Remove all errors."""
        for quantity in self._quantities.values():
            quantity.tell(fault="")
        for field in self._inputs.values():
            field.error = None

    def refuse(self, name: str, text: str) -> bool:
        """Show an error at a field; return False if there is no such field."""
        name = "labels" if name == "values" else name
        if name in self._quantities:
            self._quantities[name].tell(fault=text)
        elif name in self._inputs:
            self._inputs[name].error = text
        return name in self._quantities or name in self._inputs

    def _choice(self, field: str, label: str, options: dict[Any, str]) -> None:
        choice = ui.radio(options, value=START[field], on_change=lambda e: self._chosen(field, e.value))
        choice.props["aria-label"] = label

    def _chosen(self, field: str, value: Any) -> None:
        self._entries[field] = value
        if field == "form":
            self._fit()
            if value != "number" and self._quantities["domain"].props["answer"]:
                self._answer("error")
        elif field == "lasting":
            self._lasting.set_visibility(bool(value))
        elif field == "kind":
            self._fit()
        self._changed()

    def _fit(self) -> None:
        """Show only the fields that apply to this reading and question, and the error's unit."""
        form, kind = self._entries["form"], self._entries["kind"]
        of_mean = form == "number" and kind == "mean"
        self._quantities["error"].tell(unit="± % of the range" if of_mean else _SCALES["error"].unit)
        self._inputs["quantile"].set_visibility(kind == "quantile")
        self._number.set_visibility(form == "number")
        self._inputs["labels"].set_visibility(form == "labels")
        self._quantities["domain"].set_visibility(form == "number")
        self._kinds.set_visibility(form == "number")
        self._single.set_visibility(form != "number")

    def _reading(self) -> None:
        with ui.element("div").classes("plan-fields") as self._number:
            for name, label in (("low", "Lowest reading"), ("high", "Highest reading")):
                self._numeric(name, label)
            self._text("unit", "Unit")
        self._text("labels", "Labels, with commas between them")

    def _question_fields(self) -> None:
        with ui.element("div") as self._kinds:
            self._choice("kind", "What you want to know", _KINDS)
            self._numeric("quantile", "Which quantile, % of devices below it")
            self._fixed = ui.label().props('role="status"')
        self._single = ui.label("How many devices say each of these, as a share of all.")

    def _quantity(self, name: Fourth, who: Reader) -> None:
        self._quantities[name] = Quantity(
            name,
            _SCALES[name],
            START[name],
            who.tag,
            on_number=partial(self._change, name),
            on_chosen=partial(self._answer, name),
        )

    def _answer(self, name: Fourth) -> None:
        for other, quantity in self._quantities.items():
            quantity.tell(answer=other == name)
        self._change("answer", name)

    def _lifetime(self, who: Reader) -> None:
        with ui.element("div") as self._lasting:
            with ui.element("div").classes("plan-fields"):
                self._text("horizon", "For how long")
                self._text("call", "A device looks every")
            self._quantities["lifetime"] = Quantity(
                "lifetime", _LIFETIME, START["lifetime"], who.tag, partial(self._change, "lifetime")
            )
        self._lasting.set_visibility(START["lasting"])

    def _text(self, name: str, label: str) -> None:
        field = ui.input(
            label,
            value=START[name],
            on_change=lambda e: self._change(name, str(e.value or "")[:2000]),
        )
        self._inputs[name] = field.without_auto_validation()

    def _numeric(self, name: str, label: str) -> None:
        field = ui.number(label, value=START[name], on_change=lambda e: self._change(name, number(e.value)))
        self._inputs[name] = field.without_auto_validation()
