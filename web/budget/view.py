"""The Budget view, which shows how many reports devices can still make and when they run out."""

import asyncio
from operator import attrgetter
from typing import Any

from nicegui import ui

from ...server.budgets.words import HEADINGS, cells
from ...server.errors import HushmoteError
from ...server.words.numbers import counted
from .. import charts
from ..charts import COLOURS, chart, line, over_days, table
from ..frame import frame, heading, sentence, skeleton
from ..glossary import words
from ..in_locale import in_locale
from ..page import Page
from ..reader import Reader, reader
from .answer import BudgetAnswer, FleetBudgets
from .ledgers import Ledgers

_EMPTY = "This store has no fleet yet; create one with hushmote experiment add FILE."


def register(page: Page) -> None:
    """Register the view's route."""
    charts.register()

    @ui.page("/budget")
    def _() -> None:
        with frame(page, "Budget", "/budget"):
            ui.label("How many reports each fleet's devices can still make, and when they run out.")
            view = BudgetView(page, page.ledgers, reader())
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
    """One fleet's sentences, chart of devices that can report, table, and chart of reports a day."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._budgets: FleetBudgets | None = None
        with ui.element("section").classes("budget"):
            self._title = heading("", 2)
            self._sentences = ui.element("div")
            self._able = chart({}, "Devices that can still report")
            self._table = ui.element("div")
            self._reports = chart({}, "Reports a day")
            heading("A device's lifetime budget", 3)
            self._lifetime = ui.element("div")

    def show(self, budget: FleetBudgets) -> None:
        """Show a fleet's budgets, unless they have not changed."""
        if budget == self._budgets:
            return
        self._budgets = budget
        self._title.set_text(self._localize(f"Fleet {budget.fleet}: {counted(budget.boards, 'device')}"))
        self._sentences.clear()
        with self._sentences:
            if not budget.experiments:
                ui.label("This fleet has no experiments yet.")
            for e in budget.experiments:
                heading(e.name, 3)
                for index, text in enumerate(e.sentences):
                    ui.label(self._localize(text)).classes("" if index else "budget-first")
        self._draw(budget)
        self._table.clear()
        with self._table:
            rows = [self._row(e) for e in budget.experiments]
            table(f"Budgets of fleet {budget.fleet}", ("experiment", *HEADINGS), rows, stacked=True)
        self._lifetime.clear()
        with self._lifetime:
            for text in budget.lifetime:
                ui.label(self._localize(text)).classes("budget-sentence")
            for e in budget.experiments:
                ui.label(self._localize(f"{e.name} alone: {e.promise}")).classes("budget-sentence")

    def _row(self, e: BudgetAnswer) -> list[str]:
        return [e.name, *map(self._localize, cells(e.line))]

    def _draw(self, budget: FleetBudgets) -> None:
        reports: list[dict[str, Any]] = []
        able_lines: list[dict[str, Any]] = []
        for index, e in enumerate(budget.experiments):
            colour = COLOURS[index % len(COLOURS)]
            dots = {"type": "scatter", "symbolSize": 5, "name": e.name}
            reports.append(dots | {"data": [list(p) for p in e.counted], "color": colour})
            if e.forecast:
                reports.append(line(e.name, e.forecast, colour))
                able_lines.append(line(e.name, e.able_percent, colour) | {"areaStyle": {"opacity": 0.25}})
        first = " ".join(e.sentences[0] for e in budget.experiments)
        second = " ".join(text for e in budget.experiments for text in e.sentences[1:2])
        title = "reports a day (dots: counted, lines: forecast)"
        self._fill(self._reports, title, "", reports, first)
        self._fill(
            self._able, "devices that can report, today and forecast", "%", able_lines, second, max=100
        )

    def _fill(
        self, plot: ui.echart, name: str, unit: str, series: list[dict[str, Any]], summary: str, **more: Any
    ) -> None:
        plot.set_visibility(any(s["data"] for s in series))
        plot.options.clear()
        plot.options.update(over_days(name, series, self._reader.tag, unit, **more))
        plot.props["aria-label"] = self._localize(f"{name[0].upper()}{name[1:]}. {summary}")
        plot.update()

    def _localize(self, text: str) -> str:
        return in_locale(text, self._reader)
