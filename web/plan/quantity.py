"""One of a plan's numbers as an element of the page: a slider, a field, and whether it is the answer."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from nicegui.element import Element


@dataclass(frozen=True)
class Scale:
    """The scale of a quantity: label, unit, ends of its slider, and whether it is a whole number."""

    label: str
    unit: str
    low: float
    high: float
    whole: bool = False


class Quantity(Element, component="quantity.js"):
    """A slider over the round numbers of a scale, and a field beside it that accepts any number.

    Args:
        on_number: Called with the number, or None if the field has none.
        on_chosen: If given, the number can be made the answer, which is displayed and cannot be moved.
        locale: For the browser's Intl.
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

    def tell(self, **properties: str | bool) -> None:
        """Set the answer, note or error if it has changed."""
        if any(self._props[name] != value for name, value in properties.items()):
            self._props.update(properties)
            self.update()

    def show(self, value: float) -> None:
        """Set the number of the field and the slider."""
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
