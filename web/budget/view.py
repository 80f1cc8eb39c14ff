"""The Budget view, which shows how many reports devices can still make and when they run out."""

import asyncio
from collections.abc import Iterable
from operator import attrgetter
from typing import Any

from nicegui import ui

from ...server.errors import HushmoteError
from ...server.words.numbers import counted
from .. import charts
from ..charts import COLOURS, chart, line, mark, over_days, table
from ..frame import details, frame, heading, sentence, skeleton, tag
from ..glossary import words
from ..in_locale import in_locale
from ..page import Page
from ..reader import Reader, reader
from .answer import HEADINGS, FleetBudgets
from .ledgers import Ledgers

_SYMBOLS = ("circle", "triangle", "diamond")  # more experiments repeat the colours with another symbol
MAX_LISTED = 24
"""The number of a fleet's experiments that are shown at the same time."""

_DEBOUNCE_MS = 300  # the pause in typing after which a search starts
_EMPTY = "This store has no fleet yet; create one with hushmote experiment add FILE."


def register(page: Page) -> None:
    """Register the view's route."""
    charts.register()

    @ui.page("/budget")
    def _() -> None:
        with frame(page, "Budget", "/budget"):
            ui.label("How many reports each fleet's devices can still make, and when they run out.")
            view = BudgetView(page, page.ledgers, reader())
            with details("Glossary"):
                words("ε (epsilon)", "What an ε means", "δ (delta)", "Local differential privacy (LDP)")
        page.live.follow(view.refresh)


class BudgetView:
    """One reader's view, with a section for each fleet."""

    def __init__(self, page: Page, ledgers: Ledgers, reader: Reader) -> None:
        self._page = page
        self._ledgers = ledgers
        self._reader = reader
        self._client = ui.context.client
        self._state = ui.label().props('role="status"')
        with ui.element("div") as self._fleets:
            self._waiting = skeleton(3)
        self._sections: dict[str, FleetSection] = {}

    async def refresh(self) -> None:
        """Update all sections; repeat this if a fleet's ledger could not be read again yet."""
        while not self._client.is_deleted:
            try:
                due_s = await self._show()
            except HushmoteError as e:
                # If the store cannot be read, the frame shows the error.
                self._waiting.set_visibility(False)
                self._state.set_text(sentence(str(e)) if self._page.live.state.is_ready else "")
                return
            if due_s is None:
                return
            await asyncio.sleep(max(0.05, due_s - asyncio.get_running_loop().time()))

    async def _show(self) -> float | None:
        """Show every fleet; return the time at which the first outdated ledger may be read again, or None."""
        names = await self._page.live.ask("fleet names", attrgetter("fleets"))
        names_to_show = [name for name in names if self._page.settings.fleet in (None, name)]
        if list(self._sections) != names_to_show:
            self._sections.clear()
            self._fleets.clear()
            with self._fleets:
                self._waiting = skeleton(3)
        self._state.set_text(
            "" if names_to_show else sentence(self._page.settings.missing_fleet_message(names) or _EMPTY)
        )
        due: list[float] = []
        for name in names_to_show:
            if name not in self._sections:
                self._state.set_text(f"Counting what the devices of {name} have sent ...")
            cached = await self._ledgers.read(name)
            with self._fleets:
                if name not in self._sections:
                    self._sections[name] = FleetSection(self._reader)
                self._sections[name].show(cached.budget)
            self._state.set_text("")
            if cached.version != self._page.live.version:
                due.append(cached.due_s)
        self._waiting.set_visibility(False)
        return min(due, default=None)


class FleetSection:
    """One fleet's table, its chart of reports a day, and a device's lifetime budget."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._budgets: FleetBudgets | None = None
        self._chart: ui.echart | None = None
        with ui.element("section").classes("budget"):
            self._title = heading("", 2)
            self._search = ui.input("Search names", on_change=self._show_experiments)
            self._search.props(f'type="search" dense debounce={_DEBOUNCE_MS}').visible = False
            self._count = tag("p", "").props('role="status"')
            self._table = ui.element("div")
            self._plot = ui.element("div")
            heading("A device's lifetime budget", 3)
            self._lifetime = ui.element("div")
            with details("What all of a device's reports for one experiment reveal") as self._promises:
                self._promise_lines = ui.element("div")

    def show(self, budget: FleetBudgets) -> None:
        """Show a fleet's budgets, unless they have not changed."""
        if budget == self._budgets:
            return
        self._budgets = budget
        self._title.set_text(self._localize(f"Fleet {budget.fleet}: {counted(budget.boards, 'device')}"))
        self._search.visible = len(budget.experiments) > MAX_LISTED
        self._fill(self._lifetime, budget.lifetime)
        self._show_experiments()

    def _show_experiments(self) -> None:
        """Show the experiments, or those that the reader searches and that run out first if they are many."""
        assert self._budgets is not None
        budget = self._budgets.select(self._search.value or "", MAX_LISTED)
        shown, total = len(budget.experiments), len(self._budgets.experiments)
        words = f"{shown:,} of {counted(total, 'experiment')}, those that run out first."
        if not shown:
            words = f"No experiment of {total:,} matches."
        self._count.set_text(self._localize(words) if total > MAX_LISTED else "")
        self._table.clear()
        with self._table:
            if budget.experiments:
                rows = [[e.name, *map(self._localize, e.cells)] for e in budget.experiments]
                table(f"Budgets of fleet {budget.fleet}", ("experiment", *HEADINGS), rows, stacked=True)
            elif not total:
                ui.label("This fleet has no experiments yet.")
            for text in budget.unreadable:
                ui.label(sentence(text)).classes("budget-sentence")
        self._draw(budget)
        self._fill(self._promise_lines, budget.promises)
        self._promises.set_visibility(bool(budget.promises))

    def _draw(self, budget: FleetBudgets) -> None:
        series: list[dict[str, Any]] = []
        for index, e in enumerate(budget.experiments):
            colour, symbol = COLOURS[index % len(COLOURS)], _SYMBOLS[index // len(COLOURS) % len(_SYMBOLS)]
            if e.counted:
                dots = {"showSymbol": True, "symbol": symbol, "symbolSize": 5}
                series.append(line(e.name, e.counted, colour) | dots)
            if e.forecast:
                series.append(line(e.name, e.forecast, colour) | {"lineStyle": {"type": "dashed"}})
        self._plot.set_visibility(bool(series))
        if not series:
            return
        series.append(mark(budget.today, "today"))
        if self._chart is None:  # ECharts needs the chart's size when it starts
            with self._plot:
                self._chart = chart({}, "")
        title = "reports a day; dashed: forecast"
        summary = " ".join(text for e in budget.experiments for text in e.sentences[:2])
        self._chart.options.clear()
        self._chart.options.update(over_days(title, series, self._reader.tag))
        self._chart.props["aria-label"] = self._localize(f"{title[0].upper()}{title[1:]}. {summary}")
        self._chart.update()

    def _localize(self, text: str) -> str:
        return in_locale(text, self._reader)

    def _fill(self, place: ui.element, texts: Iterable[str]) -> None:
        place.clear()
        with place:
            for text in texts:
                ui.label(self._localize(text)).classes("budget-sentence")
