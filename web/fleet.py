"""The first view, with the findings of a store's experiments, their state, and problems."""

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
    ("Plan a question, and write its file", "hushmote plan"),
    ("Ask a fleet the question", "hushmote experiment add FILE --fleet NAME"),
    ("Count the boards' reports at a broker, such as Mosquitto", "hushmote serve --broker mqtt://HOST"),
)
Health = Literal["well", "unknown", "bad"]
_HEALTH: dict[Health, str] = {
    "well": "All is well.",
    "unknown": "Health: unknown.",
    "bad": "Something is wrong.",
}
_UNMONITORED = "The aggregator is not monitored; to monitor it, start the page with --aggregator URL."
_KEYED = "every report has a tag that only its device can make."
_OPEN = "it is open. Its reports have no tags, so anyone can forge reports."
_LIVE = (
    "This view changes with every commit. Anyone who watches a histogram change report by report can see "
    "individual reports, which are protected only by the ε of a report. The ε of a histogram covers whole "
    "windows that are seen once."
)


def register(page: Page) -> None:
    """Register the view's route."""

    @ui.page("/")
    def _(request: Request) -> None:
        with frame(page, "Answers", "/"):
            view = FleetView(page, reader(), period_in(request.url.query))
        page.live.follow(view.refresh)
        page.live.follow(view.show_budgets)


async def precompute(page: Page) -> None:
    """Compute the view's content before the first reader needs it."""
    with contextlib.suppress(HushmoteError):  # readers see the error
        for fleet in _chosen(await page.live.overview(), page.settings.fleet).fleets:
            for e in fleet.experiments:
                with contextlib.suppress(HushmoteError):
                    selection = await page.queries.in_period(Question(experiment=e.name, fleet=e.fleet))
                    await page.queries.finding(selection, Reader(Locale("en", "US")))


class FleetView:
    """One reader's view, with a status line and a tile for each experiment."""

    def __init__(self, page: Page, reader: Reader, period: str) -> None:
        """Build the view.

        Args:
            page: The page's context.
            reader: The reader's number and date formats.
            period: The period of all tiles, in the form that period.parse() returns.
        """
        self._page, self._reader, self._period = page, reader, period
        self._tiles: dict[tuple[str, str], Tile] = {}
        self._rejects: dict[str, ui.label] = {}
        self._shown_experiments: object = None
        self._overview: StoreOverview | None = None
        self._findings_shown = asyncio.Event()
        with ui.element("p").classes("health").props('id="health"'):
            self._health_mark = tag("span", "").classes("health-mark")
            self._health_text = tag("span", "…").props('id="reports"')
        self._control = PeriodControl(self._choose_period)
        self._control.element.visible = False
        with ui.element("div").classes("fleets") as self._fleets:
            skeleton(3)
        tag("p", _LIVE).classes("faint")

    async def refresh(self) -> None:
        """Show the store's current state; called after each commit."""
        page = self._page
        if not page.live.state.is_ready:
            self._health_text.text = ""
            if page.live.version and page.live.state.kind == "absent" and self._shown_experiments is None:
                self._fleets.clear()
                with self._fleets:
                    _steps()
            return
        store_overview = await page.live.overview()
        error = page.settings.missing_fleet_message([f.name for f in store_overview.fleets])
        store_overview = _chosen(store_overview, page.settings.fleet)
        experiments_to_show = (
            error,
            *((f.name, f.keyed, tuple(e.name for e in f.experiments)) for f in store_overview.fleets),
        )
        if experiments_to_show != self._shown_experiments:
            self._shown_experiments = experiments_to_show
            self._build(store_overview, error)
        self._overview = store_overview
        experiments = [e for fleet in store_overview.fleets for e in fleet.experiments]
        self._show_period(bool(experiments))
        for e in experiments:
            self._tiles[e.fleet, e.name].show(e, store_overview.minute.date())
        self._show_health(store_overview)
        await asyncio.gather(*map(self._show_finding, experiments))
        self._findings_shown.set()
        self._show_health(store_overview)
        await asyncio.gather(*(self._show_finding(e, series=True) for e in experiments))

    async def show_budgets(self) -> None:
        """Mark budgets that are nearly used up; this is separate because it reads all devices' rows."""
        page = self._page
        await self._findings_shown.wait()  # slow queries must not compete with the findings
        if page.live.state.is_ready:
            store_overview = _chosen(await page.live.overview(), page.settings.fleet)
            for fleet in store_overview.fleets:
                for budget in (await page.ledgers.read(fleet.name)).budget.experiments:
                    if (fleet.name, budget.name) in self._tiles:
                        self._tiles[fleet.name, budget.name].show_budget(budget.line)
            if self._overview is not None:  # the overview on display may be older
                self._show_health(self._overview)

    async def _choose_period(self, period: str) -> None:
        """Show all tiles for another period, and put the period in the URL."""
        self._period = period
        ui.navigate.history.replace(f"?{query_of(period)}" if period else "/")
        await self.refresh()

    def _show_period(self, has_tiles: bool) -> None:
        self._control.element.visible = has_tiles
        self._control.show(self._period)
        for tile in self._tiles.values():
            tile.link_to(self._period)

    async def _show_finding(self, e: ExperimentOverview, *, series: bool = False) -> None:
        queries, period = self._page.queries, self._period
        try:
            question = in_period(Question(experiment=e.name, fleet=e.fleet), period)
            selection = await queries.in_period(question)
            finding = await queries.finding(selection, self._reader, series=series)
        except NoReportsInPeriod:
            finding = f"No reports arrived {phrase_of(period, self._reader)}."
        except HushmoteError as error:
            finding = sentence(await self._page.live.error_message(error))
            if not finding:
                return
        if period == self._period:  # the reader may have changed it in the meantime
            self._tiles[e.fleet, e.name].show_findings(finding, series=series)

    def _build(self, store_overview: StoreOverview, error: str) -> None:
        self._tiles.clear()
        self._rejects.clear()
        self._fleets.clear()
        with self._fleets:
            if error:
                tag("p", sentence(error))
            elif not any(fleet.experiments for fleet in store_overview.fleets):
                _steps()
            with ui.element("ul").classes("cards"):
                for e in (e for fleet in store_overview.fleets for e in fleet.experiments):
                    self._tiles[e.fleet, e.name] = Tile(e, self._reader)
            for fleet in store_overview.fleets:
                tag("p", f"Fleet {fleet.name}: {_KEYED if fleet.keyed else _OPEN}").classes("fleet")
                self._rejects[fleet.name] = tag("p", "")

    def _show_health(self, store_overview: StoreOverview) -> None:
        aggregator, number = self._page.aggregator, partial(self._reader.number, digits=0)
        for fleet in store_overview.fleets:
            label = self._rejects[fleet.name]
            label.text = " ".join(reject.words(number) for reject in fleet.rejects)
            bad = any(not reject.harmless for reject in fleet.rejects)
            label.classes(**{"add" if bad else "remove": "warn"})
        problems = sum(tile.has_problem for tile in self._tiles.values())
        spent = sum(tile.is_nearly_spent for tile in self._tiles.values())
        bad = sum(any(not r.harmless for r in fleet.rejects) for fleet in store_overview.fleets)
        clock = store_overview.clock
        lines = [
            f"Nothing is counted with this clock: {clock}." if clock else "",
            f"{problems} of {len(self._tiles)} experiments need{'s' * (problems == 1)} attention."
            if problems
            else "",
            f"The budget of {counted(spent, 'experiment')} is spent or nearly spent." if spent else "",
            "" if aggregator.is_monitored else _UNMONITORED,
            aggregator.health.words if aggregator.health else "",
            *(reject.words(number) for reject in store_overview.rejects),
            "" if bad or store_overview.rejects else "No reports were rejected.",
        ]
        state: Health = "unknown" if aggregator.health is None else "well"
        if clock or problems or bad or store_overview.rejects or aggregator.problem:
            state = "bad"
        self._health_mark.text = _HEALTH[state]
        self._health_mark.classes(state, remove=" ".join(_HEALTH.keys() - {state}))
        self._health_text.text = (
            f"{number(store_overview.reports)} reports so far. {' '.join(filter(None, lines))}"
        )


def _chosen(store_overview: StoreOverview, fleet: str | None) -> StoreOverview:
    """Return the overview restricted to a fleet, or the whole overview if `fleet` is None."""
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
        for text, command in _STEPS:
            with ui.element("li"):
                tag("span", text)
                tag("code", command)
    with ui.element("p"):
        ui.link("Plan on this page", "/plan")
        tag("span", ", or try it without any hardware: ")
        ui.link("a board in this browser", "/board/")
        tag("span", ", or a simulated board: ")
        tag("code", "hushmote board")
