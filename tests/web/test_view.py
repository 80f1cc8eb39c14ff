"""The views without a browser: what the server shows for a store, a link and a reader's choices."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from babel import Locale
from boards import ask_fleet, experiment
from designs import choice_payload, number_payload
from elements import build, find, texts
from filled_store import fill
from nicegui import ui
from release_store import NEW, add_release

from hushmote.server.answers.question import Question, Selection
from hushmote.server.answers.result_cache import ResultCache
from hushmote.server.store import Description, Store
from hushmote.web.budget.view import BudgetView
from hushmote.web.experiment import queries
from hushmote.web.experiment.choices import from_query
from hushmote.web.experiment.view import ExperimentView
from hushmote.web.fleet import FleetView
from hushmote.web.page import Page
from hushmote.web.period import USUAL
from hushmote.web.period_control import PeriodControl
from hushmote.web.plan.answer import SolvedPlan, solve
from hushmote.web.plan.entries import START, plan_request
from hushmote.web.plan.file import FilePart
from hushmote.web.plan.result import ResultPart
from hushmote.web.reader import Reader
from hushmote.web.releases import ReleasesView
from hushmote.web.tile_choice import TileChoice, choice_in

ENGLISH = Reader(Locale("en", "US"))
DAYS = tuple(f"2026-01-{day:02}" for day in range(1, 11))


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.sqlite'}"


def opened(
    url: str, name: str, query: str, look: Callable[[ui.element, ExperimentView], Awaitable[None]]
) -> None:
    """Open an experiment's view with this query, and look at it."""

    async def steps(page: Page, root: ui.element) -> None:
        choices = from_query(query, Question(experiment=name, fleet="home"))
        view = ExperimentView(page, Selection(name, "home"), ui.label(), ENGLISH, choices)
        await view.refresh()
        await look(root, view)

    build(url, steps)


class TestExperiment:
    @pytest.mark.parametrize(("reports", "has_answers"), [(1, False), (2, True)])
    def test_two_reports_are_enough(self, url: str, reports: int, has_answers: bool):
        with Store(url) as store:
            fill(store, "home", number_payload(8, 2, 0, 8_000, "temp"), {DAYS[0]: reports})

        async def look(root: ui.element, _: ExperimentView) -> None:
            shown = texts(root)
            parts = ("Share of the fleet", "7 days", "These numbers")
            assert [part in shown for part in parts] == [has_answers] * 3
            assert any(text.startswith("hushmote estimate temp") for text in shown) is has_answers
            few = "1 report has been counted so far. An estimate needs 2 reports."
            assert (few in shown) is not has_answers

        opened(url, "temp", "", look)

    @pytest.mark.parametrize(("labels", "boxes"), [(15, 16), (16, 0)])  # and one more, "other"
    def test_more_than_16_labels_are_in_a_list(self, url: str, labels: int, boxes: int):
        with Store(url) as store:
            fill(store, "home", choice_payload([f"l{n}" for n in range(labels)], 2), {DAYS[0]: 900})

        async def look(root: ui.element, _: ExperimentView) -> None:
            assert len(find(root, ui.checkbox)) == boxes
            lists = [e for e in find(root, ui.select) if e.props["label"] == "Labels"]
            assert [len(e.options) for e in lists] == ([] if boxes else [17])

        opened(url, "mode", "", look)

    def test_table_is_filled_once_it_is_opened(self, url: str):
        with Store(url) as store:
            fill(store, "home", number_payload(8, 2, 0, 8_000, "temp"), {DAYS[0]: 900})

        async def look(root: ui.element, _: ExperimentView) -> None:
            (expansion,) = find(root, ui.expansion)
            (table,) = find(root, ui.table)
            assert table.rows == []
            expansion.value = True
            assert [row["range"] for row in table.rows][:2] == ["below 1", "1 to 2"]

        opened(url, "temp", "", look)

    def test_fields_show_first_and_last_chosen_window(self, url: str):
        with Store(url) as store:
            fill(store, "home", number_payload(8, 2, 0, 8_000, "temp"), dict.fromkeys(DAYS, 900))

        def ends(root: ui.element) -> list[Any]:
            fields = {field.props["label"]: field.value for field in find(root, ui.select)}
            return [fields["From window"], fields["To window"]]

        async def look(root: ui.element, view: ExperimentView) -> None:
            assert ends(root) == [DAYS[3], DAYS[9]]  # the newest seven
            await view._choose(windows=DAYS[1:3], last="")
            assert ends(root) == [DAYS[1], DAYS[2]]
            await view._choose(windows=(), last="all")
            assert ends(root) == [DAYS[0], DAYS[9]]

        opened(url, "temp", "", look)

    def test_new_answers_replace_the_old_ones(self, url: str):
        payload = number_payload(8, 2, 0, 8_000, "temp")
        readings = {DAYS[0]: np.eye(8)[2], DAYS[1]: np.eye(8)[5]}
        with Store(url) as store:
            fill(store, "home", payload, dict.fromkeys(readings, 900), readings)

        async def look(root: ui.element, view: ExperimentView) -> None:
            for mean in ("rose", "fell"):
                await view._choose(against=(DAYS[0],), windows=(DAYS[1],), last="")
                while view._catching_up is not None:
                    await view._catching_up
                shown = texts(root)
                assert [text.split()[:2] for text in shown if text.startswith("Mean ")] == [["Mean", mean]]
                assert shown.count("Median") == 1
                assert len([text for text in shown if text.startswith("ε of a report: ")]) == 1
                with Store(url) as store:
                    fill(store, "home", payload, {DAYS[0]: 9_000}, np.eye(8)[7])
                await view._page.live.check()
                await view.refresh()

        opened(url, "temp", "", look)


class TestFleet:
    def test_new_experiment_appears_beside_the_others(self, url: str):
        async def steps(page: Page, root: ui.element) -> None:
            view = FleetView(page, ENGLISH, USUAL)
            for number in range(3):
                with Store(url) as store:
                    fill(store, "home", number_payload(8, 2, 0, 8_000, f"n{number}"), {DAYS[0]: 900})
                await page.live.check()
                await view.refresh()
                shown = texts(root)
                names = [text for text in shown if " of fleet home" in text]
                assert names == [f"n{n} of fleet home" for n in range(number + 1)]
                assert len([text for text in shown if text.startswith("Fleet home: ")]) == 1
                assert "Three steps to a first answer" not in shown

        build(url, steps)


class TestManyExperiments:
    @pytest.fixture
    def many(self, url: str) -> str:
        """Provide a store with 60 experiments in two fleets; one has been silent since January."""
        with Store(url) as store:
            for n in range(60):
                fleet = f"hall{n % 2}"
                if fleet not in store.fleets():
                    store.add_fleet(fleet, keyed=False)
                words = Description(purpose=f"How warm is room {n}?", owner="heating@example.org")
                payload = number_payload(8, 2, 0, 8_000, f"room{n:02}")
                store.add_experiment(fleet, payload, description=words)
            fill(store, "hall1", number_payload(8, 2, 0, 8_000, "silent"), {DAYS[0]: 900})
        return url

    def names(self, root: ui.element) -> list[str]:
        return [text.split(" of fleet ")[0] for text in texts(root) if " of fleet hall" in text]

    def test_first_page_is_grouped_by_fleet(self, many: str):
        async def steps(page: Page, root: ui.element) -> None:
            view = FleetView(page, ENGLISH, USUAL)
            await view.refresh()
            assert self.names(root) == [f"room{n:02}" for n in range(0, 48, 2)]
            shown = texts(root)
            assert "1 to 24 of 61 experiments." in shown
            assert "1 of 61 experiments needs attention." in " ".join(shown)
            fleets = [text.split(":")[0] for text in shown if text.startswith("Fleet hall")]
            assert fleets == ["Fleet hall0", "Fleet hall1"]
            await view._tile_controls._turn(1)
            assert self.names(root) == [f"room{n:02}" for n in (*range(48, 60, 2), *range(1, 37, 2))]
            await view._tile_controls._turn(1)
            assert "49 to 61 of 61 experiments." in texts(root)
            await view._tile_controls._turn(1)  # there is no further page
            assert "49 to 61 of 61 experiments." in texts(root)

        build(many, steps)

    def test_search_fleet_and_warnings_restrict_tiles(self, many: str):
        async def steps(page: Page, root: ui.element) -> None:
            view = FleetView(page, ENGLISH, USUAL)
            await view.refresh()
            controls = view._tile_controls
            await controls._turn(1)
            await controls._change(search="ROOM5 warm")
            assert self.names(root) == [f"room{n}" for n in (*range(50, 60, 2), *range(51, 60, 2))]
            assert "1 to 10 of 10 matching of 61 experiments." in texts(root)
            await controls._change(fleet="hall1")
            assert self.names(root) == [f"room{n}" for n in range(51, 60, 2)]
            assert controls.choice.query() == "search=ROOM5+warm&fleet=hall1"
            await controls._change(search="cellar")
            assert self.names(root) == []
            assert "No experiment of 61 matches." in texts(root)
            await controls._change(search="", fleet="", warned=True)
            assert self.names(root) == ["silent"]

        build(many, steps)

    def test_url_opens_same_tiles(self, many: str):
        async def steps(page: Page, root: ui.element) -> None:
            view = FleetView(page, ENGLISH, USUAL, choice_in("last=30d&search=room&fleet=hall1&page=2"))
            await view.refresh()
            assert self.names(root) == [f"room{n:02}" for n in range(49, 60, 2)]
            assert view._tile_controls.choice.query() == "search=room&fleet=hall1&page=2"

        build(many, steps)

    @pytest.mark.parametrize("query", ["", "page=0", "page=x", "page=%C2%B2", "warned=no", "search="])
    def test_invalid_choice_is_default(self, query: str):
        assert choice_in(query) == TileChoice()

    def test_only_visible_tiles_are_answered(self, many: str, monkeypatch):
        names: list[str] = []

        def count(facts, selection, *arguments, **options):
            names.append(selection.experiment)
            return find(facts, selection, *arguments, **options)

        find = queries.find
        monkeypatch.setattr(queries, "find", count)

        async def steps(page: Page, root: ui.element) -> None:
            view = FleetView(page, ENGLISH, USUAL)
            await view.refresh()
            assert set(names) == {f"room{n:02}" for n in range(0, 48, 2)}

        build(many, steps)


class TestPeriod:
    def test_custom_days_are_chosen_once_both_are_typed(self, url: str):
        chosen: list[str] = []

        async def choose(period: str) -> None:
            chosen.append(period)

        async def steps(_: Page, root: ui.element) -> None:
            control = PeriodControl(choose)
            for is_open in (True, False, True):
                control._open()
                assert (len(find(root, ui.input)) == 2) is is_open
            first, last = find(root, ui.input)
            first.value = "2026-01-03"
            for day, error in (
                ("", ""),
                ("0202-01-04", ""),  # a year that is being typed
                ("2026-01-02", "The first day must not be after the last one."),
                ("2026-01-03", ""),
            ):
                last.value = day
                await control._choose_days()
                assert texts(root)[-1] == error
            assert chosen == ["2026-01-03..2026-01-03"]

        build(url, steps)


class TestBudget:
    def test_sentences_and_sections_are_replaced(self, url: str):
        payload = number_payload(8, 2, 0, 8_000, "temp")

        async def steps(page: Page, root: ui.element) -> None:
            view = BudgetView(page, page.ledgers, ENGLISH)

            async def shown() -> list[str]:
                await page.live.check()
                await view.refresh()
                return texts(root)

            now = await shown()
            assert "no device has reported yet" in now
            assert "any number of reports of ε = 2" in now
            with Store(url) as store:
                fill(store, "home", payload, {DAYS[0]: 900})
            now = await shown()
            assert "no device has reported yet" not in now
            assert now.count("experiment") == now.count("temp") == 1
            with Store(url) as store:
                store.add_fleet("work", keyed=False)
            now = await shown()
            assert [text for text in now if text.startswith("Fleet ")] == [
                "Fleet home: 1 device",
                "Fleet work: 0 devices",
            ]

        with Store(url) as store:
            store.add_fleet("home", keyed=False)
            store.add_experiment("home", payload)
        build(url, steps)


class TestReleases:
    def test_unchanged_verdicts_stay_in_place(self, url: str):
        async def steps(page: Page, root: ui.element) -> None:
            view = ReleasesView(page, ResultCache(), ENGLISH)

            async def shown() -> list[ui.label]:
                await page.live.check()
                await view.refresh()
                return [label for label in find(root, ui.label) if "damaged" in label.text]

            (before,) = await shown()
            with Store(url) as store:
                ask_fleet(store, "work", experiment())
            assert [label is before for label in await shown()] == [True]

        with Store(url) as store:
            add_release(store, {}, {})
            store.add_release_plan("home", "firmware", NEW, "{}")
        build(url, steps)


def solved(**fields: Any) -> SolvedPlan:
    entries = START | fields
    return solve(plan_request(entries), entries["answer"])


class TestPlan:
    def test_file_needs_owner_and_purpose(self, url: str):
        async def steps(_: Page, root: ui.element) -> None:
            part = FilePart(ENGLISH)
            part.show(solved(domain=8))
            fields = {field.props["label"].partition(",")[0]: field for field in find(root, ui.input)}
            for owner, purpose in (("", ""), ("me", ""), ("", "Warm?"), ("me", "Warm?")):
                fields["Owner"].value, fields["Purpose"].value = owner, purpose
                has_file = bool(owner and purpose)
                assert bool(find(root, ui.button)) is has_file
                hint = "To get the file, write who owns the experiment and what its purpose is."
                assert (hint in texts(root)) is not has_file

        build(url, steps)

    def test_lifetime_is_shown_if_devices_report_repeatedly(self, url: str):
        async def steps(_: Page, root: ui.element) -> None:
            part = ResultPart(ENGLISH)
            for lasting in (False, True, False):
                part.show(solved(form="yes_no", lasting=lasting))
                shown = texts(root)
                assert ("A device's lifetime" in shown) is lasting
                assert ("at the end, over" in shown) is lasting

        build(url, steps)
