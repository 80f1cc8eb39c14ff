"""The control for choosing a view's period."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from nicegui import ui

from .frame import tag
from .period import EXPLICIT, NAMES, first_and_last, parse

_CUSTOM = "custom"
_EARLIEST = "2000"  # ignores incomplete years, since a year being typed is 0002, then 0020, then 0202


class PeriodControl:
    """Buttons for common periods, and two fields for the first and the last day of a custom one."""

    def __init__(self, choose: Callable[[str], Awaitable[None]]) -> None:
        """Make the control.

        Args:
            choose: Called with the chosen period, in the form that parse() returns.
        """
        self._choose = choose
        self._buttons: dict[str, ui.label] = {}
        with ui.element("div").classes("period") as self.element:
            with ui.element("div").classes("presets").props('role="group" aria-label="Period"'):
                for period, words in NAMES.items():
                    self._button(period, words).on("click", partial(self._press, period))
                custom = self._button(EXPLICIT, _CUSTOM).props('aria-expanded="false"')
                custom.on("click", self._open)
            with ui.element("div").classes("period-days") as self._days:
                self._first, self._last = (self._field(words) for words in ("First day", "Last day"))
                self._error = tag("p", "").classes("period-error").props('role="alert"')
        self._days.visible = False
        self._state: object = None

    def _button(self, period: str, words: str) -> ui.label:
        button = tag("button", words).props('type="button" aria-pressed="false"')
        self._buttons[period] = button
        return button

    def _field(self, words: str) -> ui.input:
        field = ui.input(words).props('type="date" dense stack-label hide-bottom-space')
        field.on("change", self._choose_days)
        return field

    async def _press(self, period: str) -> None:
        self._error.text = ""
        await self._choose(period)

    def _open(self) -> None:
        self._show_days(not self._days.visible)

    def _show_days(self, are_visible: bool) -> None:
        self._days.visible = are_visible
        self._buttons[EXPLICIT].props(f'aria-expanded="{str(are_visible).lower()}"')

    async def _choose_days(self) -> None:
        first, last = self._first.value, self._last.value
        if not (first and last) or min(first, last) < _EARLIEST:
            return
        period = parse(f"{first}..{last}")
        self._error.text = "" if period else "The first day must not be after the last one."
        if period:
            await self._choose(period)

    def show(self, period: str, windows: Sequence[str] = ()) -> None:
        """Show the chosen period.

        Args:
            period: The period, in the form that parse() returns, or EXPLICIT.
            windows: The windows on display, oldest first; the day fields show the first and the last.
        """
        if (period, windows) == self._state:  # keep what the reader is typing
            return
        self._state = period, windows
        days = first_and_last(period)
        current = EXPLICIT if days else period
        for button_period, button in self._buttons.items():
            button.props(f'aria-pressed="{str(button_period == current).lower()}"')
        self._show_days(current == EXPLICIT)
        if days or windows:
            first, last = map(str, days) if days else (windows[0][:10], windows[-1][:10])
            if parse(f"{first}..{last}"):
                self._first.value, self._last.value = first, last
