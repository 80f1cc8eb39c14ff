"""A page element for one of a plan's numbers, with a slider, a field and a radio button."""

import math
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from nicegui.element import Element

from ...server.typed_numbers import plain_number, plain_points, plain_whole_number

_WHOLE = re.compile(r"-?\d{1,20}", re.ASCII)
_NUMBER = re.compile(r"-?\d+(\.\d*)?(E[-+]?\d{1,4})?", re.ASCII)  # as Decimal prints it


@dataclass(frozen=True)
class Scale:
    """A quantity's label, unit, slider range, whether it is whole, and whether it is in points or %."""

    label: str
    unit: str
    low: float
    high: float
    whole: bool = False
    percent: bool = False


class Quantity(Element, component="quantity.js"):
    """A slider over a scale's round numbers, and a field that accepts any number.

    Args:
        name: The quantity's name, which is part of the field's id.
        scale: The quantity's scale.
        start: The initial number.
        locale: The reader's locale tag, for the browser's Intl.
        on_number: Called with the result of number().
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

        def read(text: Any) -> float | None:
            return number(text, is_whole=scale.whole, is_percent=scale.percent)

        self.on("number", lambda event: on_number(read(event.args)), throttle=0.1)
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


def number(value: Any, *, is_whole: bool = False, is_percent: bool = False) -> float | None:
    """Return the number that a reader typed into a field, None for an empty field, or NaN for any other text.

    typedNumber() in quantity.js reads texts in the same way.

    Args:
        value: The text from the browser, such as 20k, 100,000 or 1e6.
        is_whole: Whether the number must be a whole number.
        is_percent: Whether the number is in points or %, so that the text may be ±3 or 5%.
    """
    text = value.strip() if isinstance(value, str) else repr(value)
    if not text or value is None:
        return None
    plain = plain_whole_number(text) if is_whole else plain_points(text) if is_percent else plain_number(text)
    return float(plain) if (_WHOLE if is_whole else _NUMBER).fullmatch(plain) else math.nan
