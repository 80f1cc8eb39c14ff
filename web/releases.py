"""The Releases view, which shows the verdict on each release that has a stored plan, and its rollout."""

from nicegui import ui

from ..server.answers.query import Facts
from ..server.answers.releases.first_plan import PlanRequest
from ..server.answers.releases.judge import judge, stored_plans
from ..server.answers.releases.result import JudgedRelease
from ..server.answers.result_cache import ResultCache
from ..server.answers.store_reader import StoreReader
from ..server.errors import HushmoteError
from ..server.plain_text import visible
from .charts import COLOURS, chart, line, over_days, table
from .frame import frame, heading, sentence, skeleton, tag
from .page import Page
from .reader import Reader, reader

_EMPTY = (
    "No release has been judged yet. Run hushmote release 2.4.0 --against 2.3.1: its first look stores a "
    "plan, and from then on the release is shown here."
)
_GROUP = (
    "Each report names its version in the clear; the reading itself is randomized. "
    "A verdict is valid however often anyone looks."
)
_SILENT = (
    "Whether boards with a new version have fallen silent needs the number of installed devices, which only "
    "hushmote release --installed has."
)


def register(page: Page) -> None:
    """Register the view's route."""
    cache = ResultCache()

    @ui.page("/releases")
    def _() -> None:
        with frame(page, "Releases", "/releases"):
            ui.label("Whether a new version is worse than the one before, and how far it has rolled out.")
            view = ReleasesView(page, cache, reader())
            for text in (_GROUP, _SILENT):
                tag("p", text).classes("faint")
        page.live.follow(view.refresh)


def judged_releases(store: StoreReader, cache: ResultCache, fleet: str | None) -> list[JudgedRelease | str]:
    """Return the verdict on each release with a stored plan, or the message of an error.

    Args:
        store: The store.
        cache: The cache of results.
        fleet: The fleet's name, or None for all.
    """
    facts, results = Facts(store.store, cache=cache), list[JudgedRelease | str]()
    for name in store.fleets if fleet is None else (fleet,):
        try:
            for plan in stored_plans(facts, name):
                results.append(judge(facts, name, PlanRequest(plan.new), None, group=plan.group))
        except HushmoteError as e:
            results.append(visible(f"fleet {name}: {e}"))
    return results


class ReleasesView:
    """One reader's view, with a section for each release."""

    def __init__(self, page: Page, cache: ResultCache, reader: Reader) -> None:
        self._page, self._cache, self._reader = page, cache, reader
        self._state = ui.label().props('role="status"')
        self._releases: list[JudgedRelease | str] | None = None
        with ui.element("div") as self._sections:
            self._waiting = skeleton(3)

    async def refresh(self) -> None:
        """Show all releases; called after each commit."""
        live, fleet = self._page.live, self._page.settings.fleet
        try:
            releases = await live.ask(
                ("releases", fleet), lambda store: judged_releases(store, self._cache, fleet), slow=True
            )
        except HushmoteError as e:
            # If the store cannot be read, the frame shows the error.
            self._waiting.set_visibility(False)
            self._state.set_text(sentence(str(e)) if live.state.is_ready else "")
            return
        if releases == self._releases:
            return
        self._releases = releases
        self._state.set_text("" if releases else _EMPTY)
        self._sections.clear()
        with self._sections:
            for release in releases:
                if isinstance(release, str):
                    tag("p", sentence(release)).classes("release-verdict")
                else:
                    self._show(release)

    def _show(self, release: JudgedRelease) -> None:
        write = self._reader
        with ui.element("section").classes("budget").props(f'data-verdict="{release.verdict}"'):
            others = ", ".join(map(visible, release.others))
            heading(f"Fleet {release.days.fleet}: {visible(release.new)} against {others}", 2)
            ui.label(release.sentence(write)).classes("budget-first")
            rollout = release.rollout_sentence(write)
            if rollout:
                ui.label(rollout)
                _rollout_chart(release, write, rollout)
            heads, rows = release.question_rows(write)
            table(f"Questions about {release.new}", heads, rows, stacked=True)
            for note in release.notes(write):
                ui.label(note).classes("budget-sentence")


def _rollout_chart(release: JudgedRelease, write: Reader, summary: str) -> None:
    days = [day.isoformat() for day in release.rollout.days]
    dots = {"showSymbol": True, "symbolSize": 5}
    series = [
        line(visible(name), zip(days, map(float, reports), strict=True), COLOURS[i % len(COLOURS)]) | dots
        for i, (name, reports) in enumerate(release.rollout.columns())
    ]
    title = f"reports per day to {release.rollout.experiment}"
    chart(over_days(title, series, write.tag), f"{title[0].upper()}{title[1:]}. {summary}")
