"""The view of one experiment: its results, their uncertainty, and their privacy."""

import asyncio
import contextlib
import datetime
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import Response
from nicegui import background_tasks, context, ui

from ...server.answers.answer import Answer, Answers
from ...server.answers.query import Selected
from ...server.answers.question import FINE, Question, Selection
from ...server.answers.rows import Kind
from ...server.epsilon import nats
from ...server.errors import HushmoteError, UsageError
from ...server.estimate.statistic import EstimateError
from ...server.experiments.answerable import OF_VALUES, NotAnswered
from ...server.experiments.units import UnitsError
from ...server.plain_text import visible
from ...server.store.versions import Version
from ...server.words import answers as words
from ..frame import frame, heading, sentence, skeleton
from ..page import Page
from ..period import in_period
from ..period_control import PeriodControl
from ..reader import Reader, reader
from . import files, sentences
from .change_panel import ChangePanel
from .choices import Choices, fitting, from_query, left_out
from .controls import EXPORT, OF_WINDOWS, PARTS, Controls, PanelContext, Parts
from .defaults import file_texts, with_pair
from .missing import response_if_missing
from .other_panels import AskedPanel, MeanPanel
from .shares_panel import SharesPanel
from .time_panel import TimePanel

_PAUSE_S = 0.3  # after a drag, before the dependent parts are computed


def register(page: Page) -> None:
    """Register the routes of the view and its files."""
    files.register(page)
    ui.add_css(Path(__file__).parents[1] / "static" / "experiment.css", shared=True)

    @ui.page("/experiment/{fleet}/{name}")
    async def _(request: Request, fleet: str, name: str) -> Response | None:
        if response := await response_if_missing(page, request, fleet, name):
            return response
        choices = from_query(request.url.query, Question(experiment=name, fleet=fleet))
        with frame(page, visible(name)) as title:
            view = ExperimentView(page, Selection(name, fleet), title, reader(), choices)
        if files.is_shown(page, fleet):
            page.live.follow(view.refresh)
        else:
            view.state("The page does not show this fleet.")
        return None


@dataclass(frozen=True)
class Areas:
    """The view's areas, from the top.

    Attributes:
        title: The question.
        head: Its name, owner, number of reports.
        left_out: Choices in the link that do not exist.
        finding: The headline.
        period, parts: The bar below it.
        state: The error, if there is one.
    """

    title: ui.label
    head: ui.label
    left_out: ui.label
    finding: ui.column
    period: PeriodControl
    parts: Parts
    state: ui.label
    body: ui.column


class ExperimentView:
    """One reader's view of one experiment."""

    def __init__(
        self, page: Page, selection: Selection, title: ui.label, to: Reader, choices: Choices
    ) -> None:
        self._page, self._ask, self._selection = page, page.asking, selection
        self._reader, self._choices = to, choices
        self._of: Selected | None = None
        self._built: object = None
        self._client = context.client
        self._seen_at: datetime.datetime | None = None  # time of the numbers that are shown
        self._behind = False  # whether the parts below the first picture are outdated
        self._catching_up: asyncio.Task[None] | None = None
        self._query = context.client.request.url.query
        self._effective = choices  # the same, with the view's defaults
        head = ui.label().classes("faint").props('id="head"')
        left_out = ui.label().classes("experiment-state").props('id="left-out" role="status"')
        finding = ui.column().classes("experiment-lines").props('id="finding"')
        with ui.element("div").classes("experiment-bar") as self._bar:
            period, parts = PeriodControl(self._choose_period), Parts()
        state = ui.label().classes("experiment-state").props('id="state" role="status"')
        body = ui.column().classes("experiment-wide")
        self._areas = Areas(title, head, left_out, finding, period, parts, state, body)
        with self._areas.finding:
            skeleton(2)
        with self._areas.body:
            skeleton().classes("tall")

    def state(self, text: str) -> None:
        """Show an error, or "" for none."""
        self._areas.state.text, self._areas.state.visible = text, bool(text)

    async def _hinders(self, error: HushmoteError) -> None:
        """Show an error, and the time of the numbers that remain on display."""
        text = sentence(await self._page.live.error_message(error))
        if self._seen_at is not None:
            text = f"{text} What you see is of {self._reader.time(self._seen_at)} UTC.".strip()
        self.state(text)

    async def refresh(self) -> None:
        """Show the store's present state; called after each commit."""
        if await self.describe():
            await asyncio.gather(self._show_finding(), self._show())
        elif self._of is not None:
            self._say(self._areas.finding, ())

    async def describe(self) -> bool:
        """Show everything that needs no estimate; return whether an estimate is possible."""
        try:
            of = await self._ask.selected(self._selection)
        except HushmoteError as e:
            await self._hinders(e)
            return False
        self._of, self._choices = of, fitting(self._choices, of)
        if self._query:
            self._areas.left_out.text = sentences.left_out(left_out(self._query, self._choices))
            self._query = ""
        today = datetime.datetime.now(datetime.UTC).date()
        self._areas.title.text = visible(of.newest.purpose) or of.selection.experiment
        self._areas.head.text = sentences.head(of, today, self._reader)
        self._show_period()
        self._build(of)
        few = of.reports < 2
        self.state(words.too_few(of.reports, self._reader) if few else "")
        self._areas.body.visible = self._bar.visible = not few
        return not few

    def _build(self, of: Selected) -> None:
        """Make the panels, once for each type of reading."""
        e = of.newest.experiment
        shape = (e.type, e.low, e.high, e.domain, e.labels, of.unit, of.can)
        if shape == self._built:
            return
        self._built = shape
        self._areas.body.clear()
        ui.run_javascript("hushmote.arrive()")
        context = PanelContext(e, of.unit, of.can, self._reader, self._choose)
        with self._areas.body:
            if not of.can & OF_VALUES:
                self._main = AskedPanel(context, file_texts(of))
            else:
                shares = "frequencies" in of.can
                self._main = SharesPanel(context, self._choices) if shares else MeanPanel(context)
                self._controls = Controls(context, self._choices)
                self._time = TimePanel(context)
                self._change = ChangePanel(context)
            heading("How private this is", 2).props('id="how-private"')
            self._private = ui.column().classes("experiment-lines").props('id="private"')
            with self._private:
                skeleton(3)
            self._export = files.ExportPanel(self._page.settings.store)
        self._show_parts(of)

    def _show_parts(self, of: Selected) -> None:
        without: tuple[str, ...] = () if of.can & OF_VALUES else OF_WINDOWS
        without += () if self._export.has_files else (EXPORT,)
        self._areas.parts.show([name for name in PARTS if name not in without])

    # Choices of the reader

    async def _choose(self, **chosen: Any) -> None:
        before = self._choices
        assert self._of is not None  # no field is shown before that
        over = chosen.pop("over", before.over)
        request = replace(before.asking(**chosen), over=over)
        choices = self._choices = fitting(request, self._of)
        shares = self._main
        ranges = choices.ranges
        only_range = before.asking(ranges=ranges) == choices and isinstance(shares, SharesPanel)
        if choices != before and not only_range:
            self._keep_address()
        self._show_period()
        if wrong := sentences.not_available(request, choices, self._reader):
            self._areas.left_out.text = wrong
        if choices == before and "ranges" not in chosen:
            return
        if not only_range:
            await asyncio.gather(self._show_finding(), self._show())
            return
        assert isinstance(shares, SharesPanel)
        await self._show_share(shares)
        await asyncio.sleep(_PAUSE_S)
        if self._still(choices):  # unless the reader has dragged on in the meantime
            shares.read_aloud()
            self._keep_address()
            self._show_rest()

    async def _choose_period(self, period: str) -> None:
        question = in_period(self._choices.question, period)
        await self._choose(windows=question.windows, last=question.last)

    def _show_period(self) -> None:
        windows = self._choices.windows or tuple(self._of.there if self._of else ())
        self._areas.period.show(self._choices.period, windows)

    def _still(self, choices: Choices) -> bool:
        """Return whether the reader is still there with these choices."""
        return choices == self._choices and not self._client.is_deleted

    def _keep_address(self) -> None:
        self._areas.left_out.text = ""
        query = self._choices.query()
        ui.navigate.history.replace(f"?{query}" if query else context.client.request.url.path)

    # Display

    async def _show(self) -> None:
        """Show answers to the choices: the picture first, then the slower parts."""
        if self._of is None or self._of.reports < 2:
            return
        choices, of = self._choices, self._of
        try:
            effective = await self._ask.with_opening(choices, of)
            if not self._still(choices):
                return
            self._effective = effective
            if not isinstance(self._main, AskedPanel):
                versions = {v.experiment.digest.hex(): _called(v) for v in of.versions}
                self._controls.show(effective, versions)
                self._time.show_windows(effective, tuple(of.there))
                self._change.show_windows(effective, tuple(of.there), versions)
            await self._show_main(choices)
        except HushmoteError as e:
            await self._hinders(e)
            return
        if self._still(choices):
            self.state("")
            self._seen_at = datetime.datetime.now(datetime.UTC)
            self._show_rest()

    async def _show_finding(self) -> None:
        """Show the headline: the comparison if there is one, otherwise the findings."""
        choices = self._choices
        windows = choices.windows or tuple(self._of.there if self._of else ())
        selection = replace(self._selection, windows=windows, version=choices.question.version)
        try:
            lines = await self._comparison() if choices.compares else ()
            lines = lines or (await self._ask.finding(selection, self._reader)).lines
        except HushmoteError as e:
            lines = (sentence(await self._page.live.error_message(e)),)
        if any(lines) and self._still(choices):
            self._say(self._areas.finding, lines)

    async def _comparison(self) -> tuple[str, ...]:
        """Return the comparison in a sentence; empty if the experiment has none."""
        question = self._change_question()
        if question is not None:
            with contextlib.suppress(HushmoteError):  # the panels show the error
                question = question.replace(ranges=self._choices.ranges, quantiles=())
                headline = await self._ask.comparison(question, self._reader)
                return (visible(headline),) if headline else ()
        return ()

    def _change_question(self) -> Question | None:
        of = self._of
        if of is None or not self._choices.compares or not of.can & OF_VALUES:
            return None
        return files.question("change", self._choices, of)

    async def _show_main(self, choices: Choices) -> None:
        """Show the experiment's main answer: its shares, its mean, texts or a pair's tables."""
        question, main, of = self._question("estimate"), self._main, self._of
        assert of is not None  # this is called only after it was read
        if isinstance(main, AskedPanel):
            answers = Answers()  # texts must be named first
            with contextlib.suppress(NotAnswered):
                answers = await self._ask.answers(question, slow=True)
            picture = await self._picture_answer(question, answers)
            if self._still(choices):
                store = self._page.settings.store
                main.show(
                    self._effective,
                    answers,
                    picture,
                    files.command_line("estimate", self._effective, of, store),
                )
            return
        readings = await self._tables(question, "moments")
        if isinstance(main, MeanPanel):
            if self._still(choices):
                main.show(readings[0], self._when())
            return
        histogram = await self._tables(question.replace(rows=question.rows or FINE), "histogram")
        share = await self._share(question)
        quantiles = await self._tables(question, "quantiles")
        if self._still(choices):
            of_number = Answers([*readings, *quantiles] if quantiles else ())
            main.show(self._effective, self._when(), histogram[0], share, of_number)

    async def _picture_answer(self, question: Question, answers: Answers) -> Answer | None:
        """Return the answer that the picture of texts or of a pair shows; for a pair, that of its file."""
        assert self._of is not None
        pair_question = with_pair(question, self._of)
        if pair_question == question:
            return answers[0] if answers else None
        with contextlib.suppress(UsageError, EstimateError, UnitsError):
            answers = await self._ask.answers(pair_question, slow=True)
        return answers[0]

    async def _share(self, question: Question) -> Answer | None:
        """Return the share of the selected range, or None if nothing is selected."""
        return (await self._tables(question, "ranges"))[0] if question.ranges else None

    async def _tables(self, question: Question, kind: Kind) -> Answers:
        """Return one kind of tables, asked separately so that they stay cached whatever is dragged over."""
        needless: dict[str, Any] = {} if kind == "ranges" else {"ranges": (), "together": False}
        needless |= {} if kind == "quantiles" else {"quantiles": ()}
        needless |= {} if kind == "histogram" else {"rows": None}
        needless |= {} if kind in ("histogram", "ranges") else {"post": "raw"}
        return await self._ask.answers(question.replace(**needless), kind)

    async def _show_share(self, panel: SharesPanel) -> None:
        choices, of = self._choices, self._of
        assert of is not None
        with contextlib.suppress(HushmoteError):  # the next picture shows the error
            effective = await self._ask.with_opening(choices, of)
            if self._still(choices):
                self._effective = effective
                share = await self._share(self._question("estimate"))
                if self._still(choices):
                    panel.show_share(effective, self._when(), share)

    def _show_rest(self) -> None:
        """Update the parts below the first picture; nothing waits for them."""
        assert self._of is not None
        main_rows = self._main.rows if isinstance(self._main, SharesPanel) else None
        rows = self._effective.question.rows or main_rows
        self._export.show(self._of, self._effective.asking(rows=rows))
        self._show_parts(self._of)
        self._behind = True
        if self._catching_up is None:
            self._catching_up = background_tasks.create(self._catch_up(), name="catch up")

    async def _catch_up(self) -> None:
        try:
            with self._client:
                while self._behind and not self._client.is_deleted:
                    self._behind = False
                    if not isinstance(self._main, AskedPanel):
                        await self._show_time()
                        await self._show_change()
                    await self._show_private()
                    await asyncio.sleep(_PAUSE_S)
        finally:
            self._catching_up = None

    async def _answered(self, question: Question, nothing: Callable[[str], None]) -> Answers | None:
        """Return the answers to a slow question; None if the reader left or nothing() shows the reason."""
        choices = self._choices
        try:
            answers = await self._ask.answers(question, slow=True)
        except HushmoteError as e:
            if text := await self._page.live.error_message(e):
                nothing(sentence(text))
            return None
        return answers if self._still(choices) else None

    async def _show_time(self) -> None:
        assert self._of is not None
        question = self._question("trend")
        question = question.replace(windows=question.windows or tuple(self._of.there))  # also the running one
        if answers := await self._answered(question, self._time.nothing):
            self._time.show(self._effective, answers[-1] if question.quantiles else answers[0])

    async def _show_change(self) -> None:
        if not self._choices.compares:
            self._change.nothing("")
        elif answers := await self._answered(self._question("change"), self._change.nothing):
            self._change.show(answers, self._effective)

    async def _show_private(self) -> None:
        try:
            assert self._of is not None
            facts, compared = self._of.facts, list[Selection]()
            selection = self._question("estimate").resolve(facts).selection
            if change := self._change_question():
                sides = change.resolve(facts)
                compared = [side for side in (sides.selection, sides.against) if side]
            both = await self._ask.epsilons(selection, tuple(compared))
        except HushmoteError as e:
            lines = [sentence(await self._page.live.error_message(e))]
        else:
            lines = sentences.epsilons(both.once, both.every_day, self._reader)
            lines.append(f"Worked out at {self._reader.time(both.at)} UTC, {sentences.ANEW}.")
        if any(lines) and not self._client.is_deleted:
            self._say(self._private, lines)

    @staticmethod
    def _say(place: ui.column, lines: Iterable[str]) -> None:
        place.clear()
        with place:
            for line in lines:
                ui.label(line)

    def _when(self) -> str:
        of = self._of
        assert of is not None
        chosen = tuple(of.facts.selected(self._question("estimate").resolve(of.facts).selection).counts)
        return words.period(chosen, tuple(of.there), self._reader)

    def _question(self, table: str) -> Question:
        assert self._of is not None
        return files.question(table, self._effective, self._of)


def _called(version: Version) -> str:
    """Return a version's name: its digest and its ε."""
    current = ", current" if version.current else ""
    return f"{version.experiment.digest.hex()}, ε = {nats(version.experiment.epsilon)}{current}"
