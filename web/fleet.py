"""The first view, with the findings of a store's experiments, their state, and problems."""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

from babel import Locale
from fastapi import Request
from nicegui import ui

from ..server.answers.question import Question
from ..server.budgets.remaining import Remaining
from ..server.budgets.words import warning
from ..server.errors import HushmoteError
from ..server.overview.fleets import ExperimentOverview, FleetOverview, StoreOverview
from ..server.words.numbers import counted
from .experiment.queries import NoReportsInPeriod
from .frame import frame, heading, sentence, set_age, set_query, skeleton, tag
from .page import Page
from .period import in_period, period_in, phrase_of, query_of
from .period_control import PeriodControl
from .reader import Reader, reader
from .tile import Tile
from .tile_choice import PAGE_SIZE, TileChoice, TileControls, choice_in

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
_MAX_FLEETS = 20  # of which no tile is shown
_MAX_UNREADABLE = 5  # experiments
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
            query = request.url.query
            view = FleetView(page, reader(), period_in(query), choice_in(query))
        page.live.follow(view.refresh)
        page.live.follow(view.show_checks)
        page.live.follow(view.show_budgets)


async def precompute(page: Page) -> None:
    """Compute the view's content before the first reader needs it."""
    with contextlib.suppress(HushmoteError):  # readers see the error
        for e in _chosen(await page.live.overview(), page.settings.fleet).experiments[:PAGE_SIZE]:
            with contextlib.suppress(HushmoteError):
                selection = await page.queries.in_period(Question(experiment=e.name, fleet=e.fleet))
                await page.queries.finding(selection, Reader(Locale("en", "US")))
        await page.live.checked_overview()


class FleetView:
    """One reader's view, with a status line and a tile for each experiment on the reader's page of tiles."""

    def __init__(self, page: Page, reader: Reader, period: str, choice: TileChoice | None = None) -> None:
        """Build the view.

        Args:
            page: The page's context.
            reader: The reader's number and date formats.
            period: The period of all tiles, in the form that period.parse() returns.
            choice: The tiles to show if there are many; None for the first page.
        """
        self._page, self._reader, self._period = page, reader, period
        self._tiles: dict[tuple[str, str], Tile] = {}
        self._budgets: dict[tuple[str, str], Remaining] = {}
        self._rejects: dict[str, ui.label] = {}
        self._shown_experiments: object = None
        self._overview: StoreOverview | None = None
        self._error = ""  # that the chosen fleet is missing
        self._findings_shown = asyncio.Event()
        with ui.element("p").classes("health").props('id="health"'):
            self._health_mark = tag("span", "").classes("health-mark")
            self._health_text = tag("span", "…").props('id="reports"')
            self._counting_age = tag("span", "").props('id="counting"')
        self._control = PeriodControl(self._choose_period)
        self._control.element.visible = False
        self._tile_controls = TileControls(reader, choice or TileChoice(), self._choose_tiles)
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
        experiments = self._show_overview(store_overview)
        await asyncio.gather(*map(self._show_finding, experiments))
        self._findings_shown.set()
        await self._show_series(experiments)

    async def show_checks(self) -> None:
        """Show whether histograms are plausible; this is separate because it may last several commits."""
        live = self._page.live
        await self._findings_shown.wait()
        if live.state.is_ready and not (await live.overview()).is_checked:
            version, checked = live.version, await live.checked_overview()
            if version == live.version:  # otherwise this is called again, and most checks are done
                await self._show_series(self._show_overview(checked))

    def _show_overview(self, store_overview: StoreOverview) -> list[ExperimentOverview]:
        """Show an overview; return the experiments whose tiles are shown."""
        settings = self._page.settings
        self._error = settings.missing_fleet_message([f.name for f in store_overview.fleets])
        store_overview = _chosen(store_overview, settings.fleet)
        self._overview = store_overview
        return self._show_tiles(store_overview)

    def _show_tiles(self, store_overview: StoreOverview) -> list[ExperimentOverview]:
        names = tuple(fleet.name for fleet in store_overview.fleets)
        experiments = self._tile_controls.select(store_overview.experiments, names, self._is_warned)
        fleets = self._fleets_to_show(store_overview, {e.fleet for e in experiments})
        experiments_to_show = (
            self._error,
            tuple((f.name, f.keyed) for f in fleets),
            tuple((e.fleet, e.name) for e in experiments),
        )
        if experiments_to_show != self._shown_experiments:
            self._shown_experiments = experiments_to_show
            self._build(fleets, experiments, self._error, has_any=bool(store_overview.experiments))
        self._show_period(bool(store_overview.experiments))
        for e in experiments:
            self._tiles[e.fleet, e.name].show(e)
        self._show_health(store_overview)
        return experiments

    def _fleets_to_show(self, store_overview: StoreOverview, shown: Collection[str]) -> list[FleetOverview]:
        """Return the fleets with tiles, followed by the others unless they are many and well."""
        fleets = store_overview.fleets
        others = [f for f in fleets if f.name not in shown]
        if len(fleets) > _MAX_FLEETS:
            others = [f for f in others if any(not r.harmless for r in f.rejects)][:_MAX_FLEETS]
        return [*(f for f in fleets if f.name in shown), *others]

    def _is_warned(self, e: ExperimentOverview) -> bool:
        return bool(e.problems()) or self._is_nearly_spent(e)

    def _is_nearly_spent(self, e: ExperimentOverview) -> bool:
        line = self._budgets.get((e.fleet, e.name))
        return line is not None and bool(warning(line, self._reader))

    async def show_budgets(self) -> None:
        """Mark budgets that are nearly used up; this is separate because it reads all devices' rows."""
        page = self._page
        await self._findings_shown.wait()  # slow queries must not compete with the findings
        if page.live.state.is_ready:
            store_overview = _chosen(await page.live.overview(), page.settings.fleet)
            for fleet in store_overview.fleets:
                for budget in (await page.ledgers.read(fleet.name)).budget.experiments:
                    self._budgets[fleet.name, budget.name] = budget.line
                    if (fleet.name, budget.name) in self._tiles:
                        self._tiles[fleet.name, budget.name].show_budget(budget.line)
            if self._overview is not None:  # the overview on display may be older
                await self._show_series(self._show_tiles(self._overview))

    async def _choose_period(self, period: str) -> None:
        """Show all tiles for another period, and put the period in the URL."""
        self._period = period
        self._show_in_url()
        await self.refresh()

    async def _choose_tiles(self) -> None:
        """Show the chosen tiles, and put the choice in the URL."""
        if self._overview is None:  # the first overview is still being read, and will be shown as chosen
            return
        experiments = self._show_tiles(self._overview)
        self._show_in_url()
        await asyncio.gather(*map(self._show_finding, experiments))
        await self._show_series(experiments)

    def _show_in_url(self) -> None:
        query = "&".join(filter(None, [query_of(self._period), self._tile_controls.choice.query()]))
        set_query(query)

    def _show_period(self, has_tiles: bool) -> None:
        self._control.element.visible = has_tiles
        self._control.show(self._period)
        for tile in self._tiles.values():
            tile.link_to(self._period)

    async def _show_series(self, experiments: Iterable[ExperimentOverview]) -> None:
        await asyncio.gather(*(self._show_finding(e, series=True) for e in experiments))

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
        tile = self._tiles.get((e.fleet, e.name))
        if period == self._period and tile is not None:  # the reader may have changed them in the meantime
            tile.show_findings(finding, series=series)

    def _build(
        self,
        fleets: Sequence[FleetOverview],
        experiments: Sequence[ExperimentOverview],
        error: str,
        *,
        has_any: bool,
    ) -> None:
        self._tiles.clear()
        self._rejects.clear()
        self._fleets.clear()
        with self._fleets:
            if error:
                tag("p", sentence(error))
            elif not has_any:
                _steps()
            for fleet in fleets:
                tag("h2", f"Fleet {fleet.name}: {_KEYED if fleet.keyed else _OPEN}").classes("fleet")
                self._rejects[fleet.name] = tag("p", "")
                with ui.element("ul").classes("cards"):
                    for e in (e for e in experiments if e.fleet == fleet.name):
                        tile = self._tiles[e.fleet, e.name] = Tile(e, self._reader)
                        if (e.fleet, e.name) in self._budgets:
                            tile.show_budget(self._budgets[e.fleet, e.name])

    def _show_health(self, store_overview: StoreOverview) -> None:
        aggregator, number = self._page.aggregator, partial(self._reader.number, digits=0)
        for fleet in store_overview.fleets:
            if fleet.name in self._rejects:
                label = self._rejects[fleet.name]
                label.text = " ".join(reject.words(number) for reject in fleet.rejects)
                bad = any(not reject.harmless for reject in fleet.rejects)
                label.classes(**{"add" if bad else "remove": "warn"})
        experiments = store_overview.experiments
        problems = sum(bool(e.problems()) for e in experiments)
        spent = sum(map(self._is_nearly_spent, experiments))
        bad = sum(any(not r.harmless for r in fleet.rejects) for fleet in store_overview.fleets)
        clock = store_overview.clock
        lines = [
            f"Nothing is counted with this clock: {clock}." if clock else "",
            *(sentence(e.words) for e in store_overview.unreadable[:_MAX_UNREADABLE]),
            _attention(problems, len(experiments), number),
            f"The budget of {counted(spent, 'experiment', self._reader)} is spent or nearly spent."
            if spent
            else "",
            "" if aggregator.is_monitored else _UNMONITORED,
            aggregator.health.words if aggregator.health else "",
            *(reject.words(number) for reject in store_overview.rejects),
            "" if bad or store_overview.rejects else "No reports were rejected.",
        ]
        state: Health = "unknown" if aggregator.health is None or not store_overview.is_checked else "well"
        is_bad = bool(clock or problems or bad or store_overview.rejects or store_overview.unreadable)
        needs_attention = aggregator.health is not None and aggregator.health.needs_attention
        if is_bad or aggregator.problem or needs_attention:
            state = "bad"
        self._health_mark.text = _HEALTH[state]
        self._health_mark.classes(state, remove=" ".join(_HEALTH.keys() - {state}))
        set_age(self._counting_age, "Counting last worked {}.", store_overview.counting_at)
        reports = counted(store_overview.reports, "report", self._reader)
        self._health_text.text = f"{reports} so far. {' '.join(filter(None, lines))}"


def _attention(problems: int, total: int, number: Callable[[int], str]) -> str:
    need, noun = "needs" if problems == 1 else "need", "experiment" if total == 1 else "experiments"
    return f"{number(problems)} of {number(total)} {noun} {need} attention." if problems else ""


def _chosen(store_overview: StoreOverview, fleet: str | None) -> StoreOverview:
    """Return the overview restricted to a fleet, or the whole overview if `fleet` is None."""
    if fleet is None:
        return store_overview
    return replace(
        store_overview,
        fleets=tuple(f for f in store_overview.fleets if f.name == fleet),
        rejects=(),
        unreadable=tuple(e for e in store_overview.unreadable if e.fleet == fleet),
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
