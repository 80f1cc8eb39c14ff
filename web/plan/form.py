"""The fields of the Plan view; what they say goes out as changes of a `Setting`."""

from collections.abc import Callable
from functools import partial
from typing import Any, get_args

from nicegui import ui

from ..frame import heading
from ..reader import Reader
from .quantity import Quantity, Scale, number
from .question import FIELDS, Fourth, Setting

Change = Callable[..., None]

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
    """All fields. change: called with each field of the setting that a reader has changed."""

    def __init__(self, who: Reader, setting: Setting, change: Change) -> None:
        self._change = change
        self._quantities: dict[str, Quantity] = {}
        self._inputs: dict[str, Any] = {}
        with ui.element("div").classes("plan-form"):
            heading("What a device reads", 2)
            self._choice("form", "What a device reads", _FORMS, setting.form)
            self._reading(setting)
            heading("What you want to know", 2)
            self._asked(setting)
            heading("Three of four give the fourth", 2)
            for name in get_args(Fourth):
                self._quantity(name, who, setting)
            heading("How often each device is asked", 2)
            self._choice("lasting", "How often each device is asked", _OFTEN, setting.lasting)
            self._life(who, setting)
        self._quantities[setting.answer].tell(answer=True)
        self._form, self._kind = setting.form, setting.kind
        self._fit()

    def tell(self, name: str, **told: Any) -> None:
        """Set the note or the fault of one of the numbers."""
        self._quantities[name].tell(**told)

    def show(self, name: str, value: float) -> None:
        """Put what was worked out into its field."""
        self._quantities[name].show(value)

    def tell_fixed(self, said: str) -> None:
        """Say under the question what a fixed limit would save; nothing where said is empty."""
        self._fixed.set_text(said)

    def clear(self) -> None:
        """Take all faults away."""
        for quantity in self._quantities.values():
            quantity.tell(fault="")
        for field in self._inputs.values():
            field.error = None

    def refuse(self, name: str, text: str) -> bool:
        """Say at a field why it cannot be; False where there is no such field."""
        name = "labels" if name == "values" else name
        if name in self._quantities:
            self._quantities[name].tell(fault=text)
        elif name in self._inputs:
            self._inputs[name].error = text
        return name in self._quantities or name in self._inputs

    def _choice(self, field: str, label: str, options: dict[Any, str], value: Any) -> None:
        choice = ui.radio(options, value=value, on_change=lambda e: self._chosen(field, e.value))
        choice.props["aria-label"] = label

    def _chosen(self, field: str, value: Any) -> None:
        if field == "form":
            self._form = value
            self._fit()
            if value != "number" and self._quantities["domain"].props["answer"]:
                self._answer("error")
        elif field == "lasting":
            self._lasting.set_visibility(bool(value))
        elif field == "kind":
            self._kind = value
            self._fit()
        self._change(**{field: value})

    def _fit(self) -> None:
        """Show only the fields that a reading and a question of this form have, and what an error is of."""
        form, of_mean = self._form, self._form == "number" and self._kind == "mean"
        self._quantities["error"].tell(unit="± % of the range" if of_mean else _SCALES["error"].unit)
        self._inputs["quantile"].set_visibility(self._kind == "quantile")
        self._number.set_visibility(form == "number")
        self._inputs["labels"].set_visibility(form == "labels")
        self._quantities["domain"].set_visibility(form == "number")
        self._kinds.set_visibility(form == "number")
        self._single.set_visibility(form != "number")

    def _reading(self, setting: Setting) -> None:
        with ui.element("div").classes("plan-fields") as self._number:
            for name, label in (("low", "Lowest reading"), ("high", "Highest reading")):
                self._numeric(name, label, getattr(setting, name))
            self._text("unit", "Unit", setting.unit)
        self._text("labels", "Labels, with commas between them", setting.labels)

    def _asked(self, setting: Setting) -> None:
        with ui.element("div") as self._kinds:
            self._choice("kind", "What you want to know", _KINDS, setting.kind)
            self._numeric("quantile", "Which quantile, % of devices below it", setting.quantile)
            self._fixed = ui.label().props('role="status"')
        self._single = ui.label("How many devices say each of these, as a share of all.")

    def _quantity(self, name: Fourth, who: Reader, setting: Setting) -> None:
        start = getattr(setting, FIELDS[name])
        self._quantities[name] = Quantity(
            name,
            _SCALES[name],
            start,
            who.tag,
            on_number=lambda value: self._change(**{FIELDS[name]: value}),
            on_chosen=partial(self._answer, name),
        )

    def _answer(self, name: Fourth) -> None:
        for other, quantity in self._quantities.items():
            quantity.tell(answer=other == name)
        self._change(answer=name)

    def _life(self, who: Reader, setting: Setting) -> None:
        with ui.element("div") as self._lasting:
            with ui.element("div").classes("plan-fields"):
                self._text("horizon", "For how long", setting.horizon)
                self._text("call", "A device looks every", setting.call)
            start = setting.lifetime or _LIFETIME.low
            self._quantities["lifetime"] = Quantity(
                "lifetime", _LIFETIME, start, who.tag, lambda value: self._change(lifetime=value)
            )
        self._lasting.set_visibility(setting.lasting)

    def _text(self, name: str, label: str, value: str) -> None:
        field = ui.input(
            label, value=value, on_change=lambda e: self._change(**{name: str(e.value or "")[:2000]})
        )
        self._inputs[name] = field.without_auto_validation()

    def _numeric(self, name: str, label: str, value: float | None) -> None:
        field = ui.number(label, value=value, on_change=lambda e: self._change(**{name: number(e.value)}))
        self._inputs[name] = field.without_auto_validation()
