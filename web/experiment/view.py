"""The view of one experiment: what its reports tell, how sure that is, and how private."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from nicegui import background_tasks, context, ui

from ...server.answers.answer import Answers
from ...server.answers.question import Question
from ...server.answers.store_reader import StoreReader
from ...server.epsilon import nats
from ...server.errors import HushmoteError
from ...server.plain_text import visible
from ...server.results.windows import has_ended
from ...server.store.versions import Version
from ..frame import frame, heading
from ..page import Page
from ..reader import Reader, reader
from . import files, sentences
from .change_panel import ChangePanel
from .choices import Choices, from_query
from .controls import Controls
from .counted import Experiment, described
from .looked import Looked
from .shares_panel import SharesPanel
from .taken_panel import TakenPanel
from .time_panel import TimePanel

T = TypeVar("T")

_PAUSE_S = 0.3  # after a drag, before what follows from it is worked out
_REST_S = 0.5  # at most, between two pictures: commits that come faster are shown together


def register(page: Page) -> None:
    """Put the view, its files and the API on their routes."""
    looked = Looked()
    files.register(page, looked)
    ui.add_css(Path(__file__).with_name("experiment.css"), shared=True)

    @ui.page("/experiment/{fleet}/{name}")
    async def _(fleet: str, name: str) -> None:
        client = context.client
        choices = from_query(client.request.url.query)
        with frame(page, f"{visible(name)} of {visible(fleet)}"):
            view = View(page, looked, fleet, name, reader(), choices)
        if files.shown(page, fleet):
            await view.describe()  # so that the browser fetches what draws while numbers are worked out
        else:
            view.state("The page does not show this fleet.")
            return

        async def follow() -> None:
            with client:
                await page.live.follow(view.refresh)

        background_tasks.create(follow(), name="experiment")


class View:
    """One reader's view of one experiment."""

    def __init__(
        self, page: Page, looked: Looked, fleet: str, name: str, to: Reader, choices: Choices
    ) -> None:
        self._page, self._looked, self._fleet, self._name = page, looked, fleet, name
        self._reader, self._choices = to, choices
        self._of: Experiment | None = None
        self._built: object = None
        self._rows = 0
        self._head = ui.column().classes("experiment-lines").props('id="head"')
        self._state = ui.label().classes("experiment-state").props('id="state" role="status"')
        self._body = ui.column().classes("experiment-wide")

    def state(self, text: str) -> None:
        """Say what hinders, or nothing."""
        self._state.text, self._state.visible = text, bool(text)

    async def refresh(self) -> None:
        """Show what the store has now; called after each commit."""
        started = time.monotonic()
        if await self.describe():
            await self._show()
        await asyncio.sleep(min(_REST_S, time.monotonic() - started))

    async def describe(self) -> bool:
        """Show what is known without an estimate; return whether one can be asked for."""
        fleet, name = self._fleet, self._name
        try:
            of = await self._page.live.ask(("experiment", fleet, name), lambda s: described(s, fleet, name))
        except HushmoteError as e:
            self.state(_sentence(e))
            return False
        self._of, self._choices = of, files.fitted_to(self._choices, of)
        self._head.clear()
        with self._head:
            for line in sentences.head(of, datetime.datetime.now(datetime.UTC).date(), self._reader):
                ui.label(line)
        self._build(of)
        few = of.reports < 2
        self.state(sentences.too_few(of.reports, (), self._reader) if few else "")
        self._body.visible = not few
        return not few

    def _build(self, of: Experiment) -> None:
        """Make the panels, once for each kind of reading."""
        e = of.newest.experiment
        shape = (e.type, e.low, e.high, e.domain, e.labels, of.unit)
        if shape == self._built:
            return
        self._built = shape
        self._body.clear()
        common = (of.unit, self._reader, self._choices, self._choose)
        with self._body:
            self._shares = SharesPanel(e, *common)
            self._controls = Controls(e.type, e.domain, *common[1:])
            self._time = TimePanel(e.type, *common[1:])
            self._change = ChangePanel(e, *common)
            heading("How private this is", 2)
            self._private = ui.column().classes("experiment-lines").props('id="private"')
            with self._private:
                ui.label(sentences.WORKED_OUT)
            self._taken = TakenPanel(self._page.settings.store)

    # What a reader chooses

    async def _choose(self, choices: Choices) -> None:
        before, self._choices = self._choices, choices
        if replace(before, ranges=choices.ranges) != choices:
            self._keep_address()
            await self._show()
            return
        await self._show_share()
        await asyncio.sleep(_PAUSE_S)
        if choices is self._choices:  # not dragged on meanwhile
            self._keep_address()
            await self._show_rest()

    def _keep_address(self) -> None:
        query = self._choices.query()
        ui.navigate.history.replace(f"?{query}" if query else context.client.request.url.path)

    # What is shown

    async def _show(self) -> None:
        """Show answers to what is chosen: the picture first, then what takes longer."""
        if self._of is None or self._of.reports < 2:
            return
        choices, of = self._choices, self._of
        versions = {v.experiment.digest.hex(): _called(v) for v in of.versions}
        self._controls.show(choices, versions)
        self._time.show_windows(choices, tuple(of.windows))
        self._change.show_windows(choices, tuple(of.windows), versions)
        asked = self._question("estimate")
        try:
            histogram = await self._ask("histogram", replace(asked, ranges=()), self._looked.histogram)
            shares = await self._ask("shares", asked, self._looked.shares)
            readings = Answers()
            if asked.quantiles:
                readings = await self._ask("readings", replace(asked, ranges=()), self._looked.readings)
        except HushmoteError as e:
            self.state(_sentence(e))
            return
        if choices is self._choices:
            self.state("")
            self._rows = len(histogram.rows)
            self._shares.show(choices, histogram, shares, readings)
            await self._show_rest()

    async def _show_share(self) -> None:
        choices = self._choices
        with contextlib.suppress(HushmoteError):  # the next picture says it
            shares = await self._ask("shares", self._question("estimate"), self._looked.shares)
            if choices is self._choices:
                self._shares.show_share(choices, shares)

    async def _show_rest(self) -> None:
        """Show what is below the first picture, in order, as long as nothing else is chosen."""
        choices, of = self._choices, self._of
        assert of is not None
        settled = replace(choices, rows=choices.rows or self._rows)
        self._taken.show(of, settled)
        for show in (self._show_time, self._show_change, self._show_private):
            if choices is self._choices:
                await show()

    async def _show_time(self) -> None:
        choices, asked = self._choices, self._question("trend")
        try:
            answers = await self._ask("trend", asked, self._looked.over_time)
        except HushmoteError as e:
            self._time.nothing(_sentence(e))
        else:
            if choices is self._choices:
                self._time.show(choices, answers)

    async def _show_change(self) -> None:
        choices = self._choices
        if not choices.compares:
            self._change.nothing("")
            return
        try:
            answers = await self._ask("change", self._question("change"), self._looked.change)
        except HushmoteError as e:
            self._change.nothing(_sentence(e))
        else:
            if choices is self._choices:
                self._change.show(choices, answers)

    async def _show_private(self) -> None:
        selection, of = self._question("estimate").selection, self._of
        assert of is not None
        key = ("epsilons", selection, of.mark)
        try:
            both = await self._page.live.ask(key, lambda s: self._looked.epsilons(s, of, selection))
        except HushmoteError as e:
            lines = [_sentence(e)]
        else:
            now = datetime.datetime.now(datetime.UTC)
            running = not all(has_ended(w, now) for w in selection.windows or of.windows)
            lines = sentences.epsilons(both.overview, both.shown, running, self._reader)
            lines.append(f"Worked out at {self._reader.time(both.at)} UTC, anew after a minute.")
        self._private.clear()
        with self._private:
            for line in lines:
                ui.label(line)

    def _question(self, asked: str) -> Question:
        assert self._of is not None
        return files.question(asked, self._choices, self._of)

    async def _ask(
        self, what: str, asked: Question, answer: Callable[[StoreReader, Experiment, Question], T]
    ) -> T:
        of = self._of
        assert of is not None
        return await self._page.live.ask((what, asked, of.mark), lambda store: answer(store, of, asked))


def _called(version: Version) -> str:
    """How a version is called: its digest, and what it costs."""
    current = ", current" if version.current else ""
    return f"{version.experiment.digest.hex()}, ε = {nats(version.experiment.epsilon)}{current}"


def _sentence(error: HushmoteError) -> str:
    text = visible(str(error))
    return f"{text[:1].upper()}{text[1:]}".rstrip(".") + "."
