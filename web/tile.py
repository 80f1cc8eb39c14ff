"""A tile of the first view: an experiment's question, what is known, how it went, and what is wrong."""

import datetime
from collections.abc import Sequence
from urllib.parse import quote

from nicegui import ui

from ..server.answers.finding import Finding, Findings, reports_a_day
from ..server.answers.periods import start_of
from ..server.answers.rows import WIDEST, TrendRow
from ..server.overview.fleets import ExperimentOverview
from ..server.words.numbers import counted
from .budget.answer import ExperimentSupply
from .frame import heading, sentence, skeleton, tag
from .period import query_of
from .reader import Reader

_QUIET_DAYS = 2  # without a report, after which something may be wrong
_NEARLY_SPENT = 0.1  # of the devices can still report
_SPENT = "spent: no device that has reported can report again"
_WIDTH, _HEIGHT = 100, 30  # of a spark line, in its own units


class Tile:
    """One experiment. Texts change in place, so that nothing jumps under a reader's eye or focus."""

    def __init__(self, of: ExperimentOverview, reader: Reader) -> None:
        self._reader = reader
        self._marks: dict[str, str] = {}
        self._windows: tuple[str, ...] = ()  # that are shown
        self._address = f"/experiment/{quote(of.fleet)}/{quote(of.name)}"
        with ui.element("li").classes("tile"):
            with heading("", 2):
                self._title = ui.link("", self._address)
            self._name = tag("p", "").classes("faint")
            self._waiting = skeleton(2)
            self._finding = tag("p", "").classes("tile-finding")
            self._spark = ui.html("", sanitize=False).classes("spark")  # it holds numbers alone
            self._a_day = tag("p", "").classes("tile-last")
            self._came = tag("p", "").classes("faint")
            self._wrong = tag("p", "").classes("warn").props('role="status"')

    def show(self, of: ExperimentOverview, today: datetime.date) -> None:
        """Show what the overview says."""
        number, day = self._number, self._reader.day
        self._title.text = of.purpose or of.name
        asked = f", asked by {of.owner}" if of.owner else ""
        self._name.text = f"{of.name} of fleet {of.fleet}{asked}"
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
        """Let the title lead to the experiment's view of the same period."""
        query = query_of(period)
        self._title.props["href"] = f"{self._address}?{query}" if query else self._address
        self._title.update()

    def find(self, known: Findings | str) -> None:
        """Show findings, or why there are none."""
        self._waiting.set_visibility(False)
        if isinstance(known, str):
            self._finding.text, self._a_day.text = known, ""
            self._spark.set_content("")
            return
        self._finding.text = known.sentence
        first = next((one for one in known.findings if one.series), None)
        if first or known.windows != self._windows:  # after a commit the line before stays until the new one
            self._spark.set_content(spark(first) if first else "")
        self._windows = known.windows
        a_day = round(reports_a_day(known.windows, known.reports, datetime.datetime.now(datetime.UTC)))
        self._a_day.text = f"{self._number(a_day)} reports a day" if a_day else ""

    def spend(self, supply: ExperimentSupply) -> None:
        """Mark a budget of which little is left; one report of each device is not little, but all."""
        able = supply.able_share
        nearly = able is not None and able < _NEARLY_SPENT
        left = (
            f"nearly spent: {self._reader.percent(able, 0)} of devices can still report" if able else _SPENT
        )
        self.mark("budget", f"The budget is {left}." if nearly else "")

    def mark(self, what: str, words: str) -> None:
        """Say that something is wrong, or with no words that it is not."""
        self._marks[what] = words
        self._wrong.text = " ".join(filter(None, self._marks.values()))

    @property
    def marked(self) -> bool:
        """Whether something is wrong; a budget that is spent is as it was meant to be."""
        return any(words for what, words in self._marks.items() if what != "budget")

    @property
    def spent(self) -> bool:
        """Whether little is left of the budget."""
        return bool(self._marks.get("budget"))

    def _number(self, n: int) -> str:
        return self._reader.number(n, 0)


def spark(of: Finding) -> str:
    """A finding's series as SVG, a line in the band of its intervals; empty where fewer than two tell."""
    rows = [r for r in of.series if of.quantity == "reading" or r.high - r.low <= WIDEST]
    if len(rows) < 2:
        return ""
    low, high = min(r.low for r in rows), max(r.high for r in rows)
    scale = (_HEIGHT - 4) / ((high - low) or 1)

    def point(at: int, value: float) -> str:
        return f"{_WIDTH * at / (len(rows) - 1):.2f},{_HEIGHT - 2 - (value - low) * scale:.2f}"

    def points(end: str, order: Sequence[tuple[int, TrendRow]]) -> str:
        return " ".join(point(at, getattr(row, end)) for at, row in order)

    along = list(enumerate(rows))
    band = f"{points('high', along)} {points('low', along[::-1])}"
    last = point(len(rows) - 1, rows[-1].value)
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" aria-hidden="true">'
        f'<polygon points="{band}"/><polyline points="{points("value", along)}"/><path d="M{last}h0"/></svg>'
    )
