"""The control that chooses the period of a view, the same in every view."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from nicegui import ui

from .frame import tag
from .period import EXPLICIT, NAMES, first_and_last, parse

_CUSTOM = "custom"
_EARLIEST = "2000"  # while a year is being typed it is 0002, 0020, 0202


class PeriodControl:
    """Buttons for periods, and two fields for the first and the last day of another."""

    def __init__(self, choose: Callable[[str], Awaitable[None]]) -> None:
        """Make the control.

        Args:
            choose: Called with the chosen period, as parse() returns it.
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
        field.on("change", self._take_days)
        return field

    async def _press(self, period: str) -> None:
        self._error.text = ""
        await self._choose(period)

    def _open(self) -> None:
        self._show_days(not self._days.visible)

    def _show_days(self, are_visible: bool) -> None:
        self._days.visible = are_visible
        self._buttons[EXPLICIT].props(f'aria-expanded="{str(are_visible).lower()}"')

    async def _take_days(self) -> None:
        first, final = self._first.value, self._last.value
        if not (first and final) or min(first, final) < _EARLIEST:
            return
        period = parse(f"{first}..{final}")
        self._error.text = "" if period else "The first day must not be after the last one."
        if period:
            await self._choose(period)

    def show(self, period: str, windows: Sequence[str] = ()) -> None:
        """Show the chosen period.

        Args:
            period: As parse() returns it, or EXPLICIT.
            windows: The windows that are shown, oldest first; the day fields show the first and the last.
        """
        if (period, windows) == self._state:  # keep what is being typed
            return
        self._state = period, windows
        days = first_and_last(period)
        current = EXPLICIT if days else period
        for one, button in self._buttons.items():
            button.props(f'aria-pressed="{str(one == current).lower()}"')
        if current == EXPLICIT:
            self._show_days(True)
        else:
            self._show_days(False)
        if days or windows:
            first, final = map(str, days) if days else (windows[0][:10], windows[-1][:10])
            if parse(f"{first}..{final}"):
                self._first.value, self._last.value = first, final
