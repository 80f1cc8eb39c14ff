"""A tile in the first view, with an experiment's question, its answer and change, and its problems."""

import datetime
from collections.abc import Sequence
from urllib.parse import quote

from nicegui import ui

from ..server.answers.finding import Findings
from ..server.answers.headline import ARROWS, Headline, headline, spark
from ..server.answers.periods import completed_windows
from ..server.answers.report_rate import reports_a_day
from ..server.budgets.remaining import Remaining
from ..server.budgets.words import warning
from ..server.overview.fleets import ExperimentOverview
from ..server.words.numbers import counted
from .frame import heading, skeleton, tag
from .period import query_of
from .reader import Reader


class Tile:
    """An experiment's tile; its texts change in place, so that the reader's place and focus do not move."""

    def __init__(self, experiment: ExperimentOverview, reader: Reader) -> None:
        self._reader = reader
        self._problem_words = self._budget_words = ""
        self._windows: tuple[str, ...] = ()  # the windows on display
        self._address = f"/experiment/{quote(experiment.fleet)}/{quote(experiment.name)}"
        with ui.element("li").classes("tile"):
            with heading("", 3):
                self._title = ui.link("", self._address)
            self._name = tag("p", "").classes("faint")
            self._waiting = skeleton(2)
            with tag("p", "").classes("tile-answer") as self._answer:
                self._value = tag("strong", "").classes("tile-value")
                self._question = tag("span", "").classes("tile-of")
            with tag("p", "").classes("tile-change") as self._change:
                self._arrow = tag("span", "").props('aria-hidden="true"')
                self._change_text = tag("span", "")
                self._badge = tag("span", "").classes("tile-badge").props('role="note" tabindex="0"')
            self._dates = tag("p", "").classes("tile-dates faint")
            self._spark = ui.html("", sanitize=False).classes("spark")  # the SVG contains only numbers
            self._lines = ui.element("div").classes("tile-lines")
            self._a_day = tag("p", "").classes("tile-last")
            self._reports = tag("p", "").classes("faint")
            self._problems = tag("p", "").classes("warn").props('role="status"')
        self._show_headline(None)

    def show(self, experiment: ExperimentOverview) -> None:
        """Show an experiment's overview."""
        number, day = self._number, self._reader.day
        self._title.text = experiment.purpose or experiment.name
        owner = f", asked by {experiment.owner}" if experiment.owner else ""
        self._name.text = f"{experiment.name} of fleet {experiment.fleet}{owner}"
        reports = f"{counted(experiment.reports, write=self._reader)} in all"
        if experiment.today is not None:
            reports += f", {number(experiment.today)} today ({experiment.calendar.zone_name})"
        until = f"until {day(experiment.expires)}" if experiment.expires else "with no end date"
        ended = f"Ended on {experiment.expires and day(experiment.expires)}"
        withdrawn = "Withdrawn, so no device is asked any more"
        state = {"current": f"Asked {until}", "expired": ended}.get(experiment.state, withdrawn)
        self._reports.text = f"{reports}. {state}."
        self._problem_words = " ".join(experiment.problems(day).values())
        self._show_warnings()

    def link_to(self, period: str) -> None:
        """Make the title link to the experiment's view for the same period."""
        query = query_of(period)
        self._title.props["href"] = f"{self._address}?{query}" if query else self._address
        self._title.update()

    def show_findings(self, answer: Findings | str, *, series: bool = False) -> None:
        """Show the findings, or the reason why none are available.

        Args:
            answer: The findings, or the reason as a sentence.
            series: Whether the findings include their series; if not, the sparkline does not change.
        """
        self._waiting.set_visibility(False)
        if isinstance(answer, str):
            self._show_headline(None)
            self._show_lines([answer])
            self._a_day.text = ""
            self._spark.set_content("")
            return
        now = datetime.datetime.now(datetime.UTC)
        first = next((finding for finding in answer.findings if finding.enough), None)
        self._show_headline(headline(first, now, self._reader) if first else None)
        self._show_lines(answer.lines)
        if series or answer.windows != self._windows:
            self._spark.set_content(spark(first) if first and series else "")
        self._windows = answer.windows
        # The current day is incomplete, so it has no rate.
        ended = completed_windows(answer.windows, now)
        a_day = round(reports_a_day(answer.windows, answer.reports, now)) if ended else 0
        self._a_day.text = f"{counted(a_day, 'report', self._reader)} a day" if a_day else ""

    def _show_headline(self, parts: Headline | None) -> None:
        self._answer.set_visibility(parts is not None)
        self._change.set_visibility(parts is not None and bool(parts.change))
        self._badge.set_visibility(parts is not None and bool(parts.badge))
        self._dates.text = parts.dates if parts else ""
        if parts is None:
            return
        self._value.text, self._question.text = parts.value, parts.title
        self._arrow.text, self._change_text.text = ARROWS.get(parts.direction, ""), parts.change
        self._change.classes(parts.direction, remove="up down")
        self._badge.text = parts.badge
        details = parts.badge if parts.certainty == parts.badge else f"{parts.badge}: {parts.certainty}"
        self._badge.props["title"] = self._badge.props["aria-label"] = details
        self._badge.classes(parts.badge, remove="certain likely")
        self._badge.update()

    def _show_lines(self, lines: Sequence[str]) -> None:
        """Show the sentences; change existing labels in place."""
        labels = list(self._lines)
        for label, line in zip(labels, lines, strict=False):
            assert isinstance(label, ui.label)
            label.text = line
        for label in labels[len(lines) :]:
            self._lines.remove(label)
        with self._lines:
            for line in lines[len(labels) :]:
                tag("p", line)

    def show_budget(self, line: Remaining) -> None:
        """Mark a budget that is nearly used up, unless it was for a single report per device."""
        self._budget_words = warning(line, self._reader)
        self._show_warnings()

    def _show_warnings(self) -> None:
        self._problems.text = " ".join(filter(None, [self._problem_words, self._budget_words]))

    def _number(self, n: int) -> str:
        return self._reader.number(n, 0)
