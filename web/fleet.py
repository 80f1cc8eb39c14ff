"""The first view: the findings of a store's experiments, their state, and problems."""

import asyncio
import contextlib
from functools import partial
from typing import Literal

from babel import Locale
from fastapi import Request
from nicegui import ui

from ..server.answers.question import Question
from ..server.errors import HushmoteError
from ..server.overview.fleets import ExperimentOverview, StoreOverview
from ..server.words.numbers import counted
from .experiment.queries import NoReportsInPeriod
from .frame import frame, heading, sentence, skeleton, tag
from .page import Page
from .period import in_period, period_in, phrase_of, query_of
from .period_control import PeriodControl
from .reader import Reader, reader
from .tile import Tile

_STEPS = (
    ("Plan a question, which makes its file", "hushmote plan"),
    ("Ask it of a fleet", "hushmote experiment add FILE --fleet NAME"),
    ("Count what boards send to a broker, such as Mosquitto", "hushmote serve --broker mqtt://HOST"),
)
Health = Literal["well", "unknown", "bad"]
_HEALTH: dict[Health, str] = {
    "well": "All is well.",
    "unknown": "Health: unknown.",
    "bad": "Something is wrong.",
}
_UNMONITORED = "Nothing monitors the aggregator: start the page with --aggregator URL."
_TAGGED = "every report has a tag that only its own device can make."
_OPEN = "it is open. Its reports have no tags, so anyone can forge some."
_LIVE = (
    "What you see changes with every commit. Someone who watches a histogram change report by report learns "
    "single reports: against them only the ε of a report holds. The ε of a histogram is for whole windows, "
    "each seen once."
)


def register(page: Page) -> None:
    """Register the view's route."""

    @ui.page("/")
    def _(request: Request) -> None:
        with frame(page, "Answers", "/"):
            view = FleetView(page, reader(), period_in(request.url.query))
        page.live.follow(view.refresh)
        page.live.follow(view.spend)


async def work_out(page: Page) -> None:
    """Compute the view's content, so that the first reader after a start does not wait for it."""
    with contextlib.suppress(HushmoteError):  # readers see the error
        for fleet in _chosen(await page.live.overview(), page.settings.fleet).fleets:
            for e in fleet.experiments:
                with contextlib.suppress(HushmoteError):
                    selection = await page.asking.in_period(Question(experiment=e.name, fleet=e.fleet))
                    await page.asking.finding(selection, Reader(Locale("en", "US")))


class FleetView:
    """One reader's view: a status line, and a tile for each experiment."""

    def __init__(self, page: Page, reader: Reader, period: str) -> None:
        """Make the view.

        Args:
            page: The page's settings and its live store.
            reader: The reader's formats of numbers and days.
            period: The period of all tiles, as period.parse() returns it.
        """
        self._page, self._reader, self._period = page, reader, period
        self._tiles: dict[tuple[str, str], Tile] = {}
        self._rejects: dict[str, ui.label] = {}
        self._there: object = None
        self._overview: StoreOverview | None = None
        self._findings_shown = asyncio.Event()
        with ui.element("p").classes("health").props('id="health"'):
            self._well = tag("span", "").classes("health-mark")
            self._health = tag("span", "…").props('id="reports"')
        self._control = PeriodControl(self._choose_period)
        self._control.element.visible = False
        with ui.element("div").classes("fleets") as self._fleets:
            skeleton(3)
        tag("p", _LIVE).classes("faint")

    async def refresh(self) -> None:
        """Show the store's present state; called after each commit."""
        page = self._page
        if not page.live.state.ready:
            self._health.text = ""
            if page.live.version and page.live.state.kind == "absent" and self._there is None:
                self._fleets.clear()
                with self._fleets:
                    _steps()
            return
        store_overview = await page.live.overview()
        absent = page.settings.absent([f.name for f in store_overview.fleets])
        store_overview = _chosen(store_overview, page.settings.fleet)
        there = (
            absent,
            *((f.name, f.keyed, tuple(e.name for e in f.experiments)) for f in store_overview.fleets),
        )
        if there != self._there:
            self._there = there
            self._build(store_overview, absent)
        self._overview = store_overview
        experiments = [e for fleet in store_overview.fleets for e in fleet.experiments]
        self._show_period(bool(experiments))
        for e in experiments:
            self._tiles[e.fleet, e.name].show(e, store_overview.minute.date())
        self._say_health(store_overview)
        await asyncio.gather(*map(self._find, experiments))
        self._findings_shown.set()
        self._say_health(store_overview)
        await asyncio.gather(*(self._find(e, series=True) for e in experiments))

    async def spend(self) -> None:
        """Mark budgets that are nearly used up; separate, because it reads all devices' rows."""
        page = self._page
        await self._findings_shown.wait()  # findings first: slow queries must not compete with them
        if page.live.state.ready:
            store_overview = _chosen(await page.live.overview(), page.settings.fleet)
            for fleet in store_overview.fleets:
                for budget in (await page.ledgers.read(fleet.name)).budget.experiments:
                    if (fleet.name, budget.name) in self._tiles:
                        self._tiles[fleet.name, budget.name].spend(budget.line)
            if self._overview is not None:  # the overview on display may be older
                self._say_health(self._overview)

    async def _choose_period(self, period: str) -> None:
        """Show all tiles for another period, and put it in the address."""
        self._period = period
        ui.navigate.history.replace(f"?{query_of(period)}" if period else "/")
        await self.refresh()

    def _show_period(self, has_tiles: bool) -> None:
        self._control.element.visible = has_tiles
        self._control.show(self._period)
        for tile in self._tiles.values():
            tile.link_to(self._period)

    async def _find(self, e: ExperimentOverview, *, series: bool = False) -> None:
        asking, period = self._page.asking, self._period
        try:
            question = in_period(Question(experiment=e.name, fleet=e.fleet), period)
            selection = await asking.in_period(question)
            finding = await asking.finding(selection, self._reader, series=series)
        except NoReportsInPeriod:
            finding = f"No report came {phrase_of(period, self._reader)}."
        except HushmoteError as error:
            finding = sentence(await self._page.live.error_message(error))
            if not finding:
                return
        if period == self._period:  # the reader may have changed it in the meantime
            self._tiles[e.fleet, e.name].find(finding, series=series)

    def _build(self, store_overview: StoreOverview, absent: str) -> None:
        self._tiles.clear()
        self._rejects.clear()
        self._fleets.clear()
        with self._fleets:
            if absent:
                tag("p", sentence(absent))
            elif not any(fleet.experiments for fleet in store_overview.fleets):
                _steps()
            with ui.element("ul").classes("cards"):
                for e in (e for fleet in store_overview.fleets for e in fleet.experiments):
                    self._tiles[e.fleet, e.name] = Tile(e, self._reader)
            for fleet in store_overview.fleets:
                tag("p", f"Fleet {fleet.name}: {_TAGGED if fleet.keyed else _OPEN}").classes("fleet")
                self._rejects[fleet.name] = tag("p", "")

    def _say_health(self, store_overview: StoreOverview) -> None:
        aggregator, number = self._page.aggregator, partial(self._reader.number, digits=0)
        for fleet in store_overview.fleets:
            label = self._rejects[fleet.name]
            label.text = " ".join(one.words(number) for one in fleet.rejects)
            bad = any(not one.harmless for one in fleet.rejects)
            label.classes(**{"add" if bad else "remove": "warn"})
        marked = sum(tile.marked for tile in self._tiles.values())
        spent = sum(tile.spent for tile in self._tiles.values())
        bad = sum(any(not r.harmless for r in fleet.rejects) for fleet in store_overview.fleets)
        lines = [
            f"{marked} of {len(self._tiles)} experiments need{'s' * (marked == 1)} a look." if marked else "",
            f"The budget of {counted(spent, 'experiment')} is spent, or nearly." if spent else "",
            "" if aggregator.is_monitored else _UNMONITORED,
            aggregator.health.words if aggregator.health else "",
            *(one.words(number) for one in store_overview.rejects),
            "" if bad or store_overview.rejects else "No reports were rejected.",
        ]
        state: Health = "unknown" if aggregator.health is None else "well"
        if marked or bad or store_overview.rejects or aggregator.problem:
            state = "bad"
        self._well.text = _HEALTH[state]
        self._well.classes(state, remove=" ".join(_HEALTH.keys() - {state}))
        self._health.text = (
            f"{number(store_overview.reports)} reports so far. {' '.join(filter(None, lines))}"
        )


def _chosen(store_overview: StoreOverview, fleet: str | None) -> StoreOverview:
    """Return the overview of the one fleet that the page shows, or of all."""
    if fleet is None:
        return store_overview
    return StoreOverview(
        tuple(f for f in store_overview.fleets if f.name == fleet),
        (),
        store_overview.minute,
        clock=store_overview.clock,
    )


def _steps() -> None:
    heading("Three steps to a first answer", 2)
    with ui.element("ol").classes("steps"):
        for words, command in _STEPS:
            with ui.element("li"):
                tag("span", words)
                tag("code", command)
    with ui.element("p"):
        ui.link("Plan on this page", "/plan")
        tag("span", ", or try it without any hardware: ")
        ui.link("a board in this browser", "/board/")
        tag("span", ", or one in software: ")
        tag("code", "hushmote board")
