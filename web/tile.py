"""A tile of the first view: an experiment's question, its answer and change, and its problems."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from nicegui import ui

from ..server.answers.finding import Finding, Findings, reports_a_day
from ..server.answers.periods import completed, start_of
from ..server.answers.rows import CONFIDENCE, Row
from ..server.budgets.remaining import Remaining
from ..server.budgets.words import warning
from ..server.overview.fleets import ExperimentOverview
from ..server.words import findings as words
from ..server.words.numbers import Numbers, counted, format_estimate
from .frame import heading, sentence, skeleton, tag
from .period import query_of
from .reader import Reader

_QUIET_DAYS = 2  # without a report, after which there may be a problem
_WIDTH, _HEIGHT = 100, 30  # size of a sparkline, in its own units
_ARROWS = {"up": "▲", "down": "▼"}


@dataclass(frozen=True)
class Headline:
    """The answer to an experiment's first question, in the parts of a tile.

    Attributes:
        value: As text: "24%", "21.3 °C", "at least 95%".
        of: The question's title: "24 °C and above".
        direction: "up", "down" or "".
        change: "Up from 15% before 13 Nov", "No change since 29 Oct", or "" if that is not known.
        badge: "certain" or "likely", or "" without a change.
        certainty: The same exactly: "about 1 in 40 by chance".
        dates: Of the value, with its interval: "21 to 27 Nov, 95% interval 17 to 30%".
    """

    value: str
    of: str
    direction: str
    change: str
    badge: str
    certainty: str
    dates: str


def headline(of: Finding, now: datetime.datetime, write: Numbers) -> Headline | None:
    """Return the parts of a finding, or None if there are too few reports."""
    if of.value is None or of.low is None or of.high is None:
        return None
    points = of.is_difference and of.quantity == "share"
    scale = 100 if points else 1
    row = Row(of.title, scale * of.value, scale * of.low, scale * of.high)
    unit = "points" if points else of.unit if of.quantity == "reading" else None
    value, interval = format_estimate(row.value, row.low, row.high, unit, write)
    interval = f"{write.percent(CONFIDENCE, 0)} interval {interval}" if interval else ""
    approximate = "approximate" if of.approximate else ""
    dates = ", ".join(filter(None, [words.dates(of.period, now, write), interval, approximate]))
    if of.change is None:
        since = "" if of.since is None else f"No change since {words.day(of.since, now, write)}"
        return Headline(value, of.title, "", since, "", "", dates)
    badge = "certain" if of.change.chance < words.CERTAIN else "likely"
    certainty = words.certainty(of.change.chance, write)
    return Headline(value, of.title, of.direction, of.change.text, badge, certainty, dates)


class Tile:
    """One experiment. Texts change in place, so that the page does not move under a reader's eye or focus."""

    def __init__(self, of: ExperimentOverview, reader: Reader) -> None:
        self._reader = reader
        self._marks: dict[str, str] = {}
        self._windows: tuple[str, ...] = ()  # the windows that are shown
        self._address = f"/experiment/{quote(of.fleet)}/{quote(of.name)}"
        with ui.element("li").classes("tile"):
            with heading("", 2):
                self._title = ui.link("", self._address)
            self._name = tag("p", "").classes("faint")
            self._waiting = skeleton(2)
            with tag("p", "").classes("tile-answer") as self._answer:
                self._value = tag("strong", "").classes("tile-value")
                self._of = tag("span", "").classes("tile-of")
            with tag("p", "").classes("tile-change") as self._change:
                self._arrow = tag("span", "").props('aria-hidden="true"')
                self._change_text = tag("span", "")
                self._badge = tag("span", "").classes("tile-badge").props('role="note" tabindex="0"')
            self._dates = tag("p", "").classes("tile-dates faint")
            self._spark = ui.html("", sanitize=False).classes("spark")  # it contains only numbers
            self._lines = ui.element("div").classes("tile-lines")
            self._a_day = tag("p", "").classes("tile-last")
            self._came = tag("p", "").classes("faint")
            self._wrong = tag("p", "").classes("warn").props('role="status"')
        self._show_headline(None)

    def show(self, of: ExperimentOverview, today: datetime.date) -> None:
        """Show an overview."""
        number, day = self._number, self._reader.day
        self._title.text = of.purpose or of.name
        owner = f", asked by {of.owner}" if of.owner else ""
        self._name.text = f"{of.name} of fleet {of.fleet}{owner}"
        came = f"{counted(of.reports, write=self._reader)} in all"
        came += f", {number(of.today)} today (UTC)" if of.today is not None else ""
        until = f"until {day(of.expires)}" if of.expires else "with no end"
        state = {"current": f"Asked {until}", "expired": f"Ended on {of.expires and day(of.expires)}"}
        self._came.text = f"{came}. {state.get(of.state, 'Withdrawn: no device is asked any more')}."
        newest = start_of(of.newest)
        quiet = of.state == "current" and newest and (today - newest.date()).days >= _QUIET_DAYS
        self.mark("quiet", f"No report has come since {day(newest.date())}." if quiet and newest else "")
        self.mark("implausible", sentence(of.implausible) if of.implausible else "")

    def link_to(self, period: str) -> None:
        """Make the title link to the experiment's view of the same period."""
        query = query_of(period)
        self._title.props["href"] = f"{self._address}?{query}" if query else self._address
        self._title.update()

    def find(self, answer: Findings | str, *, series: bool = False) -> None:
        """Show findings, or why there are none.

        Args:
            answer: The findings, or a sentence.
            series: Whether the findings have their series; otherwise the sparkline stays as it is.
        """
        self._waiting.set_visibility(False)
        if isinstance(answer, str):
            self._show_headline(None)
            self._show_lines([answer])
            self._a_day.text = ""
            self._spark.set_content("")
            return
        now = datetime.datetime.now(datetime.UTC)
        first = next((one for one in answer.findings if one.enough), None)
        self._show_headline(headline(first, now, self._reader) if first else None)
        self._show_lines(answer.lines)
        if series or answer.windows != self._windows:
            self._spark.set_content(spark(first) if first and series else "")
        self._windows = answer.windows
        # A day that has just begun has no rate.
        ended = completed(answer.windows, now)
        a_day = round(reports_a_day(answer.windows, answer.reports, now)) if ended else 0
        self._a_day.text = f"{self._number(a_day)} reports a day" if a_day else ""

    def _show_headline(self, of: Headline | None) -> None:
        self._answer.set_visibility(of is not None)
        self._change.set_visibility(of is not None and bool(of.change))
        self._badge.set_visibility(of is not None and bool(of.badge))
        self._dates.text = of.dates if of else ""
        if of is None:
            return
        self._value.text, self._of.text = of.value, of.of
        self._arrow.text, self._change_text.text = _ARROWS.get(of.direction, ""), of.change
        self._change.classes(of.direction, remove="up down")
        self._badge.text = of.badge
        exact = of.badge if of.certainty == of.badge else f"{of.badge}: {of.certainty}"
        self._badge.props["title"] = self._badge.props["aria-label"] = exact
        self._badge.classes(of.badge, remove="certain likely")
        self._badge.update()

    def _show_lines(self, lines: Sequence[str]) -> None:
        """Show the sentences; existing ones change in place."""
        there = list(self._lines)
        for place, line in zip(there, lines, strict=False):
            assert isinstance(place, ui.label)
            place.text = line
        for place in there[len(lines) :]:
            self._lines.remove(place)
        with self._lines:
            for line in lines[len(there) :]:
                tag("p", line)

    def spend(self, line: Remaining) -> None:
        """Mark a budget that is nearly used up, unless it was for a single report per device."""
        self.mark("budget", warning(line, self._reader))

    def mark(self, what: str, words: str) -> None:
        """Show a problem, or clear it if `words` is empty."""
        self._marks[what] = words
        self._wrong.text = " ".join(filter(None, self._marks.values()))

    @property
    def marked(self) -> bool:
        """Whether there is a problem; a used up budget is not one."""
        return any(words for what, words in self._marks.items() if what != "budget")

    @property
    def spent(self) -> bool:
        """Whether the budget is nearly used up."""
        return bool(self._marks.get("budget"))

    def _number(self, n: int) -> str:
        return self._reader.number(n, 0)


def spark(of: Finding) -> str:
    """Return a finding's series as SVG: a line in the band of its intervals.

    A single value, which may be that of the period, is a point on its interval.
    """
    rows: list[Row] = list(of.series)
    if not rows and of.value is not None and of.low is not None and of.high is not None:
        rows = [Row(of.title, of.value, of.low, of.high)]
    if not rows:
        return ""
    low, high = min(r.low for r in rows), max(r.high for r in rows)
    scale = (_HEIGHT - 4) / ((high - low) or 1)

    def point(at: int, value: float) -> str:
        x = _WIDTH * at / (len(rows) - 1) if len(rows) > 1 else _WIDTH / 2
        return f"{x:.2f},{_HEIGHT - 2 - (value - low) * scale:.2f}"

    def points(end: str, order: Sequence[tuple[int, Row]]) -> str:
        return " ".join(point(at, getattr(row, end)) for at, row in order)

    along = list(enumerate(rows))
    last = f'<path d="M{point(len(rows) - 1, rows[-1].value)}h0"/>'
    if len(rows) > 1:
        band = f"{points('high', along)} {points('low', along[::-1])}"
        shapes = f'<polygon points="{band}"/><polyline points="{points("value", along)}"/>{last}'
    else:
        shapes = f'<polyline points="{point(0, low)} {point(0, high)}"/>{last}'
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" aria-hidden="true">{shapes}</svg>'
    )
