"""A page element for one of a plan's numbers, with a slider, a field and a radio button."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from nicegui.element import Element


@dataclass(frozen=True)
class Scale:
    """A quantity's label, unit, slider range, and whether it must be a whole number."""

    label: str
    unit: str
    low: float
    high: float
    whole: bool = False


class Quantity(Element, component="quantity.js"):
    """A slider over a scale's round numbers, and a field that accepts any number.

    Args:
        name: The quantity's name, which is part of the field's id.
        scale: The quantity's scale.
        start: The initial number.
        locale: The reader's locale tag, for the browser's Intl.
        on_number: Called with the number, or None if the field has no number.
        on_chosen: Called when the reader chooses to calculate this number, which then cannot be changed; None
            if this number cannot be calculated.
    """

    def __init__(
        self,
        name: str,
        scale: Scale,
        start: float,
        locale: str,
        on_number: Callable[[float | None], None],
        on_chosen: Callable[[], None] | None = None,
    ) -> None:
        super().__init__()
        self.props(f"field=quantity-{name}")
        choosable = on_chosen is not None
        self._props.update(
            asdict(scale), start=start, locale=locale, choosable=choosable, answer=False, note="", fault=""
        )
        self.on("number", lambda event: on_number(number(event.args)), throttle=0.1)
        if on_chosen is not None:
            self.on("chosen", lambda _: on_chosen())

    def update_props(self, **properties: str | bool) -> None:
        """Set the answer, note, error or unit if it has changed."""
        if any(self._props[name] != value for name, value in properties.items()):
            self._props.update(properties)
            self.update()

    def show(self, value: float) -> None:
        """Set the number in the field and on the slider."""
        self.run_method("show", value)


def number(value: Any) -> float | None:
    """Return a value from a browser as a number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        result = float(value)
    except OverflowError:
        return None
    return result if math.isfinite(result) else None
