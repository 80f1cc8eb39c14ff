"""The experiment view, with an experiment's results, their uncertainty, and their privacy."""

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
from ...server.answers.periods import selectable
from ...server.answers.query import Selected
from ...server.answers.question import FINE, Question, Selection
from ...server.answers.rows import Kind
from ...server.epsilon import nats
from ...server.errors import HushmoteError, UsageError
from ...server.estimate.statistic import EstimateError
from ...server.experiments.answerable import OF_VALUES, UnanswerableError
from ...server.experiments.units import UnitsError
from ...server.plain_text import visible
from ...server.store.versions import Version
from ...server.wire.experiments import scale_of
from ...server.words import answers as words
from ..frame import frame, heading, sentence, set_age, set_query, skeleton, tag
from ..page import Page
from ..period import in_period
from ..period_control import PeriodControl
from ..reader import Reader, reader
from . import files, sentences
from .change_panel import ChangePanel
from .choices import Choices, fitting, from_query, left_out
from .controls import EXPORT, OF_WINDOWS, PARTS, Controls, PanelContext, Parts
from .defaults import file_texts, with_pair
from .group_panel import GroupPanel
from .missing import response_if_missing
from .other_panels import MeanPanel, TextsOrPairPanel
from .shares_panel import SharesPanel
from .time_panel import TimePanel

_PAUSE_S = 0.3  # pause after a drag before the parts below are updated


def register(page: Page) -> None:
    """Register the routes for the view and its files."""
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
            view.show_error("The page does not show this fleet.")
        return None


@dataclass(frozen=True)
class Areas:
    """The view's areas, from the top.

    Attributes:
        title: The experiment's purpose.
        head: The experiment's name, owner and number of reports.
        left_out: The note on invalid choices in the link.
        finding: The headline.
        period: The control for the period, in the bar below the headline.
        group: The control for the value of the open group, below the bar.
        parts: The links to the view's parts, in the same bar.
        state: The error message, if any.
        body: The panels.
    """

    title: ui.label
    head: ui.label
    left_out: ui.label
    finding: ui.column
    period: PeriodControl
    parts: Parts
    group: GroupPanel
    state: ui.label
    body: ui.column


class ExperimentView:
    """One reader's view of one experiment."""

    def __init__(
        self, page: Page, selection: Selection, title: ui.label, reader: Reader, choices: Choices
    ) -> None:
        self._page, self._queries, self._selection = page, page.queries, selection
        self._reader, self._choices = reader, choices
        self._selected: Selected | None = None
        self._built_shape: object = None
        self._client = context.client
        self._shown_at: datetime.datetime | None = None  # time of the displayed numbers
        self._is_outdated = False  # whether the parts below the first picture are outdated
        self._catching_up: asyncio.Task[None] | None = None
        self._query = context.client.request.url.query
        self._effective = choices  # the choices with the view's defaults
        head = ui.label().classes("faint").props('id="head"')
        left_out = ui.label().classes("experiment-state").props('id="left-out" role="status"')
        finding = ui.column().classes("experiment-lines").props('id="finding"')
        with ui.element("div").classes("experiment-bar") as self._bar:
            period, parts = PeriodControl(self._choose_period), Parts()
        group = GroupPanel(self._choose, reader)
        state = ui.label().classes("experiment-state").props('id="state" role="status"')
        body = ui.column().classes("experiment-wide")
        self._areas = Areas(title, head, left_out, finding, period, parts, group, state, body)
        with self._areas.finding:
            skeleton(2)
        with self._areas.body:
            skeleton().classes("tall")

    def show_error(self, text: str) -> None:
        """Show an error message, or hide it if the text is empty."""
        self._areas.state.text, self._areas.state.visible = text, bool(text)

    async def _explain(self, error: HushmoteError) -> None:
        """Show an error message, with the time of the numbers that remain on display."""
        text = sentence(await self._page.live.error_message(error))
        if self._shown_at is not None:
            text = f"{text} The page shows the state at {self._reader.time(self._shown_at)} UTC.".strip()
        self.show_error(text)

    async def refresh(self) -> None:
        """Show the store's current state; called after each commit."""
        if await self._show_description():
            await asyncio.gather(self._show_finding(), self._show())
        elif self._selected is not None:
            self._show_lines(self._areas.finding, ())

    async def _show_description(self) -> bool:
        """Show all parts that need no estimate; return whether an estimate is possible."""
        try:
            selected = await self._queries.selected(self._selection)
        except HushmoteError as e:
            await self._explain(e)
            return False
        self._selected, self._choices = selected, fitting(self._choices, selected)
        if self._query:
            self._areas.left_out.text = sentences.left_out(left_out(self._query, self._choices))
            self._query = ""
        now = datetime.datetime.now(datetime.UTC)
        self._areas.title.text = visible(selected.newest.purpose) or selected.selection.experiment
        self._areas.head.text = sentences.head(selected, now, self._reader)
        self._show_period()
        self._build(selected)
        few = selected.reports < 2
        self.show_error(words.too_few(selected.reports, self._reader) if few else "")
        self._bar.visible = not few
        self._show_group()
        return not few

    def _build(self, selected: Selected) -> None:
        """Build the panels, unless the existing ones fit the experiment."""
        e = selected.newest.experiment
        shape = (e.type, e.low, e.high, scale_of(e), e.domain, e.labels, selected.unit, selected.answerable)
        if shape == self._built_shape:
            return
        self._built_shape = shape
        self._areas.body.clear()
        ui.run_javascript("hushmote.scrollToFragment()")
        context = PanelContext(e, selected.unit, selected.answerable, self._reader, self._choose)
        with self._areas.body:
            if not selected.answerable & OF_VALUES:
                self._main = TextsOrPairPanel(context, file_texts(selected))
            else:
                shares = "frequencies" in selected.answerable
                self._main = SharesPanel(context, self._choices) if shares else MeanPanel(context)
                self._controls = Controls(context, self._choices)
                self._time = TimePanel(context)
                self._change = ChangePanel(context)
            heading("How private this is", 2).props('id="how-private"')
            self._private = ui.column().classes("experiment-lines").props('id="private"')
            with self._private:
                skeleton(3)
            self._export = files.ExportPanel(self._page.settings.store)
        self._show_parts(selected)

    def _show_parts(self, selected: Selected) -> None:
        hidden: tuple[str, ...] = () if selected.answerable & OF_VALUES else OF_WINDOWS
        hidden += () if self._export.has_files else (EXPORT,)
        self._areas.parts.show([name for name in PARTS if name not in hidden])

    # The reader's choices

    async def _choose(self, **chosen: Any) -> None:
        before = self._choices
        assert self._selected is not None  # the fields appear only after it is set
        over = chosen.pop("over", before.over)
        request = replace(before.with_fields(**chosen), over=over)
        choices = self._choices = fitting(request, self._selected)
        shares = self._main
        ranges = choices.ranges
        only_range = before.with_fields(ranges=ranges) == choices and isinstance(shares, SharesPanel)
        if choices != before and not only_range:
            self._update_url()
        self._show_period()
        self._show_group()
        if note := sentences.not_available(request, choices, self._reader):
            self._areas.left_out.text = note
        if choices == before and "ranges" not in chosen:
            return
        if not only_range:
            await asyncio.gather(self._show_finding(), self._show())
            return
        assert isinstance(shares, SharesPanel)
        await self._show_share(shares)
        await asyncio.sleep(_PAUSE_S)
        if self._are_current(choices):  # unless the reader has continued to drag
            shares.read_aloud()
            self._update_url()
            self._show_rest()

    async def _choose_period(self, period: str) -> None:
        question = in_period(self._choices.question, period)
        await self._choose(windows=question.windows, last=question.last)

    def _show_period(self) -> None:
        windows = self._choices.windows or tuple(self._selected.all_counts if self._selected else ())
        if self._selected:
            windows = tuple(selectable(windows, self._selected.calendar))
        self._areas.period.show(self._choices.period, windows)

    def _show_group(self) -> None:
        """Show the choice of the open group's value; hide all numbers if the value is suppressed."""
        if self._selected is None:
            return
        choices = self._choices
        chosen = replace(self._selection, windows=choices.windows, version=choices.question.version)
        chosen = self._selected.facts.selected(replace(chosen, group=choices.question.group))
        self._areas.group.show(chosen.reports_by_value)
        self._areas.body.visible = self._selected.reports >= 2 and not chosen.refusal

    def _are_current(self, choices: Choices) -> bool:
        """Return whether the reader is still connected and has the same choices."""
        return choices == self._choices and not self._client.is_deleted

    def _update_url(self) -> None:
        self._areas.left_out.text = ""
        set_query(self._choices.query())

    # Display

    async def _show(self) -> None:
        """Show answers to the choices, first the picture and then the slower parts."""
        if self._selected is None or not self._areas.body.visible:
            return
        choices, selected = self._choices, self._selected
        try:
            effective = await self._queries.with_defaults(choices, selected)
            if not self._are_current(choices):
                return
            self._effective = effective
            if not isinstance(self._main, TextsOrPairPanel):
                versions = {v.experiment.digest.hex(): _version_name(v) for v in selected.versions}
                self._controls.show(effective, versions)
                windows = selectable(tuple(selected.all_counts), selected.calendar)
                self._time.show_windows(effective, windows)
                self._change.show_windows(effective, selected, windows, versions)
            await self._show_main(choices)
        except HushmoteError as e:
            await self._explain(e)
            return
        if self._are_current(choices):
            self.show_error("")
            self._shown_at = datetime.datetime.now(datetime.UTC)
            self._show_rest()

    async def _show_finding(self) -> None:
        """Show the headline: the comparison if there is one, otherwise the findings."""
        choices = self._choices
        windows = choices.windows or tuple(self._selected.all_counts if self._selected else ())
        question = choices.question
        selection = replace(self._selection, windows=windows, version=question.version, group=question.group)
        try:
            lines = await self._comparison() if choices.compares else ()
            lines = lines or (await self._queries.finding(selection, self._reader)).lines
        except HushmoteError as e:
            lines = (sentence(await self._page.live.error_message(e)),)
        if any(lines) and self._are_current(choices):
            self._show_lines(self._areas.finding, lines)

    async def _comparison(self) -> tuple[str, ...]:
        """Return the comparison in a sentence, or () if it has no headline."""
        assert self._selected is not None  # callers have set it
        question = files.question("change", self._choices, self._selected)
        with contextlib.suppress(HushmoteError):  # the panels show the error
            question = question.replace(ranges=self._choices.ranges, quantiles=())
            headline = await self._queries.comparison(question, self._reader)
            return (visible(headline),) if headline else ()
        return ()

    async def _show_main(self, choices: Choices) -> None:
        """Show the experiment's main answer, which is its shares, mean, texts or a pair's tables."""
        question, main, selected = self._question("estimate"), self._main, self._selected
        assert selected is not None  # callers have set it
        if isinstance(main, TextsOrPairPanel):
            answers = Answers()  # texts must be named first
            with contextlib.suppress(UnanswerableError):
                answers = await self._queries.answers(question, slow=True)
            picture = await self._picture_answer(question, answers)
            if self._are_current(choices):
                store = self._page.settings.store
                main.show(
                    self._effective,
                    answers,
                    picture,
                    files.command_line("estimate", self._effective, selected, store),
                )
            return
        readings = await self._tables(question, "moments")
        if isinstance(main, MeanPanel):
            if self._are_current(choices):
                main.show(readings[0], self._when())
            return
        histogram = await self._tables(question.replace(rows=question.rows or FINE), "histogram")
        share = await self._share(question)
        quantiles = await self._tables(question, "quantiles")
        if self._are_current(choices):
            of_number = Answers([*readings, *quantiles] if quantiles else ())
            main.show(self._effective, self._when(), histogram[0], share, of_number)

    async def _picture_answer(self, question: Question, answers: Answers) -> Answer | None:
        """Return the answer for the picture of texts or a pair; for a pair, to the question in its file."""
        assert self._selected is not None
        pair_question = with_pair(question, self._selected)
        if pair_question == question:
            return answers[0] if answers else None
        with contextlib.suppress(UsageError, EstimateError, UnitsError):
            answers = await self._queries.answers(pair_question, slow=True)
        return answers[0]

    async def _share(self, question: Question) -> Answer | None:
        """Return the share of the selected range, or None if nothing is selected."""
        return (await self._tables(question, "ranges"))[0] if question.ranges else None

    async def _tables(self, question: Question, kind: Kind) -> Answers:
        """Return one kind of table; asking for it separately keeps the others cached while a reader drags."""
        irrelevant: dict[str, Any] = {} if kind == "ranges" else {"ranges": (), "together": False}
        irrelevant |= {} if kind == "quantiles" else {"quantiles": ()}
        irrelevant |= {} if kind == "histogram" else {"rows": None}
        irrelevant |= {} if kind in ("histogram", "ranges") else {"post": "raw"}
        return await self._queries.answers(question.replace(**irrelevant), kind)

    async def _show_share(self, panel: SharesPanel) -> None:
        choices, selected = self._choices, self._selected
        assert selected is not None
        with contextlib.suppress(HushmoteError):  # the next picture shows the error
            effective = await self._queries.with_defaults(choices, selected)
            if self._are_current(choices):
                self._effective = effective
                share = await self._share(self._question("estimate"))
                if self._are_current(choices):
                    panel.show_share(effective, self._when(), share)

    def _show_rest(self) -> None:
        """Update the parts below the first picture in the background."""
        assert self._selected is not None
        main_rows = self._main.rows if isinstance(self._main, SharesPanel) else None
        rows = self._effective.question.rows or main_rows
        self._export.show(self._selected, self._effective.with_fields(rows=rows))
        self._show_parts(self._selected)
        self._is_outdated = True
        if self._catching_up is None:
            self._catching_up = background_tasks.create(self._catch_up(), name="catch up")

    async def _catch_up(self) -> None:
        try:
            with self._client:
                while self._is_outdated and not self._client.is_deleted:
                    self._is_outdated = False
                    if not isinstance(self._main, TextsOrPairPanel):
                        await self._show_time()
                        await self._show_change()
                    await self._show_private()
                    await asyncio.sleep(_PAUSE_S)
        finally:
            self._catching_up = None

    async def _slow_answers(self, question: Question, show_message: Callable[[str], None]) -> Answers | None:
        """Return the answers to a slow question, or None after an error or if the choices have changed.

        Args:
            question: The question.
            show_message: Called with the error message.
        """
        choices = self._choices
        try:
            answers = await self._queries.answers(question, slow=True)
        except HushmoteError as e:
            if text := await self._page.live.error_message(e):
                show_message(sentence(text))
            return None
        return answers if self._are_current(choices) else None

    async def _show_time(self) -> None:
        assert self._selected is not None
        question = self._question("trend")
        # Include the running window.
        question = question.replace(windows=question.windows or tuple(self._selected.all_counts))
        if answers := await self._slow_answers(question, self._time.show_message):
            self._time.show(self._effective, answers[-1] if question.quantiles else answers[0])

    async def _show_change(self) -> None:
        if not self._choices.compares:
            self._change.show_message("")
        elif answers := await self._slow_answers(self._question("change"), self._change.show_message):
            self._change.show(answers, self._effective)

    async def _show_private(self) -> None:
        try:
            assert self._selected is not None
            experiment = self._selected.newest.experiment
            facts, compared = self._selected.facts, list[Selection]()
            selection = self._question("estimate").resolve(facts).selection
            if self._choices.compares:
                sides = files.question("change", self._choices, self._selected).resolve(facts)
                compared = [side for side in (sides.selection, sides.against) if side]
            both = await self._queries.epsilons(selection, tuple(compared))
        except HushmoteError as e:
            lines, computed_at = [sentence(await self._page.live.error_message(e))], None
        else:
            lines = sentences.epsilons(experiment, both.once, both.every_day, self._reader)
            computed_at = both.at
        if any(lines) and not self._client.is_deleted:
            self._show_lines(self._private, lines)
            with self._private:
                set_age(tag("p", "").classes("faint"), f"Computed {{}}, {sentences.RECOMPUTED}.", computed_at)

    @staticmethod
    def _show_lines(place: ui.column, lines: Iterable[str]) -> None:
        place.clear()
        with place:
            for line in lines:
                ui.label(line)

    def _when(self) -> str:
        selected = self._selected
        assert selected is not None
        shown = selected.facts.selected(self._question("estimate").resolve(selected.facts).selection)
        counted = shown.answering.counts, selected.all_counts
        chosen, available = (tuple(selectable(tuple(each), selected.calendar)) for each in counted)
        period = words.period(chosen, available, self._reader)
        period += f" ({selected.calendar.day})" if selected.calendar.is_local else ""
        return ", ".join(filter(None, [period, shown.boards]))

    def _question(self, table: str) -> Question:
        assert self._selected is not None
        return files.question(table, self._effective, self._selected)


def _version_name(version: Version) -> str:
    """Return a version's name, which consists of its digest and its ε."""
    current = ", current" if version.current else ""
    return f"{version.experiment.digest.hex()}, ε = {nats(version.experiment.epsilon)}{current}"
