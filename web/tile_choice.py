"""The controls that choose which of many tiles to show: a search, a fleet, warnings and a page."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from urllib.parse import parse_qsl, urlencode

from nicegui import ui

from ..server.overview.fleets import ExperimentOverview
from ..server.overview.search import matches
from ..server.words.numbers import counted
from .frame import tag
from .reader import Reader

PAGE_SIZE = 24
"""The number of tiles on a page; a browser draws them within a second."""

_ALL = "All fleets"
_MAX_LETTERS = 200
_DEBOUNCE_MS = 300  # the pause in typing after which a search starts


@dataclass(frozen=True)
class TileChoice:
    """A reader's choice of tiles.

    Attributes:
        search: Words in the name, purpose or owner.
        fleet: A fleet's name, or "" for all.
        warned: Whether to show only tiles with a warning.
        page: The page, from 1.
    """

    search: str = ""
    fleet: str = ""
    warned: bool = False
    page: int = 1

    def query(self) -> str:
        """Return the URL query that names this choice; "" for the default."""
        values = {"search": self.search, "fleet": self.fleet, "warned": "yes" if self.warned else ""}
        values["page"] = str(self.page) if self.page > 1 else ""
        return urlencode({name: value for name, value in values.items() if value})

    def select(
        self, experiments: Iterable[ExperimentOverview], is_warned: Callable[[ExperimentOverview], bool]
    ) -> list[ExperimentOverview]:
        """Return the matching experiments of all pages."""
        return [
            e
            for e in experiments
            if self.fleet in ("", e.fleet)
            and (is_warned(e) or not self.warned)
            and matches(self.search, e.name, e.purpose, e.owner)
        ]


def choice_in(query: str) -> TileChoice:
    """Return the choice in a URL's query; invalid parts of it are ignored."""
    values = dict(parse_qsl(query))
    page = values.get("page", "")
    return TileChoice(
        values.get("search", "")[:_MAX_LETTERS],
        values.get("fleet", ""),
        values.get("warned") == "yes",
        max(1, int(page)) if page.isascii() and page.isdigit() and len(page) < 6 else 1,
    )


class TileControls:
    """The controls, which are visible if there are more tiles than fit on a page."""

    def __init__(self, reader: Reader, choice: TileChoice, choose: Callable[[], Awaitable[None]]) -> None:
        """Make the controls.

        Args:
            reader: The reader's number format.
            choice: The first choice.
            choose: Called after each change of `choice`.
        """
        self.choice = choice
        self._reader, self._choose = reader, choose
        self._fleets: Sequence[str] = ()
        with ui.element("div").classes("tile-controls").props('role="search"') as self._element:
            self._search = ui.input("Search names, purposes and owners", value=choice.search)
            self._search.props(f'type="search" dense maxlength={_MAX_LETTERS} debounce={_DEBOUNCE_MS}')
            self._search.on_value_change(lambda e: self._change(search=e.value or ""))
            self._fleet = ui.select({"": _ALL}, label="Fleet", value="").props("dense")
            self._fleet.on_value_change(lambda e: self._change(fleet=e.value or ""))
            self._warned = ui.checkbox("Only those with a warning", value=choice.warned)
            self._warned.on_value_change(lambda e: self._change(warned=bool(e.value)))
        with ui.element("div").classes("tile-pages") as self._pages:
            self._text = tag("p", "").props('role="status"')
            with ui.element("div").classes("presets").props('role="group" aria-label="Pages"'):
                self._previous = self._button("Previous", -1)
                self._next = self._button("Next", 1)
        self._element.visible = self._pages.visible = False

    def _button(self, words: str, step: int) -> ui.label:
        return tag("button", words).props('type="button"').on("click", partial(self._turn, step))

    async def _turn(self, step: int) -> None:
        self.choice = replace(self.choice, page=max(1, self.choice.page + step))
        await self._choose()

    async def _change(self, **values: str | bool) -> None:
        choice = replace(self.choice, **values, page=1)
        if choice != replace(self.choice, page=1):
            self.choice = choice
            await self._choose()

    def select(
        self,
        experiments: Sequence[ExperimentOverview],
        fleets: Sequence[str],
        is_warned: Callable[[ExperimentOverview], bool],
    ) -> list[ExperimentOverview]:
        """Update the controls, and return the experiments on the chosen page.

        Args:
            experiments: All experiments.
            fleets: The names of all fleets.
            is_warned: Whether an experiment's tile has a warning.
        """
        if len(experiments) <= PAGE_SIZE:
            self._element.visible = self._pages.visible = False
            return list(experiments)
        if fleets != self._fleets:
            self._fleets = fleets
            names = (*fleets, *filter(None, [self.choice.fleet]))  # a link may name a missing fleet
            self._fleet.set_options({"": _ALL} | {name: name for name in names}, value=self.choice.fleet)
            self._fleet.visible = len(fleets) > 1
        selected = self.choice.select(experiments, is_warned)
        last = max(1, -(-len(selected) // PAGE_SIZE))
        self.choice = replace(self.choice, page=min(self.choice.page, last))
        first = (self.choice.page - 1) * PAGE_SIZE
        on_page = selected[first : first + PAGE_SIZE]
        self._text.text = self._words(len(experiments), len(selected), first, len(on_page))
        self._enable(self._previous, first > 0)
        self._enable(self._next, self.choice.page < last)
        self._element.visible = self._pages.visible = True
        return on_page

    def _enable(self, button: ui.label, is_enabled: bool) -> None:
        button.props(remove="disabled") if is_enabled else button.props("disabled")

    def _words(self, total: int, selected: int, first: int, count: int) -> str:
        def number(n: int) -> str:
            return self._reader.number(n, 0)

        if not count:
            return f"No experiment of {number(total)} matches."
        of = counted(total, "experiment", self._reader)
        of = f"{number(selected)} matching of {of}" if selected < total else of
        return f"{number(first + 1)} to {number(first + count)} of {of}."
