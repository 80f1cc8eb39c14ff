"""The first view: a store's fleets, what they are asked, what came, and what is wrong."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote

from nicegui import ui

from ..server.overview.fleets import ExperimentOverview, FleetOverview, StoreOverview, state_words
from ..server.overview.rejects import Rejected
from .frame import frame, heading, sentence, skeleton, tag
from .page import Page
from .reader import Reader, reader

_EMPTY = "This store has no fleet yet. `hushmote experiment add FILE --fleet NAME` adds one."
_LIVE = (
    "What you see changes with every commit. Who watches a histogram change report by report learns "
    "single reports: then only the ε of a report holds. The ε of a histogram is for whole windows that are "
    "seen once."
)


def register(page: Page) -> None:
    """Put the view on its route."""

    @ui.page("/")
    def _() -> None:
        shown = _Shown(reader())
        with frame(page, "Fleets", "/"):
            shown.place()

        async def refresh() -> None:
            if page.live.state.ready:
                seen = await page.live.overview()
                absent = page.settings.absent([f.name for f in seen.fleets])
                shown.show(_chosen(seen, page.settings.fleet), absent)
            else:
                shown.show(None)
            shown.health(page)

        page.live.follow(refresh)


def _chosen(seen: StoreOverview, fleet: str | None) -> StoreOverview:
    """The overview of the one fleet that the page shows, or of all."""
    if fleet is None:
        return seen
    return StoreOverview(tuple(f for f in seen.fleets if f.name == fleet), (), seen.day)


class _Shown:
    """The view's elements; texts change in place, so that nothing jumps under a reader's eye or focus."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._texts: dict[str, ui.label] = {}
        self._there: object = None

    def place(self) -> None:
        """Make the parts that are always there."""
        with ui.element("div"):
            self._count = tag("p", "…").classes("count").props('id="reports"')
            self._counted = tag("p", "").classes("faint")
        self._fleets = ui.element("div")
        with self._fleets:
            skeleton(3)
        heading("How it goes", 2)
        self._lines = ui.element("div").classes("lines")
        tag("p", _LIVE).classes("faint")

    def show(self, seen: StoreOverview | None, absent: str = "") -> None:
        """Show what there is; None while the store cannot be read. absent: why there is no fleet to show."""
        self._count.text = "–" if seen is None else self._reader.number(seen.reports, 0)
        self._counted.text = "" if seen is None else "reports counted so far"
        there = seen and (
            absent, *((f.name, f.keyed, tuple(e.name for e in f.experiments)) for f in seen.fleets)
        )  # fmt: skip
        if there != self._there or seen is None:
            self._there = there
            self._texts.clear()
            self._fleets.clear()
            with self._fleets:
                self._build(seen, absent)
        if seen is not None:
            for fleet in seen.fleets:
                for experiment in fleet.experiments:
                    self._fill(experiment)
        self._seen = seen

    def _build(self, seen: StoreOverview | None, absent: str) -> None:
        if seen is None:
            return
        if not seen.fleets:
            tag("p", sentence(absent) if absent else _EMPTY)
        for fleet in seen.fleets:
            heading(f"Fleet {fleet.name}", 2)
            tag("p", _kind(fleet)).classes("faint")
            with ui.element("ul").classes("cards"):
                for experiment in fleet.experiments:
                    with ui.element("li"):
                        self._card(experiment)

    def _card(self, e: ExperimentOverview) -> None:
        with heading("", 3):
            ui.link(e.name, f"/experiment/{quote(e.fleet)}/{quote(e.name)}")
        for part in ("purpose", "owner", "state", "reports", "newest", "implausible"):
            self._texts[f"{e.fleet}/{e.name}/{part}"] = tag("p", "")
        self._texts[f"{e.fleet}/{e.name}/owner"].classes("faint")

    def _fill(self, e: ExperimentOverview) -> None:
        number, day = self._number, self._reader.day
        asked = state_words(e, number)
        if e.expires is not None:
            asked = asked.replace(str(e.expires), day(e.expires))
        came = f"{number(e.reports)} report{'' if e.reports == 1 else 's'} in all"
        if e.today is not None:
            came += f", {number(e.today)} today (UTC)"
        newest = f"The newest window, {e.newest}, has {number(e.newest_reports)}."
        self._say(e, "purpose", e.purpose or "Nobody has said what it is for.")
        self._say(e, "owner", f"Asked by {e.owner}." if e.owner else "Nobody has said who asks it.")
        self._say(e, "state", asked)
        self._say(e, "reports", f"{came}.")
        self._say(e, "newest", newest if e.newest not in ("", "all") else "")
        self._say(e, "implausible", sentence(e.implausible) if e.implausible else "")

    def _say(self, e: ExperimentOverview, part: str, words: str) -> None:
        label = self._texts[f"{e.fleet}/{e.name}/{part}"]
        label.text = words
        label.set_visibility(bool(words))
        label.classes(**{"add" if words and part == "implausible" else "remove": "warn"})

    def _number(self, n: int) -> str:
        return self._reader.number(n, 0)

    def health(self, page: Page) -> None:
        """Say how the aggregator is, and what was thrown away."""
        lines = [(_aggregator(page), page.aggregator.trouble != "")]
        seen = self._seen
        if seen is not None:
            for fleet in seen.fleets:
                lines += self._rejects(fleet.rejects, f"Fleet {fleet.name}: ")
            lines += self._rejects(seen.rejects, "")
            if not any(fleet.rejects for fleet in seen.fleets) and not seen.rejects:
                lines.append(("No report was thrown away.", False))
        self._lines.clear()
        with self._lines:
            for words, bad in lines:
                tag("p", words).classes("warn" if bad else "")

    def _rejects(self, rejects: Iterable[Rejected], whose: str) -> list[tuple[str, bool]]:
        return [(f"{whose}{one.words(self._number)}", False) for one in rejects]


def _kind(fleet: FleetOverview) -> str:
    if fleet.keyed:
        return "Every report has a tag that only its board can make."
    return "This fleet is open: its reports have no tags, so anyone can forge some."


def _aggregator(page: Page) -> str:
    if not page.aggregator.asked:
        return "Nobody has told this page where the aggregator is: --aggregator URL shows how it is."
    health = page.aggregator.health
    return "The aggregator was not asked yet." if health is None else health.words
